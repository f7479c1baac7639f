//! The document as a tree in which each key and value knows its place.

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::place::{Lines, Place, Problems, join};

/// A key and where it was written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    /// The key itself, unquoted.
    pub(super) name: String,
    /// Where it stands first.
    pub(super) at: Place,
}

/// Entries in the order written, overrides last.
pub(super) type Entries = Vec<(Key, Node)>;

/// A value and where it was written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    /// Where the value stands.
    pub(super) at: Place,
    /// The value.
    pub(super) value: Value,
    /// The text of an override: a secret such as `1234` is a string where one is wanted.
    pub(super) raw: Option<String>,
}

/// A TOML value, as far as settings need it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// A string before interpolation.
    Text(String),
    /// An integer; `None` when it exceeds any range of use.
    Integer(Option<i128>),
    /// A boolean.
    Boolean(bool),
    /// A float, which may be infinite or no number.
    Float(f64),
    /// A date or a time: no setting is one.
    Datetime,
    /// An array.
    Array(Vec<Node>),
    /// A table.
    Table(Entries),
}

impl Value {
    /// What it is, with its article.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Boolean(_) => "a boolean",
            Self::Float(_) => "a float",
            Self::Datetime => "a date or time",
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
        }
    }
}

/// The document in `text`; its syntax errors go to `problems`.
pub(super) fn parse(text: &str, problems: &Problems) -> Option<Entries> {
    let lines = Lines::new(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let at = error.span().map_or(Place::START, |span| lines.place(span.start));
        problems.add(&at, "", &format!("not valid TOML: {}", error.message()));
    }
    errors.is_empty().then(|| entries(document.get_ref(), 0, &|offset| lines.place(offset)))
}

/// Line and column of the key at `path` in `text`, or of the last one above it that is written there.
pub(crate) fn position(text: &str, path: &str) -> Option<(usize, usize)> {
    let document = parse(text, &Problems::default())?;
    let (mut entries, mut above, mut found) = (&document, String::new(), None);
    while let Some((key, node)) = entries.iter().find(|(key, _)| {
        let own = join(&above, &key.name);
        path == own || path.starts_with(&format!("{own}."))
    }) {
        if let Place::File { line, column } = key.at {
            found = Some((line, column));
        }
        above = join(&above, &key.name);
        match &node.value {
            Value::Table(below) => entries = below,
            _ => break,
        }
    }
    found
}

/// The value that an override's text means: TOML where it is that as a whole, else the text as a string.
pub(super) fn parse_override(raw: &str, at: &Place) -> Node {
    let plain = || Node { at: at.clone(), value: Value::Text(raw.to_string()), raw: Some(raw.to_string()) };
    match DeValue::parse(raw) {
        // A value followed by a comment is rather a text with a "#" in it.
        Ok(parsed) if parsed.span() == (0..raw.len()) => {
            Node { raw: Some(raw.to_string()), ..node(&parsed, 0, &|_| at.clone()) }
        }
        _ => plain(),
    }
}

/// Deeper than any setting lies; what is nested further is left out, for the key above it is unknown anyway.
const DEEPEST: usize = 16;

fn entries(table: &DeTable<'_>, depth: usize, place: &dyn Fn(usize) -> Place) -> Entries {
    let mut ordered: Vec<_> = table.iter().filter(|_| depth < DEEPEST).collect();
    // The parser's map has an order of its own; the keys' spans hold the file's.
    ordered.sort_by_key(|(key, _)| key.span().start);
    let entry = |(key, value): (&Spanned<DeString<'_>>, _)| {
        (Key { name: key.get_ref().to_string(), at: place(key.span().start) }, node(value, depth + 1, place))
    };
    ordered.into_iter().map(entry).collect()
}

fn node(value: &Spanned<DeValue<'_>>, depth: usize, place: &dyn Fn(usize) -> Place) -> Node {
    let at = place(value.span().start);
    let value = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => Value::Integer(i128::from_str_radix(number.as_str(), number.radix()).ok()),
        DeValue::Boolean(flag) => Value::Boolean(*flag),
        // The parser gives the text in a form that Rust reads.
        DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Datetime(_) => Value::Datetime,
        DeValue::Array(items) => {
            let items = items.iter().filter(|_| depth < DEEPEST);
            Value::Array(items.map(|item| node(item, depth + 1, place)).collect())
        }
        DeValue::Table(table) => Value::Table(entries(table, depth, place)),
    };
    Node { at, value, raw: None }
}
