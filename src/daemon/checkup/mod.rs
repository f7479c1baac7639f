//! Whether all that a configuration describes can work: its environment, looked at from here. Nothing is changed, but for an
//! object that is made and removed where an object store is tried.

mod table;

#[cfg(feature = "postgres")]
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;

use super::directory::DataDirectory;
use super::file;
use super::obstacle::{Obstacle, free};
use crate::ailment::Ailment;
use crate::clock::World;
use crate::config::{self, Config, SourceConfig, ViewConfig};
use crate::error::{Error, ErrorKind};
use crate::quantity;
#[cfg(feature = "postgres")]
use crate::source::postgres::{self, Depth, Wanted, WantedTable};

/// What of a disk should stay free, in bytes.
const FREE: u64 = 1 << 30;

/// How far a checkup goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Nobody beyond this machine is asked.
    Here,
    /// Servers and object stores are.
    Everywhere,
    /// They are, and say how they do.
    Deep,
}

/// Everything that is wrong with what the file `path` describes, or with `connector` of it alone, the worst of each place first.
///
/// Config: no connector is called so.
pub async fn checkup(
    path: &Path,
    config: &Config,
    connector: Option<&str>,
    reach: Reach,
    world: &World,
) -> Result<Vec<Ailment>, Error> {
    let only = connector.map(|name| config.find(name)).transpose()?;
    let is_meant = |view: &&ViewConfig| only.is_none_or(|c| super::is_of(c, view));
    let views: Vec<&ViewConfig> = config.views.iter().filter(is_meant).collect();
    let connectors = config.connectors.iter().filter(|c| only.is_none_or(|only| only.name == c.name));
    let mut found = Vec::new();
    let is_held = examine_directory(config, reach, &mut found);
    if !is_held {
        examine_address(config, &mut found);
    }
    for view in &views {
        if let SourceConfig::Files(files) = &view.source {
            examine_files(view, &files.path, &mut found);
        }
    }
    #[cfg(feature = "postgres")]
    if reach != Reach::Here {
        for (pipeline, wanted) in databases(config, &views, is_held) {
            let depth = if reach == Reach::Deep { Depth::Deep } else { Depth::Plain };
            let ailments = postgres::examine(&wanted, depth, world).await;
            found.extend(ailments.into_iter().map(|ailment| {
                let place = format!("pipelines.{}.{}", quoted(&pipeline), ailment.place);
                Ailment { place, ..ailment }
            }));
        }
    }
    for connector in connectors {
        if let Some(delta) = connector.delta() {
            table::examine(connector, delta, reach, world, &mut found).await;
        }
    }
    locate(path, &mut found);
    Ok(found)
}

/// Writes before each place where it stands in the file.
fn locate(path: &Path, found: &mut [Ailment]) {
    let text = file::read(path).unwrap_or_default();
    for ailment in found {
        let shown = path.display();
        ailment.place = match config::position(&text, &ailment.place) {
            Some((line, column)) => format!("{shown}:{line}:{column}: {}", ailment.place),
            None => format!("{shown}: {}", ailment.place),
        };
    }
}

fn quoted(name: &str) -> String {
    config::join("", name)
}

/// The data directory; whether a daemon holds it.
fn examine_directory(config: &Config, reach: Reach, found: &mut Vec<Ailment>) -> bool {
    const PLACE: &str = "server.data_dir";
    let path = &config.server.data_dir;
    let is_held = match DataDirectory::is_held(path) {
        Ok(is_held) => is_held,
        Err(e) => {
            found.push(Ailment::of(PLACE, &e));
            false
        }
    };
    if is_held {
        found.push(Ailment::note(PLACE, format!("a cutover that runs holds {}", path.display())));
    }
    if let Some(obstacle) = Obstacle::to_writing(path) {
        found.push(obstacle.ailment(PLACE));
    }
    let logs: u64 = config.views.iter().filter(|v| v.source.is_logged()).map(|v| v.step_log_bytes).sum();
    if let Some(free) = free(path).filter(|free| *free < FREE || (reach == Reach::Deep && *free < logs)) {
        let said = format!(
            "{} are free where {} is, and the step logs may take {}",
            quantity::bytes(free),
            path.display(),
            quantity::bytes(logs)
        );
        found.push(Ailment::warning(
            PLACE,
            said,
            "make room, or bound the logs: [defaults.step_log] max_bytes = \"1GiB\"",
        ));
    }
    is_held
}

fn examine_address(config: &Config, found: &mut Vec<Ailment>) {
    let listen = config.server.listen;
    if let Err(e) = TcpListener::bind(listen) {
        let said = format!("nothing can listen at {listen}: {e}");
        found.push(Ailment::error(ErrorKind::Config, "server.listen", said, "listen = \"127.0.0.1:0\""));
    }
}

fn examine_files(view: &ViewConfig, path: &Path, found: &mut Vec<Ailment>) {
    let place = format!("pipelines.{}.source.files.path", quoted(&view.pipeline));
    if let Some(obstacle) = Obstacle::to_reading(path) {
        let ailment = obstacle.ailment(&place);
        // One directory has many views.
        if !found.contains(&ailment) {
            found.push(ailment);
        }
        return;
    }
    let folder = path.join(&view.name);
    match Obstacle::to_reading(&folder) {
        None => {}
        Some(obstacle) if obstacle.is_missing() => {
            let said =
                format!("nothing was landed of the view {:?} yet: there is no folder {}", view.name, folder.display());
            found.push(Ailment::warning(&place, said, format!("mkdir {}", folder.display())));
        }
        Some(obstacle) => found.push(obstacle.ailment(&place)),
    }
}

/// The databases of these views, by their pipelines.
#[cfg(feature = "postgres")]
fn databases(config: &Config, views: &[&ViewConfig], is_held: bool) -> BTreeMap<String, Wanted> {
    let slot = |view: &ViewConfig| match &view.source {
        SourceConfig::Postgres(database) => Some(database.slot.clone()),
        SourceConfig::Files(_) | SourceConfig::Push => None,
    };
    let slots: Vec<String> = config.views.iter().filter_map(slot).collect();
    let mut databases: BTreeMap<String, Wanted> = BTreeMap::new();
    for view in views {
        let SourceConfig::Postgres(database) = &view.source else { continue };
        let wanted = databases.entry(view.pipeline.clone()).or_insert_with(|| Wanted {
            url: database.url.expose().to_owned(),
            slot: database.slot.clone(),
            publication: database.publication.clone(),
            max_wal: database.max_wal,
            evidence: DataDirectory::evidence_of(&config.server.data_dir, &view.pipeline),
            others: slots.clone(),
            is_followed: is_held,
            tables: Vec::new(),
        });
        wanted.tables.push(WantedTable {
            view: view.name.clone(),
            table: view.table.clone().unwrap_or_default(),
            key: view.key.clone(),
            columns: view.columns.clone(),
        });
    }
    databases
}
