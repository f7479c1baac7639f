//! The rows of one view at its last step, on disk, and its state as it was when somebody pinned it.
//!
//! ```text
//!   0 "identity"       whose store this is: format, log, columns, key
//!   0 "stand"          the step and the number of rows
//!   1 key              keyed: the row
//!   1 hash of the row  keyless: the rows of that hash, each with the number of its copies
//! ```
//!
//! It is a cache of what the step log's changes come to. A step is applied as a whole and is not synced, so after a crash the
//! store stands at some earlier step, from which the log leads on; only what [`ViewStore::durable`] names may be released
//! from the log. Everything is in one keyspace, because two are written out independently of each other: a crash could leave
//! the rows of one step beside the number of another.

mod effect;
mod encoding;
mod pinned;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use fjall::{Database, Keyspace, PersistMode, Slice};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use effect::{Effect, Staging};
pub use pinned::{Batches, Pinned, Pins};

use crate::embedded::{self, Place};
use crate::error::{Error, Result, panic_text};
use crate::schema::View;
use crate::step::Step;
use encoding::Encoding;

/// Which encoding of keys and rows a store has; another one cannot be read.
const FORMAT: u32 = 1;
const REMEDY: &str = "stop, and remove it: it is made again from a step log that reaches back to its beginning, and otherwise the view has to be pushed anew";
const IDENTITY: &[u8] = b"\0identity";
const STAND: &[u8] = b"\0stand";

/// Whose rows a store holds.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    format: u32,
    /// The step log whose changes these rows are.
    log: Uuid,
    key: Vec<String>,
    /// Each column's name and type.
    columns: Vec<(String, String)>,
}

/// A view's rows at its last step. It has one owner, who applies steps; [`Pins`] read beside it.
pub struct ViewStore {
    database: Database,
    pins: Pins,
    step: Step,
    rows: u64,
    durable: Option<Step>,
    /// Whether what was found at opening may still stand in a journal that an earlier process failed to sync.
    is_found_unsure: bool,
}

impl ViewStore {
    /// Opens the store in `directory` of the view's rows by the changes of `log`, or begins one without rows at step 0.
    ///
    /// Refused: another process has it. Incompatible: it holds other columns. Corrupt: it is damaged, or of another log;
    /// then it may be removed and made again from a log that reaches back to its beginning.
    pub fn open(directory: &Path, view: &View, log: Uuid) -> Result<Self> {
        let place = Place::new(directory, "the store", format!("view {}", view.name()), REMEDY);
        // What stands in a damaged file is no reason to end the process.
        match catch_unwind(AssertUnwindSafe(|| Self::open_at(&place, view, log))) {
            Ok(opened) => opened,
            Err(panic) => Err(place.damaged(&panic_text(&*panic))),
        }
    }

    fn open_at(place: &Place, view: &View, log: Uuid) -> Result<Self> {
        let encoding = Encoding::new(view)?;
        let failed = |e| place.error(e);
        let (database, keyspace) = place.open("view")?;
        let own = Identity::of(view, log);
        let found = keyspace.get(IDENTITY).map_err(failed)?;
        let is_found = found.is_some();
        match found {
            Some(found) => own.check(&found, place)?,
            None => {
                let bytes = serde_json::to_vec(&own)
                    .map_err(|e| Error::internal("the store's identity was not written").with_source(e))?;
                let mut batch = database.batch();
                batch.insert(&keyspace, IDENTITY, bytes);
                batch.insert(&keyspace, STAND, stand(Step::ZERO, 0));
                batch.commit().map_err(failed)?;
                database.persist(PersistMode::SyncAll).map_err(failed)?;
            }
        }
        if is_found {
            keyspace.rotate_memtable().map_err(failed)?;
        }
        let pins = Pins { database: database.clone(), keyspace, encoding: Arc::new(encoding), place: place.clone() };
        let (step, rows) = pins.pin().map(|pinned| (pinned.step, pinned.rows))?;
        let durable = (!is_found).then_some(step);
        Ok(Self { database, pins, step, rows, durable, is_found_unsure: is_found })
    }

    /// Removes a store that nobody has open.
    pub fn remove(directory: &Path) -> Result<()> {
        embedded::remove(directory).map_err(|e| {
            let what = format!("the view store {} cannot be removed; remove it by hand", directory.display());
            Error::unavailable(what).with_source(e)
        })
    }

    /// The last step applied.
    pub fn step(&self) -> Step {
        self.step
    }

    /// How many rows there are.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The step up to which a cut of the power takes nothing; `None` until [`ViewStore::sync`] made sure of what was found.
    pub fn durable(&self) -> Option<Step> {
        self.durable
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.pins.place.directory
    }

    /// What reads beside the owner.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// The effects of steps that follow the last one, and are not applied yet.
    pub fn stage(&self) -> Staging<'_> {
        Staging::new(self)
    }

    /// Applies the changes of a step, in order: [`View::change_schema`], with or without `__step`.
    ///
    /// Refused, with nothing applied: a row is deleted that a view without key does not hold.
    pub fn apply(&mut self, step: Step, changes: &[RecordBatch]) -> Result<()> {
        let effect = self.stage().add(changes)?;
        self.commit(step, effect)
    }

    /// Applies the effect of a step; those staged before it were committed.
    pub fn commit(&mut self, step: Step, effect: Effect) -> Result<()> {
        if step <= self.step {
            return Err(Error::internal(format!("step {step} was to be applied to rows of step {}", self.step)));
        }
        let rows = self
            .rows
            .checked_add_signed(effect.rows)
            .ok_or_else(|| self.pins.place.damaged("it holds fewer rows than are deleted"))?;
        let (mut batch, keyspace) = (self.database.batch(), &self.pins.keyspace);
        for (key, value) in effect.changes {
            match value {
                Some(value) => batch.insert(keyspace, key, value),
                None => batch.remove(keyspace, key),
            }
        }
        batch.insert(keyspace, STAND, stand(step, rows));
        batch.commit().map_err(|e| self.pins.place.error(e))?;
        (self.step, self.rows) = (step, rows);
        Ok(())
    }

    /// Makes durable what was applied.
    pub fn sync(&mut self) -> Result<()> {
        self.database.persist(PersistMode::SyncAll).map_err(|e| self.pins.place.error(e))?;
        // What was found is relied upon only once it stands in a table that this process wrote and synced.
        self.is_found_unsure &= self.pins.keyspace.sealed_memtable_count() > 0;
        if !self.is_found_unsure {
            self.durable = Some(self.step);
        }
        Ok(())
    }

    fn keyspace(&self) -> &Keyspace {
        &self.pins.keyspace
    }
}

impl std::fmt::Debug for ViewStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("ViewStore");
        shown.field("directory", &self.directory()).field("step", &self.step).field("rows", &self.rows);
        shown.finish_non_exhaustive()
    }
}

impl Identity {
    fn of(view: &View, log: Uuid) -> Self {
        let fields = view.schema().fields().iter();
        let columns = fields.map(|f| (f.name().clone(), f.data_type().to_string())).collect();
        Self { format: FORMAT, log, key: view.key().to_vec(), columns }
    }

    fn check(&self, found: &[u8], place: &Place) -> Result<()> {
        let found: Self = serde_json::from_slice(found).map_err(|_| place.damaged("its identity does not decode"))?;
        if found.log != self.log {
            return Err(place.damaged(&format!("it belongs to the step log {}, and not to {}", found.log, self.log)));
        }
        if found.format != self.format {
            return Err(Error::incompatible(format!(
                "{place} has the format {}, and this version reads {FORMAT}; use the version that wrote it, or remove both it and its step log and push the view anew",
                found.format
            )));
        }
        if found == *self {
            return Ok(());
        }
        let shown = |identity: &Self| {
            let columns = identity.columns.iter().map(|(name, kind)| format!("{name} {kind}")).collect::<Vec<_>>();
            format!("the columns {} with the key {:?}", columns.join(", "), identity.key)
        };
        Err(Error::incompatible(format!(
            "{place} holds {}, and the view has {}; declare the view as it was, or remove both the store and its step log, push the view anew, then reset its connectors",
            shown(&found),
            shown(self)
        )))
    }
}

fn stand(step: Step, rows: u64) -> Slice {
    let mut bytes = [0; 16];
    let (first, second) = bytes.split_at_mut(8);
    first.copy_from_slice(&step.get().to_le_bytes());
    second.copy_from_slice(&rows.to_le_bytes());
    Slice::from(bytes)
}

fn read_stand(bytes: &[u8]) -> Option<(Step, u64)> {
    let (step, rows) = bytes.split_first_chunk::<8>()?;
    Some((Step::new(u64::from_le_bytes(*step)).ok()?, u64::from_le_bytes(rows.try_into().ok()?)))
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
