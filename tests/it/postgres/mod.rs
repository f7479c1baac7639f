//! Tables of a real PostgreSQL server, delivered by the program.

mod server;
mod tls;
mod types;
