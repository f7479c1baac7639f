//! The fencing number of a table's writer.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The fencing number of a table's writer: who holds the highest one may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Epoch(u64);

impl Epoch {
    /// The first epoch.
    pub const FIRST: Epoch = Epoch(1);

    /// A stored epoch, if it is in the range 1 to `i64::MAX - 1`.
    pub fn new(value: u64) -> Result<Self> {
        if value == 0 || value >= i64::MAX as u64 {
            return Err(Error::corrupt(format!("an epoch number is at least 1 and below 2^63, not {value}")));
        }
        Ok(Self(value))
    }

    /// The one after this.
    pub fn next(self) -> Result<Self> {
        Self::new(self.0 + 1)
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The number as Delta stores it; it always fits.
    pub fn as_i64(self) -> i64 {
        self.0 as i64
    }
}

impl TryFrom<u64> for Epoch {
    type Error = Error;
    fn try_from(value: u64) -> Result<Self> {
        Self::new(value)
    }
}

impl From<Epoch> for u64 {
    fn from(value: Epoch) -> u64 {
        value.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
