//! Time and randomness, passed in everywhere so that tests and simulations decide both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use twox_hash::XxHash3_128;

/// Time, in the three forms that the product needs.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Milliseconds since 1970 UTC: for people and for Delta's time stamps. Decisions take it only across starts of the
    /// machine, where there is no other.
    fn unix_millis(&self) -> i64;

    /// Time since some fixed moment, the machine's sleep included: for decisions about age.
    fn boot(&self) -> Duration;

    /// Completes after `duration`.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    /// Completes after `duration`, raced against work that should be done by then. Where sleeping makes time pass, waiting
    /// for a deadline does not.
    fn deadline(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.sleep(duration)
    }
}

/// `duration` in whole seconds, rounded up: who is told to come back then does not come too early.
pub(crate) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// The machine's own clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one home of the wall clock")]
    fn unix_millis(&self) -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn boot(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
    }

    #[expect(clippy::disallowed_methods, reason = "the one home of sleeping")]
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// Unique ids: a secret seed and a counter, hashed.
#[derive(Debug)]
pub struct Ids {
    seed: u64,
    drawn: AtomicU64,
}

impl Ids {
    /// Ids that nobody else draws.
    pub fn from_system() -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self::from_seed(RandomState::new().hash_one(std::process::id()))
    }

    /// The same ids in the same order for the same seed.
    pub fn from_seed(seed: u64) -> Self {
        Self { seed, drawn: AtomicU64::new(0) }
    }

    /// The next id, as a UUID of version 8 (custom) in its usual form.
    pub fn draw(&self) -> String {
        let n = self.drawn.fetch_add(1, Ordering::Relaxed);
        let hash = XxHash3_128::oneshot_with_seed(self.seed, &n.to_le_bytes());
        uuid::Builder::from_custom_bytes(hash.to_be_bytes()).into_uuid().to_string()
    }
}

/// What the world supplies: passed beside settings, never read from a global.
#[derive(Debug, Clone)]
pub struct World {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub ids: Arc<Ids>,
}

impl World {
    /// The machine's clock and fresh randomness.
    pub fn system() -> Self {
        Self { clock: Arc::new(SystemClock), ids: Arc::new(Ids::from_system()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_within_a_seed_and_repeat_for_the_same_seed() {
        let (a, b) = (Ids::from_seed(7), Ids::from_seed(7));
        let drawn: Vec<String> = (0..100).map(|_| a.draw()).collect();
        let again: Vec<String> = (0..100).map(|_| b.draw()).collect();
        assert_eq!(drawn, again);
        let distinct: std::collections::HashSet<&String> = drawn.iter().collect();
        assert_eq!(distinct.len(), drawn.len());
    }
}
