//! `cutover explain`: what a code means, why it is met, and what to do.

use serde::Serialize;

use super::args::Output;
use super::{Session, text};
use crate::config::{did_you_mean, nearest};
use crate::error::{Error, Result};
use crate::explain::{Page, find, pages};

/// How wide lines are.
const WIDTH: usize = 100;

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A code is what stands as kind, code, cause, error_code or rule in messages and documents, or an exit code.")]
pub(super) struct ExplainArgs {
    /// The code; absent: all of them, a line each
    #[arg(value_name = "CODE")]
    code: Option<String>,
}

impl ExplainArgs {
    /// The formats in which pages are printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json];
}

#[derive(Serialize)]
struct PageDocument {
    schema: &'static str,
    #[serde(flatten)]
    page: &'static Page,
}

#[derive(Serialize)]
struct PagesDocument {
    schema: &'static str,
    codes: Vec<&'static Page>,
}

/// Runs the command; the exit code.
pub(super) fn run(args: &ExplainArgs, session: &Session) -> Result<u8> {
    let is_json = session.global.output == Output::Json;
    match &args.code {
        Some(code) => {
            let page = meant(code)?;
            match is_json {
                true => text::print_json(&PageDocument { schema: "cutover.explain/1", page })?,
                false => text::print(&whole(page))?,
            }
        }
        None if is_json => text::print_json(&PagesDocument { schema: "cutover.codes/1", codes: pages().collect() })?,
        None => {
            let width = pages().map(|page| page.code.len()).max().unwrap_or(0);
            let lines: Vec<String> = pages().map(|page| format!("{:<width$}  {}", page.code, page.means)).collect();
            text::print(&lines.join("\n"))?;
        }
    }
    Ok(0)
}

/// The page that is meant by what somebody typed: as it is, as problems name their type, or in other letters.
fn meant(typed: &str) -> Result<&'static Page> {
    let bare = typed.trim().trim_start_matches("urn:cutover:").replace('-', "_");
    let spelled = [bare.clone(), bare.to_lowercase(), bare.to_uppercase()];
    spelled.iter().find_map(|code| find(code)).ok_or_else(|| {
        let codes = || pages().map(|page| page.code);
        Error::config(match nearest(&bare, codes()) {
            Some(near) => format!("no code is called {typed:?}; {}", did_you_mean(Some(near), "", codes())),
            None => format!("no code is called {typed:?}; cutover explain lists all of them"),
        })
    })
}

fn whole(page: &Page) -> String {
    let parts = [("means", page.means), ("why", page.why), ("do", page.remedy), ("shows", page.shows)];
    let parts = parts.iter().map(|(what, said)| text::wrapped(&format!("  {what:<5} "), said, WIDTH));
    [page.code.to_owned()].into_iter().chain(parts).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_found_however_it_is_written_and_an_unknown_one_suggests() {
        for (typed, code) in [
            ("gap", "gap"),
            ("GAP", "gap"),
            ("r5", "R5"),
            ("continuity-lost", "continuity_lost"),
            ("urn:cutover:step_gone", "step_gone"),
            (" 75", "75"),
        ] {
            assert_eq!(meant(typed).unwrap().code, code, "{typed}");
        }
        for (typed, said) in
            [("gpa", "did you mean \"gap\"?"), ("contniuity_lost", "did you mean"), ("zzzzzzzzzz", "lists all")]
        {
            let refused = meant(typed).unwrap_err();
            assert!(refused.message().contains(said), "{refused}");
        }
    }

    #[test]
    fn a_page_is_no_wider_than_its_lines() {
        for page in pages() {
            let text = whole(page);
            assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert!(words(&text).ends_with(&words(page.shows)), "{text}");
        }
    }
}
