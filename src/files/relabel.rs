//! Columns under other names: the same values, with the names of fields at every depth changed.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, StructArray};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use crate::error::{Error, Result};

/// `array` as the type `to`, which differs in nothing but the names and notes of fields.
///
/// Internal: a type that differs otherwise.
pub fn relabel(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    let misfit = |e: ArrowError| {
        Error::internal(format!("a column of the type {} was to be named as {to}", array.data_type())).with_source(e)
    };
    match (array.data_type(), to) {
        (DataType::Struct(own), DataType::Struct(fields)) if own.len() == fields.len() => {
            let array = array.as_struct();
            let columns = array.columns().iter().zip(fields).map(|(column, field)| relabel(column, field.data_type()));
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let renamed =
                StructArray::try_new_with_length(fields.clone(), columns, array.nulls().cloned(), array.len());
            Ok(Arc::new(renamed.map_err(misfit)?))
        }
        (DataType::List(_), DataType::List(element)) => {
            let array = array.as_list::<i32>();
            let values = relabel(array.values(), element.data_type())?;
            let renamed =
                ListArray::try_new(Arc::clone(element), array.offsets().clone(), values, array.nulls().cloned());
            Ok(Arc::new(renamed.map_err(misfit)?))
        }
        (DataType::Map(..), DataType::Map(entries, sorted)) => {
            let array = array.as_map();
            let pairs: ArrayRef = Arc::new(array.entries().clone());
            let pairs = relabel(&pairs, entries.data_type())?.as_struct().clone();
            let nulls = array.nulls().cloned();
            let renamed = MapArray::try_new(Arc::clone(entries), array.offsets().clone(), pairs, nulls, *sorted);
            Ok(Arc::new(renamed.map_err(misfit)?))
        }
        (own, to) => Err(Error::internal(format!("a column of the type {own} was to be named as {to}"))),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, StringArray};
    use arrow::buffer::{NullBuffer, OffsetBuffer};
    use arrow::datatypes::{Field, Fields};

    use super::*;

    fn nested(name: &str, element: &str) -> (Fields, DataType) {
        let fields = Fields::from(vec![Field::new(name, DataType::Int32, true)]);
        let list = DataType::List(Arc::new(Field::new(element, DataType::Struct(fields.clone()), true)));
        (fields, list)
    }

    #[test]
    fn names_change_at_every_depth_and_values_do_not() {
        let ((from, _), (_, to)) = (nested("a", "element"), nested("col-1", "element"));
        let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
        let rows = StructArray::new(from.clone(), vec![values], Some(NullBuffer::from(vec![true, true, false])));
        let element = Arc::new(Field::new("element", DataType::Struct(from), true));
        let offsets = OffsetBuffer::from_lengths([2, 0, 1]);
        let nulls = Some(NullBuffer::from(vec![true, false, true]));
        let list: ArrayRef = Arc::new(ListArray::new(element, offsets, Arc::new(rows), nulls));
        let renamed = relabel(&list.slice(1, 2), &to).unwrap();
        assert_eq!(renamed.data_type(), &to);
        assert_eq!(&relabel(&renamed, list.data_type()).unwrap(), &list.slice(1, 2));
    }

    #[test]
    fn what_differs_in_more_than_names_is_refused() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        assert!(relabel(&text, &DataType::Int32).is_err());
    }
}
