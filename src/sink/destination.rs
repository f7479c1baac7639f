//! A table that was looked at, before it is known what is delivered to it.

use std::sync::Arc;

use super::commit::Core;
use super::{SinkSettings, Tally, Target};
use crate::clock::World;
use crate::continuity::plan::{self, Identity, Standing};
use crate::error::{Error, Result};
use crate::log::{Facts, Location, Log, table_schema};
use crate::schema::{View, view_columns};

/// A table that was looked at; what it is decides which view is delivered to it.
#[derive(Debug)]
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

    fn identity(&self, key: &[String]) -> Identity {
        self.settings.identity(key)
    }
}
