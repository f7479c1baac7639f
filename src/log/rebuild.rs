//! A log that does not load is rebuilt: one version above all others holds the whole state, and a checkpoint of it stands
//! beside it, so that no reader looks below.

use object_store::ObjectStoreExt;

use super::clustering::{self, CLUSTERING_DOMAIN};
use super::entry::{self, Metadata, Protocol};
use super::kernel::checkpoint_alone;
use super::salvage::Salvage;
use super::upkeep::{self, Upkeep};
use super::{Condition, Facts, LAST_CHECKPOINT, LiveFile, Log};
use crate::continuity::commit::FileId;
use crate::continuity::plan::{Ours, Standing};
use crate::continuity::stamp::{COMMIT_PREFIX_REBUILD, TableStamp};
use crate::epoch::Epoch;
use crate::error::{Error, ErrorKind, Result};
use crate::generation::Generation;
use crate::step::Step;
use crate::store::store_error;

/// What is left of a table whose log does not load.
#[derive(Debug)]
pub struct Wreck {
    /// The table as it is to be taken over. Its version is the highest that any name of the log speaks of.
    pub facts: Facts,
    /// Every file that anything readable ever named, for the rebuild to remove.
    pub files: Vec<LiveFile>,
    /// What generation, epoch and last step must exceed.
    pub floor: Floor,
    /// The version of a rebuild whose checkpoint is missing or damaged.
    pub unfinished: Option<u64>,
    /// Whether the table's id was found.
    pub has_id: bool,
}

/// The highest numbers that entries, checkpoints and data files name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Floor {
    /// The generation.
    pub generation: Option<Generation>,
    /// The epoch.
    pub epoch: Option<Epoch>,
    /// The last step of that generation.
    pub last_step: Option<Step>,
}

impl Log {
    /// Reads what is left of a log that no reader can load.
    ///
    /// Refused: the log loads, or a reset without a rebuild gets past its damage, or there is nothing at all, or a folder
    /// below holds another table.
    /// Incompatible: the table is of another contract. Unavailable: the storage cannot be read.
    pub async fn wreck(&self) -> Result<Wreck> {
        let log = self.plain();
        match log.condition().await? {
            Condition::Sound => {
                return Err(Error::refused(
                    "the table's log loads, so there is nothing to rebuild; reset it without --rebuild-log",
                ));
            }
            // A rebuild that died before its hint was written.
            Condition::Around(_) if log.ends_in_rebuild().await? => {}
            Condition::Around(around) => {
                return Err(Error::refused(format!(
                    "the table's log leads past its damage ({}), so it need not be rebuilt; reset it without --rebuild-log",
                    around.why
                )));
            }
            Condition::Absent | Condition::Lost(_) => {}
        }
        let checked = log.world.clock.boot();
        let salvage = log.salvage().await?;
        if let Some(folder) = &salvage.files_say.other_table {
            return Err(Error::refused(format!(
                "the folder {folder:?} below {} holds a table of its own, so which files are whose cannot be told; move one of the two tables, or check the uri, before the log is rebuilt",
                log.location().uri()
            )));
        }
        if salvage.highest.is_none() && salvage.files_say.objects == 0 {
            return Err(Error::refused("there is no table to rebuild; a connector's first run makes it"));
        }
        let (metadata, has_id) = salvage.metadata().unzip();
        let protocol = salvage.protocol();
        let carried = salvage.carried();
        let upkeep = match (&protocol, &metadata) {
            (Some(protocol), Some(metadata)) => {
                let time = upkeep::has_times(protocol, metadata).then(|| salvage.time.unwrap_or(0));
                Upkeep::new(protocol, metadata, time, salvage.row_tracking().as_deref())?
            }
            _ => Upkeep::default(),
        };
        let clusters = carried.domains.get(CLUSTERING_DOMAIN).and_then(|d| d.get("configuration")?.as_str());
        let floor = floor(&salvage)?;
        let facts = Facts {
            version: salvage.highest,
            clustered_by: clusters.and_then(|text| clustering::columns(text).ok()).unwrap_or_default(),
            standing: standing(&salvage, metadata.as_ref(), &floor),
            metadata,
            protocol,
            upkeep,
            carried,
            ruins: Some(salvage.ruins),
            ..Facts::absent(checked)
        };
        let unfinished = salvage.rebuilt_at;
        Ok(Wreck {
            facts,
            files: salvage.files.into_values().collect(),
            floor,
            unfinished,
            has_id: has_id.unwrap_or(false),
        })
    }

    async fn ends_in_rebuild(&self) -> Result<bool> {
        let Some(newest) = self.list(0).await?.versions.last().copied() else { return Ok(false) };
        let commit = self.commit(newest).await?;
        Ok(commit.as_ref().and_then(|c| c.stamp()).is_some_and(|s| s.commit.starts_with(COMMIT_PREFIX_REBUILD)))
    }

    /// Writes the checkpoint of `version`, whose entry holds the whole state, names it in the hint, and reads both back.
    ///
    /// Unavailable or corrupt: it is not done, and may be tried again.
    pub async fn finish_rebuild(&self, version: u64) -> Result<()> {
        let log = self.plain();
        let bytes = log.read(version).await?.ok_or_else(|| {
            Error::corrupt(format!("the log entry of version {version}, by which the log was rebuilt, is gone"))
        })?;
        let files = checkpoint_alone(version, bytes.clone()).await?;
        // The hint last, when what it names is there.
        let (hints, checkpoints): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|(path, _)| path.filename() == Some(LAST_CHECKPOINT));
        for (path, bytes) in checkpoints.into_iter().chain(hints) {
            let failed = |e| store_error(format!("the file {path} of the rebuilt log cannot be written"), e);
            log.store().put(&path, bytes.into()).await.map_err(failed)?;
        }
        log.read_back(version, &bytes).await
    }

    /// Writes a checkpoint of `version`, the head, past damage below, and holds what others read then against it.
    pub async fn step_over(&self, version: u64) -> Result<()> {
        let expected = self.gist(version).await?;
        self.kernel.checkpoint(version).await?;
        let others = self.plain();
        let read = match others.gist(version).await {
            Err(e) if e.kind() == ErrorKind::Corrupt => return Err(unlike(version, "does not load").with_source(e)),
            other => other?,
        };
        if let Some(difference) = read.difference(&expected) {
            return Err(unlike(version, &difference));
        }
        others.check_hint(version).await
    }

    /// Holds what every reader sees of `version` against the entry there, which is its whole state.
    async fn read_back(&self, version: u64, bytes: &[u8]) -> Result<()> {
        let commit = entry::parse(version, bytes)?;
        let listing = self.list(version).await?;
        if !listing.checkpoints.contains(&version) {
            return Err(unlike(version, "is nothing"));
        }
        let replayed = match self.replay(Some(version)).await {
            Err(e) if e.kind() == ErrorKind::Corrupt => return Err(unlike(version, "does not load").with_source(e)),
            other => other?,
        };
        let stamp = commit.stamp();
        let is_step = replayed.step == stamp.map(|s| s.to.as_i64());
        let is_epoch = replayed.epoch == stamp.map(|s| s.epoch.as_i64());
        if !is_step || !is_epoch || commit.table.as_ref() != Some(&replayed.metadata.table()) {
            return Err(unlike(version, "says other metadata, step or epoch than the reload"));
        }
        if told(bytes) != (Some(replayed.metadata), Some(replayed.protocol)) {
            return Err(unlike(version, "says other metadata or another protocol than the reload"));
        }
        let live = self.live_map_at(version).await?;
        let is_live = |file: &FileId, size: u64| live.get(file).is_some_and(|found| found.size == size);
        if live.len() != commit.adds.len() || !commit.adds.iter().all(|add| is_live(&add.file, add.size)) {
            return Err(unlike(version, "names other files than the reload"));
        }
        self.check_hint(version).await
    }

    async fn check_hint(&self, version: u64) -> Result<()> {
        match self.hint_fault(&self.list(0).await?).await? {
            Some(fault) => Err(unlike(version, &format!("is led to wrongly: {}", fault.message))),
            None => Ok(()),
        }
    }
}

fn unlike(version: u64, what: &str) -> Error {
    Error::corrupt(format!(
        "the checkpoint of version {version} was written, and what is read back {what}; see what `cutover verify` finds, and repeat the reset that it names"
    ))
}

/// The metadata and the protocol in an entry.
fn told(bytes: &[u8]) -> (Option<Metadata>, Option<Protocol>) {
    let lines = bytes.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice::<serde_json::Value>(line).ok());
    let (mut metadata, mut protocol) = (None, None);
    for line in lines {
        let part = |name: &str| line.get(name).cloned();
        metadata = metadata.or(part("metaData").and_then(|value| serde_json::from_value(value).ok()));
        protocol = protocol.or(part("protocol").and_then(|value| serde_json::from_value(value).ok()));
    }
    (metadata, protocol)
}

fn floor(salvage: &Salvage) -> Result<Floor> {
    let generation = salvage.newest.map(|(generation, _)| generation).filter(|generation| *generation > 0);
    Ok(Floor {
        generation: generation.map(Generation::new).transpose()?,
        epoch: salvage.epoch.filter(|epoch| *epoch > 0).map(Epoch::new).transpose()?,
        last_step: salvage.newest.map(|(_, step)| Step::new(step)).transpose()?,
    })
}

/// What continuity makes of it; a table of ours of which nothing tells the connector is absent, and its floor is known.
fn standing(salvage: &Salvage, metadata: Option<&Metadata>, floor: &Floor) -> Standing {
    let stamp = metadata.and_then(|m| TableStamp::decode(&m.configuration).ok().flatten());
    let last = salvage.last.as_ref().map(|(_, stamp)| stamp);
    let connector = last.map(|l| l.connector.clone()).or(stamp.as_ref().map(|s| s.connector.clone()));
    let Some(connector) = connector else {
        let is_foreign = !salvage.is_ours() && (salvage.highest.is_some() || salvage.files_say.foreign > 0);
        return if is_foreign { Standing::Foreign } else { Standing::Absent };
    };
    let generation = floor.generation.or(stamp.as_ref().map(|s| s.generation)).unwrap_or(Generation::FIRST);
    Standing::Ours(Box::new(Ours {
        connector,
        generation,
        last_step: floor.last_step.unwrap_or(Step::ZERO),
        strand: None,
        epoch: floor.epoch.unwrap_or(Epoch::FIRST),
        writer: None,
        digest_total: None,
        rows_total: None,
        drift: Some("the table's log does not load".to_string()),
        last_millis: salvage.last_millis,
        stamp,
    }))
}
