//! The daemon of the demo, asked over HTTP.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::feed::{self, Deed};
use super::home::Home;
use super::process::Process;
use crate::cli::client::{Client, LONG_DEADLINE};
use crate::cli::reach::Reach;
use crate::clock::World;
use crate::config::to_toml;
use crate::daemon::{ConnectorReport, PipelineReport};
use crate::error::{Error, Result};

/// The connector that delivers the view.
pub(super) const CONNECTOR: &str = "shop/orders/lake";
/// The configuration, in the demo's directory.
pub(super) const CONFIG: &str = "cutover.toml";
/// What the daemon says, in the demo's directory.
pub(super) const SAID: &str = "daemon.log";
/// How long anything that must happen may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Looks until `look` finds something, which it must within a minute.
pub(super) async fn until<T>(world: &World, what: &str, mut look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let begun = world.clock.boot();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if world.clock.boot().saturating_sub(begun) > PATIENCE {
            return Err(Error::internal(format!("{what}: not within {} s", PATIENCE.as_secs())));
        }
        world.clock.sleep(LOOK_EVERY).await;
    }
}

/// A path of the demo's directory as a string of TOML.
pub(super) fn quoted(path: PathBuf) -> Result<String> {
    let path = path.into_os_string().into_string();
    let path =
        path.map_err(|_| Error::config("the demo's directory has a name that is no text; name another by --dir"))?;
    Ok(to_toml(&path.into()))
}

/// Writes the configuration of a daemon that listens at `listen`.
pub(super) fn configure(home: &Home, listen: &str) -> Result<()> {
    let (data, orders) = (quoted(home.at("data"))?, quoted(home.at("orders"))?);
    home.write(
        CONFIG,
        &format!(
            r#"config_version = 1

[server]
listen = "{listen}"
data_dir = {data}

[pipelines.shop.source.push]

[pipelines.shop.views.orders]
key = ["id"]
columns = {{ id = "bigint", item = "string", amount = "decimal(12,2)", note = "string" }}
step_log = {{ max_bytes = "4MiB" }}          # little, so that it is full soon

[pipelines.shop.views.orders.connectors.lake]
commit = {{ max_interval = "20ms" }}
when_full = "detach"
reset = {{ breaker = {{ max_resets = 1000 }}, backoff = {{ initial = "10ms", factor = 1.0, max = "10ms" }} }}

[pipelines.shop.views.orders.connectors.lake.delta]
uri = {orders}
target_file_size = "256KiB"          # little, so that a snapshot has many files
compaction = false                   # so that files change by what the tour does alone
"#
        ),
    )
}

/// A daemon that runs; dropped, it is killed.
#[derive(Debug)]
pub(super) struct Daemon<'a> {
    world: &'a World,
    process: Process,
    client: Client,
}

/// An answer that names a step.
#[derive(Deserialize)]
struct Stepped {
    step: u64,
}

/// An answer that names a reset.
#[derive(Deserialize)]
struct Asked {
    id: String,
}

/// How a reset does.
#[derive(Deserialize)]
struct Reset {
    state: String,
}

impl<'a> Daemon<'a> {
    /// Starts it; it answers at `page`.
    pub(super) async fn start(home: &Home, page: &str, world: &'a World) -> Result<Self> {
        let process = Process::start(home, CONFIG, None, SAID)?;
        let url = Url::parse(page).map_err(|e| Error::internal("the daemon has no address").with_source(e))?;
        let client = Client::new(&Reach { url, token: None, options: String::new() })?;
        let mut daemon = Self { world, process, client };
        until(world, "the daemon answers", async || {
            daemon.process.check()?;
            // It does not listen yet, or its views are being opened.
            Ok(daemon.client.status(CONNECTOR).await.ok().filter(|status| status.last_step.is_some()))
        })
        .await?;
        Ok(daemon)
    }

    pub(super) fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Ends it by SIGKILL.
    pub(super) fn kill(self) -> Result<()> {
        self.process.kill()
    }

    pub(super) async fn status(&self) -> Result<ConnectorReport> {
        self.client.status(CONNECTOR).await
    }

    /// Waits until the connector's status is as `wanted`.
    pub(super) async fn wait(
        &mut self,
        what: &str,
        wanted: impl Fn(&ConnectorReport) -> bool,
    ) -> Result<ConnectorReport> {
        let world = self.world;
        until(world, what, async || {
            self.process.check()?;
            Ok(Some(self.status().await?).filter(&wanted))
        })
        .await
    }

    /// Pushes rows as one step; its number.
    pub(super) async fn push(&self, deed: Deed, first: u64, salt: u64) -> Result<u64> {
        let body = Bytes::from(feed::lines(deed, first, salt));
        let call = self.client.call(Method::POST, &["pipelines", "shop", "ingress", "orders"]);
        let call = call.query("format", "ndjson").body("application/x-ndjson", body).deadline(LONG_DEADLINE);
        Ok(call.answer::<Stepped>().await?.step)
    }

    /// Waits until the table holds `step`.
    pub(super) async fn delivered(&mut self, step: u64) -> Result<ConnectorReport> {
        self.wait("a step is delivered", |status| status.last_step >= Some(step)).await
    }

    /// Tells the connector to `pause` or to `resume`.
    pub(super) async fn tell(&self, order: &str) -> Result<()> {
        self.client.connector(Method::POST, CONNECTOR, &[order]).answer::<ConnectorReport>().await.map(drop)
    }

    /// The step before the first one that the view's step log holds.
    pub(super) async fn earliest(&self) -> Result<Option<u64>> {
        let pipelines: Vec<PipelineReport> = self.client.pipelines().await?;
        let mut views = pipelines.iter().flat_map(|pipeline| &pipeline.views);
        Ok(views.find_map(|view| view.step_log.as_ref()).map(|log| log.earliest))
    }

    /// Asks for a reset, which is written down when this comes back; its id.
    pub(super) async fn ask_reset(&self, reason: &str) -> Result<String> {
        let call = self.client.connector(Method::POST, CONNECTOR, &["reset"]).json(&json!({"reason": reason}));
        Ok(call.answer::<Asked>().await?.id)
    }

    /// Waits until the reset has ended well.
    pub(super) async fn reset_ended(&mut self, id: &str) -> Result<()> {
        let world = self.world;
        until(world, "a reset ends", async || {
            self.process.check()?;
            let reset: Reset = self.client.connector(Method::GET, CONNECTOR, &["resets", id]).answer().await?;
            match reset.state.as_str() {
                "accepted" | "snapshotting" | "committing" => Ok(None),
                "committed" => Ok(Some(())),
                state => Err(Error::internal(format!("the reset {id} is {state}"))),
            }
        })
        .await
    }

    /// Resets the connector, and waits until that is done.
    pub(super) async fn reset(&mut self, reason: &str) -> Result<ConnectorReport> {
        let id = self.ask_reset(reason).await?;
        self.reset_ended(&id).await?;
        self.wait("the connector follows", |status| status.state == "following").await
    }
}
