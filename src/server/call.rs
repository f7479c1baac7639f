//! What is said of a call to those who write its clients. It stands beside the handler, and the route cannot be had
//! without it: `calls` takes both, `openapi` writes it down.

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::config::Role;
use crate::error::ErrorKind;
use crate::explain;

/// One call.
pub(super) struct Call {
    /// As clients call their function for it.
    pub(super) id: &'static str,
    /// In a line.
    pub(super) about: &'static str,
    /// What else there is to know; may be empty.
    pub(super) more: &'static str,
    /// What a token has to be allowed to; `None` where none is asked for.
    pub(super) role: Option<Role>,
    /// The keys of its query.
    pub(super) query: &'static [Key],
    /// The headers that it reads besides those of every call.
    pub(super) headers: &'static [Key],
    /// What its body is; `None` where there is none.
    pub(super) body: Option<Body>,
    /// What it answers when it does what was meant.
    pub(super) replies: &'static [Reply],
    /// What it answers else, besides what every call may.
    pub(super) faults: &'static [&'static [Fault]],
}

impl Call {
    /// One that says nothing.
    pub(super) const BLANK: Self = Self {
        id: "",
        about: "",
        more: "",
        role: None,
        query: &[],
        headers: &[],
        body: None,
        replies: &[],
        faults: &[],
    };

    /// Whether what it answers goes on until one side has enough.
    pub(super) fn is_endless(&self) -> bool {
        let content = self.replies.iter().filter_map(|reply| reply.content.as_ref());
        content.into_iter().any(|content| matches!(content.shape, Shape::Endless))
    }
}

/// A key of a query, or a header that is read.
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) need: Need,
    pub(super) value: Value,
}

/// Whether something may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Optional,
    Required,
}

/// What a key's value may be.
pub(super) enum Value {
    /// One of these.
    Word(&'static [&'static str]),
    /// A step.
    Step,
    /// A strand of a history.
    Strand,
    /// A whole number of up to 64 bits.
    Number,
    /// A name as the configuration has it.
    Name,
    /// A text of so many bytes at most.
    Text(u64),
}

impl Key {
    pub(super) const fn optional(name: &'static str, value: Value, about: &'static str) -> Self {
        Self { name, about, need: Need::Optional, value }
    }

    pub(super) const fn required(name: &'static str, value: Value, about: &'static str) -> Self {
        Self { name, about, need: Need::Required, value }
    }
}

/// The body of a request.
pub(super) struct Body {
    pub(super) about: &'static str,
    pub(super) need: Need,
    /// In which forms it may come.
    pub(super) forms: &'static [Content],
}

/// What the body of a request or of an answer is.
pub(super) struct Content {
    /// As `Content-Type` says it.
    pub(super) kind: &'static str,
    pub(super) shape: Shape,
}

/// What stands in a body.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// JSON of this form.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// Text that is no JSON.
    Text,
    /// Bytes that are no text.
    Bytes,
    /// What goes on until one side has enough.
    Endless,
}

impl Content {
    pub(super) const fn json<T: JsonSchema>() -> Self {
        Self { kind: "application/json", shape: Shape::Json(SchemaGenerator::subschema_for::<T>) }
    }

    pub(super) const fn new(kind: &'static str, shape: Shape) -> Self {
        Self { kind, shape }
    }
}

/// An answer to a request that did what was meant.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) about: &'static str,
    pub(super) content: Option<Content>,
    /// Headers that it has besides those of every answer.
    pub(super) headers: &'static [(&'static str, &'static str)],
}

impl Reply {
    pub(super) const fn new(status: u16, content: Content, about: &'static str) -> Self {
        Self { status, about, content: Some(content), headers: &[] }
    }

    pub(super) const fn json<T: JsonSchema>(status: u16, about: &'static str) -> Self {
        Self::new(status, Content::json::<T>(), about)
    }

    /// Without a body.
    pub(super) const fn empty(status: u16, about: &'static str) -> Self {
        Self { status, about, content: None, headers: &[] }
    }

    pub(super) const fn with_headers(mut self, headers: &'static [(&'static str, &'static str)]) -> Self {
        self.headers = headers;
        self
    }
}

/// A problem that a call may answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fault {
    pub(super) status: u16,
    /// Its `error_code`.
    pub(super) code: &'static str,
    pub(super) about: &'static str,
    /// The members of its `details`.
    pub(super) details: &'static [&'static str],
}

impl Fault {
    pub(super) const fn new(status: u16, code: &'static str, about: &'static str) -> Self {
        Self { status, code: explain::known(code), about, details: &[] }
    }

    pub(super) const fn with(mut self, details: &'static [&'static str]) -> Self {
        self.details = details;
        self
    }

    const fn of(kind: ErrorKind, about: &'static str) -> Self {
        Self::new(kind.http_status(), kind.name(), about)
    }
}

/// What every call may answer.
pub(super) const ANY: &[Fault] = &[
    Fault::new(400, "bad_request", "a name, a key, a member or a header is wrong; the message says which"),
    Fault::new(403, "origin_not_allowed", "a page of another origin asks, or made a browser ask"),
    Fault::new(421, "host_not_allowed", "the request names another host than this server's"),
    Fault::of(ErrorKind::Internal, "a defect of the program; its log says more"),
];

/// What a call may answer besides that needs a token.
pub(super) const GUARDED: &[Fault] = &[
    Fault::new(401, "unauthorized", "no token, or an unknown one"),
    Fault::new(403, "forbidden", "the role of the token is not enough; `role` is the one that is").with(&["role"]),
];

/// What a call may answer besides whose path names something.
pub(super) const NAMED: &[Fault] = &[Fault::new(404, "not_found", "there is nothing of this name")];

/// What a call may answer that opens, reads or changes a table, or what stands beside it.
pub(super) const ERRORS: &[Fault] = &[
    Fault::of(ErrorKind::Unavailable, "storage or source cannot be used for now"),
    Fault::of(ErrorKind::Fenced, "another writer has the table"),
    Fault::of(ErrorKind::ContinuityLost, "table and source do not fit together; a reset repairs it"),
    Fault::of(ErrorKind::Incompatible, "a type, feature or schema that cannot be kept"),
    Fault::of(ErrorKind::Refused, "a rule or a missing consent forbids it; the message names what would allow it"),
    Fault::of(ErrorKind::Corrupt, "stored data is damaged"),
    Fault::of(ErrorKind::Config, "the configuration's file is wrong; nothing was changed"),
];

/// What a call may answer that has a body.
pub(super) const BODIES: &[Fault] = &[
    Fault::new(408, "request_timeout", "the body did not arrive in time"),
    Fault::new(413, "request_too_long", "the body has more bytes than `limit_bytes`").with(&["limit_bytes"]),
    Fault::new(415, "unsupported_media_type", "the body is said to be none of `allowed`, or encoded")
        .with(&["allowed"]),
];
