//! Arrow types and arrays drawn by chance, every value of an edge among them.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, Decimal128Array, DictionaryArray,
    FixedSizeListArray, Int32Array, ListArray, MapArray, PrimitiveArray, RunArray, StringArray, StructArray,
    UInt32Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Field, FieldRef, Fields, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

use crate::program::Chance;

const STRINGS: &[&str] = &[
    "",
    "a",
    "A",
    "ä",
    "e\u{301}",
    "\u{10ffff}",
    "\u{ffff}",
    "\u{d7ff}\u{e000}",
    "😀😀",
    "'\"\\\n\t",
    "\u{0}",
    "null",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}\u{10ffff}",
];
const BYTES: &[&[u8]] = &[b"", b"\0", b"\xff\xfe", b"text", b"\x80"];
/// Seconds since 1970 of years that every reader knows.
const SECONDS: &[i64] = &[0, -1, 1, 951_782_400, 4_102_444_799, -2_208_988_800, 1_700_000_000];
/// Those of the first and last year of four digits.
const FAR_SECONDS: &[i64] = &[253_402_300_799, -62_135_596_800];

/// Leaf types, as sources give them.
pub(crate) fn leaves() -> Vec<DataType> {
    use DataType as T;
    let mut leaves = vec![
        T::Boolean,
        T::Int8,
        T::Int16,
        T::Int32,
        T::Int64,
        T::UInt8,
        T::UInt16,
        T::UInt32,
        T::UInt64,
        T::Float16,
        T::Float32,
        T::Float64,
        T::Decimal32(9, 2),
        T::Decimal64(18, 0),
        T::Decimal128(15, 2),
        T::Decimal128(38, 10),
        T::Decimal128(6, -3),
        T::Decimal256(38, 38),
        T::Utf8,
        T::LargeUtf8,
        T::Utf8View,
        T::Binary,
        T::LargeBinary,
        T::BinaryView,
        T::FixedSizeBinary(2),
        T::Date32,
        T::Date64,
        T::Dictionary(Box::new(T::Int8), Box::new(T::Utf8)),
        T::Dictionary(Box::new(T::UInt32), Box::new(T::Int64)),
        runs(T::Utf8),
        runs(T::Int16),
    ];
    for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond] {
        for zone in [None, Some("UTC"), Some("+05:30")] {
            leaves.push(T::Timestamp(unit, zone.map(Into::into)));
        }
    }
    leaves
}

pub(crate) fn runs(values: DataType) -> DataType {
    let ends = Arc::new(Field::new("run_ends", DataType::Int32, false));
    DataType::RunEndEncoded(ends, Arc::new(Field::new("values", values, true)))
}

pub(crate) fn item(data_type: DataType) -> FieldRef {
    Arc::new(Field::new("item", data_type, true))
}

pub(crate) fn map_of(key: DataType, value: DataType) -> DataType {
    let pair = Fields::from(vec![Field::new("keys", key, false), Field::new("values", value, true)]);
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(pair), false)), false)
}

/// A type nested no deeper than `depth`.
pub(crate) fn data_type(chance: &mut Chance, depth: u64) -> DataType {
    use DataType as T;
    if depth == 0 || chance.below(5) < 2 {
        let leaves = leaves();
        return leaves[chance.below(leaves.len() as u64) as usize].clone();
    }
    match chance.below(8) {
        0 => T::List(item(data_type(chance, depth - 1))),
        1 => T::LargeList(item(data_type(chance, depth - 1))),
        2 => T::FixedSizeList(item(data_type(chance, depth - 1)), 2),
        3 => {
            let keys = [T::Utf8, T::Int32, T::UInt16, T::Date32, T::Decimal128(9, 2), T::LargeUtf8];
            let key = keys[chance.below(keys.len() as u64) as usize].clone();
            map_of(key, data_type(chance, depth - 1))
        }
        _ => {
            let names = ["f0", "Über", "a-b", "f3"];
            let fields = names[..1 + chance.below(4) as usize].iter();
            T::Struct(fields.map(|name| Field::new(*name, data_type(chance, depth - 1), true)).collect())
        }
    }
}

fn pick<T: Copy>(chance: &mut Chance, from: &[T]) -> T {
    from[chance.below(from.len() as u64) as usize]
}

fn any(chance: &mut Chance) -> i64 {
    chance.below(u64::MAX) as i64
}

/// An edge of the type, or any value.
fn integer(chance: &mut Chance, least: i64, most: i64) -> i64 {
    match chance.below(8) {
        0 => least,
        1 => most,
        2 => 0,
        3 => (-1).max(least),
        4 | 5 => chance.below(100) as i64,
        _ => least.max(most.min(any(chance))),
    }
}

fn primitive<T: ArrowPrimitiveType>(
    chance: &mut Chance,
    len: usize,
    mut draw: impl FnMut(&mut Chance) -> T::Native,
) -> PrimitiveArray<T> {
    let values: Vec<Option<T::Native>> = (0..len).map(|_| (!chance.one_in(6)).then(|| draw(chance))).collect();
    values.into_iter().collect()
}

fn unscaled(chance: &mut Chance, digits: u8) -> i128 {
    let most = 10i128.pow(u32::from(digits)) - 1;
    match chance.below(6) {
        0 => most,
        1 => -most,
        2 => 0,
        3 => chance.below(1000) as i128 % most,
        _ => (i128::from(any(chance)) * i128::from(any(chance))) % most,
    }
}

fn nulls(chance: &mut Chance, len: usize) -> Option<NullBuffer> {
    (!chance.one_in(3)).then(|| (0..len).map(|_| !chance.one_in(5)).collect::<Vec<bool>>().into())
}

fn lengths(chance: &mut Chance, len: usize) -> Vec<usize> {
    (0..len).map(|_| chance.below(4) as usize).collect()
}

/// `len` values of a type, some null.
pub(crate) fn array(chance: &mut Chance, data_type: &DataType, len: usize) -> ArrayRef {
    use DataType as T;
    let is_far = chance.one_in(8);
    let seconds = |chance: &mut Chance| {
        let known = if is_far { [SECONDS, FAR_SECONDS].concat() } else { SECONDS.to_vec() };
        if chance.one_in(2) { pick(chance, &known) } else { chance.below(4_000_000_000) as i64 }
    };
    match data_type {
        T::Boolean => {
            Arc::new(BooleanArray::from_iter((0..len).map(|_| (!chance.one_in(6)).then(|| chance.one_in(2)))))
        }
        T::Int8 => Arc::new(primitive::<Int8Type>(chance, len, |c| integer(c, -128, 127) as i8)),
        T::Int16 => Arc::new(primitive::<Int16Type>(chance, len, |c| integer(c, -32768, 32767) as i16)),
        T::Int32 => {
            Arc::new(primitive::<Int32Type>(chance, len, |c| integer(c, i32::MIN.into(), i32::MAX.into()) as i32))
        }
        T::Int64 => Arc::new(primitive::<Int64Type>(chance, len, |c| integer(c, i64::MIN, i64::MAX))),
        T::UInt8 => Arc::new(primitive::<UInt8Type>(chance, len, |c| integer(c, 0, 255) as u8)),
        T::UInt16 => Arc::new(primitive::<UInt16Type>(chance, len, |c| integer(c, 0, 65535) as u16)),
        T::UInt32 => Arc::new(primitive::<UInt32Type>(chance, len, |c| integer(c, 0, u32::MAX.into()) as u32)),
        T::UInt64 => Arc::new(primitive::<UInt64Type>(chance, len, |c| {
            if c.one_in(3) { u64::MAX - c.below(3) } else { integer(c, 0, i64::MAX) as u64 }
        })),
        T::Float16 | T::Float32 | T::Float64 => {
            let doubles = primitive::<Float64Type>(chance, len, |c| match c.below(8) {
                0 => f64::NAN,
                1 => f64::INFINITY,
                2 => f64::NEG_INFINITY,
                3 => -0.0,
                4 => 0.0,
                5 => f64::from(f32::MIN_POSITIVE),
                _ => any(c) as f64 / 1e15,
            });
            cast(&doubles, data_type).unwrap()
        }
        T::Decimal32(p, _) | T::Decimal64(p, _) | T::Decimal128(p, _) | T::Decimal256(p, _) => {
            let digits = (0..len).map(|_| (!chance.one_in(6)).then(|| unscaled(chance, *p)));
            let (_, scale) = decimal_of(data_type);
            let wide = Decimal128Array::from_iter(digits).with_precision_and_scale(*p, scale).unwrap();
            cast(&wide, data_type).unwrap()
        }
        T::Utf8 | T::LargeUtf8 | T::Utf8View => {
            let texts = StringArray::from_iter((0..len).map(|_| {
                (!chance.one_in(6)).then(|| match chance.below(3) {
                    0 => format!("{} {}", pick(chance, STRINGS), chance.below(1000)),
                    _ => pick(chance, STRINGS).to_string(),
                })
            }));
            cast(&texts, data_type).unwrap()
        }
        T::Binary | T::LargeBinary | T::BinaryView => {
            let values = BinaryArray::from_iter((0..len).map(|_| (!chance.one_in(6)).then(|| pick(chance, BYTES))));
            cast(&values, data_type).unwrap()
        }
        T::FixedSizeBinary(_) => {
            let values: &[&[u8]] = &[b"\0\0", b"\xff\xff", b"ab"];
            let values = BinaryArray::from_iter((0..len).map(|_| (!chance.one_in(6)).then(|| pick(chance, values))));
            cast(&values, data_type).unwrap()
        }
        T::Date32 => Arc::new(primitive::<Date32Type>(chance, len, |c| seconds(c).div_euclid(86_400) as i32)),
        T::Date64 => Arc::new(primitive::<Date64Type>(chance, len, |c| seconds(c).div_euclid(86_400) * 86_400_000)),
        T::Timestamp(TimeUnit::Second, zone) => {
            Arc::new(primitive::<TimestampSecondType>(chance, len, seconds).with_timezone_opt(zone.clone()))
        }
        T::Timestamp(TimeUnit::Millisecond, zone) => {
            let millis =
                primitive::<TimestampMillisecondType>(chance, len, |c| seconds(c) * 1000 + c.below(1000) as i64);
            Arc::new(millis.with_timezone_opt(zone.clone()))
        }
        T::Timestamp(TimeUnit::Microsecond, zone) => {
            let micros = primitive::<TimestampMicrosecondType>(chance, len, |c| {
                seconds(c) * 1_000_000 + c.below(1_000_000) as i64
            });
            Arc::new(micros.with_timezone_opt(zone.clone()))
        }
        T::Timestamp(TimeUnit::Nanosecond, zone) => {
            let nanos = primitive::<TimestampNanosecondType>(chance, len, |c| {
                (c.below(8_000_000_000) as i64 * 1_000_000 + c.below(1_000_000) as i64) * 1_000
            });
            Arc::new(nanos.with_timezone_opt(zone.clone()))
        }
        T::Dictionary(key, values) => {
            let distinct = array(chance, values, 5);
            let keys = primitive::<Int8Type>(chance, len, |c| c.below(5) as i8);
            match key.as_ref() {
                T::Int8 => Arc::new(DictionaryArray::<Int8Type>::new(keys, distinct)),
                _ => {
                    let keys = cast(&keys, &T::UInt32).unwrap();
                    let keys = UInt32Array::from(keys.to_data());
                    Arc::new(DictionaryArray::<UInt32Type>::new(keys, distinct))
                }
            }
        }
        T::RunEndEncoded(_, values) => {
            let mut ends: Vec<i32> = Vec::new();
            while ends.last().is_none_or(|end| (*end as usize) < len) {
                ends.push(ends.last().unwrap_or(&0) + 1 + chance.below(3) as i32);
            }
            let distinct = array(chance, values.data_type(), ends.len());
            let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(ends), &distinct).unwrap();
            Arc::new(runs.slice(0, len))
        }
        T::List(field) => {
            let lengths = lengths(chance, len);
            let values = array(chance, field.data_type(), lengths.iter().sum());
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(ListArray::new(Arc::clone(field), offsets, values, nulls(chance, len)))
        }
        T::LargeList(field) => {
            let list = array(chance, &T::List(Arc::clone(field)), len);
            cast(&list, data_type).unwrap()
        }
        T::FixedSizeList(field, size) => {
            let values = array(chance, field.data_type(), len * *size as usize);
            Arc::new(FixedSizeListArray::new(Arc::clone(field), *size, values, nulls(chance, len)))
        }
        T::Map(entries, _) => {
            let T::Struct(pair) = entries.data_type() else { panic!("{data_type}") };
            let lengths = lengths(chance, len);
            let places = lengths.iter().flat_map(|n| 0..*n as i32);
            let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(places));
            let keys = cast(&numbers, pair[0].data_type()).unwrap();
            let values = array(chance, pair[1].data_type(), lengths.iter().sum());
            let entries_of = StructArray::new(pair.clone(), vec![keys, values], None);
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(MapArray::new(Arc::clone(entries), offsets, entries_of, nulls(chance, len), false))
        }
        T::Struct(fields) => {
            let columns = fields.iter().map(|f| array(chance, f.data_type(), len)).collect();
            Arc::new(StructArray::new(fields.clone(), columns, nulls(chance, len)))
        }
        other => panic!("no values of the type {other}"),
    }
}

fn decimal_of(data_type: &DataType) -> (u8, i8) {
    match data_type {
        DataType::Decimal32(p, s)
        | DataType::Decimal64(p, s)
        | DataType::Decimal128(p, s)
        | DataType::Decimal256(p, s) => (*p, *s),
        other => panic!("{other}"),
    }
}
