//! Tables of a real PostgreSQL server, delivered by the program.

mod against;
mod check;
mod contract;
mod follow;
mod kills;
mod lost;
mod pgbench;
mod server;
mod site;
mod tables;
mod tls;
mod types;
mod untold;

pub(crate) use self::server::Postgres;
