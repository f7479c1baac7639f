use super::*;

#[test]
fn integers_are_digits_alone_and_in_range() {
    for (json, expected) in [
        ("0", 0),
        ("-0", 0),
        ("9007199254740993", 9_007_199_254_740_993),
        ("-9223372036854775808", i64::MIN),
        ("9223372036854775807", i64::MAX),
    ] {
        assert_eq!(integer::<i64>(json, "bigint").unwrap(), expected, "{json}");
    }
    for json in ["9223372036854775808", "1.0", "1e3", "\"1\"", "true", "[1]", "{}", "99999999999999999999999"] {
        assert!(integer::<i64>(json, "bigint").is_err(), "{json}");
    }
    assert_eq!(integer::<i8>("-128", "tinyint"), Ok(-128));
    assert!(integer::<i8>("128", "tinyint").is_err());
    assert!(integer::<i32>("2147483648", "int").is_err());
}

#[test]
fn decimals_are_exact_or_refused() {
    for (json, expected) in [
        ("0", 0),
        ("-0.0", 0),
        ("0e999999999999", 0),
        ("12.34", 1234),
        ("-12.3", -1230),
        ("\"12.34\"", 1234),
        ("12.3400000", 1234),
        ("1234e-2", 1234),
        ("1.234E1", 1234),
        ("1.2e+3", 120_000),
        ("0.0001e2", 1),
        ("100000e-5", 100),
        ("99999999.99", 9_999_999_999),
        ("0.00000000000000000000000000000000000000000000000000000000000000e5", 0),
    ] {
        assert_eq!(decimal(json, 10, 2), Ok(expected), "{json}");
    }
    for json in [
        "12.345",
        "1e-3",
        "100000000",
        "1e8",
        "1e999999999999",
        "1e-999999999999",
        "\"\"",
        "\" 1\"",
        "\"+1\"",
        "\"1.\"",
        "\".5\"",
        "\"01\"",
        "\"0x1\"",
        "\"NaN\"",
        "true",
        "[]",
        "null",
        "\"1e\"",
        "\"1e1.5\"",
        "\"--1\"",
        "\"1e+-2\"",
    ] {
        assert!(decimal(json, 10, 2).is_err(), "{json}");
    }
    let nines = "9".repeat(38);
    assert_eq!(decimal(&nines, 38, 0), Ok(10i128.pow(38) - 1));
    assert!(decimal(&format!("{nines}9"), 38, 0).is_err());
    assert_eq!(decimal(&format!("-0.{nines}"), 38, 38), Ok(1 - 10i128.pow(38)));
}

#[test]
fn floats_are_the_nearest_and_finite_unless_named() {
    assert_eq!(double("0.1"), Ok(0.1));
    assert_eq!(double("-1e308"), Ok(-1e308));
    assert!(double("\"NaN\"").unwrap().is_nan());
    assert_eq!(double("\"-Infinity\""), Ok(f64::NEG_INFINITY));
    assert_eq!(float("16777217.0000001"), Ok(16_777_218.0), "rounded once, not by way of a double");
    for json in ["1e400", "\"nan\"", "\"1\"", "true", "[]"] {
        assert!(double(json).is_err(), "{json}");
    }
    assert!(float("1e39").is_err());
}

#[test]
fn times_are_exact_or_refused() {
    for (json, expected) in [
        ("\"1970-01-01T00:00:00Z\"", 0),
        ("\"1970-01-01 00:00:00.000001z\"", 1),
        ("\"1970-01-01T01:30:00.5+01:30\"", 500_000),
        ("\"1969-12-31T23:59:59.999999Z\"", -1),
        ("\"2000-02-29t12:00:00.123456000-00:00\"", 951_825_600_123_456),
    ] {
        assert_eq!(timestamp(json), Ok(expected), "{json}");
    }
    for json in [
        "\"1970-01-01T00:00:00\"",
        "\"1970-01-01\"",
        "\"1970-01-01T00:00Z\"",
        "\"1970-01-01T24:00:00Z\"",
        "\"1970-01-01T00:00:60Z\"",
        "\"1970-02-29T00:00:00Z\"",
        "\"1970-01-01T00:00:00.Z\"",
        "\"1970-01-01T00:00:00.0000001Z\"",
        "\"1970-01-01T00:00:00+0100\"",
        "\"1970-01-01T00:00:00+24:00\"",
        "\"é970-01-01T00:00:00+01:é\"",
        "0",
        "\"\"",
    ] {
        assert!(timestamp(json).is_err(), "{json}");
    }
    assert_eq!(timestamp_ntz("\"1970-01-01T00:00:01\""), Ok(1_000_000));
    assert!(timestamp_ntz("\"1970-01-01T00:00:01Z\"").is_err());
    assert_eq!(date("\"1970-01-02\""), Ok(1));
    assert_eq!(date("\"0001-01-01\""), Ok(-719_162));
    for (json, days) in [
        ("\"0000-02-29\"", -719_469),
        ("\"9999-12-31\"", 2_932_896),
        ("\"+10000-01-01\"", 2_932_897),
        ("\"-0001-12-31\"", -719_529),
        ("\"+5881580-07-11\"", i32::MAX),
        ("\"-5877641-06-23\"", i32::MIN),
    ] {
        assert_eq!(date(json), Ok(days), "{json}");
    }
    assert_eq!(timestamp_ntz("\"+294247-01-10T04:00:54.775807\""), Ok(i64::MAX));
    assert_eq!(timestamp("\"-290308-12-21T19:59:05.224192Z\""), Ok(i64::MIN));
    for json in
        ["\"+294247-01-10T04:00:54.775808Z\"", "\"+294247-01-10T04:00:54Z-01:00\"", "\"+5881580-07-12T00:00:00Z\""]
    {
        assert!(timestamp(json).is_err(), "{json}");
    }
    for json in ["\"10000-01-01\"", "\"+5881580-07-12\"", "\"1900-02-29\"", "\"1970-01-00\"", "\"1970-04-31\""] {
        assert!(date(json).is_err(), "{json}");
    }
    for json in ["\"1970-1-2\"", "\"1970-13-01\"", "\"+970-01-01\"", "\"1970-01-02T00:00:00\"", "1"] {
        assert!(date(json).is_err(), "{json}");
    }
}

#[test]
fn texts_are_decoded_and_lone_surrogates_refused() {
    assert_eq!(string(r#""a\u00e9\n\ud83d\ude00""#).unwrap(), "aé\n😀");
    assert_eq!(string("\"plain é\"").unwrap(), "plain é");
    for json in [r#""\ud83d""#, r#""\ude00\ud83d""#, "1", "{}"] {
        assert!(string(json).is_err(), "{json}");
    }
    assert_eq!(binary("\"AQID\""), Ok(vec![1, 2, 3]));
    assert_eq!(binary("\"\""), Ok(vec![]));
    for json in ["\"AQI\"", "\"AQ-_\"", "\"A\\nQID\"", "1"] {
        assert!(binary(json).is_err(), "{json}");
    }
    assert_eq!(boolean("true"), Ok(true));
    assert!(boolean("1").is_err() && boolean("\"true\"").is_err());
}
