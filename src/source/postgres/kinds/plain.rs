//! Numbers, truth values, bytes and texts.

use std::fmt::Write as _;
use std::str::FromStr;

use super::Misfit;

/// A value of exactly `N` bytes.
pub(super) fn fixed<const N: usize>(value: &[u8], what: &str) -> Result<[u8; N], Misfit> {
    value.try_into().map_err(|_| Misfit::malformed(what))
}

pub(super) fn utf8(value: &[u8]) -> Result<&str, Misfit> {
    std::str::from_utf8(value)
        .map_err(|_| Misfit("has a text that is not UTF-8; convert the database to the encoding UTF8".into()))
}

/// A number from its digits; floats as Rust reads them, which is what PostgreSQL's shortest digits mean.
pub(super) fn parsed<T: FromStr>(text: &str, what: &str) -> Result<T, Misfit> {
    text.parse().map_err(|_| Misfit::malformed(what))
}

pub(super) fn boolean(text: &str) -> Result<bool, Misfit> {
    match text {
        "t" => Ok(true),
        "f" => Ok(false),
        _ => Err(Misfit::malformed("boolean")),
    }
}

/// Bytes from their text, hexadecimal or of the older form with escapes.
pub(super) fn bytes(text: &str) -> Result<Vec<u8>, Misfit> {
    let malformed = || Misfit::malformed("bytea");
    if let Some(digits) = text.strip_prefix("\\x") {
        let pairs = digits.as_bytes().chunks(2);
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some((hex(*high)? << 4) | hex(*low)?),
            _ => None,
        };
        return pairs.map(|pair| byte(pair).ok_or_else(malformed)).collect();
    }
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = match (first, after) {
            (b'\\', [b'\\', after @ ..]) => {
                out.push(b'\\');
                after
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                out.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
                after
            }
            (b'\\', _) => return Err(malformed()),
            (byte, after) => {
                out.push(*byte);
                after
            }
        };
    }
    Ok(out)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

pub(super) fn uuid(value: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (i, byte) in value.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The text behind the number of the format, which is 1.
pub(super) fn jsonb(value: &[u8]) -> Result<&str, Misfit> {
    match value.split_first() {
        Some((1, text)) => utf8(text),
        _ => Err(Misfit::malformed("jsonb")),
    }
}
