//! What a failure of the object store asks of the caller.

use object_store::Error as StoreError;

use crate::error::{Error, ErrorKind};

/// An error of the object store, by what the caller does next.
pub(crate) fn store_error(message: impl Into<String>, error: StoreError) -> Error {
    let kind = match &error {
        StoreError::NotFound { .. } => ErrorKind::Corrupt,
        StoreError::PermissionDenied { .. }
        | StoreError::Unauthenticated { .. }
        | StoreError::NotSupported { .. }
        | StoreError::NotImplemented { .. } => ErrorKind::Refused,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, message).with_source(error)
}

#[cfg(test)]
mod tests {
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
}
