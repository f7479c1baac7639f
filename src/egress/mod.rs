//! A view as a stream of chunks: its rows at one step, then every later change, for whoever reads them.
//!
//! ```text
//!   start ┄ a resumed stream                     alive ┄ nothing happened for a while
//!   begin ─ rows ─ rows ─ end ─ changes ─ changes ─ … ─ close, or what is wrong
//!     └ nothing later than the snapshot's step ┘ └ whole steps, in order
//! ```
//!
//! A chunk has a number that grows by one, the generation, and the steps `(from, to]` that it covers; whoever has taken a
//! chunk that is not partial has the view at `to`, and goes on from there by saying so. [`Stream`] makes chunks of a source,
//! [`Book`] keeps which generation it is, and how far a connector's client is.

mod book;
mod chunk;
mod columnar;
mod encoder;
mod pieces;
mod stream;
mod teller;
mod text;

pub use book::{Book, Page, Place, Session, other_generation};
pub use chunk::{End, Fault, Reason};
pub use encoder::Format;
pub use stream::{Begin, Settings, Stream};
pub use teller::{Bounds, Sent};
