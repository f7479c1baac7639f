//! What the next commit may be: a pure decision over what the table says and what is wanted.

use std::fmt;

use crate::continuity::stamp::{Layout, Mode, RowCounts, TableStamp};
use crate::digest::Digest;
use crate::epoch::Epoch;
use crate::error::{Error, ErrorKind, Lost, Result};
use crate::generation::Generation;
use crate::step::{Step, StepRange};
use crate::strand::Strand;

/// What the table says of itself at its head.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// There is no table.
    Absent,
    /// There is a table, and it is not ours.
    Foreign,
    /// The table is ours.
    Ours(Box<Ours>),
}

/// What a table of ours says.
#[derive(Debug, Clone, PartialEq)]
pub struct Ours {
    /// The properties of the last reload; `None` when others removed or broke them.
    pub stamp: Option<TableStamp>,
    /// The connector that the table belongs to.
    pub connector: String,
    /// The current generation.
    pub generation: Generation,
    /// The last step.
    pub last_step: Step,
    /// The strand of the last step; `None` where nothing tells it.
    pub strand: Option<Strand>,
    /// The highest epoch.
    pub epoch: Epoch,
    /// The writer that holds it; `None` when the log no longer tells.
    pub writer: Option<String>,
    /// The digest of the generation so far; `None` when the log no longer tells.
    pub digest_total: Option<Digest>,
    /// The rows of the generation's commits so far; `None` when the log does not tell.
    pub rows_total: Option<RowCounts>,
    /// Why the table is not what our commits made it.
    pub drift: Option<String>,
    /// When our last commit was made, in milliseconds since 1970 UTC by its writer's clock.
    pub last_millis: Option<i64>,
}

/// Who writes, and what the table is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The connector's full name.
    pub connector: String,
    /// The connector's mode.
    pub mode: Mode,
    /// The table's layout.
    pub layout: Layout,
    /// The key's columns.
    pub key: Vec<String>,
    /// The source's fingerprint.
    pub source: String,
}

/// A committed claim: the right to write until somebody takes a higher epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The epoch.
    pub epoch: Epoch,
    /// The writer that holds it.
    pub writer: String,
}

/// What to do with a table that is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExisting {
    /// Refuse it.
    Error,
    /// Replace its rows by the first reload.
    Truncate,
}

impl fmt::Display for OnExisting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Truncate => "truncate",
        })
    }
}

/// Whether a reload may go back in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Older {
    /// The cutover is at or after the table's last step.
    Refused,
    /// The operator said that it may be before.
    Allowed,
}

/// A reload that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReloadRequest {
    /// The step of the snapshot.
    pub cutover: Step,
    /// The commit's id, which a restart recognizes.
    pub commit: String,
    /// What to do with a table that is not ours.
    pub on_existing: OnExisting,
    /// Whether the cutover may be before the table's last step.
    pub older: Older,
}

/// What a reload is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadPlan {
    /// Commit it.
    Go {
        /// The generation that it starts.
        generation: Generation,
        /// The epoch that it commits under.
        epoch: Epoch,
    },
    /// It is committed already.
    AlreadyApplied,
}

/// What an append is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendPlan {
    /// Commit the changes of this range, which starts where the table ends.
    Go(StepRange),
    /// Every change is in the table already.
    AlreadyApplied,
}

/// What giving a table to another connector is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdoptPlan {
    /// Commit it.
    Go {
        /// The epoch that it takes.
        epoch: Epoch,
        /// The connector that the table belongs to until then.
        from: String,
    },
    /// The table belongs to that connector.
    AlreadyApplied,
}

/// Plans giving the table to `connector`. What drifted stays so: a reset by the connector repairs it.
pub fn adopt(standing: &Standing, connector: &str) -> Result<AdoptPlan> {
    let ours = match standing {
        Standing::Absent => return Err(Error::internal("no such table; a connector's first run makes it")),
        Standing::Foreign => {
            return Err(Error::refused(
                "the table is not ours, so it has no connector to change; a connector with on_existing = \"truncate\" replaces its rows",
            ));
        }
        Standing::Ours(ours) => ours,
    };
    let Some(stamp) = &ours.stamp else {
        return Err(Error::continuity_lost(
            Lost::Drift,
            format!(
                "the table lost the properties that a reload writes; repair it with a reset by the connector {}, then adopt it",
                ours.connector
            ),
        ));
    };
    if stamp.connector != ours.connector {
        return Err(Error::continuity_lost(
            Lost::Drift,
            format!(
                "the table's properties say that it belongs to {}, our last commit says {}; repair it with a reset by the latter",
                stamp.connector, ours.connector
            ),
        ));
    }
    if ours.connector == connector {
        return Ok(AdoptPlan::AlreadyApplied);
    }
    Ok(AdoptPlan::Go { epoch: ours.epoch.next()?, from: ours.connector.clone() })
}

/// The epoch of a new claim on a table of ours.
pub fn claim(ours: &Ours, identity: &Identity) -> Result<Epoch> {
    same_connector(ours, identity)?;
    ours.epoch.next()
}

/// Whether a claim still holds at the table's head.
pub fn check_claim(ours: &Ours, claim: &Claim) -> Result<()> {
    let other = ours.writer.as_ref().is_some_and(|w| *w != claim.writer);
    if ours.epoch > claim.epoch || (ours.epoch == claim.epoch && other) {
        let holder = ours.writer.as_deref().unwrap_or("unknown");
        return Err(Error::new(
            ErrorKind::Fenced,
            format!(
                "the writer {holder} holds the epoch {} of the table, this one held {}: another process delivers to it; stop one of them",
                ours.epoch, claim.epoch
            ),
        ));
    }
    if ours.epoch < claim.epoch {
        return Err(Error::continuity_lost(
            Lost::TableBehind,
            format!(
                "the table went back in time: its epoch is {}, this writer committed {}; reset it once nothing restores older versions of it",
                ours.epoch, claim.epoch
            ),
        ));
    }
    Ok(())
}

/// Plans a reload; without a claim only where there is no table of ours.
pub fn reload(
    standing: &Standing,
    claim: Option<&Claim>,
    identity: &Identity,
    request: &ReloadRequest,
) -> Result<ReloadPlan> {
    let Standing::Ours(ours) = standing else {
        check_reload(standing, identity, request)?;
        if claim.is_some() {
            return Err(Error::continuity_lost(
                Lost::TableGone,
                "the table that this writer claimed is gone; restart to load it anew",
            ));
        }
        return Ok(ReloadPlan::Go { generation: Generation::FIRST, epoch: Epoch::FIRST });
    };
    if let Some(claim) = claim
        && ours.connector != identity.connector
    {
        check_claim(ours, claim)?;
    }
    same_connector(ours, identity)?;
    if ours.stamp.as_ref().is_some_and(|s| s.commit == request.commit) {
        return Ok(ReloadPlan::AlreadyApplied);
    }
    let Some(claim) = claim else {
        return Err(Error::refused("the table is ours already; claim it before a reload"));
    };
    check_claim(ours, claim)?;
    check_reload(standing, identity, request)?;
    Ok(ReloadPlan::Go { generation: ours.generation.next()?, epoch: claim.epoch })
}

/// Whether a reload would be refused for what the table is, whoever claims it.
pub fn check_reload(standing: &Standing, identity: &Identity, request: &ReloadRequest) -> Result<()> {
    let ours = match (standing, request.on_existing) {
        (Standing::Absent, _) | (Standing::Foreign, OnExisting::Truncate) => return Ok(()),
        (Standing::Foreign, OnExisting::Error) => {
            return Err(Error::refused(
                "the table exists and is not ours; set on_existing = \"truncate\" to replace its rows, or choose another uri",
            ));
        }
        (Standing::Ours(ours), _) => ours,
    };
    same_connector(ours, identity)?;
    let same_source = ours.stamp.as_ref().is_none_or(|s| s.source == identity.source);
    if same_source && request.older == Older::Refused && request.cutover < ours.last_step {
        return Err(goes_back(request.cutover, ours.last_step));
    }
    Ok(())
}

/// Plans a reload that rebuilds a log which does not load, where `generation`, `epoch` and `last_step` are the highest
/// that anything readable names.
///
/// Nobody can claim such a table before: the reload takes the next epoch itself.
pub fn rebuild(
    standing: &Standing,
    identity: &Identity,
    request: &ReloadRequest,
    generation: Option<Generation>,
    epoch: Option<Epoch>,
    last_step: Option<Step>,
) -> Result<ReloadPlan> {
    if let Standing::Ours(ours) = standing {
        same_connector(ours, identity)?;
        if ours.stamp.as_ref().is_some_and(|s| s.commit == request.commit) {
            return Ok(ReloadPlan::AlreadyApplied);
        }
    }
    check_reload(standing, identity, request)?;
    if let (Standing::Absent, Some(last)) = (standing, last_step)
        && request.older == Older::Refused
        && request.cutover < last
    {
        return Err(goes_back(request.cutover, last));
    }
    Ok(ReloadPlan::Go {
        generation: generation.map_or(Ok(Generation::FIRST), Generation::next)?,
        epoch: epoch.map_or(Ok(Epoch::FIRST), Epoch::next)?,
    })
}

fn goes_back(cutover: Step, last: Step) -> Error {
    Error::refused(format!(
        "the snapshot is of step {cutover}, the table already stands at {last}, and readers never go back; wait for a newer one, or allow it with --allow-older"
    ))
}

/// Plans an append of the changes in `range`.
pub fn append(standing: &Standing, claim: &Claim, identity: &Identity, range: StepRange) -> Result<AppendPlan> {
    let Standing::Ours(ours) = standing else {
        return Err(Error::continuity_lost(
            Lost::TableGone,
            "the table that this writer claimed is gone; restart to load it anew",
        ));
    };
    check_claim(ours, claim)?;
    check_follow(ours, identity)?;
    let last = ours.last_step;
    if last >= range.to() {
        return Ok(AppendPlan::AlreadyApplied);
    }
    if last < range.from() {
        return Err(Error::continuity_lost(
            Lost::Gap,
            format!(
                "a gap: the table ends at step {last}, the source goes on after {}; repair it with a reset",
                range.from()
            ),
        ));
    }
    range.after(last).map_or(Ok(AppendPlan::AlreadyApplied), |rest| Ok(AppendPlan::Go(rest)))
}

/// Whether changes of this identity may follow what the table holds.
pub fn check_follow(ours: &Ours, identity: &Identity) -> Result<()> {
    same_connector(ours, identity)?;
    if let Some(drift) = &ours.drift {
        return Err(Error::continuity_lost(
            Lost::Drift,
            format!("{drift}; see `cutover verify`, then repair the table with a reset"),
        ));
    }
    let Some(stamp) = &ours.stamp else {
        return Err(Error::continuity_lost(
            Lost::Drift,
            "the table lost the properties that a reload writes; repair it with a reset",
        ));
    };
    if stamp.source != identity.source {
        return Err(Error::continuity_lost(
            Lost::OtherSource,
            format!(
                "the table was loaded from the source {:?}, this is {:?}, and their steps cannot be compared; go back to the first, or reset",
                stamp.source, identity.source
            ),
        ));
    }
    if stamp.layout != identity.layout || stamp.key != identity.key {
        return Err(Error::refused(format!(
            "the table has the layout {} and the key {:?}, the configuration {} and {:?}; change it back, or reset",
            stamp.layout, stamp.key, identity.layout, identity.key
        )));
    }
    if stamp.mode == Mode::Follow && identity.mode != Mode::Follow {
        return Err(Error::refused(format!(
            "the table was begun in mode follow, without a snapshot, and the configuration says {}; change it back, or reset",
            identity.mode
        )));
    }
    Ok(())
}

/// Whether a source that names no step beyond `latest` can have written a table that stands where `ours` does.
pub fn check_not_behind(ours: &Ours, latest: Step) -> Result<()> {
    if latest < ours.last_step {
        return Err(Error::continuity_lost(
            Lost::SourceBehind,
            format!(
                "the source is behind the table: it ends at step {latest}, the table at {}; restore the source, or take readers back with `cutover reset --allow-older`",
                ours.last_step
            ),
        ));
    }
    Ok(())
}

fn same_connector(ours: &Ours, identity: &Identity) -> Result<()> {
    if ours.connector == identity.connector {
        return Ok(());
    }
    Err(Error::refused(format!(
        "the table belongs to the connector {}, not to {}; choose another uri, or give the table to this one with `cutover adopt`",
        ours.connector, identity.connector
    )))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
