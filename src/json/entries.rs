//! The members of a JSON object, in order, with their text untouched.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// How many members are compared pairwise before a set takes over.
const PAIRWISE: usize = 16;

/// The members of a JSON object; no name occurs twice.
pub(crate) struct Entries<'a>(pub(crate) Vec<(Cow<'a, str>, &'a RawValue)>);

/// Why a text is no object with distinct members.
pub(crate) enum NotEntries {
    /// This name occurs twice.
    Repeated(String),
    /// It is no JSON, or no object.
    Json(serde_json::Error),
}

impl<'a> Entries<'a> {
    /// The members of the object that `json` holds.
    pub(crate) fn parse(json: &'a str) -> Result<Self, NotEntries> {
        let Members(members) = serde_json::from_str(json).map_err(NotEntries::Json)?;
        let repeated = if members.len() <= PAIRWISE {
            let earlier = |i: usize, name: &str| members.iter().take(i).any(|(other, _)| other == name);
            members.iter().enumerate().find(|(i, (name, _))| earlier(*i, name)).map(|(_, (name, _))| name)
        } else {
            let mut seen = HashSet::<&str>::with_capacity(members.len());
            members.iter().find_map(|(name, _)| (!seen.insert(name.as_ref())).then_some(name))
        };
        match repeated {
            Some(name) => Err(NotEntries::Repeated(name.to_string())),
            None => Ok(Self(members)),
        }
    }
}

struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Text(name), value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// A string that is borrowed where it holds no escapes.
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Str;
        impl<'de> Visitor<'de> for Str {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Str)
    }
}
