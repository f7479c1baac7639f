//! Tables of a PostgreSQL server: their rows at a snapshot, and what its log tells after it.

pub(crate) mod catalog;
pub(crate) mod copy;
pub(crate) mod kinds;
pub(crate) mod message;
pub(crate) mod rows;
pub(crate) mod server;
pub(crate) mod tls;
