//! How many resets there may be, and how long is waited between them.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::section::{Field, Section};
use crate::connector::{Backoff, BreakerSettings};

const DAY: Duration = Duration::from_secs(24 * 3600);
const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
const FACTORS: RangeInclusive<f64> = 1.0..=100.0;
/// The journal remembers so many.
const MOST_RESETS: u64 = 1_000;

/// `reset`, as far as it is written.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ResetPart {
    max_resets: Option<NonZeroU32>,
    window: Option<Duration>,
    cooldown: Option<Duration>,
    initial: Option<Duration>,
    factor: Option<f64>,
    max: Option<Duration>,
}

impl ResetPart {
    /// What `reset` says, and where it says nothing, what this says.
    pub(super) fn overridden(mut self, mut reset: Section<'_>) -> Self {
        if let Some(mut breaker) = reset.section("breaker") {
            let max_resets = breaker.field("max_resets").and_then(|f| f.integer(1, MOST_RESETS));
            let max_resets = max_resets.and_then(|n| NonZeroU32::new(u32::try_from(n).ok()?));
            self.max_resets = max_resets.or(self.max_resets);
            self.window = breaker.field("window").and_then(|f| read_month(&f)).or(self.window);
            self.cooldown = breaker.field("cooldown").and_then(|f| read_month(&f)).or(self.cooldown);
            breaker.finish(&[]);
        }
        if let Some(mut backoff) = reset.section("backoff") {
            let initial = backoff.field("initial").and_then(|f| read_day(&f));
            let max = backoff.field("max").and_then(|f| read_day(&f));
            let factor = backoff.field("factor").and_then(|f| f.within(f.number()?, FACTORS, "1 and 100"));
            let is_said = initial.or(max).is_some();
            (self.initial, self.max, self.factor) =
                (initial.or(self.initial), max.or(self.max), factor.or(self.factor));
            let Backoff { initial, max, .. } = self.backoff();
            let is_told = !["initial", "max"].iter().any(|key| backoff.is_misspelled(key));
            if is_said && is_told && initial > max {
                backoff.refuse(&format!(
                    "\"initial\" is {initial:?}, which is more than \"max\", {max:?}; lower it, or raise \"max\""
                ));
            }
            backoff.finish(&[]);
        }
        reset.finish(&[]);
        self
    }

    pub(super) fn breaker(&self) -> BreakerSettings {
        let default = BreakerSettings::default();
        BreakerSettings {
            max_resets: self.max_resets.unwrap_or(default.max_resets),
            window: self.window.unwrap_or(default.window),
            cooldown: self.cooldown.unwrap_or(default.cooldown),
        }
    }

    pub(super) fn backoff(&self) -> Backoff {
        let default = Backoff::default();
        Backoff {
            initial: self.initial.unwrap_or(default.initial),
            factor: self.factor.unwrap_or(default.factor),
            max: self.max.unwrap_or(default.max),
        }
    }
}

/// A reset that was accepted is given up after a day, so a longer wait is none.
fn read_day(field: &Field<'_>) -> Option<Duration> {
    field.within(field.duration()?, Duration::ZERO..=DAY, "1ms and 1d")
}

fn read_month(field: &Field<'_>) -> Option<Duration> {
    field.within(field.duration()?, Duration::ZERO..=MONTH, "1ms and 30d")
}
