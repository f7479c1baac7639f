//! A typed reader over the tree: what it is asked for is known, what is left is a problem.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::interpolate::Referents;
use super::name;
use super::place::{Place, Problems, join, nearest, quoted_list};
use super::tree::{Entries, Key, Node, Value};
use super::units;

/// What reading needs besides the tree.
pub(super) struct Scope<'a> {
    /// What references in strings refer to.
    pub(super) referents: Referents<'a>,
    /// Collects what is wrong.
    pub(super) problems: &'a Problems,
}

/// A table that is being read.
pub(super) struct Section<'a> {
    scope: &'a Scope<'a>,
    path: String,
    at: Place,
    entries: &'a Entries,
    known: Vec<&'static str>,
    reported: Vec<&'static str>,
}

impl<'a> Section<'a> {
    /// The document.
    pub(super) fn root(scope: &'a Scope<'a>, entries: &'a Entries) -> Self {
        Self { scope, path: String::new(), at: Place::START, entries, known: Vec::new(), reported: Vec::new() }
    }

    /// The path of `key` in this table.
    pub(super) fn path_of(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// The field `key`, which becomes known.
    pub(super) fn field(&mut self, key: &'static str) -> Option<Field<'a>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        let (key, node) = self.entries.iter().find(|(k, _)| k.name == key)?;
        Some(Field { scope: self.scope, path: self.path_of(&key.name), key, node })
    }

    /// The field `key`, which becomes known; a problem when there is none.
    pub(super) fn required(&mut self, key: &'static str) -> Option<Field<'a>> {
        let field = self.field(key);
        if field.is_none() {
            self.missing(key, &format!("has no {key:?}; add it"));
        }
        field
    }

    /// The table `key`, which becomes known.
    pub(super) fn section(&mut self, key: &'static str) -> Option<Section<'a>> {
        self.field(key)?.section()
    }

    /// Every field, for a table whose keys are names.
    pub(super) fn fields(self) -> Vec<Field<'a>> {
        let Self { scope, path, entries, .. } = self;
        entries.iter().map(|(key, node)| Field { scope, path: join(&path, &key.name), key, node }).collect()
    }

    /// Reports a problem of the table as a whole.
    pub(super) fn refuse(&self, message: &str) {
        self.scope.problems.add(&self.at, &self.path, message);
    }

    /// Reports that `key` is missing, unless it is there in a misspelled way: one mistake, one problem.
    pub(super) fn missing(&self, key: &str, message: &str) {
        if !self.is_misspelled(key) {
            self.refuse(message);
        }
    }

    /// Whether a key that nothing has read yet was probably meant to be `key`.
    pub(super) fn is_misspelled(&self, key: &str) -> bool {
        self.unread().any(|(k, _)| nearest(&k.name, [key]).is_some())
    }

    /// Reports `key`, if it is there, as one that belongs elsewhere.
    pub(super) fn misplaced(&mut self, key: &'static str, message: &str) {
        if let Some((found, _)) = self.entries.iter().find(|(k, _)| k.name == key) {
            self.scope.problems.add(&found.at, &self.path_of(key), message);
            self.reported.push(key);
        }
    }

    /// The one table in this one that tells by its name what it is, and that name; `available` is all that can be. Asked
    /// for last.
    pub(super) fn tagged(
        &mut self,
        what: &str,
        available: &[&'static str],
        planned: &[&'static str],
    ) -> Option<(&'static str, Field<'a>)> {
        for tag in planned {
            self.misplaced(tag, &format!("not available in this version; available: {}", available.join(", ")));
        }
        let found: Vec<_> = available.iter().filter_map(|tag| Some((*tag, self.field(tag)?))).collect();
        let mut found = found.into_iter();
        let first = found.next();
        if let Some((tag, _)) = &first {
            for (_, other) in found {
                other.refuse_key(&format!("{tag:?} stands here too, and there is one {what}; remove one of them"));
            }
        }
        let instead = self.unread().any(|(_, node)| matches!(node.value, Value::Table(_)));
        if first.is_none() && self.reported.is_empty() && !instead {
            let tables: Vec<String> = available.iter().map(|tag| format!("[{}]", self.path_of(tag))).collect();
            self.refuse(&format!("has no {what}; add {}", tables.join(" or ")));
        }
        first
    }

    /// The tables under `key`, each with its name.
    pub(super) fn named(&mut self, key: &'static str) -> Vec<(String, Section<'a>)> {
        let mut found = Vec::new();
        for field in self.section(key).into_iter().flat_map(Section::fields) {
            if let Err(message) = name::check(field.name()) {
                field.refuse_key(&message);
            }
            found.extend(field.section().map(|section| (field.name().to_string(), section)));
        }
        found
    }

    /// The tables under `key`, each with its name; at least one is wanted, and is called `what`.
    pub(super) fn some_named(&mut self, key: &'static str, what: &str) -> Vec<(String, Section<'a>)> {
        let add = format!("has no {what}; add [{}.NAME]", self.path_of(key));
        match self.field(key) {
            None => self.missing(key, &add),
            Some(table) if table.is_empty_table() => table.refuse_key(&add),
            Some(_) => {}
        }
        self.named(key)
    }

    /// Reports every key that was not asked for. Those in `planned` are words of the configuration that
    /// this version does nothing with.
    pub(super) fn finish(self, planned: &[&str]) {
        for (key, _) in self.unread() {
            let message = if planned.contains(&key.name.as_str()) {
                "not available in this version; remove it".to_string()
            } else {
                let near = nearest(&key.name, self.known.iter().copied());
                format!("unknown key; {}", did_you_mean(near, "known here:", self.known.iter().copied()))
            };
            self.scope.problems.add(&key.at, &self.path_of(&key.name), &message);
        }
    }

    fn unread(&self) -> impl Iterator<Item = &'a (Key, Node)> {
        self.entries.iter().filter(|(k, _)| !self.known.iter().chain(&self.reported).any(|key| *key == k.name))
    }
}

/// A key and its value.
pub(super) struct Field<'a> {
    scope: &'a Scope<'a>,
    path: String,
    key: &'a Key,
    node: &'a Node,
}

impl<'a> Field<'a> {
    /// The key's own name.
    pub(super) fn name(&self) -> &'a str {
        &self.key.name
    }

    /// Reports a problem of the value.
    pub(super) fn refuse(&self, message: &str) {
        self.scope.problems.add(&self.node.at, &self.path, message);
    }

    /// Reports a problem of the key.
    pub(super) fn refuse_key(&self, message: &str) {
        self.scope.problems.add(&self.key.at, &self.path, message);
    }

    /// The value as a table.
    pub(super) fn section(&self) -> Option<Section<'a>> {
        match &self.node.value {
            Value::Table(entries) => Some(Section {
                scope: self.scope,
                path: self.path.clone(),
                at: self.key.at.clone(),
                entries,
                known: Vec::new(),
                reported: Vec::new(),
            }),
            _ => self.wanted("a table"),
        }
    }

    /// Whether the value is a table without keys.
    fn is_empty_table(&self) -> bool {
        matches!(&self.node.value, Value::Table(entries) if entries.is_empty())
    }

    /// The value as a string, its references replaced.
    pub(super) fn text(&self) -> Option<String> {
        let written = match (&self.node.value, &self.node.raw) {
            (Value::Text(text), _) => text,
            (Value::Integer(_) | Value::Boolean(_) | Value::Float(_) | Value::Datetime, Some(raw)) => raw,
            (Value::Table(_), _) => return self.wanted("a string (a key with dots in it is written in quotes)"),
            _ => return self.wanted("a string"),
        };
        match self.scope.referents.resolve(written) {
            Ok(text) => Some(text),
            Err(wrong) => {
                wrong.iter().for_each(|message| self.refuse(message));
                None
            }
        }
    }

    /// The value as a string that is not empty and has no control characters: a path, a URL, a name.
    pub(super) fn line(&self) -> Option<String> {
        let text = self.text()?;
        if text.is_empty() {
            self.refuse("is empty");
            return None;
        }
        if text.chars().any(char::is_control) {
            self.refuse("has a control character in it");
            return None;
        }
        Some(text)
    }

    /// The value as one of the words that `choices` print as. Those in `planned` are known and not available.
    pub(super) fn word<T: Copy + Display>(&self, choices: &[T], planned: &[&str]) -> Option<T> {
        self.choice(choices, planned, &self.quoted())
    }

    /// The value as one of the words that `choices` print as; what stands here instead is not shown.
    pub(super) fn hidden_word<T: Copy + Display>(&self, choices: &[T]) -> Option<T> {
        self.choice(choices, &[], "the value")
    }

    fn choice<T: Copy + Display>(&self, choices: &[T], planned: &[&str], shown: &str) -> Option<T> {
        let text = self.text()?;
        let words: Vec<String> = choices.iter().map(ToString::to_string).collect();
        if let Some((choice, _)) = choices.iter().zip(&words).find(|(_, word)| **word == text) {
            return Some(*choice);
        }
        let words = || words.iter().map(String::as_str);
        self.refuse(&if planned.contains(&text.as_str()) {
            format!("{shown} is not available in this version; available: {}", quoted_list(words()))
        } else {
            format!("{shown} is not known; {}", did_you_mean(nearest(&text, words()), "write one of", words()))
        });
        None
    }

    /// The value as a boolean.
    pub(super) fn boolean(&self) -> Option<bool> {
        match self.node.value {
            Value::Boolean(flag) => Some(flag),
            _ => self.wanted("a boolean"),
        }
    }

    /// The value as an integer between the bounds, both included.
    pub(super) fn integer(&self, least: u64, most: u64) -> Option<u64> {
        let Value::Integer(number) = self.node.value else { return self.wanted("an integer") };
        match number.and_then(|n| u64::try_from(n).ok()).filter(|n| (least..=most).contains(n)) {
            Some(number) => Some(number),
            None => {
                self.refuse(&format!("is not between {least} and {most}"));
                None
            }
        }
    }

    /// The value as a number, whole or not.
    pub(super) fn number(&self) -> Option<f64> {
        match self.node.value {
            Value::Integer(Some(number)) => Some(number as f64),
            Value::Integer(None) => Some(f64::INFINITY),
            Value::Float(number) => Some(number),
            _ => self.wanted("a number"),
        }
    }

    /// `value`, this field's, if it lies in `range`; `words` are how a problem shows the range.
    pub(super) fn within<T: PartialOrd>(&self, value: T, range: RangeInclusive<T>, words: &str) -> Option<T> {
        if !range.contains(&value) {
            self.refuse(&format!("is not between {words}"));
            return None;
        }
        Some(value)
    }

    /// The value as an array.
    pub(super) fn items(&self) -> Option<Vec<Field<'a>>> {
        let Value::Array(items) = &self.node.value else { return self.wanted("an array") };
        let item = |(i, node)| Field { scope: self.scope, path: format!("{}[{i}]", self.path), key: self.key, node };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// The value as a duration.
    pub(super) fn duration(&self) -> Option<Duration> {
        let Value::Integer(_) = self.node.value else { return self.parsed(&self.text()?, units::duration) };
        self.refuse("has no unit; write one of ms, s, m, h, d after it, such as \"10s\"");
        None
    }

    /// The value as a duration, or `None` for "off".
    pub(super) fn duration_or_off(&self) -> Option<Option<Duration>> {
        if matches!(self.node.value, Value::Integer(_)) {
            return self.duration().map(Some);
        }
        self.parsed(&self.text()?, |text| match text {
            "off" => Ok(None),
            _ => units::duration(text).map(Some).map_err(|message| format!("{message}, or write \"off\"")),
        })
    }

    /// The value as a number of bytes.
    pub(super) fn size(&self) -> Option<u64> {
        match self.node.value {
            Value::Integer(number) => {
                units::size_in_range(number.unwrap_or(i128::MAX)).map_err(|message| self.refuse(&message)).ok()
            }
            _ => self.parsed(&self.text()?, units::size),
        }
    }

    /// What `parse` makes of `text`, this field's value; what it says otherwise becomes a problem.
    pub(super) fn parsed<T>(&self, text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        parse(text).map_err(|message| self.refuse(&format!("{} is not valid; {message}", self.quoted()))).ok()
    }

    /// Whether the value, or an item of it, has references: what replaces them may be a secret.
    pub(super) fn is_interpolated(&self) -> bool {
        fn any(value: &Value) -> bool {
            match value {
                Value::Text(written) => written.contains("${"),
                Value::Array(items) => items.iter().any(|item| any(&item.value)),
                _ => false,
            }
        }
        any(&self.node.value)
    }

    /// The string in quotes as it was written: what replaces a reference may be a secret.
    fn quoted(&self) -> String {
        match &self.node.value {
            Value::Text(written) if written.chars().count() <= 80 => format!("{written:?}"),
            _ => "the value".to_string(),
        }
    }

    fn wanted<T>(&self, what: &str) -> Option<T> {
        self.refuse(&format!("expected {what}, found {}", self.node.value.kind()));
        None
    }
}

/// The suggestion `near`, or else all `words`.
pub(crate) fn did_you_mean<'w>(
    near: Option<&str>,
    otherwise: &str,
    words: impl IntoIterator<Item = &'w str>,
) -> String {
    match near {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("{otherwise} {}", quoted_list(words)),
    }
}
