//! `cutover init`: a configuration to begin with, which works as it is.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;

use super::args::Output;
use super::{Session, text};
use crate::error::{Error, Result};

const REST: &str = include_str!("rest.toml");
const ENVIRONMENT: &str = include_str!("environment");
const SNAPSHOT: &str = r#"{"id": 1, "item": "tea", "amount": 3.75}
{"id": 2, "item": "cocoa", "amount": 4.20}
"#;
const CHANGES: &str = r#"{"step": 2, "update": {"id": 1, "item": "tea", "amount": 3.95}}
{"step": 2, "delete": {"id": 2}}
"#;

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Writes cutover.toml, .env.example and .gitignore, and an example of a feed where files are the source. What it writes passes
`cutover check --offline`. Nothing is overwritten: exits with 5 where one of the files is there already.")]
pub(super) struct InitArgs {
    /// The directory, which is made where it is missing
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Where the rows come from
    #[arg(long, value_enum)]
    source: Source,
}

/// Where the rows of the view come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Source {
    /// Files that others land in a directory.
    Files,
    /// Changes that others push to the daemon.
    Push,
    /// A table of a PostgreSQL database.
    #[cfg(feature = "postgres")]
    Postgres,
}

impl InitArgs {
    /// The formats in which it is said what was written.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json];
}

impl Source {
    /// What is written, by the names of the files.
    fn files(self) -> Vec<(&'static str, String)> {
        let (config, environment) = match self {
            Self::Files => (include_str!("files.toml"), ""),
            Self::Push => (include_str!("push.toml"), ""),
            #[cfg(feature = "postgres")]
            Self::Postgres => (include_str!("postgres.toml"), include_str!("environment_postgres")),
        };
        let mut files = vec![
            ("cutover.toml", format!("{config}{REST}")),
            (".env.example", format!("{ENVIRONMENT}{environment}")),
            (".gitignore", include_str!("ignored").to_owned()),
        ];
        if self == Self::Files {
            files.push(("feed/orders/snapshot-1.ndjson", SNAPSHOT.to_owned()));
            files.push(("feed/orders/changes-1-2.ndjson", CHANGES.to_owned()));
        }
        files
    }

    /// What to do next.
    fn next(self) -> &'static [&'static str] {
        match self {
            Self::Files => &["cutover check", "cutover run --once", "cutover state lake/orders"],
            Self::Push => &[
                "cutover check",
                "cutover run &",
                r#"echo '{"insert": {"id": 1, "item": "tea", "amount": 3.75}}' | cutover push orders"#,
            ],
            #[cfg(feature = "postgres")]
            Self::Postgres => {
                &["cp .env.example .env # and fill it in", "set -a; . ./.env; set +a", "cutover check", "cutover run"]
            }
        }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    directory: &'a str,
    files: Vec<&'static str>,
    next: &'static [&'static str],
}

/// Runs the command; the exit code.
pub(super) fn run(args: &InitArgs, session: &Session) -> Result<u8> {
    let files = args.source.files();
    let names: Vec<&'static str> = files.iter().map(|(name, _)| *name).collect();
    write(&args.directory, &files)?;
    let (directory, next) = (args.directory.display().to_string(), args.source.next());
    if session.global.output == Output::Json {
        text::print_json(&Document { schema: "cutover.init/1", directory: &directory, files: names, next })?;
        return Ok(0);
    }
    let paths: Vec<String> =
        names.iter().map(|name| text::escaped(&args.directory.join(name).display().to_string())).collect();
    text::print(&paths.join("\n"))?;
    session.talk.line("next:");
    if args.directory != Path::new(".") {
        session.talk.line(&format!("  cd {}", text::shell_word(&directory)));
    }
    next.iter().for_each(|line| session.talk.line(&format!("  {line}")));
    Ok(0)
}

/// All of `files`, or none where one is there already.
fn write(directory: &Path, files: &[(&'static str, String)]) -> Result<()> {
    if let Some((name, _)) = files.iter().find(|(name, _)| fs::symlink_metadata(directory.join(name)).is_ok()) {
        return Err(is_there(&directory.join(name)));
    }
    for (name, text) in files {
        let path = directory.join(name);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
            let mut file = File::create_new(&path)?;
            file.write_all(text.as_bytes())
        });
        written.map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => is_there(&path),
            _ => Error::internal(format!("{} cannot be written", path.display())).with_source(e),
        })?;
    }
    Ok(())
}

fn is_there(path: &Path) -> Error {
    Error::refused(format!(
        "{} is there already, and nothing is overwritten; move it away, or name another directory: cutover init DIR",
        path.display()
    ))
}
