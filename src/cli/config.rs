//! `cutover config show`: what the configuration comes to, and where each value was said.

use std::path::Path;

use clap::Subcommand;
use serde::Serialize;
use serde_json::Value;

use super::args::Output;
use super::{Session, text};
use crate::config::{Origin, Setting, Shown, join, to_toml};
use crate::daemon;
use crate::error::Result;

/// Stands for a value that is shown to nobody.
const HIDDEN: &str = "(hidden)";

/// Arguments of `config`.
#[derive(Debug, clap::Args)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    look: Look,
}

#[derive(Debug, Subcommand)]
enum Look {
    /// Print every setting that counts, as TOML: what is said nowhere, and what connectors take from the defaults, too
    Show(ShowArgs),
}

/// Arguments of `config show`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
References such as ${env:NAME} are shown as they were written, and what may be a secret is \"(hidden)\". Exits with 78 when
the configuration has problems, which `cutover check` lists.")]
struct ShowArgs {
    /// Say behind each value where it comes from: a place in the file, a variable, a flag, or the default
    #[arg(long)]
    origin: bool,
    /// A value that wins over the file and the environment, as `run` takes it
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
}

impl ConfigArgs {
    /// The formats in which settings are printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json];
}

/// Runs the command; the exit code.
pub(super) fn run(args: &ConfigArgs, session: &Session) -> Result<u8> {
    let Look::Show(args) = &args.look;
    let path = &session.global.config;
    let settings = daemon::settings(path, &args.sets)?;
    match session.global.output {
        Output::Json => text::print_json(&document(path, &settings))?,
        Output::Text | Output::Ndjson | Output::Env => text::print(&toml(path, &settings, args.origin))?,
    }
    Ok(0)
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    settings: Vec<SettingDocument<'a>>,
}

#[derive(Serialize)]
struct SettingDocument<'a> {
    /// The key, as TOML has it.
    path: String,
    /// Null where it is hidden, and for a table that says something by standing there.
    value: Option<&'a Value>,
    is_hidden: bool,
    origin: OriginDocument<'a>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum OriginDocument<'a> {
    File { file: String, line: usize, column: usize },
    Variable { name: &'a str },
    Flag { set: &'a str },
    Default,
}

fn document<'a>(file: &Path, settings: &'a [Setting]) -> Document<'a> {
    let document = |setting: &'a Setting| SettingDocument {
        path: joined(&setting.path),
        value: match &setting.value {
            Shown::Value(value) => Some(value),
            Shown::Hidden | Shown::Table => None,
        },
        is_hidden: setting.value == Shown::Hidden,
        origin: match &setting.origin {
            Origin::File { line, column } => {
                OriginDocument::File { file: file.display().to_string(), line: *line, column: *column }
            }
            Origin::Variable(name) => OriginDocument::Variable { name },
            Origin::Flag(set) => OriginDocument::Flag { set },
            Origin::Default => OriginDocument::Default,
        },
    };
    Document { schema: "cutover.config/1", settings: settings.iter().map(document).collect() }
}

fn joined(path: &[String]) -> String {
    path.iter().fold(String::new(), |joined, part| join(&joined, part))
}

/// The settings, each table once, in the order in which they come.
fn toml(file: &Path, settings: &[Setting], with_origin: bool) -> String {
    let mut tables: Vec<(String, Vec<String>)> = vec![(String::new(), Vec::new())];
    for Setting { path, value, origin } in settings {
        let (table, line) = match (value, path.split_last()) {
            (Shown::Table, _) | (_, None) => (joined(path), None),
            (Shown::Value(value), Some((key, around))) => (joined(around), Some((key, to_toml(value)))),
            (Shown::Hidden, Some((key, around))) => (joined(around), Some((key, to_toml(&HIDDEN.into())))),
        };
        let line = line.map(|(key, value)| {
            let told = if with_origin { format!("  # {}", told(file, origin)) } else { String::new() };
            text::escaped(&format!("{} = {value}{told}", join("", key)))
        });
        match tables.iter_mut().find(|(of, _)| *of == table) {
            Some((_, lines)) => lines.extend(line),
            None => tables.push((table, line.into_iter().collect())),
        }
    }
    let whole = |(table, lines): &(String, Vec<String>)| match table.as_str() {
        "" => lines.join("\n"),
        table => [&[format!("[{table}]")], &lines[..]].concat().join("\n"),
    };
    tables.iter().map(whole).filter(|table| !table.is_empty()).collect::<Vec<_>>().join("\n\n")
}

fn told(file: &Path, origin: &Origin) -> String {
    match origin {
        Origin::File { line, column } => format!("{}:{line}:{column}", file.display()),
        Origin::Variable(name) => format!("environment variable {name}"),
        Origin::Flag(path) => format!("--set {path}"),
        Origin::Default => "default".to_owned(),
    }
}
