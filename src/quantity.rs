//! Numbers, sizes and times as people read them.

use std::fmt::Write as _;
use std::time::Duration;

/// 1234567 as 1,234,567.
pub(crate) fn grouped(n: u64) -> String {
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
pub(crate) fn bytes(n: u64) -> String {
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
pub(crate) fn duration(time: Duration) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

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
