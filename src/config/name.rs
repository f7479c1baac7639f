//! Names of pipelines, views and connectors.

use std::fmt;

use crate::error::{Error, Result};

const LONGEST: usize = 128;

/// A connector's full name: `pipeline/view/connector`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectorName {
    pipeline: String,
    view: String,
    connector: String,
}

impl ConnectorName {
    /// The full name, if each part matches `[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}`.
    pub fn new(pipeline: &str, view: &str, connector: &str) -> Result<Self> {
        for part in [pipeline, view, connector] {
            check(part).map_err(Error::config)?;
        }
        Ok(Self { pipeline: pipeline.to_string(), view: view.to_string(), connector: connector.to_string() })
    }

    /// The pipeline's name.
    pub fn pipeline(&self) -> &str {
        &self.pipeline
    }

    /// The view's name.
    pub fn view(&self) -> &str {
        &self.view
    }

    /// The connector's own name.
    pub fn connector(&self) -> &str {
        &self.connector
    }

    /// Whether the full name ends with the whole parts of `suffix`.
    pub(super) fn ends_with(&self, suffix: &str) -> bool {
        self.endings().iter().any(|e| e == suffix)
    }

    /// `c`, `v/c` and `p/v/c`.
    pub(super) fn endings(&self) -> [String; 3] {
        [self.connector.clone(), format!("{}/{}", self.view, self.connector), self.to_string()]
    }
}

impl fmt::Display for ConnectorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.pipeline, self.view, self.connector)
    }
}

/// Names become parts of URLs, file names and table properties: anything that could mean more there is refused.
///
/// What is wrong with it, with the remedy.
pub fn check(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.len() > LONGEST {
        return Err(format!("a name has at most {LONGEST} characters, this one has {}", name.chars().count()));
    }
    if name.is_empty() || name.starts_with(['.', '-']) || !name.chars().all(plain) {
        return Err(format!(
            "the name {name:?} is not allowed; use letters A-Z and a-z, digits, \"_\", \".\" and \"-\", and begin with a letter, digit or \"_\""
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for good in ["a", "_", "9", "orders.v2-x", "A_b", &"x".repeat(128)] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "-a", "a/b", "a b", "ä", "a\0", "a%2f", &"x".repeat(129)] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_ends_with_whole_parts_only() {
        let name = ConnectorName::new("orders", "by_region", "lake").unwrap();
        assert_eq!(name.to_string(), "orders/by_region/lake");
        for good in ["lake", "by_region/lake", "orders/by_region/lake"] {
            assert!(name.ends_with(good), "{good}");
        }
        for bad in ["", "ake", "region/lake", "/lake", "lake/", "orders", "orders/lake"] {
            assert!(!name.ends_with(bad), "{bad}");
        }
        assert!(ConnectorName::new("a/b", "c", "d").is_err());
    }
}
