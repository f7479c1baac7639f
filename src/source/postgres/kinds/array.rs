//! Arrays of one dimension as lists.
//!
//! PostgreSQL's arrays have as many dimensions as each value likes, and number them from where it likes. A list has one,
//! and begins at its beginning; what would lose the others is refused.

use std::sync::Arc;

use arrow::array::{ArrayRef, ListArray, NullBufferBuilder};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{Field, FieldRef};

use super::{AS_STRING, Cells, Kind, Misfit, plain};

/// A column of lists that is being filled.
#[derive(Debug)]
pub(super) struct Lists {
    field: FieldRef,
    elements: Box<Cells>,
    /// Where each list begins, and the last one ends.
    offsets: Vec<i32>,
    valid: NullBufferBuilder,
    delimiter: u8,
}

impl Lists {
    pub(super) fn new(element: &Kind, delimiter: u8) -> Self {
        Self {
            field: Arc::new(Field::new("element", element.data_type(), true)),
            elements: Box::new(Cells::new(element)),
            offsets: vec![0],
            valid: NullBufferBuilder::new(0),
            delimiter,
        }
    }

    pub(super) fn null(&mut self) {
        self.valid.append_null();
        self.offsets.push(self.end());
    }

    /// Dimensions, a flag for nulls, the elements' type; of each dimension its length and first number; the elements.
    pub(super) fn binary(&mut self, value: &[u8]) -> Result<(), Misfit> {
        let malformed = || Misfit::malformed("array");
        let mut rest = value;
        let (dimensions, _, _) = (int(&mut rest)?, int(&mut rest)?, int(&mut rest)?);
        let length = match dimensions {
            0 => 0,
            1 => {
                let (length, first) = (int(&mut rest)?, int(&mut rest)?);
                check_first(first)?;
                length
            }
            2.. => return Err(deep()),
            _ => return Err(malformed()),
        };
        for _ in 0..length {
            match usize::try_from(int(&mut rest)?) {
                Ok(bytes) => {
                    let (element, after) = rest.split_at_checked(bytes).ok_or_else(malformed)?;
                    self.elements.binary(element)?;
                    rest = after;
                }
                Err(_) => self.elements.null(),
            }
        }
        if !rest.is_empty() {
            return Err(malformed());
        }
        self.close(usize::try_from(length).map_err(|_| malformed())?)
    }

    /// `{1,NULL,"with \"quotes\""}`, with bounds before it where they are not the usual ones.
    pub(super) fn text(&mut self, text: &str) -> Result<(), Misfit> {
        let malformed = || Misfit::malformed("array");
        let text = match text.strip_prefix('[').and_then(|text| text.split_once("]=")) {
            Some((bounds, text)) => {
                let first = bounds.split(':').next().unwrap_or_default();
                check_first(plain::parsed(first, "array")?)?;
                text
            }
            None if text.starts_with('[') => return Err(deep()),
            None => text,
        };
        let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).ok_or_else(malformed)?;
        let (mut rest, mut length) = (inner.as_bytes(), 0);
        while !rest.is_empty() {
            let after = match rest {
                [b'{', ..] => return Err(deep()),
                [b'"', quoted @ ..] => self.quoted(quoted)?,
                _ => {
                    let end = rest.iter().position(|byte| *byte == self.delimiter).unwrap_or(rest.len());
                    let (element, after) = rest.split_at(end);
                    match element {
                        b"NULL" => self.elements.null(),
                        // Outside quotes nothing needs an escape.
                        element => self.elements.text(element)?,
                    }
                    after
                }
            };
            length += 1;
            rest = match after {
                [] => after,
                [delimiter, after @ ..] if *delimiter == self.delimiter && !after.is_empty() => after,
                _ => return Err(malformed()),
            };
        }
        self.close(length)
    }

    /// Takes an element up to its closing quote; gives what stands behind that.
    fn quoted<'a>(&mut self, text: &'a [u8]) -> Result<&'a [u8], Misfit> {
        let (mut element, mut rest) = (Vec::new(), text);
        loop {
            rest = match rest {
                [b'"', after @ ..] => {
                    self.elements.text(&element)?;
                    return Ok(after);
                }
                [b'\\', byte, after @ ..] | [byte, after @ ..] => {
                    element.push(*byte);
                    after
                }
                [] => return Err(Misfit::malformed("array")),
            };
        }
    }

    pub(super) fn finish(&mut self) -> ArrayRef {
        let offsets = std::mem::replace(&mut self.offsets, vec![0]);
        // Offsets only grow, so the buffer's own check holds.
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let list = ListArray::new(Arc::clone(&self.field), offsets, self.elements.finish(), self.valid.finish());
        Arc::new(list)
    }

    fn end(&self) -> i32 {
        self.offsets.last().copied().unwrap_or(0)
    }

    fn close(&mut self, length: usize) -> Result<(), Misfit> {
        let end = i32::try_from(length).ok().and_then(|length| self.end().checked_add(length));
        self.offsets.push(end.ok_or_else(|| Misfit("has more than 2^31 elements in one batch".into()))?);
        self.valid.append_non_null();
        Ok(())
    }
}

/// The next four bytes, as a number.
fn int(rest: &mut &[u8]) -> Result<i32, Misfit> {
    let (number, after) = rest.split_first_chunk::<4>().ok_or_else(|| Misfit::malformed("array"))?;
    *rest = after;
    Ok(i32::from_be_bytes(*number))
}

fn check_first(first: i32) -> Result<(), Misfit> {
    if first == 1 {
        return Ok(());
    }
    Err(Misfit(format!("has an array whose first element is number {first}, which a list does not keep; {AS_STRING}")))
}

fn deep() -> Misfit {
    Misfit(format!("has an array of several dimensions, which a list does not keep; {AS_STRING}"))
}
