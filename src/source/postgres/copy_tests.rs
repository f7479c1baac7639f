use arrow::array::AsArray;
use arrow::datatypes::Int32Type;

use super::super::kinds::Kind;
use super::*;

fn columns() -> [Column; 2] {
    [Column::plain("a", Kind::Int4), Column::plain("b", Kind::Text)]
}

/// A COPY of two columns as the server sends it.
fn copied(rows: i32) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 2, 9, 9]);
    for row in 0..rows {
        bytes.extend([0, 2, 0, 0, 0, 4]);
        bytes.extend(row.to_be_bytes());
        match row % 3 {
            0 => bytes.extend((-1i32).to_be_bytes()),
            length => {
                bytes.extend(length.to_be_bytes());
                bytes.extend(std::iter::repeat_n(b'x', length as usize));
            }
        }
    }
    bytes.extend((-1i16).to_be_bytes());
    bytes
}

#[test]
fn pieces_that_are_cut_anywhere_make_the_same_rows() {
    let bytes = copied(10);
    for size in 1..bytes.len() {
        let (mut form, mut rows) = (Form::default(), Rows::new("here", &columns()));
        for piece in bytes.chunks(size) {
            form.take(piece, &mut rows).unwrap();
        }
        form.check_end("here").unwrap();
        assert_eq!(rows.len(), 10, "{size}");
        let columns = rows.finish();
        assert_eq!(columns[0].as_primitive::<Int32Type>().values(), &(0..10).collect::<Vec<_>>()[..]);
        let texts: Vec<_> = columns[1].as_string::<i32>().iter().take(3).collect();
        assert_eq!(texts, [None, Some("x"), Some("xx")]);
    }
}

#[test]
fn a_copy_that_ends_early_is_not_one() {
    let bytes = copied(3);
    for end in 0..bytes.len() {
        let (mut form, mut rows) = (Form::default(), Rows::new("here", &columns()));
        form.take(&bytes[..end], &mut rows).unwrap();
        assert_eq!(form.check_end("here").unwrap_err().kind(), ErrorKind::Unavailable, "{end}");
    }
    let (mut form, mut rows) = (Form::default(), Rows::new("here", &[Column::plain("a", Kind::Int4)]));
    assert!(form.take(b"COPY of something else", &mut rows).is_err());
}

#[test]
fn a_range_of_pages_is_a_statement_with_quoted_names() {
    let part = TableName { schema: "s\"x".into(), table: "T; DROP".into() };
    let columns = [Column::plain("a\"b", Kind::Int4), Column::printed("i", "\"pg_catalog\".\"inet_out\"")];
    let statement = |from, until| Range { part: part.clone(), from, until }.statement(&columns);
    let whole =
        r#"COPY (SELECT "a""b", "pg_catalog"."inet_out"("i") FROM ONLY "s""x"."T; DROP") TO STDOUT (FORMAT binary)"#;
    assert_eq!(statement(0, None), whole);
    assert!(statement(0, Some(8)).contains("WHERE ctid >= '(0,0)' AND ctid < '(8,0)')"));
    assert!(statement(8, None).contains("WHERE ctid >= '(8,0)')"));
}
