//! `date`, `timestamp` and `timestamptz`, in days and microseconds since 1970 of the proleptic Gregorian calendar.

use super::{Misfit, plain};

/// The days from 1970 to 2000, where PostgreSQL begins to count.
const EPOCH_DAYS: i32 = 10_957;
const MICROS_A_DAY: i64 = 86_400_000_000;

/// A date from its days since 2000.
pub(super) fn date(value: [u8; 4]) -> Result<i32, Misfit> {
    match i32::from_be_bytes(value) {
        i32::MAX => Err(infinite("infinity", "date")),
        i32::MIN => Err(infinite("-infinity", "date")),
        days => days.checked_add(EPOCH_DAYS).ok_or_else(|| Misfit::malformed("date")),
    }
}

/// A timestamp from its microseconds since 2000.
pub(super) fn timestamp(value: [u8; 8]) -> Result<i64, Misfit> {
    match i64::from_be_bytes(value) {
        i64::MAX => Err(infinite("infinity", "timestamp")),
        i64::MIN => Err(infinite("-infinity", "timestamp")),
        micros => micros.checked_add(i64::from(EPOCH_DAYS) * MICROS_A_DAY).ok_or_else(too_late),
    }
}

/// A date as the style ISO prints it: `2024-02-29`, `0044-03-15 BC`.
pub(super) fn date_text(text: &str) -> Result<i32, Misfit> {
    if let "infinity" | "-infinity" = text {
        return Err(infinite(text, "date"));
    }
    let malformed = || Misfit::malformed("date in the style ISO");
    let (text, is_before) = before_christ(text);
    let days = days(text, is_before).ok_or_else(malformed)?;
    i32::try_from(days).map_err(|_| malformed())
}

/// A timestamp as the style ISO prints it, with or without a zone: `2024-02-29 12:00:00.5+00 BC`.
pub(super) fn timestamp_text(text: &str) -> Result<i64, Misfit> {
    if let "infinity" | "-infinity" = text {
        return Err(infinite(text, "timestamp"));
    }
    let malformed = || Misfit::malformed("timestamp in the style ISO");
    let (text, is_before) = before_christ(text);
    let (date, time) = text.split_once(' ').ok_or_else(malformed)?;
    let days = days(date, is_before).ok_or_else(malformed)?;
    let (time, behind) = match time.find(['+', '-']).map(|at| time.split_at(at)) {
        Some((time, zone)) => (time, offset(zone).ok_or_else(malformed)?),
        None => (time, 0),
    };
    let micros = i128::from(days) * i128::from(MICROS_A_DAY) + i128::from(clock(time).ok_or_else(malformed)? - behind);
    i64::try_from(micros).map_err(|_| too_late())
}

fn infinite(value: &str, what: &str) -> Misfit {
    Misfit::beyond(value, &format!("a {what}"))
}

/// PostgreSQL's last 29 years do not fit into 64 bits of microseconds since 1970.
fn too_late() -> Misfit {
    Misfit::beyond("a time after the year 294246", "a timestamp")
}

fn before_christ(text: &str) -> (&str, bool) {
    match text.strip_suffix(" BC") {
        Some(text) => (text, true),
        None => (text, false),
    }
}

/// The days since 1970 of `YYYY-MM-DD`; the year before 1 is 1 BC.
fn days(text: &str, is_before: bool) -> Option<i64> {
    let mut parts = text.splitn(3, '-');
    let (year, month, day) = (number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    let year = if is_before { 1 - year } else { year };
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March, so that the day that comes and goes is their last; 400 of them always have the same days.
    let year = if month > 2 { year } else { year - 1 };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

/// The microseconds of `HH:MM:SS`, with up to six digits behind a point.
fn clock(text: &str) -> Option<i64> {
    let (text, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = text.splitn(3, ':');
    let (hours, minutes, seconds) = (number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    let places = u32::try_from(fraction.len()).ok().filter(|places| *places <= 6)?;
    let micros = number(fraction)? * 10i64.pow(6 - places);
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros)
}

/// The microseconds of a zone: `+02`, `-03:30`, `+00:19:32`.
fn offset(text: &str) -> Option<i64> {
    let (sign, text) = match text.split_at_checked(1)? {
        ("+", text) => (1, text),
        ("-", text) => (-1, text),
        _ => return None,
    };
    let mut seconds = 0;
    for (part, unit) in text.split(':').zip([3600, 60, 1]) {
        seconds += number(part)? * unit;
    }
    Some(sign * seconds * 1_000_000)
}

fn number(digits: &str) -> Option<i64> {
    let is_number = !digits.is_empty() && digits.len() <= 9 && digits.bytes().all(|digit| digit.is_ascii_digit());
    if is_number { plain::parsed(digits, "number").ok() } else { None }
}
