//! Batches cut into pieces small enough that files and row groups end near their bounds.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::DataType;

/// The most rows in a slice.
pub(super) const SLICE_ROWS: usize = 65_536;
/// The most bytes in a slice of more than one row.
pub(super) const SLICE_BYTES: usize = 8 << 20;

/// The rows of `batch` in order, each slice within both bounds.
pub(super) fn slices(batch: &RecordBatch) -> Vec<RecordBatch> {
    let mut slices = Vec::new();
    for start in (0..batch.num_rows()).step_by(SLICE_ROWS) {
        let rows = SLICE_ROWS.min(batch.num_rows() - start);
        halve(batch.slice(start, rows), &mut slices);
    }
    slices
}

/// The bytes that the rows of `batch` take, whatever else their buffers hold.
///
/// Arrow's own measures count the whole of a shared buffer, or a sliced list's whole child.
pub(super) fn batch_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(array_bytes).sum()
}

fn halve(slice: RecordBatch, slices: &mut Vec<RecordBatch>) {
    let rows = slice.num_rows();
    if rows > 1 && batch_bytes(&slice) > SLICE_BYTES {
        halve(slice.slice(0, rows / 2), slices);
        halve(slice.slice(rows / 2, rows - rows / 2), slices);
    } else {
        slices.push(slice);
    }
}

fn array_bytes(array: &ArrayRef) -> usize {
    let span = |offsets: &[i32]| match offsets {
        [first, .., last] => (*first as usize, (last - first) as usize),
        _ => (0, 0),
    };
    let len = array.len();
    match array.data_type() {
        DataType::Utf8 => span(array.as_string::<i32>().value_offsets()).1 + 4 * len,
        DataType::Binary => span(array.as_binary::<i32>().value_offsets()).1 + 4 * len,
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let (start, elements) = span(list.value_offsets());
            array_bytes(&list.values().slice(start, elements)) + 4 * len
        }
        DataType::Map(_, _) => {
            let map = array.as_map();
            let (start, entries) = span(map.value_offsets());
            map.entries().slice(start, entries).columns().iter().map(array_bytes).sum::<usize>() + 4 * len
        }
        DataType::Struct(_) => array.as_struct().columns().iter().map(array_bytes).sum(),
        other => other.primitive_width().map_or(len / 8, |width| width * len),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, ListArray, StringArray};
    use arrow::datatypes::Int32Type;

    use super::*;

    fn check(columns: Vec<(&str, ArrayRef)>, expected: &[usize]) {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let slices = slices(&batch);
        assert_eq!(slices.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), expected);
        let schema = batch.schema();
        assert_eq!(arrow::compute::concat_batches(&schema, &slices).unwrap(), batch);
    }

    #[test]
    fn a_slice_ends_at_its_bound_of_rows() {
        check(vec![("n", Arc::new(Int64Array::from_iter_values(0..150_000)))], &[65_536, 65_536, 18_928]);
        check(vec![("n", Arc::new(Int64Array::from_iter_values(0..10)))], &[10]);
        check(vec![("n", Arc::new(Int64Array::from_iter_values(0..0)))], &[]);
    }

    #[test]
    fn a_slice_of_wide_rows_ends_at_its_bound_of_bytes() {
        let wide = "x".repeat(3 << 20);
        check(vec![("s", Arc::new(StringArray::from(vec![wide.as_str(); 8])))], &[2, 2, 2, 2]);
        let huge = "x".repeat(9 << 20);
        check(vec![("s", Arc::new(StringArray::from(vec!["", huge.as_str(), huge.as_str(), ""])))], &[1, 1, 1, 1]);
    }

    #[test]
    fn a_sliced_list_counts_only_its_own_elements() {
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>((0..100).map(|_| Some(vec![Some(1); 50])));
        let one: ArrayRef = Arc::new(list.slice(40, 1));
        assert_eq!(array_bytes(&one), 50 * 4 + 4);
    }
}
