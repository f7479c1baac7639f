//! Names of tables, as people write them and as statements need them.

use std::fmt;

use crate::error::{Error, Result};

/// A table's schema and name, as the catalogs have them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TableName {
    /// The schema.
    pub(crate) schema: String,
    /// The name in it.
    pub(crate) table: String,
}

impl TableName {
    /// Reads `orders`, `public.orders` or `"My Schema"."Orders"`: as in SQL, what is not quoted is in lower case; without
    /// a schema it is `public`. Config: it is no such name, which the message does not repeat.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let wrong =
            |why: &str| Error::config(format!("{why}; write SCHEMA.TABLE, in double quotes where SQL wants them"));
        let mut parts = Vec::new();
        let mut rest = text.trim();
        loop {
            let (part, after) = match rest.strip_prefix('"') {
                Some(quoted) => unquoted(quoted).ok_or_else(|| wrong("a quote is not closed"))?,
                None => {
                    let (part, after) = rest.split_at(rest.find('.').unwrap_or(rest.len()));
                    if part.chars().any(|c| !(c.is_alphanumeric() || c == '_' || c == '$')) {
                        return Err(wrong("there is a character that needs quotes"));
                    }
                    (part.to_lowercase(), after)
                }
            };
            if part.is_empty() || part.contains('\0') {
                return Err(wrong("a part of it is empty"));
            }
            parts.push(part);
            rest = match after.strip_prefix('.') {
                Some(after) => after,
                None if after.is_empty() => break,
                None => return Err(wrong("something stands behind a quote")),
            };
        }
        let mut parts = parts.into_iter();
        match (parts.next(), parts.next(), parts.next()) {
            (Some(table), None, None) => Ok(Self { schema: "public".into(), table }),
            (Some(schema), Some(table), None) => Ok(Self { schema, table }),
            _ => Err(wrong("it has more than two parts")),
        }
    }

    /// The name as a statement needs it.
    pub(crate) fn quoted(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.table))
    }
}

impl fmt::Display for TableName {
    /// As people write it: with quotes only where they are needed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |name: &str| {
            let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            if is_plain { name.to_owned() } else { quoted(name) }
        };
        write!(f, "{}.{}", part(&self.schema), part(&self.table))
    }
}

/// An identifier in double quotes.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The text up to the closing quote, and what stands behind that.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest.split_once('"')?;
        name.push_str(part);
        match after.strip_prefix('"') {
            Some(after) => {
                name.push('"');
                rest = after;
            }
            None => return Some((name, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_sql_reads_it() {
        for (text, schema, table, shown) in [
            ("orders", "public", "orders", "public.orders"),
            ("Sales.Orders", "sales", "orders", "sales.orders"),
            (r#""Sales"."or""de.rs""#, "Sales", r#"or"de.rs"#, r#""Sales"."or""de.rs""#),
            (r#"sales."2024""#, "sales", "2024", r#"sales."2024""#),
        ] {
            let name = TableName::parse(text).unwrap();
            assert_eq!((name.schema.as_str(), name.table.as_str()), (schema, table), "{text}");
            assert_eq!(name.to_string(), shown);
            assert_eq!(TableName::parse(&name.quoted()).unwrap(), name);
        }
    }

    #[test]
    fn what_names_no_table_is_refused() {
        for text in ["", ".", "a.", "a.b.c", "\"a", "\"a\"b", "a b", "a;b", "\"\""] {
            let error = TableName::parse(text).unwrap_err();
            assert!(error.message().contains("SCHEMA.TABLE"), "{text}: {error}");
        }
    }
}
