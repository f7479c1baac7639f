//! Text that goes out: escaped, grouped, and written without a panic.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::error::{Error, Result};
pub(super) use crate::quantity::{bytes, duration, grouped};

/// `text` without anything that steers a terminal: control characters, and those that turn or hide text, are escaped.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}

/// Like [`escaped`], line ends left as they are.
pub(super) fn escaped_lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(escaped).collect();
    lines.join("\n")
}

fn steers(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}');
    let hides = matches!(c, '\u{200b}'..='\u{200d}' | '\u{2028}' | '\u{2029}' | '\u{2060}' | '\u{feff}');
    c.is_control() || turns || hides
}

/// `text` as one word of a shell.
pub(super) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_string();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// `sentence` in lines no wider than `width` where words allow it, `lead` before the first and as much room before the others.
pub(super) fn wrapped(lead: &str, sentence: &str, width: usize) -> String {
    let room = " ".repeat(lead.chars().count());
    let (mut lines, mut line) = (Vec::new(), String::from(lead));
    let mut is_begun = false;
    for word in sentence.split(' ') {
        if is_begun && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, room.clone()));
            is_begun = false;
        }
        if is_begun {
            line.push(' ');
        }
        line.push_str(word);
        is_begun = true;
    }
    lines.push(line);
    lines.join("\n")
}

/// Prints a line of data; a reader that went away is no failure.
pub(super) fn print(line: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::internal("the output cannot be written").with_source(e))
        }
        _ => Ok(()),
    }
}

/// Prints one JSON document in one line.
pub(super) fn print_json(document: &impl Serialize) -> Result<()> {
    print(&json(document)?)
}

/// A document as JSON in one line.
pub(super) fn json(document: &impl Serialize) -> Result<String> {
    serde_json::to_string(document).map_err(|e| Error::internal("the output is no JSON").with_source(e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_broken_between_words_below_their_lead() {
        let long = "word ".repeat(40);
        let lines = wrapped("  seen  ", long.trim(), 96);
        assert!(lines.lines().all(|line| line.chars().count() <= 96), "{lines}");
        assert!(lines.lines().skip(1).all(|line| line.starts_with("        word")), "{lines}");
        assert_eq!(lines.split_whitespace().filter(|word| *word == "word").count(), 40);
        assert_eq!(wrapped("- ", "a b", 96), "- a b");
    }

    #[test]
    fn nothing_steers_a_terminal() {
        let cases = [
            ("plain ü", "plain ü"),
            ("a\u{1b}[31mb", "a\\u{1b}[31mb"),
            ("a\nb\tc\u{7f}\u{9b}", "a\\u{a}b\\u{9}c\\u{7f}\\u{9b}"),
            ("a\u{202e}b\u{200b}", "a\\u{202e}b\\u{200b}"),
        ];
        for (text, expected) in cases {
            assert_eq!(escaped(text), expected);
        }
        assert_eq!(escaped_lines("a\nb\r\n"), "a\nb\\u{d}\n");
    }

    #[test]
    fn words_of_a_shell_are_quoted_where_they_need_it() {
        for (text, expected) in
            [("a/b-c.toml", "a/b-c.toml"), ("a b", "'a b'"), ("", "''"), ("it's $x", "'it'\\''s $x'")]
        {
            assert_eq!(shell_word(text), expected);
        }
    }
}
