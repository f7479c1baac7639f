//! Those who are told of events over HTTP: CloudEvents, signed as Standard Webhooks are.
//!
//! A webhook reads the list of events like anybody who follows it, one event after the other. Its place is written down
//! once an event was taken, so each is sent at least once, over restarts too; what has left the list meanwhile is named.

mod cloud_event;
mod delivery;
mod place;
mod signature;

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use self::delivery::{Delivery, State};
use self::place::Place;
use crate::clock::World;
use crate::config::WebhookConfig;
use crate::error::Result;
use crate::events::Events;

/// Somebody who is told of events. Dropped, it tells of nothing more.
pub struct Webhook {
    name: String,
    host: String,
    state: watch::Receiver<State>,
    events: Arc<Events>,
    task: Mutex<JoinHandle<()>>,
}

/// How a webhook does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Webhook")]
pub struct WebhookReport {
    /// Its name.
    pub name: String,
    /// Where it is; the rest of its address may be a secret.
    pub host: String,
    /// `delivering`, `retrying` or `disabled`.
    pub state: &'static str,
    /// What is wrong.
    pub reason: Option<String>,
    /// How often the event was sent that is to be sent next.
    pub tries: u32,
    /// The last event that it took, or is not told of.
    pub after: u64,
    /// How many events there are after that.
    pub behind: u64,
}

impl WebhookReport {
    /// Whether it takes what it is sent.
    pub fn is_delivering(&self) -> bool {
        self.state == "delivering"
    }
}

impl Webhook {
    /// Tells `config` of `events` from the place on that `place` holds, or from here on; within a Tokio runtime.
    pub fn start(config: &WebhookConfig, events: &Arc<Events>, place: PathBuf, world: &World) -> Result<Self> {
        let place = Place::open(place, *events.last().borrow())?;
        let delivery = Delivery::new(config.clone(), Arc::clone(events), place, world.clone())?;
        let state = delivery.state();
        Ok(Self {
            name: config.name.clone(),
            host: config.host.clone(),
            state,
            events: Arc::clone(events),
            task: Mutex::new(tokio::spawn(delivery.run())),
        })
    }

    /// How it does.
    pub fn report(&self) -> WebhookReport {
        let State { after, tries, failed, is_disabled } = self.state.borrow().clone();
        let state = match (is_disabled, &failed) {
            (true, _) => "disabled",
            (false, Some(_)) => "retrying",
            (false, None) => "delivering",
        };
        WebhookReport {
            name: self.name.clone(),
            host: self.host.clone(),
            state,
            reason: failed,
            tries,
            after,
            behind: self.events.last().borrow().saturating_sub(after),
        }
    }

    /// Ends it. What was being sent is sent again at the next start.
    pub async fn stop(&self) {
        let mut task = self.task.lock().await;
        task.abort();
        // It was told to end, so how it ended says nothing.
        let _ = (&mut *task).await;
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.task.get_mut().abort();
    }
}

#[cfg(test)]
#[path = "webhooks_tests.rs"]
mod tests;
