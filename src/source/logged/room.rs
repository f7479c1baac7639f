//! How a full step log gets room: what nobody needs is released, and then those are detached that hold most.

use std::collections::BTreeSet;

use tokio::sync::watch;

use super::places::Places;
use super::register::Detached;
use crate::error::Result;
use crate::step::Step;
use crate::steplog::StepLog;

/// Who keeps the places of a view's connectors.
pub(in crate::source) trait Keeper {
    /// Releases what nobody needs any more.
    fn let_go(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Detaches those that are furthest behind, of a log that ends at `at`, if they may be detached; once that is written down.
    fn detach_last(&mut self, at: Step) -> Result<Vec<String>>;
}

/// Whether the log of the view `view` takes less than before, after those were detached that may be, if nothing else helps.
pub(in crate::source) async fn makes_room(view: &str, log: &StepLog, keeper: &mut impl Keeper) -> Result<bool> {
    let before = log.stand().bytes;
    loop {
        keeper.let_go().await?;
        if log.stand().bytes < before {
            return Ok(true);
        }
        let at = log.stand().last;
        let detached = keeper.detach_last(at)?;
        if detached.is_empty() {
            return Ok(false);
        }
        tracing::warn!(event = "detached", view, connectors = ?detached, step = %at, "the step log is full; connectors were detached");
    }
}

/// The connectors that are detached from when this was made on, as that happens.
#[derive(Debug)]
pub struct Departures {
    places: watch::Receiver<Places>,
    known: BTreeSet<String>,
}

impl Departures {
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "a pushed view tells of them by itself"))]
    pub(in crate::source) fn of(places: watch::Receiver<Places>) -> Self {
        let known = places.borrow().detached().keys().cloned().collect();
        Self { places, known }
    }

    /// Waits for the next ones; `None` when the view has ended.
    pub async fn next(&mut self) -> Option<Vec<(String, Detached)>> {
        loop {
            let has_ended = self.places.changed().await.is_err();
            let found = {
                let places = self.places.borrow_and_update();
                let fresh = places.detached().iter().filter(|(name, _)| !self.known.contains(*name));
                let found: Vec<_> = fresh.map(|(name, detached)| (name.clone(), *detached)).collect();
                self.known = places.detached().keys().cloned().collect();
                found
            };
            if !found.is_empty() {
                return Some(found);
            }
            if has_ended {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::WhenFull;
    use super::*;

    #[tokio::test]
    async fn who_is_detached_is_told_once() {
        let step = |n| Step::new(n).unwrap();
        let places = watch::Sender::new(Places::default());
        places.send_modify(|places| {
            places.attach("a", WhenFull::Detach);
            places.attach("b", WhenFull::Wait);
            places.acknowledge("a", step(3));
            places.acknowledge("b", step(5));
        });
        let mut departures = Departures::of(places.subscribe());
        places.send_modify(|places| assert_eq!(places.detach_last(step(9)), ["a"]));
        let told = departures.next().await.unwrap();
        assert_eq!(told, [("a".to_owned(), Detached { acknowledged: Some(step(3)), at: step(9) })]);
        places.send_modify(|places| assert!(places.take_back("a")));
        drop(places);
        assert_eq!(departures.next().await, None);
    }
}
