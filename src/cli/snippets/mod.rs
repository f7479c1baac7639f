//! `cutover snippets`: code that reads a table with other engines: its state, its cutover, and whether it is continuous.

use clap::ValueEnum;
use serde::Serialize;

use super::args::Output;
use super::table::StorageArgs;
use super::{Session, text};
use crate::continuity::stamp::{Layout, TableStamp};
use crate::error::Result;
use crate::inspect;
use crate::log::{Access, Log, Service};

/// Begins a line that says for whom the lines below it are.
const FOR: &str = "#: ";
/// What the engines without a view of the log share.
const HISTORY: &str = include_str!("history.py");
const CHECK: &str = include_str!("check.py");
/// Where a table would be of which nothing was said.
const PLACEHOLDER: &str = "lake/orders";

/// Arguments of `snippets`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The code is Python and runs as it is printed. Where the table can be read, its layout and its key are the table's; otherwise
they are placeholders.")]
pub(super) struct SnippetsArgs {
    /// The engine
    #[arg(value_enum)]
    engine: Engine,
    /// The table; absent: a place of that kind
    #[arg(value_name = "URI")]
    uri: Option<String>,
    #[command(flatten)]
    storage: StorageArgs,
}

/// What reads the table.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Engine {
    /// DuckDB, with its extension for Delta.
    Duckdb,
    /// Polars, with polars-deltalake.
    Polars,
    /// Pandas, with deltalake.
    Pandas,
    /// Spark, with Delta Lake.
    Spark,
}

impl SnippetsArgs {
    /// The formats in which code is printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json];
}

/// What is known of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    /// Nothing.
    Nothing,
    /// A changelog with this key.
    Keyed(Vec<String>),
    /// A changelog without key.
    Keyless,
    /// The table is the view.
    Current,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    language: &'static str,
    code: &'a str,
}

/// Runs the command; the exit code.
pub(super) fn run(args: &SnippetsArgs, session: &Session) -> Result<u8> {
    let (place, known) = match &args.uri {
        None => (PLACEHOLDER.to_owned(), Known::Nothing),
        Some(uri) => (plain(uri), asked(args, uri, session)?),
    };
    let code = code(args.engine, &place, &known)?;
    match session.global.output {
        Output::Json => {
            text::print_json(&Document { schema: "cutover.snippet/1", language: "python", code: &code })?;
        }
        Output::Text | Output::Ndjson | Output::Env => text::print(code.trim_end())?,
    }
    Ok(0)
}

/// What the table says of itself, where it can be read.
fn asked(args: &SnippetsArgs, uri: &str, session: &Session) -> Result<Known> {
    let location = args.storage.location(uri, Access::Read)?;
    let shown = session.block_on(async |world| inspect::show(&Log::new(location, world), None).await);
    Ok(match shown {
        Ok(shown) => known(shown.table),
        Err(e) => {
            session.talk.line(&format!("the table was not read, so layout and key are placeholders: {}", e.message()));
            Known::Nothing
        }
    })
}

fn known(table: TableStamp) -> Known {
    match table.layout {
        Layout::Current => Known::Current,
        Layout::Changelog if table.key.is_empty() => Known::Keyless,
        Layout::Changelog => Known::Keyed(table.key),
    }
}

/// A local table as a path, which all engines take.
fn plain(uri: &str) -> String {
    let local = url::Url::parse(uri).ok().filter(|url| url.scheme() == "file").and_then(|url| url.to_file_path().ok());
    let plain = local.map_or_else(|| uri.to_owned(), |path| path.display().to_string());
    match plain.trim_end_matches('/') {
        "" => plain,
        trimmed => trimmed.to_owned(),
    }
}

/// The engine's code for the table at `place`.
fn code(engine: Engine, place: &str, known: &Known) -> Result<String> {
    let template = match engine {
        Engine::Duckdb => include_str!("duckdb.py"),
        Engine::Polars => include_str!("polars.py"),
        Engine::Pandas => include_str!("pandas.py"),
        Engine::Spark => include_str!("spark.py"),
    };
    let mut wanted = vec!["any"];
    wanted.extend(match known {
        Known::Nothing => &["placeholder", "keyed"][..],
        Known::Keyed(_) => &["keyed"],
        Known::Keyless => &["keyless"],
        Known::Current => &["current"],
    });
    if Service::of(place).is_some() {
        wanted.push("store");
    }
    let key = if let Known::Keyed(key) = known { key.clone() } else { vec!["id".to_owned()] };
    let code = chosen(template, &wanted)
        .replace("@KEY_SQL@", &key.iter().map(|name| sql_name(name)).collect::<Vec<_>>().join(", "))
        .replace("@KEY@", &text::json(&key)?)
        .replace("@TABLE@", &text::json(&place)?);
    Ok(code)
}

/// The lines of the template that are for any of `wanted`, and what it shares with others.
fn chosen(template: &str, wanted: &[&str]) -> String {
    let (mut out, mut is_meant) = (String::new(), false);
    for line in template.lines() {
        match line.strip_prefix(FOR) {
            Some("history") => out.extend([HISTORY, CHECK]),
            Some("check") => out.push_str(CHECK),
            Some(whom) => is_meant = wanted.contains(&whom),
            None if is_meant => out.extend([line, "\n"]),
            None => {}
        }
    }
    out
}

/// A name of a column as SQL has it, within a text of Python.
fn sql_name(name: &str) -> String {
    let quoted = format!("\"{}\"", name.replace('"', "\"\""));
    if name.contains(['"', '\\']) { quoted.replace('\\', "\\\\").replace('"', "\\\"") } else { quoted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::continuity::stamp::{COLUMN_GENERATION, COLUMN_OP, COLUMN_STEP};

    #[test]
    fn code_names_the_columns_of_the_contract_and_what_the_table_says() {
        for engine in [Engine::Duckdb, Engine::Polars, Engine::Pandas, Engine::Spark] {
            let keyed = code(engine, "s3://lake/t", &Known::Keyed(vec!["a".into(), "b\"c".into()])).unwrap();
            for part in [COLUMN_GENERATION, COLUMN_STEP, COLUMN_OP, "\"s3://lake/t\"", "rebuild:"] {
                assert!(keyed.contains(part), "{part} is not in\n{keyed}");
            }
            assert!(!keyed.contains('@') && !keyed.contains(FOR) && !keyed.contains("copies"), "{keyed}");
            let current = code(engine, "t", &Known::Current).unwrap();
            assert!(!current.contains(COLUMN_STEP), "{current}");
            assert!(code(engine, "t", &Known::Keyless).unwrap().contains("copies"));
            assert!(code(engine, "t", &Known::Nothing).unwrap().contains("In layout `current`"));
        }
    }

    #[test]
    fn names_and_places_are_what_they_were() {
        assert_eq!(sql_name("id"), "\"id\"");
        assert_eq!(sql_name("a\"b\\"), "\\\"a\\\"\\\"b\\\\\\\"");
        for (uri, place) in [("file:///a%20b/", "/a b"), ("lake/", "lake"), ("/", "/"), ("s3://b/t", "s3://b/t")] {
            assert_eq!(plain(uri), place, "{uri}");
        }
    }
}
