//! Words for column types, as the configuration spells them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, TimeUnit};

use crate::error::{Error, Result};
use crate::schema::MAX_DEPTH;

/// The words, as errors list them.
const WORDS: &str = "boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, date, \
                     timestamp, timestamp_ntz, array<T>, struct<name:T,...> and map<K,V>; a name that is no word stands \
                     in backticks";

/// The type that a word names, upper or lower case: `bigint`, `decimal(12,2)`, `array<struct<a:int,b:string>>`.
///
/// A struct's field whose name has other characters than letters, digits and `_` stands in backticks, a backtick in it
/// twice. `timestamp` is in UTC, `timestamp_ntz` has no zone; both count microseconds. An unknown word is
/// [`ErrorKind::Config`](crate::error::ErrorKind::Config), with the list of the known ones.
pub fn parse_column_type(text: &str) -> Result<DataType> {
    let wrong = || Error::config(format!("{text:?} is no column type; the types are {WORDS}"));
    let mut words = Words { rest: text.trim() };
    let data_type = words.data_type(0).ok_or_else(wrong)?;
    if words.rest.is_empty() { Ok(data_type) } else { Err(wrong()) }
}

struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    /// The next run of letters, digits and underscores.
    fn word(&mut self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (word, rest) = rest.split_at_checked(end)?;
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    fn eat(&mut self, mark: char) -> Option<()> {
        self.rest = self.rest.trim_start().strip_prefix(mark)?.trim_start();
        Some(())
    }

    fn data_type(&mut self, depth: usize) -> Option<DataType> {
        if depth > MAX_DEPTH {
            return None;
        }
        let data_type = match self.word()?.to_ascii_lowercase().as_str() {
            "boolean" => DataType::Boolean,
            "tinyint" => DataType::Int8,
            "smallint" => DataType::Int16,
            "int" | "integer" => DataType::Int32,
            "bigint" | "long" => DataType::Int64,
            "float" | "real" => DataType::Float32,
            "double" => DataType::Float64,
            "string" | "text" | "varchar" => DataType::Utf8,
            "binary" => DataType::Binary,
            "date" => DataType::Date32,
            "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            "timestamp_ntz" => DataType::Timestamp(TimeUnit::Microsecond, None),
            "decimal" => self.decimal()?,
            "array" | "list" => {
                self.eat('<')?;
                let element = self.data_type(depth + 1)?;
                self.eat('>')?;
                DataType::List(Arc::new(Field::new("element", element, true)))
            }
            "struct" => {
                self.eat('<')?;
                let mut fields = vec![self.field(depth)?];
                while self.eat(',').is_some() {
                    fields.push(self.field(depth)?);
                }
                self.eat('>')?;
                DataType::Struct(Fields::from(fields))
            }
            "map" => {
                self.eat('<')?;
                let key = Field::new("key", self.data_type(depth + 1)?, false);
                self.eat(',')?;
                let value = Field::new("value", self.data_type(depth + 1)?, true);
                self.eat('>')?;
                let pair = DataType::Struct(Fields::from(vec![key, value]));
                DataType::Map(Arc::new(Field::new("key_value", pair, false)), false)
            }
            _ => return None,
        };
        self.rest = self.rest.trim_start();
        Some(data_type)
    }

    fn decimal(&mut self) -> Option<DataType> {
        self.eat('(')?;
        let precision: u8 = self.word()?.parse().ok()?;
        self.eat(',')?;
        let scale: i8 = self.word()?.parse().ok()?;
        self.eat(')')?;
        let fits = (1..=38).contains(&precision) && u8::try_from(scale).is_ok_and(|scale| scale <= precision);
        fits.then_some(DataType::Decimal128(precision, scale))
    }

    /// A name in backticks; `None` where none begins.
    fn quoted(&mut self) -> Option<String> {
        let mut rest = self.rest.trim_start().strip_prefix('`')?;
        let mut name = String::new();
        loop {
            let (part, behind) = rest.split_once('`')?;
            name.push_str(part);
            match behind.strip_prefix('`') {
                Some(behind) => {
                    name.push('`');
                    rest = behind;
                }
                None => {
                    self.rest = behind;
                    return Some(name);
                }
            }
        }
    }

    fn field(&mut self, depth: usize) -> Option<Field> {
        let name = self.quoted().or_else(|| self.word().map(str::to_string))?;
        self.eat(':')?;
        Some(Field::new(name, self.data_type(depth + 1)?, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::schema::kept_type;

    #[test]
    fn every_word_names_a_type_that_is_kept() {
        for (text, expected) in [
            ("BIGINT", DataType::Int64),
            (" long ", DataType::Int64),
            ("Integer", DataType::Int32),
            ("real", DataType::Float32),
            ("varchar", DataType::Utf8),
            ("decimal( 12 , 2 )", DataType::Decimal128(12, 2)),
            ("timestamp", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
            ("timestamp_ntz", DataType::Timestamp(TimeUnit::Microsecond, None)),
        ] {
            assert_eq!(parse_column_type(text).unwrap(), expected, "{text}");
        }
        for text in ["struct<`a-b`:int,`c``d` : string>", "map<struct<a:date>,array<int>>"] {
            let data_type = parse_column_type(text).unwrap();
            assert_eq!(kept_type(&data_type), Some(data_type), "{text}");
        }
        let DataType::Struct(fields) = parse_column_type("struct<`a-b`:int,`c``d` : string>").unwrap() else {
            panic!()
        };
        assert_eq!(fields.iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), ["a-b", "c`d"]);
        for text in
            ["array<int>", "list<array<date>>", "struct<a:int, b : struct<c:binary>>", "map<string,decimal(5,0)>"]
        {
            let data_type = parse_column_type(text).unwrap();
            assert_eq!(kept_type(&data_type), Some(data_type), "{text}");
        }
    }

    #[test]
    fn other_words_are_refused_with_the_list() {
        let deep = "array<".repeat(100) + "int" + &">".repeat(100);
        for text in [
            "",
            "number",
            "decimal",
            "decimal(39,0)",
            "decimal(5,6)",
            "decimal(5,-1)",
            "decimal(0,0)",
            "array",
            "array<int",
            "array<int>>",
            "struct<>",
            "struct<a>",
            "struct<`a:int>",
            "struct<``:int",
            "map<int>",
            "int int",
            "int,",
            "größe",
            &deep,
        ] {
            let err = parse_column_type(text).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Config, "{text}");
            assert!(err.message().contains("timestamp_ntz"), "{err}");
        }
    }
}
