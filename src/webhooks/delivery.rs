//! Sends events to one webhook, in order.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use reqwest::{Client, StatusCode, redirect};
use serde_json::json;
use tokio::sync::watch;

use super::cloud_event;
use super::place::Place;
use super::signature::Signer;
use crate::clock::World;
use crate::config::WebhookConfig;
use crate::connector::{Backoff, jitter};
use crate::error::{Error, Result, with_causes};
use crate::events::{About, Draft, Event, Events, Kind};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many events are looked at before it is looked for more.
const ROUND: usize = 256;
/// The waits between tries.
const BACKOFF: Backoff = Backoff { initial: Duration::from_secs(2), factor: 2.0, max: Duration::from_secs(600) };
/// The longest wait that a webhook may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// What is shown of it.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) after: u64,
    pub(super) tries: u32,
    pub(super) failed: Option<String>,
    pub(super) is_disabled: bool,
}

/// Why an event was not taken.
enum Failure {
    /// It is sent again, not before so long.
    Again(String, Duration),
    /// The webhook says that it is there no more.
    Gone,
}

pub(super) struct Delivery {
    config: WebhookConfig,
    events: Arc<Events>,
    place: Place,
    signer: Signer,
    http: Client,
    backoff: Backoff,
    world: World,
    state: watch::Sender<State>,
}

impl Delivery {
    pub(super) fn new(config: WebhookConfig, events: Arc<Events>, place: Place, world: World) -> Result<Self> {
        let http = Client::builder()
            .timeout(PATIENCE)
            // Where it is sent, the configuration says, and nobody's answer.
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|e| Error::internal("webhooks cannot be sent").with_source(e))?;
        let state = watch::Sender::new(State { after: place.after(), ..State::default() });
        let signer = Signer::new(&config.secret)?;
        Ok(Self { config, events, place, signer, http, backoff: BACKOFF, world, state })
    }

    pub(super) fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Sends what comes, until the webhook says that it is there no more.
    pub(super) async fn run(mut self) {
        let mut last = self.events.last();
        loop {
            let after = self.place.after();
            let following = self.events.after(after, ROUND);
            if let Some(first) = following.gone {
                let event = self.gone(after, first);
                if !self.send(&event).await {
                    return;
                }
                self.reach(first.saturating_sub(1), Place::take);
                continue;
            }
            for event in &following.events {
                let is_wanted = self.config.events.contains(&event.event);
                if is_wanted && !self.send(event).await {
                    return;
                }
                self.reach(event.id, if is_wanted { Place::take } else { Place::pass });
            }
            if following.events.is_empty() && last.wait_for(|last| *last != after).await.is_err() {
                return;
            }
        }
    }

    /// That events have left the list before they were sent.
    fn gone(&self, after: u64, first: u64) -> Event {
        let data = json!({ "after": after, "first": first, "count": first.saturating_sub(after + 1) });
        let draft = Draft::new(self.world.clock.unix_millis(), Kind::EventsLost, About::default(), data);
        Event {
            id: first.saturating_sub(1),
            uid: self.world.ids.draw(),
            at: draft.at,
            event: draft.kind,
            about: draft.about,
            data: draft.data,
        }
    }

    fn reach(&mut self, id: u64, how: impl FnOnce(&mut Place, u64) -> Result<()>) {
        // It is sent again after a restart, which is what is promised.
        if let Err(error) = how(&mut self.place, id) {
            tracing::warn!(event = "webhook_place", webhook = self.config.name, error = %error, "how far a webhook is was not written down");
        }
        self.state.send_modify(|state| *state = State { after: id, ..State::default() });
    }

    /// Sends an event until it is taken; whether it was.
    async fn send(&self, event: &Event) -> bool {
        let body = cloud_event::encode(event);
        let mut tries = 0;
        loop {
            tries += 1;
            let (reason, wait) = match self.post(&event.uid, body.clone()).await {
                Ok(()) => return true,
                Err(Failure::Gone) => {
                    let reason = "it answered 410 Gone; take it out of the configuration, or start the daemon anew";
                    tracing::warn!(
                        event = "webhook_disabled",
                        webhook = self.config.name,
                        "a webhook answered 410 Gone"
                    );
                    self.show(tries, reason.to_owned(), true);
                    return false;
                }
                Err(Failure::Again(reason, wait)) => (reason, wait),
            };
            let wait = wait.max(self.backoff.delay(tries, jitter(&event.uid, tries)));
            tracing::warn!(
                event = "webhook_failed",
                webhook = self.config.name,
                reason,
                tries,
                "a webhook did not take an event; it is sent again in {wait:?}"
            );
            self.show(tries, reason, false);
            self.world.clock.sleep(wait).await;
        }
    }

    fn show(&self, tries: u32, reason: String, is_disabled: bool) {
        self.state.send_modify(|state| {
            (state.tries, state.failed, state.is_disabled) = (tries, Some(reason), is_disabled);
        });
    }

    async fn post(&self, id: &str, body: String) -> Result<(), Failure> {
        let seconds = self.world.clock.unix_millis().div_euclid(1000);
        let sent = self
            .http
            .post(self.config.url.expose())
            .header(CONTENT_TYPE, cloud_event::TYPE)
            .header(USER_AGENT, concat!("cutover/", env!("CARGO_PKG_VERSION")))
            .header("webhook-id", id)
            .header("webhook-timestamp", seconds)
            .header("webhook-signature", self.signer.sign(id, seconds, &body))
            .body(body)
            .send()
            .await;
        // The address may hold a secret.
        let response = sent.map_err(|e| Failure::Again(with_causes(&e.without_url()), Duration::ZERO))?;
        match response.status() {
            status if status.is_success() => Ok(()),
            StatusCode::GONE => Err(Failure::Gone),
            status => {
                let wait = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
                let wait = wait.map_or(Duration::ZERO, Duration::from_secs).min(LONGEST_WAIT);
                Err(Failure::Again(format!("it answered {status}"), wait))
            }
        }
    }
}
