//! JSON text to exact values. Numbers are read from their digits, never through a float.
//!
//! Each function takes the text of one complete JSON value and answers with what the column wants, or why it cannot.

use std::borrow::Cow;

use base64::Engine as _;

/// Why a value does not fit; the column and the line are the caller's to add.
pub(crate) type Misfit = String;

/// What a JSON value looks like, without what it says.
pub(crate) fn kind_of(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ if is_plain_integer(json) => "an integer",
        _ => "a number with a fraction or an exponent",
    }
}

pub(crate) fn boolean(json: &str) -> Result<bool, Misfit> {
    match json {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("wants true or false, not {}", kind_of(json))),
    }
}

/// An integer written as digits alone, within the type's range.
pub(crate) fn integer<T: TryFrom<i64>>(json: &str, word: &str) -> Result<T, Misfit> {
    if !is_plain_integer(json) {
        return Err(format!("wants a {word} written as digits alone, not {}", kind_of(json)));
    }
    let fits = json.parse::<i64>().ok().and_then(|n| T::try_from(n).ok());
    fits.ok_or_else(|| format!("wants a {word}, and the integer is beyond its range"))
}

fn is_plain_integer(json: &str) -> bool {
    let digits = json.strip_prefix('-').unwrap_or(json);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

/// A number or a string with one, as a multiple of `10^-scale`.
pub(crate) fn decimal(json: &str, precision: u8, scale: i8) -> Result<i128, Misfit> {
    let wanted = format!("decimal({precision},{scale})");
    let number = match json.as_bytes().first() {
        Some(b'"') => string(json)?,
        Some(b'-' | b'0'..=b'9') => Cow::Borrowed(json),
        _ => return Err(format!("wants a {wanted}, not {}", kind_of(json))),
    };
    let parts = split_number(&number).ok_or_else(|| format!("wants a {wanted}, and the string holds no number"))?;
    let (negative, whole, fraction, exponent) = parts;
    let digits = [whole, fraction].concat();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Ok(0);
    }
    let significant = digits.trim_end_matches('0');
    let beyond = || format!("wants a {wanted}, and the number has more digits before the point");
    let exponent = exponent.ok_or_else(beyond)?;
    let trailing = (digits.len() - significant.len()) as i64;
    let shift = exponent - fraction.len() as i64 + trailing + i64::from(scale);
    if shift < 0 {
        return Err(format!("wants a {wanted}, and the number has more digits behind the point"));
    }
    if significant.len() as i64 + shift > i64::from(precision) {
        return Err(beyond());
    }
    let number = format!("{significant}{}", "0".repeat(usize::try_from(shift).unwrap_or(0)));
    let value: i128 = number.parse().map_err(|_| beyond())?;
    Ok(if negative { -value } else { value })
}

/// Sign, digits before and behind the point, and the exponent (`None` when it is absurd) of a JSON number.
fn split_number(text: &str) -> Option<(bool, &str, &str, Option<i64>)> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent),
        None => (text, "0"),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((_, "")) => return None,
        Some((whole, fraction)) => (whole, fraction),
        None => (mantissa, ""),
    };
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let unsigned = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    let leading_zero = whole.len() > 1 && whole.starts_with('0');
    if whole.is_empty()
        || leading_zero
        || unsigned.is_empty()
        || !digits(whole)
        || !digits(fraction)
        || !digits(unsigned)
    {
        return None;
    }
    let small = unsigned.trim_start_matches('0').len() <= 9;
    let exponent = if small { exponent.strip_prefix('+').unwrap_or(exponent).parse().ok() } else { None };
    Some((negative, whole, fraction, exponent))
}

/// The nearest double to a number; NaN and the infinities as strings.
pub(crate) fn double(json: &str) -> Result<f64, Misfit> {
    match float_word(json, "double")? {
        Some(word) => Ok(word),
        None => {
            let value =
                json.parse().ok().filter(|v: &f64| v.is_finite()).ok_or_else(|| "is beyond a double".to_owned())?;
            exact(json, value, "double")?;
            Ok(value)
        }
    }
}

/// The nearest float to a number, rounded once; NaN and the infinities as strings.
pub(crate) fn float(json: &str) -> Result<f32, Misfit> {
    match float_word(json, "float")? {
        Some(word) => Ok(word as f32),
        None => {
            let value =
                json.parse().ok().filter(|v: &f32| v.is_finite()).ok_or_else(|| "is beyond a float".to_owned())?;
            exact(json, f64::from(value), "float")?;
            Ok(value)
        }
    }
}

/// Refuses what rounding would change beyond the last digit of a fraction: a whole number that is another one then, and
/// a number that is zero then.
fn exact(json: &str, value: f64, word: &str) -> Result<(), Misfit> {
    let is_whole = !json.contains(['.', 'e', 'E']);
    if is_whole
        && json.trim_start_matches('-').trim_start_matches('0') != format!("{:.0}", value.abs()).trim_start_matches('0')
    {
        return Err(format!("wants a {word}, and the integer has more digits than one can hold"));
    }
    let digits = json.split(['e', 'E']).next().unwrap_or_default();
    if value == 0.0 && digits.contains(|digit: char| ('1'..='9').contains(&digit)) {
        return Err(format!("is nearer to zero than any {word}"));
    }
    Ok(())
}

fn float_word(json: &str, word: &str) -> Result<Option<f64>, Misfit> {
    match json {
        "\"NaN\"" => Ok(Some(f64::NAN)),
        "\"Infinity\"" => Ok(Some(f64::INFINITY)),
        "\"-Infinity\"" => Ok(Some(f64::NEG_INFINITY)),
        _ if json.starts_with(['-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) => Ok(None),
        _ => Err(format!("wants a {word}, or \"NaN\", \"Infinity\" or \"-Infinity\", not {}", kind_of(json))),
    }
}

pub(crate) fn string(json: &str) -> Result<Cow<'_, str>, Misfit> {
    if !json.starts_with('"') {
        return Err(format!("wants a string, not {}", kind_of(json)));
    }
    if let Some(plain) = json.get(1..json.len() - 1)
        && !plain.contains('\\')
    {
        return Ok(Cow::Borrowed(plain));
    }
    serde_json::from_str::<String>(json)
        .map(Cow::Owned)
        .map_err(|_| "wants a string, and an escape in it is no character (a lone surrogate?)".to_owned())
}

pub(crate) fn binary(json: &str) -> Result<Vec<u8>, Misfit> {
    let text = string(json).map_err(|_| format!("wants a base64 string, not {}", kind_of(json)))?;
    base64::engine::general_purpose::STANDARD
        .decode(text.as_bytes())
        .map_err(|_| "wants base64 of the standard alphabet, padded".to_owned())
}

/// Days since 1970 of `YYYY-MM-DD`; years beyond 0 to 9999 have a sign.
pub(crate) fn date(json: &str) -> Result<i32, Misfit> {
    let wanted = || "wants a date as \"YYYY-MM-DD\"";
    let text = string(json).map_err(|_| format!("{}, not {}", wanted(), kind_of(json)))?;
    days(&text).ok_or_else(|| wanted().to_owned())
}

/// Microseconds since 1970 UTC of an RFC 3339 time, whose zone must be there.
pub(crate) fn timestamp(json: &str) -> Result<i64, Misfit> {
    let wanted = "wants a time with its zone, as \"2026-01-31T12:00:00.123456Z\"";
    let text = string(json).map_err(|_| format!("{wanted}, not {}", kind_of(json)))?;
    let (local, zone) = match text.strip_suffix(['Z', 'z']) {
        Some(local) => (local, 0),
        None => {
            let at = text.len().checked_sub(6).filter(|at| *at >= 19).ok_or_else(|| wanted.to_owned())?;
            let (local, zone) = text.split_at_checked(at).ok_or_else(|| wanted.to_owned())?;
            (local, zone_seconds(zone).ok_or_else(|| wanted.to_owned())?)
        }
    };
    let micros = micros(local)?.ok_or_else(|| wanted.to_owned())?;
    micros.checked_sub(zone * 1_000_000).ok_or_else(|| "is a time beyond 64 bits of microseconds".to_owned())
}

/// Microseconds since 1970 of a time without zone.
pub(crate) fn timestamp_ntz(json: &str) -> Result<i64, Misfit> {
    let wanted = "wants a time without zone, as \"2026-01-31T12:00:00.123456\"";
    let text = string(json).map_err(|_| format!("{wanted}, not {}", kind_of(json)))?;
    micros(&text)?.ok_or_else(|| wanted.to_owned())
}

fn days(text: &str) -> Option<i32> {
    let (days, rest) = split_date(text)?;
    if rest.is_empty() { i32::try_from(days).ok() } else { None }
}

/// Days since 1970 of the date with which `text` begins, and what follows it. A year has four digits, or a sign and
/// four to seven.
fn split_date(text: &str) -> Option<(i64, &str)> {
    let signed = text.strip_prefix(['-', '+']);
    let rest = signed.unwrap_or(text);
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if digits != 4 && !(signed.is_some() && (5..=7).contains(&digits)) {
        return None;
    }
    let (year, rest) = rest.split_at_checked(digits)?;
    let (month_and_day, rest) = rest.split_at_checked(6)?;
    let [b'-', m1, m2, b'-', d1, d2] = month_and_day.as_bytes() else { return None };
    let year: i64 = year.parse().ok()?;
    let year = if text.starts_with('-') { -year } else { year };
    let (month, day) = (two(*m1, *m2)?, two(*d1, *d2)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    // Counted in years that begin in March, so that the leap day is a year's last.
    let (year, month) = if month > 2 { (year, i64::from(month) - 3) } else { (year - 1, i64::from(month) + 9) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5 + i64::from(day) - 1;
    Some((era * 146_097 + year * 365 + year / 4 - year / 100 + day_of_year - 719_468, rest))
}

fn two(tens: u8, ones: u8) -> Option<u32> {
    let digit = |b: u8| b.is_ascii_digit().then(|| u32::from(b - b'0'));
    Some(digit(tens)? * 10 + digit(ones)?)
}

/// A date, `THH:MM:SS[.fraction]`, or a space for the `T`; an error when the fraction is finer than a microsecond.
fn micros(text: &str) -> Result<Option<i64>, Misfit> {
    let Some((days, rest)) = split_date(text) else { return Ok(None) };
    let Some((clock, fraction)) = rest.split_at_checked(9) else { return Ok(None) };
    let [b'T' | b't' | b' ', h1, h2, b':', m1, m2, b':', s1, s2] = clock.as_bytes() else { return Ok(None) };
    let (Some(hours), Some(minutes), Some(seconds)) = (two(*h1, *h2), two(*m1, *m2), two(*s1, *s2)) else {
        return Ok(None);
    };
    if hours > 23 || minutes > 59 || seconds > 59 {
        return Ok(None);
    }
    let fraction = match fraction.strip_prefix('.') {
        None if fraction.is_empty() => "0",
        Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => digits,
        _ => return Ok(None),
    };
    let significant = fraction.trim_end_matches('0');
    if significant.len() > 6 {
        return Err("is a time finer than a microsecond".to_owned());
    }
    let fraction: i64 = format!("{significant:0<6}").parse().map_err(|_| "is no time".to_owned())?;
    let seconds = days * 86_400 + i64::from(hours * 3600 + minutes * 60 + seconds);
    let micros = i128::from(seconds) * 1_000_000 + i128::from(fraction);
    i64::try_from(micros).map(Some).map_err(|_| "is a time beyond 64 bits of microseconds".to_owned())
}

fn zone_seconds(text: &str) -> Option<i64> {
    let [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] = text.as_bytes() else { return None };
    let (hours, minutes) = (two(*h1, *h2)?, two(*m1, *m2)?);
    let seconds = i64::from(hours * 3600 + minutes * 60);
    (hours <= 23 && minutes <= 59).then_some(if *sign == b'-' { -seconds } else { seconds })
}

#[cfg(test)]
#[path = "value_tests.rs"]
mod tests;
