//! `numeric` as a decimal of a fixed number of digits.

use super::{Kind, Misfit, plain};

/// The digits in each group of the binary form.
const GROUP: i32 = 4;

/// What a decimal may hold.
#[derive(Clone, Copy)]
struct Room {
    precision: u8,
    scale: u8,
}

impl Room {
    fn of(kind: &Kind) -> Result<Self, Misfit> {
        match kind {
            Kind::Decimal(precision, scale) => {
                let scale = u8::try_from(*scale).map_err(|_| Misfit::malformed("numeric"))?;
                Ok(Self { precision: *precision, scale })
            }
            _ => Err(Misfit::malformed("numeric")),
        }
    }

    fn beyond(self, value: &str) -> Misfit {
        Misfit::beyond(value, &format!("decimal({},{})", self.precision, self.scale))
    }

    /// The number without its point, if it has no more digits than there is room for.
    fn check(self, unscaled: Option<i128>, negative: bool) -> Result<i128, Misfit> {
        let bound = power(u32::from(self.precision));
        match unscaled.filter(|unscaled| bound.is_none_or(|bound| *unscaled < bound)) {
            Some(unscaled) => Ok(if negative { -unscaled } else { unscaled }),
            None => Err(self.beyond("a number of more digits")),
        }
    }
}

/// A power of ten.
fn power(exponent: u32) -> Option<i128> {
    10i128.checked_pow(exponent)
}

/// A value in binary form: groups of four digits with the power that the first one has.
pub(super) fn binary(value: &[u8], kind: &Kind) -> Result<i128, Misfit> {
    let malformed = || Misfit::malformed("numeric");
    let room = Room::of(kind)?;
    let (head, groups) = value.split_at_checked(8).ok_or_else(malformed)?;
    let head: [u8; 8] = plain::fixed(head, "numeric")?;
    let [c0, c1, w0, w1, s0, s1, ..] = head;
    let negative = match u16::from_be_bytes([s0, s1]) {
        0x0000 => false,
        0x4000 => true,
        0xC000 => return Err(room.beyond("NaN")),
        0xD000 => return Err(room.beyond("infinity")),
        0xF000 => return Err(room.beyond("-infinity")),
        _ => return Err(malformed()),
    };
    let (groups, rest) = groups.as_chunks::<2>();
    if groups.len() != usize::from(u16::from_be_bytes([c0, c1])) || !rest.is_empty() {
        return Err(malformed());
    }
    let mut exponent = i32::from(i16::from_be_bytes([w0, w1])) * GROUP + i32::from(room.scale);
    let mut unscaled = Some(0i128);
    for group in groups {
        let digits = i128::from(u16::from_be_bytes(*group));
        if digits > 9_999 {
            return Err(malformed());
        }
        let part = match u32::try_from(exponent) {
            _ if digits == 0 => Some(0),
            Ok(exponent) => power(exponent).and_then(|power| digits.checked_mul(power)),
            Err(_) => {
                let below = power(exponent.unsigned_abs()).filter(|_| exponent > -GROUP);
                let whole = below.filter(|below| digits % below == 0).map(|below| digits / below);
                Some(whole.ok_or_else(|| room.beyond("more digits behind the point"))?)
            }
        };
        unscaled = unscaled.zip(part).and_then(|(sum, part)| sum.checked_add(part));
        exponent -= GROUP;
    }
    room.check(unscaled, negative)
}

/// A value in text: a sign, digits, a point and digits, and never an exponent.
pub(super) fn text(text: &str, kind: &Kind) -> Result<i128, Misfit> {
    let malformed = || Misfit::malformed("numeric");
    let room = Room::of(kind)?;
    match text {
        "NaN" => return Err(room.beyond("NaN")),
        "Infinity" => return Err(room.beyond("infinity")),
        "-Infinity" => return Err(room.beyond("-infinity")),
        _ => {}
    }
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) {
        return Err(malformed());
    }
    let scale = usize::from(room.scale);
    let (kept, cut) = fraction.split_at_checked(scale).unwrap_or((fraction, ""));
    if cut.bytes().any(|digit| digit != b'0') {
        return Err(room.beyond("more digits behind the point"));
    }
    let zeros = std::iter::repeat_n(b'0', scale - kept.len());
    let unscaled = whole.bytes().chain(kept.bytes()).chain(zeros).try_fold(0i128, |number, digit| {
        number.checked_mul(10).and_then(|number| number.checked_add(i128::from(digit - b'0')))
    });
    room.check(unscaled, negative)
}
