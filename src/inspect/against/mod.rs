//! A table held against the one that it was made of: the same rows at one position of the server's log, or not.
//!
//! ```text
//!   server at C ──── read once ────► digests, one for each part of the keys ──┐
//!                                                                             ├─ equal, or the rows of the parts that differ
//!   changelog, rows with __step ≤ C ──► the newest of each key, part by part ─┘
//! ```
//!
//! What a part holds is bounded, so memory is; a table of many rows is read once for each part.

mod eye;
mod held;

use std::time::Duration;

use futures::TryStreamExt;

use self::eye::{Eye, Part, Tally};
use self::held::{Held, Table};
use crate::clock::World;
use crate::continuity::stamp::Mode;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::generation::Generation;
use crate::log::Log;
use crate::source::postgres::{Original, Taken, Witness};
use crate::step::Step;

/// How often the table is looked at that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often it is begun anew when the table was loaded anew meanwhile.
const TRIES: u32 = 5;
/// How many rows that differ are named.
const NAMED: usize = 20;

/// How it is compared.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// How long a table is waited for that is not where the server is.
    pub patience: Duration,
    /// How many keys are held at once.
    pub keys: u64,
}

impl Bounds {
    /// They take about 210 MB.
    pub const KEYS: u64 = 3_600_000;
}

/// Rows of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rows {
    /// How many.
    pub count: u64,
    /// Their digest.
    pub digest: Digest,
}

/// A table and its original.
#[derive(Debug, Clone)]
pub struct Compared {
    /// The position of the server's log at which both were compared, in its own words.
    pub point: Option<String>,
    /// The same as a step.
    pub step: Option<Step>,
    /// The table's generation.
    pub generation: Option<Generation>,
    /// The last step of the table that is not after it.
    pub table_step: Option<Step>,
    /// What the server has there.
    pub original: Option<Rows>,
    /// What the table has there.
    pub table: Option<Rows>,
    /// What it comes to.
    pub likeness: Likeness,
}

/// What a comparison comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Likeness {
    /// The same rows.
    Equal,
    /// Other rows.
    Different(Differences),
    /// It cannot be the same, rows or not; why.
    Unlike(String),
    /// It cannot be told; why, and what differs that may be on its way.
    Untold(String, Differences),
}

/// The rows that differ.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Differences {
    /// Rows that only the server has.
    pub missing: u64,
    /// Rows that only the table has.
    pub extra: u64,
    /// Rows of a key that both have, with other values.
    pub changed: u64,
    /// Some of them.
    pub named: Vec<Difference>,
}

/// A row that differs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// How.
    pub kind: DifferenceKind,
    /// Its key in JSON; of a view without key, all of it.
    pub row: String,
}

/// How a row differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceKind {
    /// Only the server has it.
    Missing,
    /// Only the table has it.
    Extra,
    /// Both have its key, with other values.
    Changed,
}

impl DifferenceKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::Changed => "changed",
        }
    }
}

impl Differences {
    fn add(&mut self, kind: DifferenceKind, row: impl FnOnce() -> Result<String>) -> Result<()> {
        match kind {
            DifferenceKind::Missing => self.missing += 1,
            DifferenceKind::Extra => self.extra += 1,
            DifferenceKind::Changed => self.changed += 1,
        }
        if self.named.len() < NAMED {
            self.named.push(Difference { kind, row: row()? });
        }
        Ok(())
    }
}

/// Compares the table of `log` with `original` at the end of the server's log; `waiting` is told once when the table is
/// waited for, from which step on and up to which.
///
/// Refused: the table is not ours. Corrupt: its files are missing or damaged, or its rows contradict each other. Otherwise as
/// the server lets itself be read.
pub async fn compare(
    log: &Log,
    original: &Original,
    bounds: Bounds,
    world: &World,
    mut waiting: impl FnMut(Step, Step),
) -> Result<Compared> {
    let end = world.clock.boot() + bounds.patience;
    for _ in 0..TRIES {
        let table = Table::open(log, None).await?;
        let mode = table.stamp.mode;
        if mode == Mode::Follow {
            return Ok(without(Likeness::Untold(
                "the table has only the changes after its first step, since its mode is follow, and not the rows from before"
                    .into(),
                Differences::default(),
            )));
        }
        let witness = match original.look(&table.stamp.source, &table.view).await? {
            Taken::Witness(witness) => witness,
            Taken::Unlike(why) => return Ok(without(Likeness::Unlike(why))),
        };
        let comparison = Comparison { witness: &witness, bounds, original: None };
        if let Some(compared) = comparison.follow(log, table, world, end, &mut waiting).await? {
            return Ok(compared);
        }
    }
    let why = "the table was loaded anew each time that it was compared; try again";
    Ok(without(Likeness::Untold(why.into(), Differences::default())))
}

fn without(likeness: Likeness) -> Compared {
    Compared { point: None, step: None, generation: None, table_step: None, original: None, table: None, likeness }
}

/// Whether rows that differ are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    Nothing,
    Rows,
}

/// The server's rows, and how they are divided.
struct Comparison<'a> {
    witness: &'a Witness,
    bounds: Bounds,
    original: Option<(Eye, Tally)>,
}

impl Comparison<'_> {
    /// Compares until both are equal, the table is as far as the server, or the time is up. `None`: the table was loaded
    /// anew from a later position.
    async fn follow(
        mut self,
        log: &Log,
        mut table: Table,
        world: &World,
        end: Duration,
        waiting: &mut impl FnMut(Step, Step),
    ) -> Result<Option<Compared>> {
        let step = self.witness.step();
        let mut has_waited = false;
        loop {
            if table.stamp.step > step {
                return Ok(None);
            }
            let is_there = table.head_step >= step;
            let naming = if is_there { Naming::Rows } else { Naming::Nothing };
            let compared = self.once(&table, naming).await?;
            if compared.likeness == Likeness::Equal || table.last_step >= step {
                return Ok(Some(compared));
            }
            if is_there {
                let why = format!(
                    "the table has the layout current, so it holds its rows as they were where commits ended, at step {} and then behind step {step} of the server; try again while little is written",
                    table.last_step
                );
                return self.untold(&table, why).await.map(Some);
            }
            if table.stamp.mode == Mode::Snapshot {
                let why =
                    "the table is one snapshot, since its mode is snapshot, and the server's table is another by now";
                return self.untold(&table, why.into()).await.map(Some);
            }
            if !has_waited {
                waiting(table.last_step, step);
                has_waited = true;
            }
            let was = table.head_step;
            while table.head_step == was && table.stamp.step <= step {
                if world.clock.boot() >= end {
                    let why = format!(
                        "the table is at step {was} and other than the server at step {step}, which it did not reach in time; let its connector run, with a heartbeat where the table is seldom written"
                    );
                    return self.untold(&table, why).await.map(Some);
                }
                world.clock.sleep(LOOK_EVERY).await;
                table = Table::open(log, Some(step)).await?;
            }
        }
    }

    /// What differs, though nobody knows whether it does for good.
    async fn untold(&mut self, table: &Table, why: String) -> Result<Compared> {
        let compared = self.once(table, Naming::Rows).await?;
        Ok(match compared.likeness {
            Likeness::Different(differences) => Compared { likeness: Likeness::Untold(why, differences), ..compared },
            _ => compared,
        })
    }

    async fn once(&mut self, table: &Table, naming: Naming) -> Result<Compared> {
        let at = table.last_step.min(self.witness.step());
        self.read(table).await?;
        let Some((eye, tally)) = &self.original else {
            return Err(Error::internal("what the server has was not read"));
        };
        let (mut own, mut differences) = (Rows::default(), Differences::default());
        for (part, expected) in tally.parts() {
            let held = table.part(eye, part, at).await?;
            let rows = held.rows();
            own = Rows { count: own.count + rows.count, digest: own.digest.plus(rows.digest) };
            if rows != expected && naming == Naming::Rows {
                self.name(table, eye, part, at, held, &mut differences).await?;
            }
        }
        let total = tally.total();
        let likeness = if own == total { Likeness::Equal } else { Likeness::Different(differences) };
        Ok(Compared {
            point: Some(self.witness.point().to_owned()),
            step: Some(self.witness.step()),
            generation: Some(table.stamp.generation),
            table_step: Some(at),
            original: Some(total),
            table: Some(own),
            likeness,
        })
    }

    /// Reads what the server has, once.
    async fn read(&mut self, table: &Table) -> Result<()> {
        if self.original.is_some() {
            return Ok(());
        }
        let eye = Eye::new(&table.stamp.key);
        let mut tally = Tally::new(table.rows().div_ceil(self.bounds.keys.max(1)).max(1));
        let mut rows = self.witness.rows().await?;
        while let Some(batch) = rows.try_next().await? {
            tally.add(&eye.see(&batch)?);
        }
        self.original = Some((eye, tally));
        Ok(())
    }

    /// Finds the rows of a part that differ.
    async fn name(
        &self,
        table: &Table,
        eye: &Eye,
        part: Part,
        at: Step,
        mut held: Held,
        differences: &mut Differences,
    ) -> Result<()> {
        let mut rows = self.witness.rows().await?;
        while let Some(batch) = rows.try_next().await? {
            for (row, seen) in eye.see(&batch)?.into_iter().enumerate().filter(|(_, seen)| part.has(seen.id)) {
                if let Some(kind) = held.meet(seen) {
                    differences.add(kind, || eye.text(&batch, row))?;
                }
            }
        }
        let left = held.left();
        let named = left.keys().copied().take(NAMED.saturating_sub(differences.named.len())).collect();
        let texts = table.texts(eye, at, &named).await?;
        for (id, count) in left {
            for _ in 0..count {
                let text = || texts.get(&id).cloned().ok_or_else(|| Error::internal("a row was not found again"));
                differences.add(DifferenceKind::Extra, text)?;
            }
        }
        differences.named.sort();
        Ok(())
    }
}
