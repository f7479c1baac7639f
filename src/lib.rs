//! Cutover keeps a Delta Lake table equal to a changing view.
//!
//! It writes the view's rows at one exact step as a single Delta version, records that step in the table, and appends every
//! later change exactly once, so that any reader can check that nothing is missing and nothing is doubled. `PROTOCOL.md`
//! is the contract with readers, `ARCHITECTURE.md` the map of the modules.
//!
//! A [`Target`] is a table that was looked at. Loading it, or claiming one that is ours, gives a [`Sink`], which has two
//! verbs: reload it with a [`Snapshot`], append [`Changes`] to it. What either may do is checked against what the
//! table says of itself.
//!
//! ```
//! use std::sync::Arc;
//!
//! use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
//! use arrow::datatypes::{DataType, Field, Schema};
//! use cutover::inspect::{Verdict, verify};
//! use cutover::log::Log;
//! use cutover::{
//!     Access, Changes, Durability, Location, SinkSettings, Snapshot, Step, StepRange, Target, View, World,
//! };
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let schema = Schema::new(vec![Field::new("id", DataType::Int64, false)]);
//! let view = View::new("ids", &schema, vec!["id".into()])?;
//! let location = Location::open("memory://", Access::Write(Durability::Commit))?;
//! let settings = SinkSettings::new("shop/ids/lake", "shop-database-1");
//!
//! // The state at step 100 is version 0.
//! let target = Target::open(location.clone(), view.clone(), settings, World::system()).await?;
//! let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
//! let state = RecordBatch::try_new(view.schema().clone(), vec![ids])?;
//! let mut sink = target.load(Snapshot::from_batches(Step::new(100)?, vec![state])).await?;
//!
//! // Step 101 deletes a row and inserts one: version 1.
//! let columns: Vec<ArrayRef> = vec![
//!     Arc::new(Int64Array::from(vec![101, 101])),
//!     Arc::new(StringArray::from(vec!["d", "i"])),
//!     Arc::new(Int64Array::from(vec![2, 3])),
//! ];
//! let changes = RecordBatch::try_new(view.change_schema(), columns)?;
//! let range = StepRange::new(Step::new(100)?, Step::new(101)?)?;
//! sink.append(Changes::new(range, vec![changes])?).await?;
//!
//! let report = verify(&Log::new(location, World::system()), None).await?;
//! assert_eq!(report.verdict, Verdict::Healthy);
//! assert_eq!(report.last_step, Some(sink.last_step()?));
//! # Ok(())
//! # }
//! ```
//!
//! | name | is |
//! |---|---|
//! | [`View`], [`Snapshot`], [`Changes`], [`Op`] | what is delivered |
//! | [`Step`], [`StepRange`] | positions in the source's history |
//! | [`Location`], [`Access`], [`Durability`] | where a table is, and what it is opened for |
//! | [`Target`], [`Standing`], [`SinkSettings`], [`OnExisting`], [`SchemaChange`] | a table that is not claimed, and what may be done with it |
//! | [`Sink`], [`Applied`] | a claimed table, and what a verb did |
//! | [`Part`], [`Manifest`], [`StagedSnapshot`] | a snapshot that many workers write, by [`Target::stage`], and one commits |
//! | [`Error`], [`ErrorKind`] | what failed, and what to do next |
//! | [`World`], [`Clock`], [`Ids`] | time and randomness, passed in |
//! | [`inspect`] | reading a table from outside: verify, history, show, state, changes |
//! | [`source::Source`], [`connector::Connector`] | a source of changes, and one delivered to a table |
//! | [`steplog::StepLog`], [`disk::Disk`] | a view's changes kept on disk for whoever needs them, and what writes them |
//! | [`view::ViewStore`] | the rows that those changes come to, and pinned states of them |
//! | [`connector::Running`], [`connector::Handle`] | a connector that is controlled while it runs: paused, resumed, reset |
//! | [`egress::Stream`], [`connector::StreamConnector`] | a view as chunks for a client, and the place of one that comes back |
//! | [`config`], [`cli`] | the program `cutover` |

pub mod ailment;
pub mod change;
pub mod cli;
pub mod clock;
pub mod config;
pub mod connector;
pub mod continuity;
pub mod daemon;
mod data_file;
pub mod digest;
pub mod disk;
mod drawing;
pub mod egress;
mod embedded;
pub mod epoch;
pub mod error;
pub mod events;
mod explain;
pub mod files;
pub mod generation;
pub mod ingest;
pub mod inspect;
mod ipc;
mod json;
mod key_index;
mod lines;
pub mod log;
mod quantity;
pub mod schema;
pub mod server;
pub mod sink;
pub mod snapshot;
pub mod source;
mod state_file;
pub mod step;
pub mod steplog;
mod store;
pub mod strand;
pub mod view;
pub mod webhooks;

/// The Arrow that batches and schemas are made of.
pub use arrow;
pub use change::{Changes, Op};
pub use clock::{Clock, Ids, SystemClock, World};
pub use continuity::columns::SchemaChange;
pub use continuity::plan::{OnExisting, Standing};
pub use error::{Error, ErrorKind, Result};
pub use log::{Access, Durability, Location};
pub use schema::View;
pub use sink::{Applied, Manifest, Part, PartOf, Sink, SinkSettings, StagedSnapshot, Target};
pub use snapshot::Snapshot;
pub use step::{Step, StepRange};

/// The page for those who embed the sink: its code is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../docs/EMBEDDING.md")]
struct Embedding;
