//! What a name of the command line means among what a daemon has.

use crate::daemon::{ConnectorReport, PipelineReport, ViewReport};
use crate::error::{Error, Result};

/// The connector whose full name is `name`, or ends with it.
pub(super) fn connector<'a>(pipelines: &'a [PipelineReport], name: &str) -> Result<&'a ConnectorReport> {
    let views = pipelines.iter().flat_map(|p| &p.views);
    one("connector", views.flat_map(|v| &v.connectors).map(|c| (c.name.clone(), c)), name)
}

/// The view whose full name is `name`, or ends with it; the full name too.
pub(super) fn view<'a>(pipelines: &'a [PipelineReport], name: &str) -> Result<(String, &'a ViewReport)> {
    let views = pipelines.iter().flat_map(|p| p.views.iter().map(|v| (format!("{}/{}", p.name, v.name), v)));
    one("view", views.map(|(full, view)| (full.clone(), (full, view))), name)
}

fn one<T>(what: &str, all: impl Iterator<Item = (String, T)>, name: &str) -> Result<T> {
    let all: Vec<(String, T)> = all.collect();
    let names = |of: &[(String, T)]| of.iter().map(|(full, _)| full.clone()).collect::<Vec<_>>().join(", ");
    let there = names(&all);
    let is_meant = |full: &str| full == name || full.strip_suffix(name).is_some_and(|rest| rest.ends_with('/'));
    let mut found: Vec<(String, T)> = all.into_iter().filter(|(full, _)| !name.is_empty() && is_meant(full)).collect();
    if found.len() > 1 {
        return Err(Error::config(format!("{name:?} is the end of several names; write one of {}", names(&found))));
    }
    let there = if there.is_empty() { "none".to_string() } else { there };
    found
        .pop()
        .map(|(_, one)| one)
        .ok_or_else(|| Error::config(format!("the daemon has no {what} that is called {name:?}; there are {there}")))
}
