//! How far each connector of a view is, and so what nobody needs any more.

use std::collections::BTreeMap;
use std::fmt;

use super::register::Detached;
use crate::step::Step;

/// What is said while nothing comes into a log.
pub const FULL: &str = "the step log is full: its connectors must go on first, or it needs a larger max_bytes";

/// What becomes of pushes when the step log is full because of a connector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// They are refused until the connector went on.
    Wait,
    /// The connector is detached: it holds no step any more, and needs a reset if it comes back too late.
    Detach,
}

impl fmt::Display for WhenFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wait => "backpressure",
            Self::Detach => "detach",
        })
    }
}

/// Where an attached connector is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The last step that it has; `None` until it said so, and then every step is kept for it.
    pub acknowledged: Option<Step>,
    /// What becomes of pushes when it holds too much.
    pub when_full: WhenFull,
}

/// The connectors, attached and detached.
#[derive(Debug, Clone, Default)]
pub(in crate::source) struct Places {
    attached: BTreeMap<String, Place>,
    detached: BTreeMap<String, Detached>,
    /// What becomes of those when they are taken back.
    wishes: BTreeMap<String, WhenFull>,
}

impl Places {
    pub(in crate::source) fn new(detached: BTreeMap<String, Detached>) -> Self {
        Self { detached, ..Self::default() }
    }

    /// One that was detached stays so until it takes a snapshot.
    pub(in crate::source) fn attach(&mut self, connector: &str, when_full: WhenFull) {
        if self.detached.contains_key(connector) {
            self.wishes.insert(connector.to_owned(), when_full);
        } else {
            let place = Place { acknowledged: None, when_full };
            self.attached.entry(connector.to_owned()).or_insert(place).when_full = when_full;
        }
    }

    /// Takes one that was detached back; whether it was.
    pub(in crate::source) fn take_back(&mut self, connector: &str) -> bool {
        let is_detached = self.detached.remove(connector).is_some();
        if is_detached {
            let when_full = self.wishes.remove(connector).unwrap_or(WhenFull::Detach);
            self.attached.insert(connector.to_owned(), Place { acknowledged: None, when_full });
        }
        is_detached
    }

    /// Forgets a connector; whether it was detached.
    pub(in crate::source) fn remove(&mut self, connector: &str) -> bool {
        self.attached.remove(connector);
        self.wishes.remove(connector);
        self.detached.remove(connector).is_some()
    }

    /// What a detached connector has decides nothing.
    pub(in crate::source) fn acknowledge(&mut self, connector: &str, step: Step) {
        if let Some(place) = self.attached.get_mut(connector) {
            place.acknowledged = place.acknowledged.max(Some(step));
        }
    }

    /// The step up to which nobody needs anything, of a log that ends at `last`; `None` when everything is needed.
    pub(in crate::source) fn needless(&self, last: Step) -> Option<Step> {
        self.attached.values().map(|place| place.acknowledged).min().unwrap_or(Some(last)).map(|step| step.min(last))
    }

    /// Detaches those that are furthest behind, of a log that ends at `at`, if they may be detached.
    pub(in crate::source) fn detach_last(&mut self, at: Step) -> Vec<String> {
        let least = self.attached.values().map(|place| place.acknowledged).min();
        let last = || self.attached.iter().filter(|(_, place)| Some(place.acknowledged) == least);
        if last().any(|(_, place)| place.when_full == WhenFull::Wait) {
            return Vec::new();
        }
        let names: Vec<String> = last().map(|(name, _)| name.clone()).collect();
        for name in &names {
            if let Some(Place { acknowledged, when_full }) = self.attached.remove(name) {
                self.wishes.insert(name.clone(), when_full);
                self.detached.insert(name.clone(), Detached { acknowledged, at });
            }
        }
        names
    }

    pub(in crate::source) fn attached(&self) -> &BTreeMap<String, Place> {
        &self.attached
    }

    pub(in crate::source) fn detached(&self) -> &BTreeMap<String, Detached> {
        &self.detached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_furthest_behind_holds_the_log_and_only_an_attached_one_does() {
        let step = |n| Step::new(n).unwrap();
        let mut places = Places::default();
        assert_eq!(places.needless(step(9)), Some(step(9)));
        places.attach("a", WhenFull::Wait);
        places.attach("b", WhenFull::Detach);
        places.acknowledge("a", step(5));
        assert_eq!(places.needless(step(9)), None, "b said nothing yet");
        places.acknowledge("b", step(3));
        places.acknowledge("b", step(2));
        places.acknowledge("c", step(1));
        assert_eq!(places.needless(step(9)), Some(step(3)));
        assert_eq!(places.detach_last(step(9)), ["b"]);
        assert_eq!(places.needless(step(9)), Some(step(5)));
        assert!(places.detach_last(step(9)).is_empty(), "a makes pushes wait");
        places.attach("b", WhenFull::Detach);
        assert_eq!(places.needless(step(9)), Some(step(5)), "it has missed steps");
        assert!(places.take_back("b") && !places.take_back("b"));
        assert_eq!(places.needless(step(9)), None);
    }
}
