//! How often a table was loaded.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The n-th time that a table was loaded whole: 1, 2, 3 … A restart never starts one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Generation(u64);

impl Generation {
    /// The first generation.
    pub const FIRST: Generation = Generation(1);

    /// A stored generation, if it is in the range 1 to `i64::MAX - 1`.
    pub fn new(value: u64) -> Result<Self> {
        if value == 0 || value >= i64::MAX as u64 {
            return Err(Error::corrupt(format!("a generation number is at least 1 and below 2^63, not {value}")));
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

impl TryFrom<u64> for Generation {
    type Error = Error;
    fn try_from(value: u64) -> Result<Self> {
        Self::new(value)
    }
}

impl From<Generation> for u64 {
    fn from(value: Generation) -> u64 {
        value.0
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
