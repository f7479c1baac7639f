//! What changes leave behind: the last word on each row that they touch.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::row::Rows;
use twox_hash::XxHash3_64;

use crate::change::{Op, RowKeys, column, ops_of};
use crate::error::{Error, Lost, Result};
use crate::schema::View;

/// What a hash map's entry takes beside its bytes, roughly.
const ENTRY_BYTES: u64 = 96;

/// The keys (or, without key, the rows) whose hash leaves `index` when divided by `of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    index: u64,
    of: u64,
}

impl Share {
    /// Everything.
    pub(crate) const ALL: Share = Share { index: 0, of: 1 };

    /// The two halves of this share.
    pub(crate) fn halves(self) -> [Share; 2] {
        let of = self.of * 2;
        [Share { index: self.index, of }, Share { index: self.index + self.of, of }]
    }

    /// Whether halves would be smaller still.
    pub(crate) fn is_divisible(self) -> bool {
        self.of < 1 << 24
    }

    fn has(self, key: &[u8]) -> bool {
        self.of == 1 || XxHash3_64::oneshot(key) % self.of == self.index
    }
}

/// The net effect of changes on one share of a view's rows.
pub(crate) struct Effect {
    view: View,
    share: Share,
    /// Encodes whole rows, to keep the final ones and to tell keyless ones apart.
    rows: RowKeys,
    keys: RowKeys,
    key_indices: Vec<usize>,
    net: HashMap<Box<[u8]>, Net>,
    bytes: u64,
}

/// A row's net effect.
enum Net {
    /// Keyed: the key's last row, or none when it was deleted.
    Last(Option<Box<[u8]>>),
    /// Keyless: how many copies of the row were added, fewer than zero when they were taken away.
    Count(i64),
}

impl Effect {
    /// No effect yet.
    pub(crate) fn new(view: &View, share: Share) -> Result<Self> {
        let none = RecordBatch::new_empty(Arc::clone(view.schema()));
        let key_indices = if view.is_keyed() { view.key_indices() } else { (0..none.num_columns()).collect() };
        Ok(Self {
            view: view.clone(),
            share,
            rows: RowKeys::new(none.columns())?,
            keys: RowKeys::new(&chosen(none.columns(), &key_indices))?,
            key_indices,
            net: HashMap::new(),
            bytes: 0,
        })
    }

    /// The memory taken, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many keys, or distinct rows, are affected.
    pub(crate) fn len(&self) -> usize {
        self.net.len()
    }

    /// Adds the changes of a batch, which follows those before it.
    pub(crate) fn add(&mut self, changes: &RecordBatch) -> Result<()> {
        let ops = ops_of(changes)?;
        let fields = self.view.schema().fields().iter();
        let columns: Vec<ArrayRef> = fields.map(|f| column(changes, f.name()).cloned()).collect::<Result<_>>()?;
        let keys = self.keys_of(&columns)?;
        let rows = if self.view.is_keyed() { Some(self.rows.convert(&columns)?) } else { None };
        for (i, op) in ops.into_iter().enumerate() {
            let row = keys.row(i);
            let key = row.data();
            if !self.share.has(key) {
                continue;
            }
            match &rows {
                Some(rows) => {
                    let last = (op != Op::Delete).then(|| Box::from(rows.row(i).data()));
                    self.put(key, last);
                }
                None => self.count(key, if op == Op::Delete { -1 } else { 1 }),
            }
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], last: Option<Box<[u8]>>) {
        let size = |last: &Option<Box<[u8]>>| last.as_ref().map_or(0, |row| row.len() as u64);
        self.bytes += size(&last);
        match self.net.get_mut(key) {
            Some(Net::Last(earlier)) => {
                self.bytes -= size(earlier);
                *earlier = last;
            }
            _ => {
                self.bytes += key.len() as u64 + ENTRY_BYTES;
                self.net.insert(Box::from(key), Net::Last(last));
            }
        }
    }

    fn count(&mut self, key: &[u8], weight: i64) {
        match self.net.get_mut(key) {
            Some(Net::Count(count)) => {
                *count += weight;
                if *count == 0 {
                    self.bytes -= key.len() as u64 + ENTRY_BYTES;
                    self.net.remove(key);
                }
            }
            _ => {
                self.bytes += key.len() as u64 + ENTRY_BYTES;
                self.net.insert(Box::from(key), Net::Count(weight));
            }
        }
    }

    /// The rows of this share in a batch of the snapshot that are left as they are.
    pub(crate) fn untouched(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let keys = self.keys_of(batch.columns())?;
        let (share, net) = (self.share, &mut self.net);
        let mut stays = |key: &[u8]| {
            share.has(key)
                && match net.get_mut(key) {
                    None => true,
                    Some(Net::Last(_)) => false,
                    Some(Net::Count(count)) if *count < 0 => {
                        *count += 1;
                        false
                    }
                    Some(Net::Count(_)) => true,
                }
        };
        let keep: BooleanArray = keys.iter().map(|row| Some(stays(row.data()))).collect();
        filter_record_batch(&batch, &keep).map_err(|e| Error::internal("rows were not filtered").with_source(e))
    }

    /// The rows that the changes add, once the whole snapshot went through [`Effect::untouched`].
    ///
    /// An error of [`ErrorKind::ContinuityLost`](crate::error::ErrorKind::ContinuityLost) when a row was deleted that the
    /// snapshot does not hold.
    pub(crate) fn into_rest(self) -> Result<Rest> {
        let missing: u64 =
            self.net.values().map(|net| if let Net::Count(n @ ..0) = net { n.unsigned_abs() } else { 0 }).sum();
        if missing > 0 {
            return Err(Error::continuity_lost(
                Lost::Gap,
                format!(
                    "view {}: the changes delete {missing} rows that the snapshot does not hold; land a newer snapshot, then reset",
                    self.view.name()
                ),
            ));
        }
        let rows = self.net.into_iter().filter_map(|(key, net)| match net {
            Net::Last(last) => Some((last?, 1)),
            Net::Count(count) => Some((key, u64::try_from(count).ok().filter(|count| *count > 0)?)),
        });
        Ok(Rest { view: self.view, keys: self.rows, rows: Box::new(rows), repeated: None })
    }

    fn keys_of(&self, columns: &[ArrayRef]) -> Result<Rows> {
        self.keys.convert(&chosen(columns, &self.key_indices))
    }
}

fn chosen(columns: &[ArrayRef], indices: &[usize]) -> Vec<ArrayRef> {
    indices.iter().filter_map(|i| columns.get(*i)).map(Arc::clone).collect()
}

/// The rows that changes leave, decoded batch by batch.
pub(crate) struct Rest {
    view: View,
    keys: RowKeys,
    rows: Box<dyn Iterator<Item = (Box<[u8]>, u64)> + Send>,
    repeated: Option<(Box<[u8]>, u64)>,
}

impl Rest {
    /// At most `limit` rows; `None` at the end.
    pub(crate) fn batch(&mut self, limit: usize) -> Result<Option<RecordBatch>> {
        let mut encoded: Vec<Box<[u8]>> = Vec::new();
        while encoded.len() < limit {
            let Some((row, count)) = self.repeated.take().or_else(|| self.rows.next()) else { break };
            if count > 1 {
                self.repeated = Some((row.clone(), count - 1));
            }
            encoded.push(row);
        }
        if encoded.is_empty() {
            return Ok(None);
        }
        let columns = self.keys.restore(encoded.iter().map(AsRef::as_ref))?;
        RecordBatch::try_new(Arc::clone(self.view.schema()), columns)
            .map(Some)
            .map_err(|e| Error::internal("folded rows do not fit the view").with_source(e))
    }
}
