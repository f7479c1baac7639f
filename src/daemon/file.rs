//! The configuration out of a file and the environment.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::config::{Config, Inputs};
use crate::error::{Error, Result};
use crate::source::files::parse_column_type;

/// The configuration in the file `path`, with the environment and the values of `--set`.
///
/// To be called on the program's first thread: a nested document needs its stack.
pub fn load(path: &Path, sets: &[String]) -> Result<Config> {
    let text = read(path)?;
    let env = environment()?;
    let read_file = |path: &Path| fs::read_to_string(path);
    Config::load(&Inputs { path, text: &text, sets, env: &env, parse_type: &parse_column_type, read_file: &read_file })
}

fn read(path: &Path) -> Result<String> {
    let shown = path.display();
    let bytes = fs::read(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Error::config(format!(
            "there is no configuration {shown}; write one, or name another with --config or CUTOVER_CONFIG"
        )),
        _ => Error::config(format!("the configuration {shown} cannot be read")).with_source(e),
    })?;
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
