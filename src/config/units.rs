//! Durations and sizes as people write them.

use std::time::Duration;

const DURATION_FORM: &str = "write a whole number and one of ms, s, m, h, d, such as \"10s\"";
const SIZE_FORM: &str =
    "write a whole number of bytes, or one with B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, such as \"128MiB\"";
const LONGEST_DAYS: u64 = 10_000;

/// A duration above zero; it stays far below what adding to a clock could overflow.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text).ok_or(DURATION_FORM)?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(DURATION_FORM.to_string()),
    };
    match number.checked_mul(millis) {
        Some(0) => Err("a duration is above zero".to_string()),
        Some(total) if total <= LONGEST_DAYS * 86_400_000 => Ok(Duration::from_millis(total)),
        _ => Err(format!("a duration is at most {LONGEST_DAYS}d")),
    }
}

/// A size in bytes above zero.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text).ok_or(SIZE_FORM)?;
    let bytes: u64 = match unit {
        "" | "B" => 1,
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(SIZE_FORM.to_string()),
    };
    number.checked_mul(bytes).map_or_else(|| size_in_range(i128::MAX), |total| size_in_range(total.into()))
}

/// A number of bytes above zero, small enough for signed numbers of 64 bits.
pub(super) fn size_in_range(bytes: i128) -> Result<u64, String> {
    match i64::try_from(bytes) {
        Ok(n) if n > 0 => Ok(n.unsigned_abs()),
        _ if bytes <= 0 => Err("a size is above zero".to_string()),
        _ => Err("a size is below 8388608TiB".to_string()),
    }
}

/// The leading digits as a number, and what follows them.
fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at_checked(end)?;
    Some((digits.parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_one_unit() {
        let cases = [("250ms", 250), ("10s", 10_000), ("5m", 300_000), ("1h", 3_600_000), ("1d", 86_400_000)];
        for (text, millis) in cases {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in
            ["", "10", "s", "1.5s", "-1s", "10 s", "1S", "1h30m", "0s", "10001d", "18446744073709551615d", "1e3s"]
        {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_binary_or_decimal_units() {
        let cases = [
            ("1", 1),
            ("1B", 1),
            ("64KiB", 65_536),
            ("128MiB", 134_217_728),
            ("1GiB", 1_073_741_824),
            ("128MB", 128_000_000),
            ("2TB", 2_000_000_000_000),
        ];
        for (text, bytes) in cases {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "MiB", "1.5MiB", "-1", "128 MiB", "128mb", "0", "0MiB", "8388608TiB", "99999999999999999999"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
