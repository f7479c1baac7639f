//! What steps change in the store, before they are applied.

use std::collections::HashMap;

use arrow::array::{Array, RecordBatch};
use fjall::Slice;

use super::ViewStore;
use super::encoding::{Bucket, Encoding};
use crate::change::{Op, column, ops_of};
use crate::error::{Error, Result};

type Writes = HashMap<Slice, Option<Slice>>;

/// What one step changes.
#[derive(Debug, Default)]
pub struct Effect {
    pub(super) changes: Writes,
    /// By how many rows there are more.
    pub(super) rows: i64,
}

/// The store with the effects of steps on top that are not applied yet. It holds what those steps write, in memory.
pub struct Staging<'a> {
    store: &'a ViewStore,
    above: Writes,
}

impl<'a> Staging<'a> {
    pub(super) fn new(store: &'a ViewStore) -> Self {
        Self { store, above: Writes::new() }
    }

    /// The effect of the next step's changes, given those added before; an error leaves no trace.
    ///
    /// Refused: a row is deleted that a view without key does not hold, or a key is longer than fits.
    pub fn add(&mut self, changes: &[RecordBatch]) -> Result<Effect> {
        let mut effect = Effect::default();
        for batch in changes {
            if self.store.pins().encoding.view.is_keyed() {
                self.add_keyed(batch, &mut effect)?;
            } else {
                self.add_keyless(batch, &mut effect)?;
            }
        }
        self.above.extend(effect.changes.iter().map(|(key, value)| (key.clone(), value.clone())));
        Ok(effect)
    }

    /// The rows of the keys in a batch with the key's columns, where there are any.
    pub fn get(&self, keys: &RecordBatch) -> Result<RecordBatch> {
        let encoding = &self.store.pins().encoding;
        let mut rows = Vec::new();
        for key in &encoding.keys_of(keys)? {
            rows.extend(self.look_up(&encoding.place(key.data())?, &Effect::default())?);
        }
        encoding.decode(rows.iter().map(AsRef::as_ref))
    }

    fn look_up(&self, place: &Slice, own: &Effect) -> Result<Option<Slice>> {
        match own.changes.get(place).or_else(|| self.above.get(place)) {
            Some(value) => Ok(value.clone()),
            None => self.store.keyspace().get(place).map_err(|e| self.store.pins().place.error(e)),
        }
    }

    fn is_there(&self, place: &Slice, own: &Effect) -> Result<bool> {
        match own.changes.get(place).or_else(|| self.above.get(place)) {
            Some(value) => Ok(value.is_some()),
            None => self.store.keyspace().contains_key(place).map_err(|e| self.store.pins().place.error(e)),
        }
    }

    fn add_keyed(&self, batch: &RecordBatch, effect: &mut Effect) -> Result<()> {
        let encoding = &self.store.pins().encoding;
        for name in encoding.view.key() {
            if column(batch, name)?.null_count() > 0 {
                let view = encoding.view.name();
                return Err(Error::refused(format!("view {view}: a change has null in the key column {name:?}")));
            }
        }
        let encoded = encoding.encode(batch)?;
        let keys = encoded.keys.iter().flatten().zip(&encoded.rows);
        for (op, (key, row)) in ops_of(batch)?.into_iter().zip(keys) {
            let place = encoding.place(key.data())?;
            let was_there = self.is_there(&place, effect)?;
            match op {
                Op::Delete if !was_there => {}
                Op::Delete => {
                    effect.rows -= 1;
                    effect.changes.insert(place, None);
                }
                Op::Insert | Op::Update => {
                    effect.rows += i64::from(!was_there);
                    effect.changes.insert(place, Some(row.data().into()));
                }
            }
        }
        Ok(())
    }

    fn add_keyless(&self, batch: &RecordBatch, effect: &mut Effect) -> Result<()> {
        let pins = self.store.pins();
        let view = &pins.encoding.view;
        for field in view.schema().fields().iter().filter(|f| !f.is_nullable()) {
            if column(batch, field.name())?.null_count() > 0 {
                let (view, name) = (view.name(), field.name());
                return Err(Error::refused(format!(
                    "view {view}: a change has null in the column {name:?}, which has none"
                )));
            }
        }
        let encoded = pins.encoding.encode(batch)?;
        for (i, (op, row)) in ops_of(batch)?.into_iter().zip(&encoded.rows).enumerate() {
            let place = Encoding::hashed_place(row.data());
            let mut bucket = match self.look_up(&place, effect)? {
                Some(bytes) => {
                    Bucket::decode(&bytes).ok_or_else(|| pins.place.damaged("a row in it does not decode"))?
                }
                None => Bucket::default(),
            };
            let count = bucket.count(row.data());
            match op {
                Op::Insert => {
                    *count += 1;
                    effect.rows += 1;
                }
                Op::Delete if *count > 0 => {
                    *count -= 1;
                    effect.rows -= 1;
                }
                Op::Delete => {
                    return Err(Error::refused(format!(
                        "view {}: change {i} deletes a row that the view does not hold; send the row as it was inserted, or declare a key",
                        view.name()
                    )));
                }
                Op::Update => {
                    return Err(Error::refused(format!(
                        "view {} has no key, so it has no updates; send a delete of the old row and an insert of the new one, or declare the key",
                        view.name()
                    )));
                }
            }
            effect.changes.insert(place, bucket.encode());
        }
        Ok(())
    }
}
