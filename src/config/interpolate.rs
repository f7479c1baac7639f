//! `${env:NAME}`, `${env:NAME:-default}` and `${file:PATH}` in strings.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

const FORMS: &str =
    "write ${env:NAME}, ${env:NAME:-default} or ${file:PATH}, or $${ for a \"${\" that is meant as it stands";

/// What references in strings can refer to.
#[derive(Clone, Copy)]
pub(super) struct Referents<'a> {
    /// The environment.
    pub(super) env: &'a BTreeMap<String, String>,
    /// Reads a file.
    pub(super) read_file: &'a dyn Fn(&Path) -> io::Result<String>,
}

impl Referents<'_> {
    /// `text` with every reference replaced, or all that is wrong. What replaces a reference is not looked at again.
    pub(super) fn resolve(&self, text: &str) -> Result<String, Vec<String>> {
        let mut out = String::with_capacity(text.len());
        let mut wrong = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            if let Some(escaped) = before.strip_suffix('$') {
                out.push_str(escaped);
                out.push_str("${");
                rest = after;
                continue;
            }
            out.push_str(before);
            let Some((reference, after)) = after.split_once('}') else {
                wrong.push(format!("a \"${{\" has no \"}}\" after it; {FORMS}"));
                return Err(wrong);
            };
            match self.value(reference) {
                Ok(value) => out.push_str(&value),
                Err(message) => wrong.push(message),
            }
            rest = after;
        }
        out.push_str(rest);
        if wrong.is_empty() { Ok(out) } else { Err(wrong) }
    }

    fn value(&self, reference: &str) -> Result<String, String> {
        if let Some(variable) = reference.strip_prefix("env:") {
            let (name, default) = match variable.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (variable, None),
            };
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(format!("{name:?} is no name of an environment variable; {FORMS}"));
            }
            // As in a shell, ":-" stands in for a variable that is empty as well.
            match (self.env.get(name).filter(|v| default.is_none() || !v.is_empty()), default) {
                (Some(value), _) => Ok(value.clone()),
                (None, Some(default)) => Ok(default.to_string()),
                (None, None) => Err(format!(
                    "the environment variable {name} is not set; set it, or write ${{env:{name}:-default}}"
                )),
            }
        } else if let Some(path) = reference.strip_prefix("file:") {
            let mut content = (self.read_file)(Path::new(path))
                .map_err(|e| format!("the file {path:?} cannot be read: {}", e.kind()))?;
            // Editors and secret stores end a file with a newline that is not part of the value.
            if content.ends_with('\n') {
                content.pop();
                if content.ends_with('\r') {
                    content.pop();
                }
            }
            Ok(content)
        } else {
            let word = reference.split(':').next().unwrap_or(reference);
            Err(format!("the reference {:?} is not known; {FORMS}", format!("${{{word}}}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let env = [("A", "1"), ("EMPTY", ""), ("NESTED", "${env:A}")];
        let env = env.into_iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let read_file = |path: &Path| match path.to_str() {
            Some("secret") => Ok("s3cr3t\r\n".to_string()),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        let found = Referents { env: &env, read_file: &read_file }.resolve(text);
        match expected {
            Ok(value) => assert_eq!(found, Ok(value.to_string()), "{text}"),
            Err(part) => {
                let wrong = found.unwrap_err().join("\n");
                assert!(wrong.contains(part), "{text}: {wrong}");
            }
        }
    }

    #[test]
    fn references_are_replaced_once() {
        check("", Ok(""));
        check("a $ } $x {", Ok("a $ } $x {"));
        check("x${env:A}y${env:A}", Ok("x1y1"));
        check("${env:NESTED}", Ok("${env:A}"));
        check("${env:EMPTY}", Ok(""));
        check("${env:EMPTY:-d}", Ok("d"));
        check("${env:B:-d:-e}", Ok("d:-e"));
        check("${env:B:-}", Ok(""));
        check("${file:secret}", Ok("s3cr3t"));
        check("$${env:A} ${env:A}", Ok("${env:A} 1"));
    }

    #[test]
    fn a_reference_to_nothing_says_what_to_do() {
        check("${env:B}", Err("the environment variable B is not set; set it, or write ${env:B:-default}"));
        check("${env:}", Err("\"\" is no name of an environment variable"));
        check("${file:none}", Err("the file \"none\" cannot be read: entity not found"));
        check("${A}", Err("the reference \"${A}\" is not known; write ${env:NAME}"));
        check("${env:A", Err("a \"${\" has no \"}\" after it"));
        check("${env:B} ${env:C}", Err("variable C is not set"));
    }
}
