use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{Date32Type, Decimal128Type, TimestampMicrosecondType};

use super::*;

/// Days from 1970 to 2000, and their microseconds.
const DAYS: i64 = 10_957;
const MICROS: i64 = DAYS * 86_400_000_000;

fn ints(list: &str) -> Kind {
    let delimiter = if list == "box" { b';' } else { b',' };
    Kind::Array(Box::new(Kind::Int4), delimiter)
}

/// The cells that values come to, read as text and read as binary.
fn filled(kind: &Kind, values: &[Value<'_>]) -> Result<ArrayRef, Misfit> {
    let mut cells = Cells::new(kind);
    for value in values {
        match value {
            Value::Text(text) => cells.text(text.as_bytes())?,
            Value::Binary(bytes) => cells.binary(bytes)?,
            Value::Null => cells.null(),
        }
    }
    Ok(cells.finish())
}

enum Value<'a> {
    Text(&'a str),
    Binary(Vec<u8>),
    Null,
}

fn text_misfit(kind: &Kind, text: &str) -> String {
    filled(kind, &[Value::Text(text)]).unwrap_err().0
}

fn binary_misfit(kind: &Kind, bytes: &[u8]) -> String {
    filled(kind, &[Value::Binary(bytes.to_vec())]).unwrap_err().0
}

/// `numeric` as the server sends it.
fn numeric(weight: i16, sign: u16, scale: u16, groups: &[u16]) -> Vec<u8> {
    let mut bytes = (groups.len() as u16).to_be_bytes().to_vec();
    bytes.extend(weight.to_be_bytes());
    bytes.extend(sign.to_be_bytes());
    bytes.extend(scale.to_be_bytes());
    bytes.extend(groups.iter().flat_map(|group| group.to_be_bytes()));
    bytes
}

/// An array of `int4` as the server sends it, or of what `elements` are.
fn array(dimensions: &[(i32, i32)], elements: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut bytes = (dimensions.len() as i32).to_be_bytes().to_vec();
    bytes.extend(0i32.to_be_bytes());
    bytes.extend(23i32.to_be_bytes());
    for (length, first) in dimensions {
        bytes.extend(length.to_be_bytes());
        bytes.extend(first.to_be_bytes());
    }
    for element in elements {
        match element {
            Some(element) => {
                bytes.extend((element.len() as i32).to_be_bytes());
                bytes.extend(element);
            }
            None => bytes.extend((-1i32).to_be_bytes()),
        }
    }
    bytes
}

#[test]
fn both_forms_of_a_value_are_the_same_cell() {
    let uuid = [0xa0, 0xee, 0xbc, 0x99, 0x9c, 0x0b, 0x4e, 0xf8, 0xbb, 0x6d, 0x6b, 0xb9, 0xbd, 0x38, 0x0a, 0x11];
    let be = |int: i32| Some(int.to_be_bytes().to_vec());
    let (whole, behind) = ("9".repeat(38), format!("0.{}", "9".repeat(38)));
    let cases: Vec<(Kind, &str, Vec<u8>)> = vec![
        (Kind::Bool, "t", vec![1]),
        (Kind::Bool, "f", vec![0]),
        (Kind::Int2, "-32768", i16::MIN.to_be_bytes().to_vec()),
        (Kind::Int4, "2147483647", i32::MAX.to_be_bytes().to_vec()),
        (Kind::Int8, "-9223372036854775808", i64::MIN.to_be_bytes().to_vec()),
        (Kind::Unsigned, "4294967295", u32::MAX.to_be_bytes().to_vec()),
        (Kind::Float4, "3.4028235e+38", f32::MAX.to_be_bytes().to_vec()),
        (Kind::Float4, "-Infinity", f32::NEG_INFINITY.to_be_bytes().to_vec()),
        (Kind::Float8, "5e-324", 5e-324f64.to_be_bytes().to_vec()),
        (Kind::Float8, "-0", (-0f64).to_be_bytes().to_vec()),
        (Kind::Float8, "0.1", 0.1f64.to_be_bytes().to_vec()),
        (Kind::Decimal(10, 2), "0.00", numeric(0, 0, 2, &[])),
        (Kind::Decimal(10, 2), "-12345678.90", numeric(1, 0x4000, 2, &[1234, 5678, 9000])),
        (Kind::Decimal(10, 2), "0.01", numeric(-1, 0, 2, &[100])),
        (Kind::Decimal(7, 0), "9999900", numeric(1, 0, 0, &[999, 9900])),
        (Kind::Decimal(5, 5), "0.00099", numeric(-1, 0, 5, &[9, 9000])),
        (Kind::Decimal(38, 38), &behind, numeric(-1, 0, 38, &[[9999; 9].as_slice(), &[9900]].concat())),
        (Kind::Decimal(38, 0), &whole, numeric(9, 0, 0, &[[99].as_slice(), &[9999; 9]].concat())),
        (Kind::Decimal(10, 2), "1.5000000", numeric(0, 0, 7, &[1, 5000])),
        (Kind::Date, "2000-01-01", 0i32.to_be_bytes().to_vec()),
        (Kind::Date, "2000-02-29", 59i32.to_be_bytes().to_vec()),
        (Kind::Date, "1900-03-01", (-36_465i32).to_be_bytes().to_vec()),
        (Kind::Date, "0001-12-31 BC", (-730_120i32).to_be_bytes().to_vec()),
        (Kind::Date, "4714-11-24 BC", (-2_451_545i32).to_be_bytes().to_vec()),
        (Kind::Date, "5874897-12-31", 2_145_031_948i32.to_be_bytes().to_vec()),
        (Kind::Timestamp, "1999-12-31 23:59:59.999999", (-1i64).to_be_bytes().to_vec()),
        (Kind::Timestamp, "2000-01-01 00:00:00.5", 500_000i64.to_be_bytes().to_vec()),
        (Kind::Instant, "2000-01-01 00:00:00+00", 0i64.to_be_bytes().to_vec()),
        (Kind::Instant, "2000-01-01 02:00:00+02", 0i64.to_be_bytes().to_vec()),
        (Kind::Instant, "1999-12-31 20:29:58-03:30:02", 0i64.to_be_bytes().to_vec()),
        (Kind::Bytes, "\\x00ff5c", vec![0, 255, 92]),
        (Kind::Bytes, "a\\\\\\000\\377", vec![b'a', b'\\', 0, 255]),
        (Kind::Bytes, "", vec![]),
        (Kind::Uuid, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", uuid.to_vec()),
        (Kind::Jsonb, "{\"a\": [1, 2.50]}", b"\x01{\"a\": [1, 2.50]}".to_vec()),
        (Kind::Text, "\u{1F980}\t", "\u{1F980}\t".into()),
        (ints(""), "{}", array(&[], &[])),
        (ints(""), "{1,NULL,-3}", array(&[(3, 1)], &[be(1), None, be(-3)])),
        (ints("box"), "{1;2}", array(&[(2, 1)], &[be(1), be(2)])),
        (
            Kind::Array(Box::new(Kind::Text), b','),
            r#"{"a,b","\"q\"",NULL,"NULL","","\\","{x}",plain}"#,
            array(
                &[(8, 1)],
                &[Some("a,b"), Some("\"q\""), None, Some("NULL"), Some(""), Some("\\"), Some("{x}"), Some("plain")]
                    .map(|element| element.map(|element| element.as_bytes().to_vec())),
            ),
        ),
        (
            Kind::Array(Box::new(ints("")), b','),
            r#"{"{1,2}","{}"}"#,
            array(&[(2, 1)], &[Some(array(&[(2, 1)], &[be(1), be(2)])), Some(array(&[], &[]))]),
        ),
    ];
    for (kind, text, bytes) in cases {
        let cells = filled(&kind, &[Value::Text(text), Value::Null, Value::Binary(bytes), Value::Null]);
        let cells = cells.unwrap_or_else(|misfit| panic!("{kind:?} {text}: {misfit:?}"));
        assert_eq!(cells.len(), 4, "{text}");
        assert_eq!(*cells.data_type(), kind.data_type());
        assert_eq!(cells.slice(0, 2).to_data(), cells.slice(2, 2).to_data(), "{kind:?} {text}");
        assert!(cells.is_valid(0) && cells.is_null(1));
    }
}

#[test]
fn a_decimal_is_its_digits() {
    let kind = Kind::Decimal(10, 2);
    let cells = filled(&kind, &[Value::Text("-12345678.90"), Value::Text("7"), Value::Text("0.1")]).unwrap();
    assert_eq!(cells.as_primitive::<Decimal128Type>().values(), &[-1_234_567_890, 700, 10]);
}

#[test]
fn a_decimal_refuses_what_it_cannot_hold() {
    let kind = Kind::Decimal(10, 2);
    let digits = |bytes: &[u8]| binary_misfit(&kind, bytes);
    for (said, expected) in [
        (text_misfit(&kind, "NaN"), "has NaN, which decimal(10,2) cannot hold; add columns = { $NAME = \"string\" }"),
        (digits(&numeric(0, 0xC000, 0, &[])), "has NaN, which"),
        (text_misfit(&kind, "Infinity"), "has infinity, which"),
        (digits(&numeric(0, 0xF000, 0, &[])), "has -infinity, which"),
        (text_misfit(&kind, "100000000.00"), "has a number of more digits, which"),
        (digits(&numeric(2, 0, 0, &[1])), "has a number of more digits, which"),
        (digits(&numeric(i16::MAX, 0, 0, &[1])), "has a number of more digits, which"),
        (text_misfit(&kind, &"9".repeat(200)), "has a number of more digits, which"),
        (text_misfit(&kind, "0.001"), "has more digits behind the point, which"),
        (digits(&numeric(-1, 0, 3, &[10])), "has more digits behind the point, which"),
        (digits(&numeric(-2, 0, 8, &[1])), "has more digits behind the point, which"),
        (text_misfit(&kind, "1e5"), "has a value that is no numeric of PostgreSQL"),
        (digits(&numeric(0, 0, 0, &[10_000])), "has a value that is no numeric of PostgreSQL"),
        (digits(&[0, 1, 0]), "has a value that is no numeric of PostgreSQL"),
    ] {
        assert!(said.starts_with(expected), "{said}");
    }
}

#[test]
fn days_and_microseconds_count_from_1970() {
    let dates = [("1970-01-01", 0), ("1969-12-31", -1), ("2000-01-01", DAYS), ("0001-01-01 BC", -719_528)];
    for (text, days) in dates {
        let cells = filled(&Kind::Date, &[Value::Text(text)]).unwrap();
        assert_eq!(i64::from(cells.as_primitive::<Date32Type>().value(0)), days, "{text}");
    }
    let cells = filled(&Kind::Timestamp, &[Value::Text("2000-01-01 00:00:00.000001")]).unwrap();
    assert_eq!(cells.as_primitive::<TimestampMicrosecondType>().value(0), MICROS + 1);
}

#[test]
fn days_agree_with_the_calendar_of_arrow() {
    let texts: Vec<String> = (0..60_000i32)
        .map(|i| {
            let (year, rest) = (1600 + i / 100, i % 100);
            format!("{year:04}-{:02}-{:02}", rest % 12 + 1, rest % 28 + 1)
        })
        .collect();
    let ours = filled(&Kind::Date, &texts.iter().map(|text| Value::Text(text)).collect::<Vec<_>>()).unwrap();
    let arrow = cast(&arrow::array::StringArray::from(texts), &DataType::Date32).unwrap();
    assert_eq!(ours.to_data(), arrow.to_data());
}

#[test]
fn a_moment_that_no_table_holds_is_refused() {
    let infinite = |kind: Kind, end: &[u8]| {
        assert!(binary_misfit(&kind, end).contains("infinity"), "{kind:?}");
        for text in ["infinity", "-infinity"] {
            assert!(text_misfit(&kind, text).starts_with(&format!("has {text}, which a ")), "{kind:?}");
        }
    };
    infinite(Kind::Date, &i32::MAX.to_be_bytes());
    infinite(Kind::Date, &i32::MIN.to_be_bytes());
    infinite(Kind::Timestamp, &i64::MAX.to_be_bytes());
    infinite(Kind::Instant, &i64::MIN.to_be_bytes());
    let last = "294247-01-10 04:00:54.775807";
    assert!(filled(&Kind::Timestamp, &[Value::Text(last)]).is_ok());
    let beyond = "has a time after the year 294246, which a timestamp cannot hold";
    assert!(text_misfit(&Kind::Timestamp, "294247-01-10 04:00:54.775808").starts_with(beyond));
    assert!(binary_misfit(&Kind::Timestamp, &(i64::MAX - MICROS + 1).to_be_bytes()).starts_with(beyond));
}

#[test]
fn a_list_refuses_what_it_would_lose() {
    let be = |int: i32| Some(int.to_be_bytes().to_vec());
    for (text, bytes, expected) in [
        ("{{1},{2}}", array(&[(2, 1), (1, 1)], &[be(1), be(2)]), "has an array of several dimensions"),
        ("[1:2][1:1]={{1},{2}}", array(&[(2, 1), (1, 1)], &[be(1), be(2)]), "has an array of several dimensions"),
        ("[0:1]={1,2}", array(&[(2, 0)], &[be(1), be(2)]), "has an array whose first element is number 0"),
        ("[-5:-5]={1}", array(&[(1, -5)], &[be(1)]), "has an array whose first element is number -5"),
    ] {
        let (read, copied) = (text_misfit(&ints(""), text), binary_misfit(&ints(""), &bytes));
        assert_eq!(read, copied, "{text}");
        assert!(read.starts_with(expected) && read.contains("columns = { $NAME = \"string\" }"), "{read}");
    }
}

#[test]
fn what_is_no_value_is_refused_and_never_a_panic() {
    let kinds = [
        Kind::Bool,
        Kind::Int2,
        Kind::Int4,
        Kind::Int8,
        Kind::Unsigned,
        Kind::Float4,
        Kind::Float8,
        Kind::Decimal(10, 2),
        Kind::Date,
        Kind::Timestamp,
        Kind::Uuid,
        Kind::Jsonb,
        ints(""),
    ];
    let cut = array(&[(2, 1)], &[Some(vec![0, 0, 0, 1])]);
    for kind in &kinds {
        for bytes in [&[][..], &[0; 3], &[255; 5], &[0xFF; 64], &cut] {
            let misfit = filled(kind, &[Value::Binary(bytes.to_vec())]);
            assert!(misfit.is_err(), "{kind:?} {bytes:?}: {misfit:?}");
        }
        if *kind == Kind::Uuid || *kind == Kind::Jsonb {
            continue;
        }
        for text in
            ["", "{", "{1", "{\"1}", "{1}x", "{1,}", "[1:1]", "2024-13-01", "2024-01-01", "1-1", "é", "--1", "+-"]
        {
            if (*kind == Kind::Date && text == "2024-01-01") || text.is_empty() && *kind == Kind::Bytes {
                continue;
            }
            assert!(filled(kind, &[Value::Text(text)]).is_err(), "{kind:?} {text:?}");
        }
    }
    assert!(
        text_misfit(&Kind::Bytes, "\\x0").contains("bytea") && text_misfit(&Kind::Bytes, "\\400").contains("bytea")
    );
    assert!(binary_misfit(&Kind::Text, &[0xFF]).contains("UTF-8"));
}
