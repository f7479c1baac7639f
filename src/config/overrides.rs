//! What the environment and flags change in the tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::place::{Place, Problems, join, nearest, quoted_list};
use super::tree::{Entries, Key, Node, Value, parse_override};

const VARIABLE_PREFIX: &str = "CUTOVER__";
const DEEPEST: usize = 16;

/// Applies `CUTOVER__A__B=value` from the environment, then `--set a.b=value`: the later wins.
pub(super) fn apply(root: &mut Entries, env: &BTreeMap<String, String>, sets: &[String], problems: &Problems) {
    // In the map's order a table's variable comes before those of its keys.
    for (name, raw) in env {
        let Some(rest) = name.strip_prefix(VARIABLE_PREFIX) else { continue };
        let at = Place::Variable(Arc::from(name.as_str()));
        if let Err(message) = resolve(root, rest).and_then(|path| set(root, &path, parse_override(raw, &at), &at)) {
            problems.add(&at, "", &message);
        }
    }
    for argument in sets {
        let (path, raw) = match split_argument(argument) {
            Ok((path, raw)) => (path, raw),
            Err((shown, message)) => {
                problems.add(&Place::Flag(Arc::from(shown)), "", message);
                continue;
            }
        };
        let shown = path.iter().fold(String::new(), |shown, part| join(&shown, part));
        let at = Place::Flag(Arc::from(shown));
        if let Err(message) = set(root, &path, parse_override(raw, &at), &at) {
            problems.add(&at, "", &message);
        }
    }
}

/// The path and the value of `a."b.c".d=value`; an error holds as much of the argument as may be shown.
fn split_argument(argument: &str) -> Result<(Vec<String>, &str), (&str, &'static str)> {
    const FORM: &str = "not of the form a.b.c=value; a part of the path with dots in it is written in quotes";
    let mut path = Vec::new();
    let mut rest = argument;
    loop {
        let (part, after) = match rest.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                rest.strip_prefix(quote).and_then(|inside| inside.split_once(quote)).ok_or(("", FORM))?
            }
            _ => {
                let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
                let end = rest.find(|c| !bare(c)).unwrap_or(rest.len());
                rest.split_at_checked(end).filter(|(part, _)| !part.is_empty()).ok_or(("", FORM))?
            }
        };
        path.push(part.to_string());
        if let Some(raw) = after.strip_prefix('=') {
            return Ok((path, raw));
        }
        // What follows the path's characters may be the value, and a secret.
        let shown = argument.strip_suffix(after).unwrap_or("");
        rest = after.strip_prefix('.').ok_or((shown, FORM))?;
    }
}

/// The path that a variable's name means, the prefix taken off: keys and names as the file spells them, where it
/// has one that is equal up to case and punctuation; else the name in lower case.
fn resolve(root: &Entries, variable: &str) -> Result<Vec<String>, String> {
    let mut path: Vec<String> = Vec::new();
    let mut table = Some(root);
    let mut rest = Some(variable);
    while let Some(left) = rest {
        let folded = fold(left);
        let matches: Vec<_> = table
            .into_iter()
            .flatten()
            .filter_map(|(key, node)| {
                let tail = folded.strip_prefix(&fold(&key.name))?;
                (tail.is_empty() || tail.starts_with("__")).then_some((key, node, tail.len()))
            })
            .collect();
        let (part, next, tail) = match matches.as_slice() {
            [(key, node, tail)] => {
                let next = if let Value::Table(entries) = &node.value { Some(entries) } else { None };
                (key.name.clone(), next, *tail)
            }
            [] => {
                let end = left.find("__").unwrap_or(left.len());
                let part = left.get(..end).unwrap_or(left);
                if part.is_empty() {
                    return Err("has an empty part; parts are separated by two underscores".to_string());
                }
                if matches!(path.last().map(String::as_str), Some("properties" | "columns")) {
                    return Err(format!(
                        "nothing in the file matches {part:?}, and a variable's name cannot spell it exactly; use --set"
                    ));
                }
                (part.to_lowercase(), None, left.len() - end)
            }
            several => {
                let names = quoted_list(several.iter().map(|(key, ..)| key.name.as_str()));
                return Err(format!("means several keys of the file: {names}; use --set"));
            }
        };
        path.push(part);
        table = next;
        let tail = left.get(left.len() - tail..).unwrap_or("");
        rest = tail.strip_prefix("__");
    }
    Ok(path)
}

/// Lower case, and an underscore for whatever a variable's name cannot hold; keeps the length.
fn fold(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii() && !c.is_ascii_alphanumeric() { '_' } else { c.to_ascii_lowercase() })
        .collect()
}

/// Puts `node` at `path`, making the tables on the way.
fn set(root: &mut Entries, path: &[String], node: Node, at: &Place) -> Result<(), String> {
    if path.len() > DEEPEST {
        return Err(format!("has more than {DEEPEST} parts"));
    }
    let Some((last, parents)) = path.split_last() else { return Err("has an empty path".to_string()) };
    let mut table = root;
    let mut shown = String::new();
    for (depth, part) in parents.iter().enumerate() {
        check_name(table, path, depth)?;
        shown = join(&shown, part);
        let key = || Key { name: part.clone(), at: at.clone() };
        let index = table.iter().position(|(k, _)| k.name == *part).unwrap_or_else(|| {
            table.push((key(), Node { at: at.clone(), value: Value::Table(Vec::new()), raw: None }));
            table.len() - 1
        });
        let Some((_, node)) = table.get_mut(index) else { return Err("has no table".to_string()) };
        let kind = node.value.kind();
        let Value::Table(entries) = &mut node.value else { return Err(format!("{shown} is {kind}, not a table")) };
        table = entries;
    }
    check_name(table, path, parents.len())?;
    match table.iter_mut().find(|(k, _)| k.name == *last) {
        Some((_, old)) => *old = node,
        None => table.push((Key { name: last.clone(), at: at.clone() }, node)),
    }
    Ok(())
}

/// Overrides change what the file names: a pipeline, view or connector that only they name is a misspelled one.
fn check_name(table: &Entries, path: &[String], depth: usize) -> Result<(), String> {
    const SHAPE: [(&str, &str); 3] = [("pipelines", "pipeline"), ("views", "view"), ("connectors", "connector")];
    let Some((_, what)) = SHAPE.get(depth / 2).filter(|_| depth % 2 == 1) else { return Ok(()) };
    let named = path.iter().step_by(2).zip(SHAPE).take(depth / 2 + 1).all(|(part, (word, _))| part == word);
    let Some(name) = path.get(depth).filter(|name| named && !table.iter().any(|(k, _)| k.name == **name)) else {
        return Ok(());
    };
    let names = || table.iter().map(|(k, _)| k.name.as_str());
    Err(match nearest(name, names()) {
        Some(near) => format!("the file has no {what} {name:?}; did you mean {near:?}?"),
        None if table.is_empty() => format!("the file has no {what} {name:?}, nor any other"),
        None => format!("the file has no {what} {name:?}; it has {}", quoted_list(names())),
    })
}

#[cfg(test)]
#[path = "overrides_tests.rs"]
mod tests;
