//! What becomes of a pushed view that its connectors do not tell.

use std::collections::BTreeSet;

use tokio::sync::watch;

use super::Told;
use crate::source::logged::Detached;

/// What happened to a pushed view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// A connector was detached because the log was full.
    Detached {
        /// Which.
        connector: String,
        /// Where it was.
        place: Detached,
    },
    /// The view takes no more pushes, until it is opened again; why.
    Broken(String),
}

/// The troubles of a view from when this was made on, as they come.
#[derive(Debug)]
pub struct Troubles {
    told: watch::Receiver<Told>,
    detached: BTreeSet<String>,
    is_broken: bool,
}

impl Troubles {
    pub(super) fn of(told: watch::Receiver<Told>) -> Self {
        let detached = told.borrow().places.detached().keys().cloned().collect();
        Self { told, detached, is_broken: false }
    }

    /// Waits for the next ones; `None` when the view has ended.
    pub async fn next(&mut self) -> Option<Vec<Trouble>> {
        loop {
            let has_ended = self.told.changed().await.is_err();
            let found = self.look();
            if !found.is_empty() {
                return Some(found);
            }
            if has_ended {
                return None;
            }
        }
    }

    fn look(&mut self) -> Vec<Trouble> {
        let told = self.told.borrow_and_update();
        let detached = told.places.detached();
        let fresh = detached.iter().filter(|(name, _)| !self.detached.contains(*name));
        let mut found: Vec<Trouble> =
            fresh.map(|(connector, place)| Trouble::Detached { connector: connector.clone(), place: *place }).collect();
        if let Some(why) = told.broken.as_ref().filter(|_| !self.is_broken) {
            found.push(Trouble::Broken(why.clone()));
        }
        (self.detached, self.is_broken) = (detached.keys().cloned().collect(), told.broken.is_some());
        found
    }
}
