//! A clock that moves only when a test says so.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;

use crate::clock::Clock;

#[derive(Debug, Default)]
pub(super) struct ManualClock {
    time: Arc<Mutex<Time>>,
}

#[derive(Debug, Default)]
struct Time {
    boot: Duration,
    /// How far the wall clock is ahead of the boot clock.
    ahead: i64,
    sleepers: Vec<Waker>,
}

impl ManualClock {
    pub(super) fn advance(&self, by: Duration) {
        let mut time = self.time.lock().unwrap();
        time.boot += by;
        time.sleepers.drain(..).for_each(Waker::wake);
    }

    pub(super) fn set_wall_ahead(&self, millis: i64) {
        self.time.lock().unwrap().ahead += millis;
    }

    /// The boot clock starts anew, and the wall clock shows `wall`.
    pub(super) fn reboot(&self, wall: i64) {
        let mut time = self.time.lock().unwrap();
        (time.boot, time.ahead) = (Duration::ZERO, wall);
    }
}

impl Clock for ManualClock {
    fn unix_millis(&self) -> i64 {
        let time = self.time.lock().unwrap();
        time.ahead + time.boot.as_millis() as i64
    }

    fn boot(&self) -> Duration {
        self.time.lock().unwrap().boot
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let time = Arc::clone(&self.time);
        let end = time.lock().unwrap().boot + duration;
        Box::pin(poll_fn(move |context| {
            let mut time = time.lock().unwrap();
            if time.boot >= end {
                return Poll::Ready(());
            }
            time.sleepers.push(context.waker().clone());
            Poll::Pending
        }))
    }
}
