//! Whether all that a configuration describes can work: its environment, looked at from here. Nothing is changed, but for an
//! object that is made and removed where an object store is tried.

#[cfg(feature = "postgres")]
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Access as FileAccess, access, statvfs};

use super::directory::DataDirectory;
use super::file;
use crate::ailment::Ailment;
use crate::clock::World;
use crate::config::{self, Config, ConnectorConfig, DeltaConfig, SourceConfig, ViewConfig};
use crate::continuity::plan::{OnExisting, Standing};
use crate::error::{Error, ErrorKind};
use crate::log::{Access, Location, Log, Service};
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
            examine_table(connector, delta, reach, world, &mut found).await;
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
    if let Err(e) = writable(path) {
        let said = format!("{} cannot be written to: {e}", path.display());
        found.push(Ailment::error(ErrorKind::Config, PLACE, said, format!("chown \"$USER\" {}", path.display())));
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

/// What is free where `path` is or will be, in bytes.
fn free(path: &Path) -> Option<u64> {
    let found = statvfs(&*existing(path)).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Whether something can be made at `path`.
fn writable(path: &Path) -> io::Result<()> {
    let existing = existing(path);
    if !existing.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory));
    }
    access(&*existing, FileAccess::WRITE_OK | FileAccess::EXEC_OK).map_err(io::Error::from)
}

/// `path`, or the nearest above it that is there.
fn existing(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    path.ancestors().find(|above| above.exists()).map_or_else(|| PathBuf::from("/"), Path::to_path_buf)
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
    if let Err(e) = fs::read_dir(path) {
        let said = format!("the directory {} cannot be read: {e}", path.display());
        let ailment = Ailment::error(ErrorKind::Config, &place, said, format!("mkdir -p {}", path.display()));
        // One directory has many views.
        if !found.contains(&ailment) {
            found.push(ailment);
        }
        return;
    }
    let folder = path.join(&view.name);
    match fs::read_dir(&folder) {
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let said =
                format!("nothing was landed of the view {:?} yet: there is no folder {}", view.name, folder.display());
            found.push(Ailment::warning(&place, said, format!("mkdir {}", folder.display())));
        }
        Err(e) => {
            let said = format!("the folder {} cannot be read: {e}", folder.display());
            found.push(Ailment::error(ErrorKind::Config, &place, said, format!("chmod -R +rX {}", folder.display())));
        }
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

/// The table of a connector: whether it can be opened, is ours or may be taken, and can be written to.
async fn examine_table(
    connector: &ConnectorConfig,
    delta: &DeltaConfig,
    reach: Reach,
    world: &World,
    found: &mut Vec<Ailment>,
) {
    let name = &connector.name;
    let [pipeline, view, own] = [name.pipeline(), name.view(), name.connector()].map(quoted);
    let place = format!("pipelines.{pipeline}.views.{view}.connectors.{own}.delta.uri");
    let is_remote = Service::of(&delta.uri).is_some();
    if is_remote && reach == Reach::Here {
        return;
    }
    if let Err(e) = examine_opened(connector, delta, is_remote, reach, world, &place, found).await {
        let ailment = Ailment::of(&place, &e);
        let remedy = match e.kind() {
            ErrorKind::Corrupt => Some(format!("cutover verify {}", delta.uri)),
            _ => ailment.remedy.clone(),
        };
        found.push(Ailment { remedy, ..ailment });
    }
}

async fn examine_opened(
    connector: &ConnectorConfig,
    delta: &DeltaConfig,
    is_remote: bool,
    reach: Reach,
    world: &World,
    place: &str,
    found: &mut Vec<Ailment>,
) -> Result<(), Error> {
    let location = Location::open_with(&delta.uri, Access::Write(connector.durability), &delta.storage_options())?;
    let folder = location.url().to_file_path().ok().filter(|_| !is_remote);
    let log = Log::new(location, world.clone());
    log.check_properties(&delta.properties)?;
    let facts = log.facts().await?;
    log.check_features(&facts)?;
    match &facts.standing {
        Standing::Absent => {}
        Standing::Foreign if connector.on_existing == OnExisting::Error => found.push(Ailment::error(
            ErrorKind::Refused,
            place,
            format!("{} is a table that no connector of cutover loaded", delta.uri),
            "on_existing = \"truncate\" # in the connector, to replace its rows; or another uri",
        )),
        Standing::Foreign => {
            found.push(Ailment::note(place, format!("{} is not ours; the first load replaces its rows", delta.uri)));
        }
        Standing::Ours(ours) => {
            let own = connector.name.to_string();
            match ours.stamp.as_ref().map(|stamp| &stamp.connector) {
                Some(other) if *other != own => found.push(Ailment::error(
                    ErrorKind::Refused,
                    place,
                    format!("{} belongs to the connector {other:?}, and here it is of {own:?}", delta.uri),
                    format!("cutover adopt {} --as {own}", delta.uri),
                )),
                _ if reach == Reach::Deep => found.push(Ailment::note(
                    place,
                    format!(
                        "{} is at generation {}, step {}, version {}",
                        delta.uri,
                        ours.generation,
                        ours.last_step,
                        facts.version.map_or("none".to_string(), |version| version.to_string())
                    ),
                )),
                _ => {}
            }
        }
    }
    match folder {
        Some(folder) => {
            if let Err(e) = writable(&folder) {
                let said = format!("{} cannot be written to: {e}", delta.uri);
                found.push(Ailment::error(
                    ErrorKind::Config,
                    place,
                    said,
                    format!("chown -R \"$USER\" {}", folder.display()),
                ));
            }
            if let Some(free) = free(&folder).filter(|free| *free < FREE) {
                let said = format!("{} are free where {} is", quantity::bytes(free), delta.uri);
                found.push(Ailment::warning(place, said, format!("cutover gc {}", delta.uri)));
            }
        }
        // One that is not there yet is made by what is tried.
        None => log.check_conditional_put().await?,
    }
    Ok(())
}
