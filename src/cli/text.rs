//! Text that goes out: escaped, grouped, and written without a panic.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, Result};

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

/// 1234567 as 1,234,567.
pub(super) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of bytes in the largest unit that leaves something before the point.
pub(super) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64;
    let mut unit = "B";
    for larger in UNITS {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    format!("{value:.1} {unit}")
}

/// A length of time in its two largest units.
pub(super) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let mut out = String::new();
    let parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds % 60, "s")];
    for (n, unit) in parts.into_iter().skip_while(|(n, unit)| *n == 0 && *unit != "s").take(2) {
        let space = if out.is_empty() { "" } else { " " };
        // Writing to a string does not fail.
        let _ = write!(out, "{space}{n} {unit}");
    }
    out
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

    #[test]
    fn numbers_are_readable() {
        for (n, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(n), expected);
        }
        for (n, expected) in [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB")] {
            assert_eq!(bytes(n), expected);
        }
        for (seconds, expected) in
            [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7200, "2 h 0 min"), (90_000, "1 d 1 h")]
        {
            assert_eq!(duration(Duration::from_secs(seconds)), expected);
        }
    }
}
