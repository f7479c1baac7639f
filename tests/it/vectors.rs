//! Deletion vectors as the Delta protocol writes them, decoded and made by hand.

use bytes::Bytes;
use crc::{CRC_32_ISO_HDLC, Crc};
use roaring::RoaringTreemap;
use serde_json::{Value, json};
use uuid::Uuid;

const MAGIC: [u8; 4] = 1_681_511_377_u32.to_le_bytes();
/// The characters of a file's id at the end of its place; a folder stands before it.
const ID_CHARS: usize = 20;
/// What stands before the path of an object that is named from outside of the table.
const ROOT: &str = "memory:///";

/// What tells the vector from others: the empty text where there is none.
pub(crate) fn id(vector: &Value) -> String {
    let text = |key: &str| vector[key].as_str().unwrap_or_default();
    let offset = vector["offset"].as_u64().map(|offset| format!("@{offset}")).unwrap_or_default();
    format!("{}{}{offset}", text("storageType"), text("pathOrInlineDv"))
}

/// The object that holds the vector; `None` where the log itself does, or where there is none.
pub(crate) fn object(vector: &Value) -> Option<String> {
    let place = vector["pathOrInlineDv"].as_str()?;
    match vector["storageType"].as_str()? {
        "u" => {
            let (folder, id) = place.split_at_checked(place.len().checked_sub(ID_CHARS)?)?;
            let id = Uuid::from_slice(&z85::decode(id).ok()?).ok()?;
            let folder = if folder.is_empty() { String::new() } else { format!("{folder}/") };
            Some(format!("{folder}deletion_vector_{id}.bin"))
        }
        "p" => place.strip_prefix(ROOT).map(str::to_string),
        _ => None,
    }
}

/// The places of the deleted rows; `None` where the object that holds them is gone.
pub(crate) fn deleted(
    vector: &Value,
    read: impl FnOnce(&str) -> Option<Bytes>,
) -> Option<Result<RoaringTreemap, String>> {
    if vector.is_null() {
        return Some(Ok(RoaringTreemap::new()));
    }
    match object(vector) {
        Some(object) => Some(stored(vector, &read(&object)?)),
        None => Some(inline(vector)),
    }
}

fn inline(vector: &Value) -> Result<RoaringTreemap, String> {
    if vector["storageType"] != "i" {
        return Err(format!("it is stored as {}", vector["storageType"]));
    }
    let text = vector["pathOrInlineDv"].as_str().ok_or("it has no bytes")?;
    decoded(vector, &z85::decode(text).map_err(|e| e.to_string())?)
}

fn stored(vector: &Value, object: &[u8]) -> Result<RoaringTreemap, String> {
    let early = "its file ends early";
    let word = |at: usize| object.get(at..)?.first_chunk::<4>().copied().map(u32::from_be_bytes);
    let (begin, size) = (vector["offset"].as_u64().unwrap_or(1) as usize, size(vector)?);
    let (length, sum) = (word(begin).ok_or(early)?, word(begin + 4 + size).ok_or(early)?);
    let framed = &object[begin + 4..begin + 4 + size];
    if object[0] != 1 || length as usize != size || sum != Crc::<u32>::new(&CRC_32_ISO_HDLC).checksum(framed) {
        return Err("its file says another format, size or checksum".into());
    }
    decoded(vector, framed)
}

fn size(vector: &Value) -> Result<usize, String> {
    vector["sizeInBytes"].as_u64().map(|size| size as usize).ok_or_else(|| "it has no size".to_string())
}

fn decoded(vector: &Value, framed: &[u8]) -> Result<RoaringTreemap, String> {
    let framed = framed.get(..size(vector)?).ok_or("it ends early")?;
    let bitmap = framed.strip_prefix(&MAGIC).ok_or("it has another format")?;
    let rows = RoaringTreemap::deserialize_from(bitmap).map_err(|e| e.to_string())?;
    // Checkpoints are read here without it.
    match vector["cardinality"].as_u64() {
        Some(said) if said != rows.len() => Err(format!("it has {} rows, its descriptor says {said}", rows.len())),
        _ => Ok(rows),
    }
}

fn framed(rows: &RoaringTreemap) -> Vec<u8> {
    let mut framed = MAGIC.to_vec();
    rows.serialize_into(&mut framed).unwrap();
    framed
}

/// A descriptor that holds `rows` itself.
pub(crate) fn inlined(rows: &RoaringTreemap) -> Value {
    let mut bytes = framed(rows);
    let size = bytes.len();
    bytes.resize(size.next_multiple_of(4), 0);
    json!({"storageType": "i", "pathOrInlineDv": z85::encode(&bytes), "sizeInBytes": size, "cardinality": rows.len()})
}

/// A descriptor of `rows` in an object of its own below `folder`, and that object; named by the whole path or as the
/// table's own.
pub(crate) fn beside(rows: &RoaringTreemap, folder: &str, id: u128, storage: &str) -> (Value, String, Vec<u8>) {
    let (framed, id) = (framed(rows), Uuid::from_u128(id));
    let own = format!("{folder}{}", z85::encode(id.as_bytes()));
    let mut vector = json!({"storageType": "u", "pathOrInlineDv": own, "offset": 1, "sizeInBytes": framed.len(),
        "cardinality": rows.len()});
    let path = object(&vector).unwrap();
    if storage == "p" {
        (vector["storageType"], vector["pathOrInlineDv"]) = ("p".into(), format!("{ROOT}{path}").into());
    }
    let sum = Crc::<u32>::new(&CRC_32_ISO_HDLC).checksum(&framed);
    let bytes = [&[1], &(framed.len() as u32).to_be_bytes()[..], &framed, &sum.to_be_bytes()].concat();
    (vector, path, bytes)
}

#[test]
fn vectors_are_read_wherever_they_are_stored() {
    let rows = RoaringTreemap::from_iter([0, 3, 70_000, 1 << 40]);
    let gone = |vector: &Value| deleted(vector, |_| None);
    assert_eq!(gone(&Value::Null), Some(Ok(RoaringTreemap::new())));
    assert_eq!(gone(&inlined(&rows)), Some(Ok(rows.clone())));
    for (folder, storage) in [("", "u"), ("ab", "u"), ("", "p")] {
        let (vector, path, bytes) = beside(&rows, folder, 7, storage);
        assert!(path.starts_with(if folder.is_empty() { "deletion_vector_" } else { "ab/deletion_vector_" }), "{path}");
        assert_eq!(gone(&vector), None, "{vector}");
        let read = |bytes: &[u8]| {
            deleted(&vector, |asked| {
                assert_eq!(asked, path);
                Some(Bytes::copy_from_slice(bytes))
            })
        };
        assert_eq!(read(&bytes), Some(Ok(rows.clone())), "{vector}");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(read(&damaged).unwrap().is_err(), "byte {at} of {vector}");
            assert!(read(&bytes[..at]).unwrap().is_err(), "{at} bytes of {vector}");
        }
    }
}
