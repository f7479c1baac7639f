//! Lines of a text that arrives in chunks.

use crate::error::{Error, Result};

/// How deep brackets may stand in each other.
const MAX_DEPTH: usize = 128;

/// Cuts chunks into lines, numbered from 1; blank ones are left out.
pub(super) struct Lines {
    longest: usize,
    number: u64,
    /// A line whose end has not arrived.
    begun: Vec<u8>,
}

impl Lines {
    /// Lines of at most `longest` bytes.
    pub(super) fn new(longest: usize) -> Self {
        Self { longest, number: 0, begun: Vec::new() }
    }

    /// The number of the line that is arriving.
    pub(super) fn number(&self) -> u64 {
        self.number + 1
    }

    /// Gives `each` the lines that end in `bytes`.
    pub(super) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(u64, &str) -> Result<()>) -> Result<()> {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, behind) = rest.split_at_checked(end).unwrap_or((rest, &[]));
            rest = behind.get(1..).unwrap_or_default();
            if self.begun.is_empty() {
                self.line(line, &mut each)?;
            } else {
                self.begin(line)?;
                let whole = std::mem::take(&mut self.begun);
                self.line(&whole, &mut each)?;
            }
        }
        self.begin(rest)
    }

    /// Gives `each` the last line, which need not end with a line break.
    pub(super) fn finish(&mut self, mut each: impl FnMut(u64, &str) -> Result<()>) -> Result<()> {
        let last = std::mem::take(&mut self.begun);
        self.line(&last, &mut each)
    }

    fn begin(&mut self, bytes: &[u8]) -> Result<()> {
        self.check_length(self.begun.len() + bytes.len())?;
        self.begun.extend_from_slice(bytes);
        Ok(())
    }

    fn check_length(&self, length: usize) -> Result<()> {
        if length <= self.longest {
            return Ok(());
        }
        Err(Error::refused(format!("line {}: is longer than {} bytes", self.number(), self.longest)))
    }

    fn line(&mut self, bytes: &[u8], each: &mut impl FnMut(u64, &str) -> Result<()>) -> Result<()> {
        self.check_length(bytes.len())?;
        self.number += 1;
        let number = self.number;
        let bytes = if number == 1 { bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes) } else { bytes };
        let text = std::str::from_utf8(bytes)
            .map_err(|e| Error::corrupt(format!("line {number}: is no UTF-8")).with_source(e))?
            .trim_ascii();
        if text.is_empty() {
            return Ok(());
        }
        if is_deeper(text, MAX_DEPTH) {
            return Err(Error::refused(format!("line {number}: is nested deeper than {MAX_DEPTH} levels; flatten it")));
        }
        each(number, text)
    }
}

/// Whether more than `levels` brackets of a JSON text are open at once.
fn is_deeper(text: &str, levels: usize) -> bool {
    if text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).take(levels + 1).count() <= levels {
        return false;
    }
    let (mut open, mut in_string, mut escaped) = (0usize, false, false);
    text.bytes().any(|byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => open += 1,
            b']' | b'}' if !in_string => open = open.saturating_sub(1),
            _ => {}
        }
        open > levels
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(chunks: &[&[u8]]) -> Result<Vec<(u64, String)>> {
        let (mut lines, mut found) = (Lines::new(8), Vec::new());
        for chunk in chunks {
            lines.push(chunk, |number, line| {
                found.push((number, line.to_owned()));
                Ok(())
            })?;
        }
        lines.finish(|number, line| {
            found.push((number, line.to_owned()));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn chunks_may_end_anywhere() {
        let text = "\u{feff}a\r\n\n  \nbé\n12345678\nlast".as_bytes();
        let expected: Vec<(u64, String)> =
            [(1, "a"), (4, "bé"), (5, "12345678"), (6, "last")].map(|(n, line)| (n, line.to_owned())).to_vec();
        assert_eq!(lines_of(&[text]).unwrap(), expected);
        for cut in 0..=text.len() {
            assert_eq!(lines_of(&[&text[..cut], &text[cut..]]).unwrap(), expected, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(lines_of(&bytes).unwrap(), expected);
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_is_kept() {
        let cases: [&[&[u8]]; 3] = [&[b"a\n123456789"], &[b"a\n1234", b"56789"], &[b"a\n1234", b"56789\n"]];
        for chunks in cases {
            assert!(lines_of(chunks).unwrap_err().message().starts_with("line 2: is longer than 8 bytes"));
        }
        assert!(lines_of(&[b"\xff"]).unwrap_err().message().starts_with("line 1: is no UTF-8"));
    }

    #[test]
    fn brackets_count_outside_of_strings() {
        for (text, levels, deeper) in [
            ("[[[]]]", 3, false),
            ("[[[]]]", 2, true),
            ("[],[],[]", 1, false),
            (r#"{"a":"[[[[","b":[]}"#, 2, false),
            (r#"{"a":"\"","b":[[]]}"#, 2, true),
            (r#"{"a":"\\","b":[[]]}"#, 3, false),
        ] {
            assert_eq!(is_deeper(text, levels), deeper, "{text} {levels}");
        }
    }
}
