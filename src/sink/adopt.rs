//! Gives a table of ours to a connector of another name: one commit, the generation stays.

use crate::clock::World;
use crate::continuity::plan::{self, AdoptPlan, Ours};
use crate::continuity::stamp::{AdoptStamp, CONNECTOR_PROPERTY, CONTRACT, CommitStamp, Kind, Layout, RowCounts};
use crate::digest::Digest;
use crate::epoch::Epoch;
use crate::error::{Error, Result};
use crate::log::{Facts, Location, Log, Outcome, Proposal};

use super::commit::MOST_CONFLICTS;

/// A table of ours that was looked at, and the connector that is to have it.
#[derive(Debug)]
pub struct Adoption {
    log: Log,
    facts: Facts,
    connector: String,
    world: World,
}

/// What an adoption did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adopted {
    /// The table changed its connector.
    Committed {
        /// The version.
        version: u64,
        /// The connector that it belonged to.
        from: String,
        /// The epoch that the commit took.
        epoch: Epoch,
    },
    /// The table belonged to the connector before.
    Already,
}

impl Adoption {
    /// Looks at the table at `location`, for giving it to `connector`. Nothing is written.
    ///
    /// Internal: there is no table. Refused: it is not ours, or was opened for reading. Continuity lost: its
    /// properties are gone. Incompatible: it has a feature that our commits do not keep.
    pub async fn look(location: Location, connector: impl Into<String>, world: World) -> Result<Self> {
        location.check_writable()?;
        let log = Log::new(location, world.clone());
        let facts = log.facts().await?;
        let adoption = Self { log, facts, connector: connector.into(), world };
        adoption.plan()?;
        Ok(adoption)
    }

    /// What the table says of itself.
    pub fn ours(&self) -> Option<&Ours> {
        self.facts.ours()
    }

    /// Whether the table belongs to the connector already.
    pub fn is_done(&self) -> Result<bool> {
        Ok(self.plan()? == AdoptPlan::AlreadyApplied)
    }

    fn plan(&self) -> Result<AdoptPlan> {
        self.log.check_features(&self.facts)?;
        plan::adopt(&self.facts.standing, &self.connector)
    }

    /// Commits it: `who` asked, and `why`. A process that delivers to the table under the old name is fenced.
    ///
    /// Unavailable: whether it was committed is not known; asking again tells.
    pub async fn commit(mut self, who: &str, why: &str) -> Result<Adopted> {
        let writer = self.world.ids.draw();
        for _ in 0..MOST_CONFLICTS {
            let AdoptPlan::Go { epoch, from } = self.plan()? else { return Ok(Adopted::Already) };
            let adopt = AdoptStamp { from: from.clone(), who: who.into(), why: why.into() };
            let proposal = self.proposal(epoch, &writer, adopt)?;
            let entry = self.log.entry(&self.facts, &proposal)?;
            match self.log.put(&mut self.facts, &entry, &proposal).await? {
                Outcome::Committed(_) => return Ok(Adopted::Committed { version: entry.version(), from, epoch }),
                Outcome::Conflict => self.facts = self.log.facts().await?,
                Outcome::Unknown(error) => return Err(error),
            }
        }
        Err(Error::unavailable(format!(
            "others committed to the table first, {MOST_CONFLICTS} times in a row; stop them, or try again"
        )))
    }

    fn proposal(&self, epoch: Epoch, writer: &str, adopt: AdoptStamp) -> Result<Proposal> {
        let (Some(ours), Some(metadata)) = (self.facts.ours(), &self.facts.metadata) else {
            return Err(Error::internal("an adoption was planned on a table that is not ours"));
        };
        let mut metadata = metadata.clone();
        metadata.configuration.insert(CONNECTOR_PROPERTY.into(), self.connector.clone());
        let stamp = CommitStamp {
            cutover: CONTRACT,
            kind: Kind::Mark,
            connector: self.connector.clone(),
            generation: ours.generation,
            epoch,
            writer: writer.into(),
            commit: self.world.ids.draw(),
            from: Some(ours.last_step),
            to: ours.last_step,
            rows: RowCounts::default(),
            digest: Digest::EMPTY,
            digest_total: ours.digest_total,
            rows_total: ours.rows_total,
            source: None,
            strand: ours.strand,
            reset: None,
            adopt: Some(adopt),
        };
        let layout = ours.stamp.as_ref().map_or(Layout::Changelog, |stamp| stamp.layout);
        Ok(Proposal {
            stamp,
            layout,
            claims: true,
            protocol: None,
            metadata: Some(metadata),
            adds: Vec::new(),
            removes: Vec::new(),
        })
    }
}
