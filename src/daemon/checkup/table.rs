//! The table of a connector: whether a delivery may begin there, and whether it can be written to.

use super::{FREE, Reach, quoted};
use crate::ailment::{Ailment, Severity};
use crate::clock::World;
use crate::config::{ConnectorConfig, DeltaConfig, SourceConfig};
use crate::connector::{OnContinuityLoss, Unmet};
use crate::continuity::plan::{Older, OnExisting, Standing};
use crate::daemon::build;
use crate::daemon::obstacle::{Obstacle, free};
use crate::error::{Error, ErrorKind};
use crate::log::{Access, Facts, Location, Log, Service};
use crate::quantity;
use crate::sink::Destination;
use crate::step::Step;

/// What is looked at, and from how far.
struct Examined<'a> {
    connector: &'a ConnectorConfig,
    delta: &'a DeltaConfig,
    reach: Reach,
    world: &'a World,
    /// Where the view stands in the configuration, and the table's URI.
    view: String,
    place: String,
}

/// Looks at the table of `connector`: whether it can be opened, a delivery would go on or begin there, and it can be
/// written to.
pub(super) async fn examine(
    connector: &ConnectorConfig,
    delta: &DeltaConfig,
    reach: Reach,
    world: &World,
    found: &mut Vec<Ailment>,
) {
    if Service::of(&delta.uri).is_some() && reach == Reach::Here {
        return;
    }
    let name = &connector.name;
    let [pipeline, view, own] = [name.pipeline(), name.view(), name.connector()].map(quoted);
    let view = format!("pipelines.{pipeline}.views.{view}");
    let place = format!("{view}.connectors.{own}.delta.uri");
    let examined = Examined { connector, delta, reach, world, view, place };
    if let Err(e) = examined.opened(found).await {
        found.push(examined.ailment(&e, None));
    }
}

impl Examined<'_> {
    async fn opened(&self, found: &mut Vec<Ailment>) -> Result<(), Error> {
        let Self { connector, delta, .. } = self;
        let location = Location::open_with(&delta.uri, Access::Write(connector.durability), &delta.storage_options())?;
        let folder = location.url().to_file_path().ok().filter(|_| Service::of(&delta.uri).is_none());
        let log = Log::new(location.clone(), self.world.clone());
        self.contact(location, found).await?;
        let Some(folder) = folder else {
            // One that is not there yet is made by what is tried.
            return log.check_conditional_put().await;
        };
        let folders = [folder.clone(), folder.join("_delta_log")];
        if let Some(obstacle) = folders.iter().find_map(|folder| Obstacle::to_writing(folder)) {
            found.push(obstacle.ailment(&self.place));
        }
        if let Some(free) = free(&folder).filter(|free| *free < FREE) {
            let said = format!("{} are free where {} is", quantity::bytes(free), delta.uri);
            found.push(Ailment::warning(&self.place, said, format!("cutover gc {}", delta.uri)));
        }
        Ok(())
    }

    /// Meets the table as a delivery would, with the source where it can be asked from here.
    async fn contact(&self, location: Location, found: &mut Vec<Ailment>) -> Result<(), Error> {
        let Self { connector, delta, world, .. } = self;
        let source = match &connector.source {
            // A directory that is not there is found elsewhere.
            SourceConfig::Files(files) => build::files_of(connector, files).ok().map(|source| (source, files)),
            SourceConfig::Push | SourceConfig::Postgres(_) => None,
        };
        let fingerprint = source.as_ref().map(|(source, _)| source.fingerprint().to_owned());
        let settings = build::sink_settings(connector, delta, fingerprint.as_deref().unwrap_or_default());
        let destination = Destination::look(location, settings, (*world).clone()).await?;
        let facts = destination.facts().clone();
        let met = match source {
            Some((source, files)) => {
                let mut delivery = build::connector(connector, source, files.poll_interval, None, world)?;
                match delivery.check(destination.clone()).await {
                    // Nothing is landed yet.
                    Err(Unmet::Source(e)) if e.kind() == ErrorKind::Unavailable => self.without_source(destination),
                    met => met,
                }
            }
            None => self.without_source(destination),
        };
        match met {
            Err(Unmet::Source(e)) => found.push(Ailment::of(&self.view, &e)),
            Err(Unmet::Table(e)) => found.push(self.ailment(&e, Some(&facts))),
            Ok(()) => self.note(&facts, found),
        }
        Ok(())
    }

    /// What a delivery would be refused for whatever its source holds.
    fn without_source(&self, destination: Destination) -> Result<(), Unmet> {
        self.checked(destination.from_its_source()).map_err(Unmet::Table)
    }

    fn checked(&self, destination: Destination) -> Result<(), Error> {
        let ConnectorConfig { name, key, columns, source, .. } = self.connector;
        if let Some(ours) = destination.facts().ours() {
            // A server knows the key where the configuration names none.
            let is_told = !key.is_empty() || !matches!(source, SourceConfig::Postgres(_));
            let own = ours.stamp.as_ref().map_or(key, |stamp| &stamp.key).clone();
            return destination.follow(name.view(), if is_told { key } else { &own })?.check_follow();
        }
        destination.check_load(key)?;
        if columns.is_empty() {
            return Ok(());
        }
        let view = build::view_of(name.view(), key, columns)?;
        destination.deliver(view).check_reload(Step::ZERO, Older::Refused)
    }

    /// What refuses a delivery, with what repairs it.
    fn ailment(&self, error: &Error, facts: Option<&Facts>) -> Ailment {
        let (own, uri) = (self.connector.name.to_string(), &self.delta.uri);
        let mut ailment = Ailment::of(&self.place, error);
        let standing = facts.map(|facts| &facts.standing);
        match (error.kind(), standing) {
            (ErrorKind::Corrupt, _) => ailment.remedy = Some(format!("cutover verify {uri}")),
            (ErrorKind::Refused, Some(Standing::Foreign)) if self.connector.on_existing == OnExisting::Error => {
                ailment.remedy =
                    Some("on_existing = \"truncate\" # in the connector, to replace its rows; or another uri".into());
            }
            (ErrorKind::Refused, Some(Standing::Ours(ours))) if ours.connector != own => {
                ailment.remedy = Some(format!("cutover adopt {uri} --as {own}"));
            }
            (ErrorKind::ContinuityLost, _) if self.connector.on_continuity_loss == OnContinuityLoss::Reset => {
                // It ends a delivery without a daemon.
                ailment.severity = Severity::Warning;
                ailment.remedy =
                    Some(format!("cutover reset {own} # which a daemon does by itself: on_continuity_loss"));
            }
            _ => {}
        }
        ailment
    }

    /// What is worth saying of a table that can be delivered to.
    fn note(&self, facts: &Facts, found: &mut Vec<Ailment>) {
        let uri = &self.delta.uri;
        let said = match &facts.standing {
            Standing::Absent => return,
            Standing::Foreign => format!("{uri} is not ours; the first load replaces its rows"),
            Standing::Ours(_) if self.reach != Reach::Deep => return,
            Standing::Ours(ours) => format!(
                "{uri} is at generation {}, step {}, version {}",
                ours.generation,
                ours.last_step,
                facts.version.map_or("none".to_string(), |version| version.to_string())
            ),
        };
        found.push(Ailment::note(&self.place, said));
    }
}
