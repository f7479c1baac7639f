//! Tables of a PostgreSQL server: their rows at a snapshot, and what its log tells after it.

mod assembly;
mod catalog;
mod copy;
mod evidence;
mod examination;
mod exported;
mod feed;
mod joining;
mod kinds;
mod meeting;
mod message;
mod original;
mod reader;
mod replication;
mod rows;
mod server;
mod shelf;
mod storing;
mod stream;
mod tls;
mod turn;
mod watch;

pub(crate) use catalog::TableName;
pub use examination::{Depth, Wanted, WantedTable, examine};
pub use feed::{Feed, FeedSettings, TableStanding};
pub use meeting::WalKept;
pub use original::Original;
pub(crate) use original::{Taken, Witness};
pub use reader::TableSource;
pub(crate) use server::url_fault;
pub use shelf::TableSettings;
