//! The walk from the document to the settings.

use super::connector;
use super::defaults::Defaults;
use super::delta::Tables;
use super::interpolate::Referents;
use super::name::ConnectorName;
use super::place::Problems;
use super::section::{Scope, Section};
use super::source::{Kind, SourcePart};
use super::view::{Columns, ViewPart};
use super::{Config, ConnectorConfig, Inputs, ServerConfig, ViewConfig, overrides, server, tree};
use crate::error::{Error, Result};

const VERSION: u64 = 1;

pub(super) fn load(inputs: &Inputs<'_>) -> Result<Config> {
    let problems = Problems::default();
    let mut found = Found::default();
    if let Some(mut document) = tree::parse(inputs.text, &problems) {
        overrides::apply(&mut document, inputs.env, inputs.sets, &problems);
        let referents = Referents { env: inputs.env, read_file: inputs.read_file };
        let scope = Scope { referents, problems: &problems };
        let columns = Columns { parse_type: inputs.parse_type };
        found.document(Section::root(&scope, &document), columns);
    }
    problems.into_result(inputs.path)?;
    let Found { server, views, connectors, .. } = found;
    let views = views.into_iter().collect::<Option<Vec<_>>>();
    match views.zip(connectors.into_iter().collect::<Option<Vec<_>>>()) {
        Some((views, connectors)) if !views.is_empty() => Ok(Config { server, views, connectors }),
        _ => Err(Error::internal("the configuration was not read and no problem was reported")),
    }
}

/// What was found so far; `None` is what has a problem.
#[derive(Default)]
struct Found {
    server: ServerConfig,
    views: Vec<Option<ViewConfig>>,
    connectors: Vec<Option<ConnectorConfig>>,
    tables: Tables,
}

impl Found {
    fn document(&mut self, mut root: Section<'_>, columns: Columns<'_>) {
        root.field("config_version").and_then(|f| {
            let number = f.integer(0, u64::MAX)?;
            if number != VERSION {
                f.refuse(&format!("the version {number} is not known to this program; it reads version {VERSION}"));
            }
            Some(())
        });
        if let Some(section) = root.section("server") {
            self.server = server::read(section);
        }
        let defaults = root.section("defaults").map(Defaults::read).unwrap_or_default();
        for (name, pipeline) in root.some_named("pipelines", "pipeline") {
            self.pipeline(&name, pipeline, columns, &defaults);
        }
        root.finish(&[]);
    }

    fn pipeline(&mut self, name: &str, mut pipeline: Section<'_>, columns: Columns<'_>, defaults: &Defaults) {
        let source = SourcePart::read(name, &mut pipeline);
        for (view_name, mut view) in pipeline.some_named("views", "view") {
            let from = ViewPart::read(&view_name, &mut view, source.clone(), columns, defaults);
            let connectors = match source.kind {
                // It takes changes, and keeps them, before anything is delivered.
                Some(Kind::Push) => view.named("connectors"),
                Some(Kind::Files | Kind::Postgres) | None => view.some_named("connectors", "connector"),
            };
            for (connector_name, section) in connectors {
                let full = ConnectorName::new(name, &view_name, &connector_name).ok();
                self.connectors.push(connector::read(full, section, &from, defaults, &mut self.tables));
            }
            view.finish(&[]);
            self.views.push(from.into_config(name, &view_name));
        }
        pipeline.finish(&[]);
    }
}
