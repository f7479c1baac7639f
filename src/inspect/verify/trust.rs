//! What of a broken table a reader may still rely on.

use super::fold::Trace;
use super::{Report, Verdict, files, loaded};
use crate::error::Result;
use crate::log::Log;
use crate::step::Step;

/// The versions of the current generation before the first broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trusted {
    /// The first version; the reload's, where the log has it.
    pub first: u64,
    /// The last version.
    pub last: u64,
    /// The last step that they hold; `None` where the log no longer tells.
    pub step: Option<Step>,
    /// Whether readers can read the table as of the last one: the log leads there, and each file of then is whole.
    pub is_readable: bool,
    /// Whether the rows at that step can be folded from the table's head.
    pub is_state: bool,
}

/// What is proved of the current generation; `None` when nothing is.
pub(super) async fn trusted(log: &Log, report: &Report, traces: &[Trace], loads: bool) -> Result<Option<Trusted>> {
    let Some(segment) = report.segments.last() else { return Ok(None) };
    let first = segment.reload.unwrap_or(segment.first_version);
    if report.verdict == Verdict::Healthy {
        let (last, step) = (report.head, report.last_step);
        return Ok(Some(Trusted { first, last, step, is_readable: true, is_state: true }));
    }
    let Some(broken) = report.findings.iter().map(|f| f.version).min() else { return Ok(None) };
    let Some(last) = broken.checked_sub(1).filter(|last| *last >= first) else { return Ok(None) };
    let replayed = loaded(log.replay(Some(last)).await)?.ok();
    let step = replayed.as_ref().and_then(|r| Step::from_i64(r.step?).ok());
    let files = loaded(log.live_map_at(last).await)?.ok();
    let is_readable = match &files {
        Some(files) => files::broken(log, files, last, |_| {}).await?.is_empty(),
        None => false,
    };
    // The head's rows up to the step are those of then when every later commit added rows after it, and all is readable.
    let later = (last.saturating_add(1)..=report.head).all(|version| {
        let Ok(at) = traces.binary_search_by_key(&version, |t| t.version) else { return false };
        let Some(trace) = traces.get(at) else { return false };
        let is_clean = report.findings.iter().all(|f| f.version != version);
        if trace.is_ours { !trace.removes && trace.from.is_some() && trace.from >= step } else { is_clean }
    });
    let is_whole = match loads && later {
        true => match loaded(log.live_files_at(report.head).await)? {
            Ok(files) => {
                let is_plain = files.iter().all(|f| f.vector.is_none());
                is_plain
                    && report
                        .findings
                        .iter()
                        .all(|f| f.rule != crate::continuity::finding::Rule::Files || f.file.is_none())
            }
            Err(_) => false,
        },
        false => false,
    };
    Ok(Some(Trusted { first, last, step, is_readable, is_state: is_whole && step.is_some() }))
}
