//! `cutover reload`: loads a table with a snapshot whose parts workers have staged, in one version.

use serde::Serialize;

use super::args::Output;
use super::consent::{Question, who};
use super::reset::plan_line;
use super::run::close;
use super::signals::Signals;
use super::{Session, manifests, text};
use crate::clock::World;
use crate::config::ConnectorConfig;
use crate::connector::{PreparedReload, ResetPreview};
use crate::continuity::plan::Older;
use crate::continuity::stamp::ResetStamp;
use crate::daemon::{self, Alone, Daemon};
use crate::error::{Error, Result};
use crate::sink::{Applied, Manifest, StagedSnapshot};

/// Arguments of `reload`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
All parts of one snapshot are needed, each once: a part that was staged twice with the same rows counts once. The table must
be as the workers found it, appends aside, and the source must reach the snapshot's step and have the changes after it.
Whatever is missing or does not fit is refused before anything is written. A reload that was committed before says so and
changes nothing. Another process that delivers to the table is fenced and stops; a daemon has to be stopped before. On a
terminal the connector's name is asked for; elsewhere --yes is needed.")]
pub(super) struct ReloadArgs {
    /// The connector: its full name, or an end of it that is unambiguous
    connector: String,
    /// The manifests of all parts: paths, or places in object stores
    #[arg(long, required = true, num_args = 1.., value_name = "MANIFEST")]
    staged: Vec<String>,
    /// Refuse unless the parts have so many rows together
    #[arg(long, value_name = "N")]
    rows: Option<u64>,
    /// Why, for the table's history
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Let readers go back in time, where the table has steps after the snapshot's; they are appended again
    #[arg(long)]
    allow_older: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

impl ReloadArgs {
    /// The formats in which the result is printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json];

    async fn snapshot(&self, connector: &ConnectorConfig) -> Result<StagedSnapshot> {
        let Some(delta) = connector.delta() else {
            return Err(Error::refused(format!("{} has no table to reload", connector.name)));
        };
        let mut manifests: Vec<(String, Manifest)> = Vec::with_capacity(self.staged.len());
        for written in &self.staged {
            manifests.push((written.clone(), manifests::read(written, delta).await?));
        }
        let staged = StagedSnapshot::of(manifests)?;
        self.rows.map_or(Ok(()), |rows| staged.check_rows(rows))?;
        Ok(staged)
    }
}

/// Runs the command; the exit code.
pub(super) fn run(args: &ReloadArgs, session: &Session) -> Result<u8> {
    let config = daemon::load(&session.global.config, &[])?;
    let connector = config.find(&args.connector)?;
    if Daemon::is_running(&config.server.data_dir)? {
        return Err(Error::refused(format!(
            "a cutover holds {}: stop it, reload the table, and start it again; it goes on behind the reload",
            config.server.data_dir.display()
        )));
    }
    session.block_on(async |world| {
        let staged = args.snapshot(connector).await?;
        let views = Alone::open(&config, &world).await?;
        let done = reload(args, session, connector, staged, &views, &world).await;
        close(views, session).await;
        done
    })
}

async fn reload(
    args: &ReloadArgs,
    session: &Session,
    config: &ConnectorConfig,
    staged: StagedSnapshot,
    views: &Alone,
    world: &World,
) -> Result<u8> {
    let mut signals = Signals::listen()?;
    let mut connector = views.connector(config).await?;
    let (rows, parts, spare) = (staged.rows(), staged.frame().parts, staged.spare());
    let stamp = ResetStamp { id: staged.frame().id.clone(), who: who(), why: args.reason.clone() };
    let older = if args.allow_older { Older::Allowed } else { Older::Refused };
    let prepared = connector.prepare_reload(staged, stamp, older).await?;
    let preview = prepared.preview().clone();
    if !args.yes && !prepared.is_done() {
        confirm(config, &prepared, session, &mut signals, world).await?;
    }
    let applied = tokio::select! {
        applied = connector.reload(prepared) => applied?,
        () = signals.stop() => return Err(stopped()),
    };
    let done = Done { config, preview: &preview, applied, rows, parts, spare };
    match session.global.output {
        Output::Json => text::print_json(&done.document())?,
        Output::Text | Output::Ndjson | Output::Env => text::print(&text::escaped(&done.line()))?,
    }
    Ok(0)
}

async fn confirm(
    config: &ConnectorConfig,
    prepared: &PreparedReload,
    session: &Session,
    signals: &mut Signals,
    world: &World,
) -> Result<()> {
    let (name, preview) = (config.name.to_string(), prepared.preview());
    let question = Question {
        plan: plan_line(&name, preview),
        deed: "a reload replaces every row",
        answers: &[&name, config.name.connector()],
        last_millis: preview.ours.as_ref().and_then(|ours| ours.last_millis),
    };
    question.ask(session, signals, world).await
}

/// A reload that a signal ended is not known to be done, so it does not end as if it were.
fn stopped() -> Error {
    Error::internal("stopped by a signal: the table is as it was, or loaded whole; the same command says which")
}

/// What became of a reload.
struct Done<'a> {
    config: &'a ConnectorConfig,
    preview: &'a ResetPreview,
    applied: Applied,
    rows: u64,
    parts: u32,
    spare: usize,
}

/// What `reload -o json` prints.
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    name: String,
    outcome: &'static str,
    generation: u64,
    cutover: u64,
    version: Option<u64>,
    rows: u64,
    parts: u32,
    /// Manifests of parts that another manifest stands for.
    spare: usize,
}

impl Done<'_> {
    fn line(&self) -> String {
        let Self { config, preview, rows, parts, .. } = self;
        let done = match self.applied {
            Applied::Committed { version, .. } => format!("version {version}"),
            Applied::Already => "committed before, nothing changed".to_string(),
        };
        let spare = match self.spare {
            0 => String::new(),
            spare => format!(" ({spare} more were of parts that were staged again)"),
        };
        format!(
            "{}: generation {}, cutover step {}, {done}, rows {rows}, parts {parts}{spare}",
            config.name, preview.generation, preview.cutover
        )
    }

    fn document(&self) -> Document {
        let (outcome, version) = match self.applied {
            Applied::Committed { version, .. } => ("committed", Some(version)),
            Applied::Already => ("already_committed", None),
        };
        Document {
            schema: "cutover.reload/1",
            name: self.config.name.to_string(),
            outcome,
            generation: self.preview.generation.get(),
            cutover: self.preview.cutover.get(),
            version,
            rows: self.rows,
            parts: self.parts,
            spare: self.spare,
        }
    }
}
