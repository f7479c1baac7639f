//! What a failure of the object store asks of the caller.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use object_store::Error as StoreError;

use crate::error::{Error, ErrorKind};

/// Why an object store does not do what it is asked, however often it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The bucket or container does not exist.
    NoBucket,
    /// The bucket is in another region than the request says.
    Region,
    /// The credentials were valid once.
    Expired,
    /// The credentials are not known, or do not fit the signature.
    Credentials,
    /// No credentials are configured, and the machine has none.
    NoCredentials,
    /// The machine's clock is too far off for signatures.
    Clock,
    /// The credentials are good and do not allow it.
    Forbidden,
    /// The store cannot do it.
    Unsupported,
}

impl Denial {
    fn kind(self) -> ErrorKind {
        match self {
            // The machine's own service may be slow to start.
            Self::NoCredentials => ErrorKind::Unavailable,
            _ => ErrorKind::Refused,
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::NoBucket => "the bucket or container does not exist; create it, or correct the URI or the endpoint",
            Self::Region => "the bucket is in another region; set the option `region` or AWS_REGION",
            Self::Expired => "the credentials have expired; renew them",
            Self::Credentials => "the credentials are not accepted; correct them in the options or the environment",
            Self::NoCredentials => {
                "no credentials are configured, and the machine's metadata service gives none; set them in the options or the environment"
            }
            Self::Clock => "the machine's clock is too far off for the store; set it",
            Self::Forbidden => {
                "the credentials do not allow it; allow listing the bucket, and getting, putting and deleting objects below the table's prefix"
            }
            Self::Unsupported => "the store does not support it; use one that does",
        }
    }
}

/// An answer by which an object store refuses for good; stands among the sources of the store's error.
#[derive(Debug)]
pub(crate) struct Denied {
    /// What the answer means.
    pub(crate) denial: Denial,
    /// The request and the answer, without credentials.
    pub(crate) answer: String,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.answer)
    }
}

impl StdError for Denied {}

/// An error of the object store, by what the caller does next.
pub(crate) fn store_error(message: impl Into<String>, error: StoreError) -> Error {
    let plain = Error::new(kind(&error), message);
    let told = match denied(&error) {
        Some(denial) => plain.with_remedy(denial.remedy()),
        None => plain,
    };
    told.with_source(error)
}

/// What a store's failure among what caused `error` asks of the caller; `None` where there is none.
pub(crate) fn kind_within(error: &(dyn StdError + 'static)) -> Option<ErrorKind> {
    let mut next = Some(error);
    while let Some(cause) = next {
        // An I/O error passes over what it was made of when it is asked for its source.
        let cause: &(dyn StdError + 'static) = match cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => inner,
            None => cause,
        };
        if let Some(failure) = cause.downcast_ref::<StoreError>() {
            return Some(kind(failure));
        }
        next = cause.source();
    }
    None
}

fn kind(error: &StoreError) -> ErrorKind {
    match (error, denied(error)) {
        (_, Some(denial)) => denial.kind(),
        (StoreError::NotFound { .. }, None) => ErrorKind::Corrupt,
        _ if is_denied(error) => ErrorKind::Refused,
        _ => ErrorKind::Unavailable,
    }
}

/// Whether the storage says that it did nothing, and will not do it when it is asked again.
pub(crate) fn is_denied(error: &StoreError) -> bool {
    let by_kind = matches!(
        error,
        StoreError::PermissionDenied { .. }
            | StoreError::Unauthenticated { .. }
            | StoreError::NotSupported { .. }
            | StoreError::NotImplemented { .. }
    );
    by_kind || denied(error).is_some_and(|denial| denial.kind() == ErrorKind::Refused)
}

/// Whether the store cannot do what was asked.
pub(crate) fn is_unsupported(error: &StoreError) -> bool {
    matches!(error, StoreError::NotSupported { .. } | StoreError::NotImplemented { .. })
        || denied(error) == Some(Denial::Unsupported)
}

/// What the store's own answer means, where it was understood.
fn denied(error: &StoreError) -> Option<Denial> {
    let mut next = error.source();
    while let Some(source) = next {
        if let Some(denied) = source.downcast_ref::<Denied>() {
            return Some(denied.denial);
        }
        next = source.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use object_store::client::{HttpError, HttpErrorKind};

    use super::*;

    #[test]
    fn a_store_that_forbids_is_not_asked_again() {
        let (path, source) = (|| "a".to_owned(), || "as asked".into());
        for (error, kind) in [
            (StoreError::NotFound { path: path(), source: source() }, ErrorKind::Corrupt),
            (StoreError::PermissionDenied { path: path(), source: source() }, ErrorKind::Refused),
            (StoreError::Unauthenticated { path: path(), source: source() }, ErrorKind::Refused),
            (StoreError::NotSupported { source: source() }, ErrorKind::Refused),
            (StoreError::Generic { store: "a", source: source() }, ErrorKind::Unavailable),
        ] {
            let words = error.to_string();
            let err = store_error("a was not read", error);
            assert_eq!((err.kind(), err.message()), (kind, "a was not read"), "{words}");
            assert_eq!(std::error::Error::source(&err).map(ToString::to_string), Some(words));
        }
    }

    #[test]
    fn what_the_answer_means_decides_over_the_kind_and_names_the_remedy() {
        for (denial, kind, remedy) in [
            (Denial::Expired, ErrorKind::Refused, "have expired; renew them"),
            (Denial::NoBucket, ErrorKind::Refused, "does not exist; create it"),
            (Denial::NoCredentials, ErrorKind::Unavailable, "no credentials are configured"),
        ] {
            let denied = Denied { denial, answer: "GET http://s3/lake: 400".into() };
            let error = StoreError::NotFound {
                path: "a".into(),
                source: Box::new(HttpError::new(HttpErrorKind::Unknown, denied)),
            };
            assert_eq!(is_denied(&error), kind == ErrorKind::Refused);
            let within = parquet::errors::ParquetError::External(Box::new(StoreError::NotModified {
                path: "a".into(),
                source: "as asked".into(),
            }));
            assert_eq!(kind_within(&within), Some(ErrorKind::Unavailable));
            let gone = StoreError::NotFound { path: "a".into(), source: "as asked".into() };
            assert_eq!(kind_within(&io::Error::from(gone)), Some(ErrorKind::Corrupt));
            assert_eq!(kind_within(&std::io::Error::other("as asked")), None);
            let err = store_error("a was not read", error);
            assert_eq!(err.kind(), kind);
            assert!(err.message().contains(remedy), "{err}");
        }
    }
}
