use arrow::datatypes::{IntervalUnit, Schema, UnionFields, UnionMode};

use super::*;
use crate::error::ErrorKind;
use crate::schema::View;

fn item(data_type: DataType) -> FieldRef {
    Arc::new(Field::new("item", data_type, true))
}

fn schema(fields: Vec<(&str, DataType)>) -> Schema {
    Schema::new(fields.into_iter().map(|(n, t)| Field::new(n, t, true)).collect::<Vec<_>>())
}

fn map_of(key: DataType, value: DataType) -> DataType {
    let pair = Fields::from(vec![Field::new("keys", key, false), Field::new("values", value, true)]);
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(pair), false)), true)
}

#[test]
fn each_type_stands_in_the_table_as_documented() {
    use DataType as T;
    let list = |t: DataType| T::List(Arc::new(Field::new("element", t, true)));
    let micros = |zone: Option<&str>| T::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
    let runs = Arc::new(Field::new("run_ends", T::Int32, false));
    for (given, kept) in [
        (T::Boolean, T::Boolean),
        (T::Int8, T::Int8),
        (T::UInt8, T::Int16),
        (T::UInt16, T::Int32),
        (T::UInt32, T::Int64),
        (T::UInt64, T::Decimal128(20, 0)),
        (T::Float16, T::Float32),
        (T::Decimal32(9, 2), T::Decimal128(9, 2)),
        (T::Decimal64(18, 18), T::Decimal128(18, 18)),
        (T::Decimal256(38, 0), T::Decimal128(38, 0)),
        (T::Decimal128(5, -3), T::Decimal128(8, 0)),
        (T::Decimal128(30, -8), T::Decimal128(38, 0)),
        (T::Date64, T::Date32),
        (T::Timestamp(TimeUnit::Second, None), micros(None)),
        (T::Timestamp(TimeUnit::Nanosecond, Some("Europe/Berlin".into())), micros(Some("UTC"))),
        (T::LargeUtf8, T::Utf8),
        (T::Utf8View, T::Utf8),
        (T::BinaryView, T::Binary),
        (T::FixedSizeBinary(16), T::Binary),
        (T::Dictionary(Box::new(T::UInt8), Box::new(T::LargeUtf8)), T::Utf8),
        (T::RunEndEncoded(runs, item(T::UInt32)), T::Int64),
        (T::LargeListView(item(T::Dictionary(Box::new(T::Int8), Box::new(T::Float16)))), list(T::Float32)),
        (T::FixedSizeList(item(T::Date64), 3), list(T::Date32)),
    ] {
        assert_eq!(kept_type(&given), Some(kept), "{given}");
    }
    let T::Map(entries, false) = kept_type(&map_of(T::UInt8, T::Utf8View)).unwrap() else { panic!("no map") };
    let T::Struct(pair) = entries.data_type() else { panic!("no pair") };
    let shown: Vec<_> = pair.iter().map(|f| (f.name().as_str(), f.data_type().clone(), f.is_nullable())).collect();
    assert_eq!(shown, [("key", T::Int16, false), ("value", T::Utf8, true)]);
}

#[test]
fn a_type_that_cannot_be_kept_is_refused_by_its_path_with_a_cast() {
    use DataType as T;
    let union = UnionFields::try_new(vec![0], vec![Field::new("a", T::Int8, true)]).unwrap();
    for refused in [
        T::Null,
        T::Time32(TimeUnit::Second),
        T::Time64(TimeUnit::Nanosecond),
        T::Duration(TimeUnit::Second),
        T::Interval(IntervalUnit::MonthDayNano),
        T::Union(union, UnionMode::Sparse),
        T::Decimal256(39, 2),
        T::Decimal128(38, -1),
        T::Struct(Fields::empty()),
        T::Dictionary(Box::new(T::Int8), Box::new(T::Time32(TimeUnit::Second))),
    ] {
        let nested = T::Struct(Fields::from(vec![Field::new("b", T::List(item(refused.clone())), true)]));
        for (data_type, path) in [
            (refused.clone(), "\"odd\""),
            (nested, "\"odd.b[]\""),
            (map_of(T::Utf8, refused.clone()), "\"odd.value\""),
            (map_of(refused.clone(), T::Utf8), "\"odd.key\""),
        ] {
            let err = View::new("v", &schema(vec![("id", T::Int64), ("odd", data_type)]), vec![]).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Incompatible);
            assert!(
                err.message().contains(path) && err.message().contains("in the view")
                    || refused == T::Struct(Fields::empty()),
                "{err}"
            );
            assert!(err.message().contains("view v"), "{err}");
        }
    }
}

#[test]
fn names_that_the_table_cannot_hold_are_refused_at_every_depth() {
    for name in ["__step", "__OP", "a b", "a=b", "", "a\u{1}"] {
        assert!(View::new("v", &schema(vec![(name, DataType::Int64)]), vec![]).is_err(), "{name:?}");
    }
    assert!(View::new("v", &schema(vec![("a", DataType::Int64), ("A", DataType::Int64)]), vec![]).is_err());
    let nested = |names: &[&str]| {
        let fields: Vec<Field> = names.iter().map(|name| Field::new(*name, DataType::Int64, true)).collect();
        DataType::List(item(DataType::Struct(Fields::from(fields))))
    };
    for names in [&["a b"][..], &[""], &["x;"], &["a", "A"], &["ä", "Ä"]] {
        let err = View::new("v", &schema(vec![("c", nested(names))]), vec![]).unwrap_err();
        assert!(err.message().contains("\"c[]\""), "{err}");
    }
    for names in [&["__step", "a.b", "ß"][..], &["-"]] {
        assert!(View::new("v", &schema(vec![("c", nested(names))]), vec![]).is_ok(), "{names:?}");
    }
}

#[test]
fn a_keyed_view_is_nullable_outside_its_key() {
    let strict = Schema::new(vec![Field::new("id", DataType::Int64, true), Field::new("x", DataType::Utf8, false)]);
    let view = View::new("v", &strict, vec!["id".into()]).unwrap();
    let nullable: Vec<bool> = view.schema().fields().iter().map(|f| f.is_nullable()).collect();
    assert_eq!(nullable, [false, true]);
    let names: Vec<String> = view.changelog_schema().fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(names, ["__generation", "__step", "__op", "id", "x"]);
}

#[test]
fn nesting_has_a_limit() {
    let nested = |depth: usize| (0..depth).fold(DataType::Int8, |inner, _| DataType::List(item(inner)));
    assert!(kept_type(&nested(MAX_DEPTH)).is_some());
    for depth in [MAX_DEPTH + 1, 1_000] {
        let err = View::new("v", &schema(vec![("deep", nested(depth))]), vec![]).unwrap_err();
        assert!(err.message().contains("\"deep\"") && err.message().contains("32 levels"), "{err}");
    }
}

#[test]
fn extension_types_are_kept_by_their_storage_only_where_that_says_all() {
    let of = |name: &str, storage: DataType| {
        Field::new("x", storage, true).with_metadata([(EXTENSION.to_string(), name.to_string())].into())
    };
    for (name, storage, kept) in [
        ("arrow.uuid", DataType::FixedSizeBinary(16), DataType::Binary),
        ("arrow.json", DataType::LargeUtf8, DataType::Utf8),
        ("arrow.bool8", DataType::Int8, DataType::Int8),
    ] {
        assert_eq!(kept_field(&of(name, storage)).unwrap(), Field::new("x", kept, true));
    }
    for name in ["arrow.opaque", "arrow.fixed_shape_tensor", "geoarrow.point"] {
        let unkept = kept_field(&of(name, DataType::Binary)).unwrap_err();
        assert!(unkept.why.contains(name) && unkept.why.contains("cast it to its storage, Binary"), "{unkept:?}");
    }
}

#[test]
fn a_variant_is_two_binaries_of_any_kind_and_not_shredded() {
    let of = |members: &[(&str, DataType)]| {
        let members: Vec<Field> = members.iter().map(|(n, t)| Field::new(*n, t.clone(), true)).collect();
        let mark = [(EXTENSION.to_string(), VARIANT.to_string())];
        Field::new("x", DataType::Struct(Fields::from(members)), true).with_metadata(mark.into())
    };
    let kept = kept_field(&of(&[("value", DataType::BinaryView), ("metadata", DataType::LargeBinary)])).unwrap();
    assert!(is_variant(&kept));
    let DataType::Struct(members) = kept.data_type() else { panic!("no struct") };
    let shown: Vec<_> = members.iter().map(|f| (f.name().as_str(), f.data_type(), f.is_nullable())).collect();
    assert_eq!(shown, [("metadata", &DataType::Binary, false), ("value", &DataType::Binary, false)]);
    for members in [
        &[("metadata", DataType::Binary), ("value", DataType::Binary), ("typed_value", DataType::Int64)][..],
        &[("metadata", DataType::Binary), ("typed_value", DataType::Int64)],
        &[("metadata", DataType::Utf8), ("value", DataType::Binary)],
    ] {
        assert!(kept_field(&of(members)).unwrap_err().why.contains("unshred"), "{members:?}");
    }
}
