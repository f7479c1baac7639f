//! What a request says: names in its path, keys of its query, members of its body. What nobody reads is refused.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use url::form_urlencoded;

use super::problem::{Answer, Problem};
use crate::config::{ConnectorName, check_name, did_you_mean, nearest};
use crate::json::{Entries, NotEntries};
use crate::step::Step;

/// The names in a path.
pub(super) struct Place(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Place {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        let names = RawPathParams::from_request_parts(parts, state).await;
        let names = names.map_err(|e| Problem::bad_request(format!("the path has a part that is no text: {e}")))?;
        Ok(Self(names.iter().map(|(key, name)| (key.to_owned(), name.to_owned())).collect()))
    }
}

impl Place {
    pub(super) fn connector(&self) -> Answer<ConnectorName> {
        let name = ConnectorName::new(self.get("p"), self.get("v"), self.get("c"));
        name.map_err(|e| Problem::bad_request(e.message()))
    }

    pub(super) fn pipeline(&self) -> Answer<&str> {
        self.checked("p")
    }

    pub(super) fn view(&self) -> Answer<&str> {
        self.checked("v")
    }

    /// A reset's id.
    pub(super) fn id(&self) -> &str {
        self.get("id")
    }

    fn checked(&self, key: &str) -> Answer<&str> {
        let name = self.get(key);
        check_name(name).map_err(Problem::bad_request)?;
        Ok(name)
    }

    fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }
}

/// The keys of a query.
pub(super) struct Query(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Self> {
        let query = parts.uri.query().unwrap_or_default();
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            if pairs.iter().any(|(known, _)| *known == key) {
                return Err(Problem::bad_request(format!("the query has the key {key:?} twice; send it once")));
            }
            pairs.push((key.into_owned(), value.into_owned()));
        }
        Ok(Self(pairs))
    }
}

impl Query {
    /// Refuses keys that are none of `known`.
    pub(super) fn only(&self, known: &[&str]) -> Answer<()> {
        self.0.iter().try_for_each(|(key, _)| check_known("the query has the key", key, known))
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    pub(super) fn need(&self, key: &str) -> Answer<&str> {
        self.get(key).ok_or_else(|| Problem::bad_request(format!("the query lacks the key {key:?}")))
    }

    /// The whole number that `key` has, which is called `what`.
    pub(super) fn whole(&self, key: &str, what: &str) -> Answer<Option<u64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let refused = || Problem::bad_request(format!("{key}={value:?} is no {what}: that is a whole number"));
        whole(value).map(Some).ok_or_else(refused)
    }

    /// The step that `key` names.
    pub(super) fn step(&self, key: &str) -> Answer<Option<Step>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let step = whole(value).and_then(|n| Step::new(n).ok());
        step.map(Some).ok_or_else(|| {
            Problem::bad_request(format!(
                "{key}={value:?} is no step: a step is a whole number from 0 to {}",
                Step::MAX
            ))
        })
    }

    /// The word that `key` has, as what it means.
    pub(super) fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Answer<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match words.iter().find(|(word, _)| *word == value) {
            Some((_, meaning)) => Ok(Some(*meaning)),
            None => {
                let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                Err(unknown(&format!("the query's key {key:?} has the value"), value, &known))
            }
        }
    }
}

fn whole(text: &str) -> Option<u64> {
    let is_whole = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| is_whole)
}

/// A request that says nothing but its path.
pub(super) struct Bare;

impl<S: Send + Sync> FromRequestParts<S> for Bare {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        Query::from_request_parts(parts, state).await?.only(&[])?;
        if has_body(&parts.headers) {
            return Err(Problem::bad_request(
                "this call takes no body: what it is about, its path and the configuration say",
            ));
        }
        Ok(Self)
    }
}

/// Whether a body follows.
pub(super) fn has_body(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING)
        || headers.get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes().iter().any(|b| *b != b'0'))
}

/// The members of a JSON object.
pub(super) struct Members<'a>(Entries<'a>);

impl<'a> Members<'a> {
    pub(super) fn parse(text: &'a [u8], known: &[&str]) -> Answer<Self> {
        let text = std::str::from_utf8(text).map_err(|_| Problem::bad_request("the body is no UTF-8"))?;
        let entries = Entries::parse(text).map_err(|e| match e {
            NotEntries::Repeated(name) => {
                Problem::bad_request(format!("the body has the member {name:?} twice; send it once"))
            }
            NotEntries::Json(e) => Problem::bad_request(format!("the body is no JSON object: {e}")),
        })?;
        entries.0.iter().try_for_each(|(name, _)| check_known("the body has the member", name, known))?;
        Ok(Self(entries))
    }

    /// The member `name`, where it is there and not null.
    pub(super) fn get<T: DeserializeOwned>(&self, name: &str, what: &str) -> Answer<Option<T>> {
        let Some((_, value)) = self.0.0.iter().find(|(member, _)| member == name) else { return Ok(None) };
        serde_json::from_str(value.get())
            .map_err(|_| Problem::bad_request(format!("the member {name:?} of the body is not {what}")))
    }
}

fn check_known(place: &str, given: &str, known: &[&str]) -> Answer<()> {
    if known.contains(&given) { Ok(()) } else { Err(unknown(place, given, known)) }
}

fn unknown(place: &str, given: &str, known: &[&str]) -> Problem {
    if known.is_empty() {
        return Problem::bad_request(format!("{place} {given:?}, and there may be none"));
    }
    let near = nearest(given, known.iter().copied());
    let known = known.iter().copied();
    Problem::bad_request(format!("{place} {given:?}, which nobody reads; {}", did_you_mean(near, "it may be", known)))
}
