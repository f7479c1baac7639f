//! How much memory rows may still take.

use super::value::Misfit;

/// A budget of bytes, so that a short text cannot fill the memory: `{}` is a row of as many nulls as there are columns.
pub(crate) struct Room {
    left: u64,
    total: u64,
    remedy: &'static str,
}

impl Room {
    /// Room for `total` bytes; `remedy` says what to do when they do not suffice.
    pub(crate) fn new(total: u64, remedy: &'static str) -> Self {
        Self { left: total, total, remedy }
    }

    /// Takes `bytes`, or says that there is no room for them.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), Misfit> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                Err(format!("needs more memory than is left of {} bytes for all rows; {}", self.total, self.remedy))
            }
        }
    }
}
