//! Batches as sources give them, brought to the types that the table keeps: exactly, or not at all.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, GenericListArray, GenericListViewArray, ListArray,
    MapArray, OffsetSizeTrait, RecordBatch, RecordBatchOptions, StructArray, UInt64Array, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast_with_options, max, min, nullif, take};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal128Type, DecimalType, Field, FieldRef, Fields, SchemaRef, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow::error::ArrowError;

use super::kept::kept_type;
use crate::error::{Error, Result};

const MILLIS_A_DAY: i64 = 86_400_000;

/// The batch with the columns `wanted`, found by name; `place` begins the error's message.
pub(super) fn conform_columns(batch: &RecordBatch, wanted: &SchemaRef, place: &str) -> Result<RecordBatch> {
    if batch.schema_ref() == wanted {
        for (field, column) in wanted.fields().iter().zip(batch.columns()) {
            check_decimals(column).map_err(|misfit| misfit.in_column(field.name(), place))?;
        }
        return Ok(batch.clone());
    }
    let given: HashMap<&str, &ArrayRef> =
        batch.schema_ref().fields().iter().map(|f| f.name().as_str()).zip(batch.columns()).collect();
    let mut columns = Vec::with_capacity(wanted.fields().len());
    for field in wanted.fields() {
        let Some(column) = given.get(field.name().as_str()) else {
            return Err(Error::incompatible(format!("{place}: the column {:?} is missing", field.name())));
        };
        columns.push(conform_column(column, field, place)?);
    }
    if batch.num_columns() > columns.len() {
        let unknown = batch.schema_ref().fields().iter().find(|f| wanted.index_of(f.name()).is_err());
        return Err(Error::incompatible(format!(
            "{place}: column {:?} is not a column of the view; a changed schema needs a reset",
            unknown.map_or("", |f| f.name())
        )));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(wanted), columns, &options)
        .map_err(|e| Error::incompatible(format!("{place}: the rows do not fit the view's schema")).with_source(e))
}

fn conform_column(column: &ArrayRef, field: &Field, place: &str) -> Result<ArrayRef> {
    if !fits(column.data_type(), field.data_type()) {
        return Err(Error::incompatible(format!(
            "{place}: column {:?} has the type {}, the view has {}; a changed schema needs a reset",
            field.name(),
            column.data_type(),
            field.data_type()
        )));
    }
    let in_column = |misfit: Misfit| misfit.in_column(field.name(), place);
    let column = converted(column, field.data_type(), None).map_err(in_column)?;
    if column.null_count() > 0 && !field.is_nullable() {
        return Err(Error::incompatible(format!(
            "{place}: column {:?} holds null and may not, being part of the key or declared so; correct the view",
            field.name()
        )));
    }
    check_decimals(&column).map_err(in_column)?;
    Ok(column)
}

/// Whether values of the type `given` may stand where the kept type `wanted` is.
///
/// What a writer calls the members of lists and maps does not matter, nor the order of a struct's fields.
pub(crate) fn fits(given: &DataType, wanted: &DataType) -> bool {
    use DataType as T;
    match (given, wanted) {
        (T::Null, _) => true,
        (T::Dictionary(_, values), _) => fits(values, wanted),
        (T::RunEndEncoded(_, values), _) => fits(values.data_type(), wanted),
        (T::List(g) | T::LargeList(g) | T::FixedSizeList(g, _) | T::ListView(g) | T::LargeListView(g), T::List(w)) => {
            fits(g.data_type(), w.data_type())
        }
        (T::Struct(g), T::Struct(w)) => {
            let has_twin = |w: &FieldRef| g.find(w.name()).is_some_and(|(_, g)| fits(g.data_type(), w.data_type()));
            g.len() == w.len() && w.iter().all(has_twin)
        }
        (T::Map(g, _), T::Map(w, _)) => match (g.data_type(), w.data_type()) {
            (T::Struct(g), T::Struct(w)) => {
                g.len() == 2 && g.iter().zip(w).all(|(g, w)| fits(g.data_type(), w.data_type()))
            }
            _ => false,
        },
        _ => !given.is_nested() && kept_type(given).as_ref() == Some(wanted),
    }
}

/// A value that the kept type cannot hold.
struct Misfit {
    /// Where, from the column on: empty, `.b`, `[]`, `.key`.
    path: String,
    why: String,
    source: Option<ArrowError>,
}

impl Misfit {
    fn new(why: String) -> Self {
        Self { path: String::new(), why, source: None }
    }

    fn arrow(why: &str, source: ArrowError) -> Self {
        Self { source: Some(source), ..Self::new(why.to_string()) }
    }

    fn below(self, member: &str) -> Self {
        Self { path: format!("{member}{}", self.path), ..self }
    }

    fn in_column(self, column: &str, place: &str) -> Error {
        let error = Error::incompatible(format!("{place}: column {:?} {}", format!("{column}{}", self.path), self.why));
        match self.source {
            Some(source) => error.with_source(source),
            None => error,
        }
    }
}

type Converted<T = ArrayRef> = Result<T, Misfit>;

/// The values of `array` as `wanted`, for types that [`fits`] allows; null wherever `mask` is.
///
/// What stands below a null is never looked at, since it may be anything.
fn converted(array: &ArrayRef, wanted: &DataType, mask: Option<&NullBuffer>) -> Converted {
    use DataType as T;
    let failed = |e| Misfit::arrow(&format!("does not fit {wanted}"), e);
    if let Some(dictionary) = array.as_any_dictionary_opt() {
        let values = take(dictionary.values(), dictionary.keys(), None).map_err(failed)?;
        return converted(&values, wanted, mask);
    }
    if let T::RunEndEncoded(_, values) = array.data_type() {
        return converted(&exact_cast(array, values.data_type()).map_err(failed)?, wanted, mask);
    }
    let masked = match mask.filter(|mask| mask.null_count() > 0) {
        Some(mask) => &nullif(array, &BooleanArray::new(!mask.inner(), None)).map_err(failed)?,
        None => array,
    };
    if masked.data_type() == wanted {
        return Ok(Arc::clone(masked));
    }
    match (masked.data_type(), wanted) {
        (T::Null, _) => Ok(new_null_array(wanted, masked.len())),
        (T::List(_), T::List(field)) => list(spans(masked.as_list::<i32>()), masked.as_list::<i32>().values(), field),
        (T::LargeList(_), T::List(field)) => {
            list(spans(masked.as_list::<i64>()), masked.as_list::<i64>().values(), field)
        }
        (T::ListView(_), T::List(field)) => {
            list(view_spans(masked.as_list_view::<i32>()), masked.as_list_view::<i32>().values(), field)
        }
        (T::LargeListView(_), T::List(field)) => {
            list(view_spans(masked.as_list_view::<i64>()), masked.as_list_view::<i64>().values(), field)
        }
        (T::FixedSizeList(_, size), T::List(field)) => {
            let size = usize::try_from(*size).unwrap_or(0);
            let spans = (0..masked.len()).map(|row| (row * size, size)).collect();
            list(Spans::new(spans, masked.nulls()), masked.as_fixed_size_list().values(), field)
        }
        (T::Map(..), T::Map(entries, _)) => map(masked.as_map(), entries),
        (T::Struct(_), T::Struct(fields)) => structure(masked.as_struct(), fields),
        (T::Timestamp(unit, _), T::Timestamp(_, zone)) => {
            let micros = match unit {
                TimeUnit::Second => micros::<TimestampSecondType>(masked, |v| v.checked_mul(1_000_000)),
                TimeUnit::Millisecond => micros::<TimestampMillisecondType>(masked, |v| v.checked_mul(1_000)),
                TimeUnit::Microsecond => micros::<TimestampMicrosecondType>(masked, Some),
                TimeUnit::Nanosecond => {
                    micros::<TimestampNanosecondType>(masked, |v| (v % 1_000 == 0).then_some(v / 1_000))
                }
            }?;
            Ok(Arc::new(micros.with_timezone_opt(zone.clone())))
        }
        (T::Date64, T::Date32) => {
            let day = |millis: i64| {
                let days = (millis % MILLIS_A_DAY == 0).then(|| i32::try_from(millis / MILLIS_A_DAY).ok()).flatten();
                days.ok_or_else(|| {
                    Misfit::new("has a date that is no whole day; cast it to a timestamp in the view".into())
                })
            };
            Ok(Arc::new(masked.as_primitive::<Date64Type>().try_unary::<_, Date32Type, _>(day)?))
        }
        _ => exact_cast(masked, wanted).map_err(failed),
    }
}

fn exact_cast(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    cast_with_options(array, wanted, &CastOptions { safe: false, ..CastOptions::default() })
}

fn micros<T: ArrowPrimitiveType<Native = i64>>(
    array: &ArrayRef,
    exact: impl Fn(i64) -> Option<i64>,
) -> Converted<arrow::array::TimestampMicrosecondArray> {
    array.as_primitive::<T>().try_unary::<_, TimestampMicrosecondType, _>(|value| {
        exact(value).ok_or_else(|| {
            Misfit::new(format!(
                "has a time of type {} that is finer than a microsecond or beyond 64 bits of them, and Delta cannot hold it; round it in the view",
                T::DATA_TYPE
            ))
        })
    })
}

/// Where each list's elements stand among the values; nothing for a null.
struct Spans {
    spans: Vec<(usize, usize)>,
    nulls: Option<NullBuffer>,
}

impl Spans {
    fn new(mut spans: Vec<(usize, usize)>, nulls: Option<&NullBuffer>) -> Self {
        if let Some(nulls) = nulls {
            for (span, valid) in spans.iter_mut().zip(nulls) {
                if !valid {
                    span.1 = 0;
                }
            }
        }
        Self { spans, nulls: nulls.cloned() }
    }

    /// The offsets of lists that stand one behind the other, and the values in that order.
    fn compact(&self, values: &[ArrayRef]) -> Converted<(OffsetBuffer<i32>, Vec<ArrayRef>)> {
        let total = self.spans.iter().try_fold(0usize, |sum, (_, length)| sum.checked_add(*length));
        let Some(total) = total.filter(|total| i32::try_from(*total).is_ok()) else {
            return Err(Misfit::new("has more than 2^31 elements in one batch; give smaller batches".into()));
        };
        let offsets = OffsetBuffer::from_lengths(self.spans.iter().map(|(_, length)| *length));
        let mut filled = self.spans.iter().filter(|(_, length)| *length > 0);
        let first = filled.clone().next().map_or(0, |(start, _)| *start);
        let mut end = first;
        let is_dense = filled.all(|(start, length)| {
            let follows = *start == end;
            end = start + length;
            follows
        });
        let values = if is_dense {
            values.iter().map(|values| values.slice(first, total)).collect()
        } else {
            let places = self.spans.iter().flat_map(|(start, length)| (*start..start + length).map(|at| at as u64));
            let places = UInt64Array::from_iter_values(places);
            let taken = values.iter().map(|values| take(values, &places, None));
            taken.collect::<Result<_, _>>().map_err(|e| Misfit::arrow("has lists that cannot be read", e))?
        };
        Ok((offsets, values))
    }
}

fn spans<O: OffsetSizeTrait>(list: &GenericListArray<O>) -> Spans {
    let starts = list.value_offsets();
    let span = |(a, b): (&O, &O)| (a.as_usize(), b.as_usize() - a.as_usize());
    Spans::new(starts.iter().zip(starts.iter().skip(1)).map(span).collect(), list.nulls())
}

fn view_spans<O: OffsetSizeTrait>(list: &GenericListViewArray<O>) -> Spans {
    let span = |(start, length): (&O, &O)| (start.as_usize(), length.as_usize());
    Spans::new(list.value_offsets().iter().zip(list.value_sizes()).map(span).collect(), list.nulls())
}

fn list(spans: Spans, values: &ArrayRef, element: &FieldRef) -> Converted {
    let (offsets, values) = spans.compact(std::slice::from_ref(values))?;
    let values = values.into_iter().next().ok_or_else(|| Misfit::new("has no elements".into()))?;
    let values = converted(&values, element.data_type(), None).map_err(|misfit| misfit.below("[]"))?;
    let list = ListArray::try_new(Arc::clone(element), offsets, values, spans.nulls);
    Ok(Arc::new(list.map_err(null_inside)?))
}

fn map(given: &MapArray, entries: &FieldRef) -> Converted {
    let DataType::Struct(pair) = entries.data_type() else { return Err(Misfit::new("is no map".into())) };
    let [key, value] = pair.as_ref() else { return Err(Misfit::new("is no map".into())) };
    let starts = given.value_offsets();
    let span = |(a, b): (&i32, &i32)| (*a as usize, (b - a) as usize);
    let spans = Spans::new(starts.iter().zip(starts.iter().skip(1)).map(span).collect(), given.nulls());
    let (offsets, members) = spans.compact(&[Arc::clone(given.keys()), Arc::clone(given.values())])?;
    let mut columns = Vec::with_capacity(2);
    for (array, (field, name)) in members.iter().zip([(key, ".key"), (value, ".value")]) {
        columns.push(converted(array, field.data_type(), None).map_err(|misfit| misfit.below(name))?);
    }
    let pairs = StructArray::try_new(pair.clone(), columns, None).map_err(null_inside)?;
    Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, pairs, spans.nulls, false).map_err(null_inside)?))
}

fn structure(given: &StructArray, fields: &Fields) -> Converted {
    let mut columns = Vec::with_capacity(fields.len());
    for field in fields {
        let column = given.column_by_name(field.name());
        let column = column.ok_or_else(|| Misfit::new(format!("lacks the field {:?}", field.name())))?;
        let below = |misfit: Misfit| misfit.below(&format!(".{}", field.name()));
        columns.push(converted(column, field.data_type(), given.nulls()).map_err(below)?);
    }
    Ok(Arc::new(StructArray::try_new(fields.clone(), columns, given.nulls().cloned()).map_err(null_inside)?))
}

fn null_inside(e: ArrowError) -> Misfit {
    Misfit::arrow("holds null inside where its type says that there is none; correct the view", e)
}

/// Refuses decimals of more digits than their type says, which Arrow lets pass and Parquet would cut.
fn check_decimals(array: &ArrayRef) -> Converted<()> {
    match array.data_type() {
        DataType::Decimal128(precision, scale) => {
            let values = array.as_primitive::<Decimal128Type>();
            for bound in [min(values), max(values)].into_iter().flatten() {
                if Decimal128Type::validate_decimal_precision(bound, *precision, *scale).is_err() {
                    return Err(Misfit::new(format!(
                        "has a decimal that is beyond its own type, {}; correct the view",
                        array.data_type()
                    )));
                }
            }
            Ok(())
        }
        DataType::List(_) => check_decimals(array.as_list::<i32>().values()).map_err(|misfit| misfit.below("[]")),
        DataType::Map(..) => {
            let entries = array.as_map().entries();
            entries
                .columns()
                .iter()
                .zip([".key", ".value"])
                .try_for_each(|(column, name)| check_decimals(column).map_err(|misfit| misfit.below(name)))
        }
        DataType::Struct(fields) => fields.iter().zip(array.as_struct().columns()).try_for_each(|(field, column)| {
            check_decimals(column).map_err(|misfit| misfit.below(&format!(".{}", field.name())))
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "conform_tests.rs"]
mod tests;
