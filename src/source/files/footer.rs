//! Parquet files, measured before they are decoded.
//!
//! The decoder allocates as many row groups and dictionary values as a file declares, and a failed allocation ends the
//! process. An element takes at least one byte, so what is declared is compared with the bytes that are there.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use parquet::file::metadata::ParquetMetaData;

use crate::error::{Error, Result};

const MAGIC: &[u8] = b"PAR1";
/// The header of a dictionary page is much shorter than this; a longer one is none.
const HEADER_BYTES: u64 = 256;
/// How deep the footer's structures may be nested.
const MAX_DEPTH: usize = 32;
/// How deep a schema's groups may be nested, three for each list or map that a view may have; the decoder descends them
/// on the stack.
const MAX_GROUPS: usize = 128;

/// Refuses a footer with a list that is longer than the footer itself, or with a schema too deep to decode.
pub(crate) fn check_footer(file: &mut File, label: &str) -> Result<()> {
    let torn = |why: &str| Error::corrupt(format!("{label} is no complete Parquet file: {why}"));
    let length = file.seek(SeekFrom::End(0)).map_err(|e| unread(label, e))?;
    let Some(end) = length.checked_sub(8) else { return Err(torn("it is shorter than its parts")) };
    let tail = read_at(file, end, 8).map_err(|e| unread(label, e))?;
    let footer = tail.first_chunk::<4>().map(|b| u64::from(u32::from_le_bytes(*b)));
    let Some(footer) = footer.filter(|_| tail.ends_with(MAGIC)) else {
        return Err(torn("it does not end with the magic of a Parquet file"));
    };
    let Some(start) = end.checked_sub(footer) else { return Err(torn("its footer is longer than the file")) };
    let bytes = read_at(file, start, footer).map_err(|e| unread(label, e))?;
    Thrift { rest: &bytes }.skip(STRUCT, 0).ok_or_else(|| torn("its footer is damaged"))?;
    match schema_depth(&bytes) {
        Some(depth) if depth > MAX_GROUPS => Err(Error::incompatible(format!(
            "{label} has a column of groups nested {depth} deep, more than {MAX_GROUPS}; flatten it in the view"
        ))),
        _ => Ok(()),
    }
}

/// How many groups are nested in each other, the schema itself among them; `None` where a footer has no schema.
fn schema_depth(footer: &[u8]) -> Option<usize> {
    let mut deepest = None;
    Thrift { rest: footer }.fields(0, |thrift, id, kind| match (id, kind) {
        (2, LIST) => {
            deepest = Some(thrift.schema_depth()?);
            Some(())
        }
        _ => thrift.skip(kind, 1),
    })?;
    deepest
}

/// Refuses a dictionary with more values than bytes.
pub(crate) fn check_dictionaries(file: &mut File, metadata: &ParquetMetaData, label: &str) -> Result<()> {
    for column in metadata.row_groups().iter().flat_map(|group| group.columns()) {
        let (start, length) = column.byte_range();
        let Ok(header) = read_at(file, start, length.min(HEADER_BYTES)) else {
            return Err(Error::corrupt(format!("{label} is no complete Parquet file: a column lies outside it")));
        };
        if let Some((values, bytes)) = dictionary(&header)
            && values > bytes
        {
            return Err(Error::corrupt(format!("{label}: a dictionary of {bytes} bytes declares {values} values")));
        }
    }
    Ok(())
}

/// The values and bytes that the header of a dictionary page declares; `None` for another page.
fn dictionary(header: &[u8]) -> Option<(i64, i64)> {
    let (mut bytes, mut values) = (None, None);
    Thrift { rest: header }.fields(0, |thrift, id, kind| match (id, kind) {
        (2, I32) => {
            bytes = Some(thrift.number()?);
            Some(())
        }
        (7, STRUCT) => thrift.fields(1, |thrift, id, kind| match (id, kind) {
            (1, I32) => {
                values = Some(thrift.number()?);
                Some(())
            }
            _ => thrift.skip(kind, 2),
        }),
        _ => thrift.skip(kind, 1),
    })?;
    values.zip(bytes)
}

const I32: u8 = 5;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Bytes in Thrift's compact protocol.
struct Thrift<'a> {
    rest: &'a [u8],
}

impl Thrift<'_> {
    fn take(&mut self, count: u64) -> Option<&[u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(count).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn number(&mut self) -> Option<i64> {
        let zigzag = self.varint()?;
        Some((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
    }

    /// Calls `visit` with the number and kind of each field of a struct; it must consume the field.
    fn fields(&mut self, depth: usize, mut visit: impl FnMut(&mut Self, i64, u8) -> Option<()>) -> Option<()> {
        let mut id = 0i64;
        loop {
            let byte = self.byte().filter(|_| depth <= MAX_DEPTH)?;
            match (byte >> 4, byte & 0x0F) {
                (_, 0) => return Some(()),
                (0, kind) => {
                    id = self.number()?;
                    visit(self, id, kind)?;
                }
                (delta, kind) => {
                    id = id.checked_add(i64::from(delta))?;
                    visit(self, id, kind)?;
                }
            }
        }
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        match kind {
            // A boolean field's value is its kind.
            1 | 2 => Some(()),
            3 => self.byte().map(drop),
            4..=6 => self.varint().map(drop),
            7 => self.take(8).map(drop),
            8 => {
                let length = self.varint()?;
                self.take(length).map(drop)
            }
            9 | 10 => {
                let header = self.byte()?;
                let size = if header >> 4 == 15 { self.varint()? } else { u64::from(header >> 4) };
                self.elements(size, &[header & 0x0F], depth)
            }
            11 => {
                let size = self.varint()?;
                let kinds = if size == 0 { 0 } else { self.byte()? };
                self.elements(size, &[kinds >> 4, kinds & 0x0F], depth)
            }
            STRUCT => self.fields(depth, |thrift, _, kind| thrift.skip(kind, depth + 1)),
            13 => self.take(16).map(drop),
            _ => None,
        }
    }

    /// The depth of a schema, whose elements stand each before those inside it.
    fn schema_depth(&mut self) -> Option<usize> {
        let header = self.byte()?;
        let size = if header >> 4 == 15 { self.varint()? } else { u64::from(header >> 4) };
        let (mut open, mut deepest): (Vec<i64>, usize) = (Vec::new(), 0);
        for _ in 0..size {
            let mut children = 0;
            self.fields(1, |thrift, id, kind| match (id, kind) {
                (5, I32) => {
                    children = thrift.number()?;
                    Some(())
                }
                _ => thrift.skip(kind, 2),
            })?;
            while open.pop_if(|left| *left <= 0).is_some() {}
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            if children > 0 {
                open.push(children);
                deepest = deepest.max(open.len());
            }
        }
        Some(deepest)
    }

    /// As many elements as bytes remain, at most.
    fn elements(&mut self, size: u64, kinds: &[u8], depth: usize) -> Option<()> {
        if size > self.rest.len() as u64 || depth > MAX_DEPTH {
            return None;
        }
        for _ in 0..size {
            for kind in kinds {
                match kind {
                    1 | 2 => self.byte().map(drop)?,
                    _ => self.skip(*kind, depth + 1)?,
                }
            }
        }
        Some(())
    }
}

fn read_at(file: &mut File, at: u64, length: u64) -> std::io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    if (bytes.len() as u64) < length { Err(std::io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
}

fn unread(label: &str, e: std::io::Error) -> Error {
    Error::unavailable(format!("{label} cannot be read")).with_source(e)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::error::ErrorKind;

    fn check(footer: &[u8]) -> Result<()> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[MAGIC, footer, &(footer.len() as u32).to_le_bytes(), MAGIC].concat()).unwrap();
        check_footer(&mut file, "f.parquet")
    }

    #[test]
    fn a_list_longer_than_the_footer_is_damage() {
        // Field 1 (i32), field 4 (a list of structs), the end.
        assert!(check(&[0x15, 2, 0x39, 0x2C, 0, 0, 0]).is_ok());
        let huge: &[u8] = &[0x15, 2, 0x39, 0xFC, 0xFF, 0xFF, 0xFF, 0xFF, 7, 0, 0];
        let maps: &[u8] = &[0x1B, 0xFF, 0xFF, 0xFF, 0xFF, 7, 0x11, 0];
        let binary: &[u8] = &[0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1, 0];
        let deep = [0x1C; 4096];
        for footer in [huge, maps, binary, &deep, &[0x15], &[], &[0x1E, 0], &[0x99; 64]] {
            assert_eq!(check(footer).unwrap_err().kind(), ErrorKind::Corrupt, "{footer:?}");
        }
    }

    #[test]
    fn a_schema_too_deep_to_decode_is_refused() {
        // Each group has one child; field 5 of an element says so.
        let nested = |groups: usize| {
            let size = groups as u8 + 1;
            let list =
                [&[0x29, 0xFC, (size & 0x7F) | 0x80, size >> 7][..], &[0x55, 2, 0].repeat(groups), &[0x55, 0, 0]];
            [list.concat(), vec![0]].concat()
        };
        assert_eq!(schema_depth(&nested(3)), Some(3));
        // Two columns side by side, the first of a group of two.
        let wide = [0x29, 0x5C, 0x55, 4, 0, 0x55, 4, 0, 0x15, 0, 0, 0x15, 0, 0, 0x15, 0, 0, 0];
        assert_eq!(schema_depth(&wide), Some(2));
        assert!(check(&nested(MAX_GROUPS)).is_ok());
        assert_eq!(check(&nested(MAX_GROUPS + 1)).unwrap_err().kind(), ErrorKind::Incompatible);
    }

    #[test]
    fn the_header_of_a_dictionary_says_how_much_it_holds() {
        // type 2, 8 bytes, 8 bytes, dictionary {3 values, encoding 0}
        assert_eq!(dictionary(&[0x15, 4, 0x15, 16, 0x15, 16, 0x4C, 0x15, 6, 0x15, 0, 0, 0]), Some((3, 8)));
        assert_eq!(dictionary(&[0x15, 0, 0x15, 16, 0x15, 16, 0]), None);
        assert_eq!(dictionary(&[0xFF; 32]), None);
    }
}
