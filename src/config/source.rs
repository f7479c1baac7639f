//! A pipeline's source.

use std::path::PathBuf;
use std::time::Duration;

use super::section::Section;
use super::{FilesConfig, SourceConfig};

/// What a source is, whether its settings are right or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Files that others land.
    Files,
    /// Requests that others send.
    Push,
}

/// What a pipeline hands to each of its views.
#[derive(Debug, Clone, Default)]
pub(super) struct SourcePart {
    /// What it is; `None` where the file does not tell.
    pub(super) kind: Option<Kind>,
    /// Its settings, where they are right.
    pub(super) config: Option<SourceConfig>,
}

impl SourcePart {
    /// Reads the source of `pipeline`.
    pub(super) fn read(pipeline: &mut Section<'_>) -> Self {
        let Some(field) = pipeline.field("source") else {
            let source = pipeline.path_of("source");
            pipeline.missing("source", &format!("has no source; add [{source}.files] or [{source}.push]"));
            return Self::default();
        };
        let Some(mut section) = field.section() else { return Self::default() };
        let part = match section.tagged("source", &["files", "push"], &["postgres"]) {
            Some(("files", field)) => {
                let files = field.section().and_then(read_files);
                Self { kind: Some(Kind::Files), config: files.map(SourceConfig::Files) }
            }
            Some((_, field)) => {
                let push = field.section().map(|push| push.finish(&[]));
                Self { kind: Some(Kind::Push), config: push.map(|()| SourceConfig::Push) }
            }
            None => Self::default(),
        };
        section.finish(&[]);
        part
    }
}

fn read_files(mut files: Section<'_>) -> Option<FilesConfig> {
    let path = files.required("path").and_then(|f| f.line());
    let id = files.field("id").and_then(|f| f.line());
    let poll_interval = files.field("poll_interval").and_then(|f| f.duration());
    files.finish(&[]);
    Some(FilesConfig { path: PathBuf::from(path?), id, poll_interval: poll_interval.unwrap_or(Duration::from_secs(1)) })
}
