//! How far somebody has read a table, kept in a small file of theirs.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::staged::StagedFile;
use crate::clock::Ids;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::generation::Generation;
use crate::step::Step;

const SCHEMA: &str = "cutover.bookmark/1";

/// How far somebody has read a table; as JSON, what the file of a bookmark holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bookmark {
    schema: String,
    /// The table's id.
    pub table: String,
    /// The connector that it belonged to.
    pub connector: String,
    /// The fingerprint of its source.
    pub source: String,
    /// The generation.
    pub generation: Generation,
    /// The id of the commit that began it.
    pub reload: String,
    /// The last step that was read.
    pub step: Step,
    /// The version that was read.
    pub version: u64,
    /// The digest of all rows of the generation up to that step, as they were read.
    pub digest: Digest,
}

impl Bookmark {
    /// A bookmark of a generation of a table, at `step` as of `version`.
    pub(super) fn new(table: String, stamp: &crate::continuity::stamp::TableStamp, step: Step, version: u64) -> Self {
        Self {
            schema: SCHEMA.into(),
            table,
            connector: stamp.connector.clone(),
            source: stamp.source.clone(),
            generation: stamp.generation,
            reload: stamp.commit.clone(),
            step,
            version,
            digest: Digest::EMPTY,
        }
    }

    /// The bookmark in the file `path`; `None` where there is no such file.
    ///
    /// Corrupt: the file holds no bookmark of a form known here.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let shown = path.display();
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::internal(format!("the bookmark {shown} cannot be read")).with_source(e)),
        };
        let damaged = |what: String| {
            Error::corrupt(format!("the bookmark {shown} {what}; restore it, or start anew with --reload"))
        };
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(|e| damaged("is damaged: it is no JSON".into()).with_source(e))?;
        let schema = value.get("schema").and_then(serde_json::Value::as_str);
        if schema != Some(SCHEMA) {
            let found = schema.unwrap_or("nothing");
            return Err(damaged(format!("says that its form is {found}, known is {SCHEMA}")));
        }
        serde_json::from_value(value).map(Some).map_err(|e| damaged("is damaged".into()).with_source(e))
    }

    /// Puts the bookmark into the file `path`, whole and synced, in place of the one that is there.
    pub fn write(&self, path: &Path, ids: &Ids) -> Result<()> {
        let text =
            serde_json::to_string(self).map_err(|e| Error::internal("a bookmark was not encoded").with_source(e))?;
        let mut file = StagedFile::create(path, ids)?;
        writeln!(file, "{text}").map_err(|e| {
            Error::internal(format!("the bookmark {} cannot be written", path.display())).with_source(e)
        })?;
        file.appear()
    }
}
