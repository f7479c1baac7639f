//! How much memory an Arrow array takes once it is plain.
//!
//! Dictionaries, runs and views name one value many times, and an array of nothing but nulls has no bytes at all: a few
//! bytes could unfold to more than any memory.

use arrow::array::{Array, AsArray, GenericByteArray};
use arrow::compute::cast;
use arrow::datatypes::{ArrowNativeType, ByteArrayType, DataType, Int64Type};

use crate::json::null_width;

/// Keys of a dictionary that are looked at together.
const KEYS: usize = 8192;

/// The most bytes that `array` takes as an array of the kept type `wanted`, which it [fits](crate::schema::fits).
pub(super) fn plain_bytes(array: &dyn Array, wanted: &DataType) -> u64 {
    use DataType as T;
    let rows = array.len() as u64;
    let width = null_width(wanted);
    let inner = |array: &dyn Array| plain_bytes(array, element_of(wanted));
    let each = |bytes: u64| rows.saturating_mul(bytes.saturating_add(width));
    match array.data_type() {
        T::Null => each(0),
        T::Dictionary(..) => dictionary_bytes(array, wanted),
        T::RunEndEncoded(..) => match run_values(array) {
            Some(values) => each(largest(values, wanted)),
            None => u64::MAX,
        },
        T::Utf8 => each(0).saturating_add(text_bytes(array.as_string::<i32>())),
        T::LargeUtf8 => each(0).saturating_add(text_bytes(array.as_string::<i64>())),
        T::Binary => each(0).saturating_add(text_bytes(array.as_binary::<i32>())),
        T::LargeBinary => each(0).saturating_add(text_bytes(array.as_binary::<i64>())),
        // The length of a text stands in the lowest bits of its view.
        T::Utf8View => {
            each(0).saturating_add(array.as_string_view().views().iter().map(|v| u64::from(*v as u32)).sum())
        }
        T::BinaryView => {
            each(0).saturating_add(array.as_binary_view().views().iter().map(|v| u64::from(*v as u32)).sum())
        }
        T::FixedSizeBinary(size) => each(u64::from(size.unsigned_abs())),
        T::List(_) => each(0).saturating_add(inner(array.as_list::<i32>().values())),
        T::LargeList(_) => each(0).saturating_add(inner(array.as_list::<i64>().values())),
        T::FixedSizeList(..) => each(0).saturating_add(inner(array.as_fixed_size_list().values())),
        T::ListView(_) => {
            let list = array.as_list_view::<i32>();
            let elements = list.value_sizes().iter().map(|size| u64::from(size.unsigned_abs())).sum();
            each(0).saturating_add(largest(list.values(), element_of(wanted)).saturating_mul(elements))
        }
        T::LargeListView(_) => {
            let list = array.as_list_view::<i64>();
            let elements = list.value_sizes().iter().fold(0u64, |sum, size| sum.saturating_add(size.unsigned_abs()));
            each(0).saturating_add(largest(list.values(), element_of(wanted)).saturating_mul(elements))
        }
        T::Map(..) => {
            let (keys, values) = pair_of(wanted);
            let map = array.as_map();
            let entries = plain_bytes(map.keys(), keys).saturating_add(plain_bytes(map.values(), values));
            each(0).saturating_add(entries)
        }
        T::Struct(_) => {
            let T::Struct(fields) = wanted else { return u64::MAX };
            let given = array.as_struct();
            let members = fields.iter().filter_map(|f| Some((given.column_by_name(f.name())?, f.data_type())));
            members.fold(each(0), |sum, (column, wanted)| sum.saturating_add(plain_bytes(column, wanted)))
        }
        _ => each(0),
    }
}

/// The most bytes that one value takes.
fn largest(values: &dyn Array, wanted: &DataType) -> u64 {
    let text = (0..values.len()).filter_map(|i| text_length(values, i)).max();
    let is_flat = values.data_type().is_primitive() || values.data_type() == &DataType::Boolean;
    match text {
        Some(length) => length.saturating_add(null_width(wanted)),
        None if is_flat || values.is_empty() => null_width(wanted),
        None => plain_bytes(values, wanted),
    }
}

fn dictionary_bytes(array: &dyn Array, wanted: &DataType) -> u64 {
    let (Some(dictionary), rows) = (array.as_any_dictionary_opt(), array.len() as u64) else { return u64::MAX };
    let (keys, values) = (dictionary.keys(), dictionary.values());
    if values.is_empty() || text_length(values.as_ref(), 0).is_none() {
        return rows.saturating_mul(largest(values, wanted));
    }
    let mut bytes = rows.saturating_mul(null_width(wanted));
    for start in (0..keys.len()).step_by(KEYS) {
        let keys = keys.slice(start, KEYS.min(keys.len() - start));
        let Ok(keys) = cast(&keys, &DataType::Int64) else { return u64::MAX };
        let lengths = keys.as_primitive::<Int64Type>().iter().flatten();
        let lengths = lengths.filter_map(|key| text_length(values.as_ref(), usize::try_from(key).ok()?));
        bytes = bytes.saturating_add(lengths.sum());
    }
    bytes
}

/// The bytes of the text or binary at `index`; `None` for other types, and beyond the end.
fn text_length(array: &dyn Array, index: usize) -> Option<u64> {
    fn between<T: ByteArrayType>(array: &GenericByteArray<T>, index: usize) -> Option<u64> {
        (index < array.len()).then(|| array.value_length(index).as_usize() as u64)
    }
    let viewed = |views: &[u128]| views.get(index).map(|view| u64::from(*view as u32));
    match array.data_type() {
        DataType::Utf8 => between(array.as_string::<i32>(), index),
        DataType::LargeUtf8 => between(array.as_string::<i64>(), index),
        DataType::Binary => between(array.as_binary::<i32>(), index),
        DataType::LargeBinary => between(array.as_binary::<i64>(), index),
        DataType::Utf8View => viewed(array.as_string_view().views()),
        DataType::BinaryView => viewed(array.as_binary_view().views()),
        _ => None,
    }
}

fn text_bytes<T: ByteArrayType>(array: &GenericByteArray<T>) -> u64 {
    let (first, last) = (array.value_offsets().first(), array.value_offsets().last());
    first.zip(last).map_or(0, |(first, last)| (last.as_usize() - first.as_usize()) as u64)
}

fn run_values(array: &dyn Array) -> Option<&dyn Array> {
    use arrow::array::RunArray;
    use arrow::datatypes::{Int16Type, Int32Type};
    let any = array.as_any();
    let short = any.downcast_ref::<RunArray<Int16Type>>().map(|runs| runs.values().as_ref());
    let middle = any.downcast_ref::<RunArray<Int32Type>>().map(|runs| runs.values().as_ref());
    short.or(middle).or_else(|| any.downcast_ref::<RunArray<Int64Type>>().map(|runs| runs.values().as_ref()))
}

fn element_of(wanted: &DataType) -> &DataType {
    match wanted {
        DataType::List(element) => element.data_type(),
        other => other,
    }
}

fn pair_of(wanted: &DataType) -> (&DataType, &DataType) {
    let DataType::Map(entries, _) = wanted else { return (wanted, wanted) };
    match entries.data_type() {
        DataType::Struct(pair) => match pair.as_ref() {
            [key, value] => (key.data_type(), value.data_type()),
            _ => (wanted, wanted),
        },
        _ => (wanted, wanted),
    }
}
