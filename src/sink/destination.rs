//! A table that was looked at, before it is known what is delivered to it.

use std::sync::Arc;

use super::commit::Core;
use super::{SinkSettings, Tally, Target};
use crate::clock::World;
use crate::continuity::plan::{self, Identity, Older, ReloadRequest, Standing};
use crate::error::{Error, Result};
use crate::log::{Facts, Location, Log, table_schema};
use crate::schema::{View, view_columns};
use crate::step::Step;

/// A table that was looked at; what it is decides which view is delivered to it.
#[derive(Debug, Clone)]
pub struct Destination {
    log: Log,
    facts: Facts,
    settings: SinkSettings,
    world: World,
    tally: Arc<Tally>,
}

impl Destination {
    /// Looks at the table at `location`. Nothing is written.
    pub async fn look(location: Location, settings: SinkSettings, world: World) -> Result<Self> {
        location.check_writable()?;
        let log = Log::new(location, world.clone());
        log.check_properties(&settings.properties)?;
        let facts = log.facts().await?;
        log.check_features(&facts)?;
        Ok(Self { log, facts, settings, world, tally: Arc::default() })
    }

    /// Looks at it for a reset, which gets past a damaged checkpoint or hint where what lies below is whole.
    ///
    /// Corrupt: the log does not load, and only a rebuild helps.
    pub async fn look_to_reset(location: Location, settings: SinkSettings, world: World) -> Result<Self> {
        location.check_writable()?;
        let log = Log::new(location, world.clone());
        log.check_properties(&settings.properties)?;
        let log = log.past_damage().await?;
        let facts = log.facts().await?;
        log.check_features(&facts)?;
        Ok(Self { log, facts, settings, world, tally: Arc::default() })
    }

    /// Counts in `tally` what is done from here on.
    #[must_use]
    pub fn counting(self, tally: Arc<Tally>) -> Self {
        Self { tally, ..self }
    }

    /// What of the table's log a reset gets past; `None` where nothing is damaged.
    pub fn damage(&self) -> Option<&str> {
        self.log.damage()
    }

    /// What the table says of itself.
    pub fn standing(&self) -> &Standing {
        &self.facts.standing
    }

    /// The table at its head.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// For delivering `view`.
    pub fn deliver(self, view: View) -> Target {
        let identity = self.identity(view.key());
        let Self { log, facts, settings, world, tally } = self;
        let mut core = Core::new(log, facts, view, identity, settings, world);
        core.tally = tally;
        Target { core }
    }

    /// For going on with the view that the table holds, whose name and key are given and whose columns are the table's.
    ///
    /// Refused, or continuity lost, where no append may follow.
    pub fn follow(self, name: &str, key: &[String]) -> Result<Target> {
        let (Standing::Ours(ours), Some(metadata)) = (&self.facts.standing, &self.facts.metadata) else {
            return Err(Error::refused("there is no table of ours to follow; load it with a snapshot"));
        };
        plan::check_follow(ours, &self.identity(key))?;
        let view = View::new(name, &view_columns(&*table_schema(metadata)?), key.to_vec())?;
        Ok(self.deliver(view))
    }

    /// For a source that cannot be asked: it is taken for the one that the table was loaded from.
    #[must_use]
    pub fn from_its_source(mut self) -> Self {
        if let Some(stamp) = self.facts.ours().and_then(|ours| ours.stamp.as_ref()) {
            self.settings.source.clone_from(&stamp.source);
        }
        self
    }

    /// Refuses what a first load would be refused for, whatever the columns of the view are.
    pub fn check_load(&self, key: &[String]) -> Result<()> {
        let on_existing = self.settings.on_existing;
        let request = ReloadRequest { cutover: Step::ZERO, commit: String::new(), on_existing, older: Older::Refused };
        plan::check_reload(&self.facts.standing, &self.identity(key), &request)
    }

    fn identity(&self, key: &[String]) -> Identity {
        self.settings.identity(key)
    }
}
