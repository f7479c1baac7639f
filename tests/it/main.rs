//! The one integration binary.

mod faults;
mod sink;
mod verify;
mod world;
