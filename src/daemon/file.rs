//! The configuration out of a file and the environment.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use crate::config::{self, Config, Inputs, Secret, Setting};
use crate::error::{Error, Result};
use crate::source::files::parse_column_type;

/// No configuration is longer.
const MOST_BYTES: u64 = 4 << 20;

/// The configuration in the file `path`, with the environment and the values of `--set`.
///
/// To be called on the program's first thread: a nested document needs its stack.
pub fn load(path: &Path, sets: &[String]) -> Result<Config> {
    with_inputs(path, sets, Config::load)
}

/// Every setting of the configuration that counts, as [`load`] reads it.
pub fn settings(path: &Path, sets: &[String]) -> Result<Vec<Setting>> {
    with_inputs(path, sets, Config::settings)
}

fn with_inputs<T>(path: &Path, sets: &[String], read_all: impl FnOnce(&Inputs<'_>) -> Result<T>) -> Result<T> {
    let text = read(path)?;
    let env = environment()?;
    let read_file = |path: &Path| fs::read_to_string(path);
    read_all(&Inputs { path, text: &text, sets, env: &env, parse_type: &parse_column_type, read_file: &read_file })
}

/// What `text` comes to, which somebody gave as `what`: references to the environment and to files as in the configuration.
///
/// Config: one refers to nothing; no message has the text.
pub fn resolve(what: &str, text: &str) -> Result<Secret> {
    let read_file = |path: &Path| fs::read_to_string(path);
    let resolved = config::resolve(text, &environment()?, &read_file);
    resolved.map(Secret::new).map_err(|wrong| Error::config(format!("{what}: {}", wrong.join("; "))))
}

pub(super) fn read(path: &Path) -> Result<String> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Error::config(format!(
            "there is no configuration {shown}; write one, or name another with --config or CUTOVER_CONFIG"
        )),
        _ => Error::config(format!("the configuration {shown} cannot be read")).with_source(e),
    })?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(Error::config(format!("the configuration {shown} is longer than {MOST_BYTES} bytes; shorten it")));
    }
    String::from_utf8(bytes)
        .map_err(|e| Error::config(format!("the configuration {shown} is not UTF-8; save it as such")).with_source(e))
}

/// The environment. Variables that are not UTF-8 are left out, but for those that mean this program.
fn environment() -> Result<BTreeMap<String, String>> {
    let mut env = BTreeMap::new();
    for (name, value) in std::env::vars_os() {
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => {
                env.insert(name, value);
            }
            (Ok(name), Err(_)) if name.starts_with("CUTOVER__") => {
                return Err(Error::config(format!(
                    "the environment variable {name} is not UTF-8; correct or unset it"
                )));
            }
            _ => {}
        }
    }
    Ok(env)
}
