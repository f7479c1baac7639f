//! The arguments that every command shares, and the list of commands.

use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, Parser, Subcommand, ValueEnum};

use super::adopt::AdoptArgs;
use super::changes::ChangesArgs;
use super::check::CheckArgs;
use super::completions::CompletionsArgs;
use super::config::ConfigArgs;
use super::demo::DemoArgs;
use super::doctor::DoctorArgs;
use super::explain::ExplainArgs;
use super::gc::GcArgs;
use super::history::HistoryArgs;
use super::init::InitArgs;
use super::pause::PauseArgs;
use super::push::PushArgs;
use super::reload::ReloadArgs;
use super::reset::ResetArgs;
use super::resets::ResetsArgs;
use super::run::RunArgs;
use super::schema::SchemaArgs;
use super::show::ShowArgs;
use super::snippets::SnippetsArgs;
use super::stage::StageArgs;
use super::state::StateArgs;
use super::status::StatusArgs;
use super::verify::VerifyArgs;
use super::wait::WaitArgs;

/// Keeps Delta Lake tables equal to changing views.
#[derive(Debug, Parser)]
#[command(name = "cutover", version, about, long_about = None, after_help = EXITS)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) command: Command,
}

const EXITS: &str = "\
Exit codes:
  0   good, a stop by SIGINT or SIGTERM too
  1   failed
  2   the command line is wrong
  3   continuity is lost, or stored data is damaged
  4   inconclusive: verify cannot tell
  5   refused: not confirmed, another generation, a table that is not ours, something that cannot be kept
  6   fenced: another process writes to the table
  69  the daemon cannot be reached
  75  storage or source cannot be used for now, changes are missing, or the time is up
  78  the configuration is wrong";

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Show what Cutover does: feed a view, break things on purpose, reset, verify; needs nothing
    Demo(DemoArgs),
    /// Write a configuration to begin with, which works as it is
    Init(InitArgs),
    /// Say everything that keeps the configuration from working, each with what repairs it
    Check(CheckArgs),
    /// Say what check does, how everything does, and what a daemon knows of it
    Doctor(DoctorArgs),
    /// Look at the configuration
    Config(ConfigArgs),
    /// Deliver views to their tables
    Run(RunArgs),
    /// Load tables anew, each in one version: readers see the old rows until the new ones are complete
    Reset(ResetArgs),
    /// Write a worker's part of a snapshot as files that nobody sees yet
    Stage(StageArgs),
    /// Load a table with a snapshot whose parts are staged, in one version
    Reload(ReloadArgs),
    /// Say how the connectors and views of a daemon do
    Status(StatusArgs),
    /// Push changes into a view of a daemon
    Push(PushArgs),
    /// Wait until a connector of a daemon has delivered a step
    Wait(WaitArgs),
    /// Let a connector of a daemon rest, across restarts too
    Pause(PauseArgs),
    /// Let a connector of a daemon go on, and try again what failed
    Resume(PauseArgs),
    /// List the resets that a daemon remembers of a connector
    Resets(ResetsArgs),
    /// Check a table: continuity, fencing, files, drift
    Verify(VerifyArgs),
    /// List a table's versions, those of others too
    History(HistoryArgs),
    /// Say where a table stands: generation, cutover, last step
    Show(ShowArgs),
    /// Print the current rows of a view, folded from its changelog
    State(StateArgs),
    /// Print the rows beyond a bookmark, once nothing between is known to be missing; for batch jobs
    Changes(ChangesArgs),
    /// Delete files of a table's folder that no version needs any more
    Gc(GcArgs),
    /// Give a table to a connector of another name; its generation goes on
    Adopt(AdoptArgs),
    /// Print code that reads a table: its state, its cutover, and whether it is continuous
    Snippets(SnippetsArgs),
    /// Say what a code means: of an error, a cause, a rule, an answer or an exit
    Explain(ExplainArgs),
    /// Print the JSON schema of a configuration, a commit's stamp, a status or a manifest
    Schema(SchemaArgs),
    /// Print what lets a shell complete commands and options
    Completions(CompletionsArgs),
}

impl Command {
    /// The command's name, and the formats in which it prints data.
    fn outputs(&self) -> (&'static str, &'static [Output]) {
        match self {
            Self::Demo(_) => ("demo", DemoArgs::OUTPUTS),
            Self::Init(_) => ("init", InitArgs::OUTPUTS),
            Self::Check(_) => ("check", CheckArgs::OUTPUTS),
            Self::Config(_) => ("config", ConfigArgs::OUTPUTS),
            Self::Doctor(_) => ("doctor", DoctorArgs::OUTPUTS),
            Self::Run(_) => ("run", RunArgs::OUTPUTS),
            Self::Reset(_) => ("reset", ResetArgs::OUTPUTS),
            Self::Stage(_) => ("stage", StageArgs::OUTPUTS),
            Self::Reload(_) => ("reload", ReloadArgs::OUTPUTS),
            Self::Status(args) => ("status", args.outputs()),
            Self::Push(_) => ("push", PushArgs::OUTPUTS),
            Self::Wait(_) => ("wait", WaitArgs::OUTPUTS),
            Self::Pause(_) => ("pause", PauseArgs::OUTPUTS),
            Self::Resume(_) => ("resume", PauseArgs::OUTPUTS),
            Self::Resets(_) => ("resets", ResetsArgs::OUTPUTS),
            Self::Verify(_) => ("verify", VerifyArgs::OUTPUTS),
            Self::History(args) => ("history", args.outputs()),
            Self::Show(_) => ("show", ShowArgs::OUTPUTS),
            Self::State(_) => ("state", StateArgs::OUTPUTS),
            Self::Changes(args) => ("changes", args.outputs()),
            Self::Gc(_) => ("gc", GcArgs::OUTPUTS),
            Self::Adopt(_) => ("adopt", AdoptArgs::OUTPUTS),
            Self::Snippets(_) => ("snippets", SnippetsArgs::OUTPUTS),
            Self::Explain(_) => ("explain", ExplainArgs::OUTPUTS),
            Self::Schema(_) => ("schema", SchemaArgs::OUTPUTS),
            Self::Completions(_) => ("completions", CompletionsArgs::OUTPUTS),
        }
    }

    /// What the command line says that does not fit together.
    fn contradiction(&self) -> Option<&'static str> {
        match self {
            Self::Push(args) => args.contradiction(),
            _ => None,
        }
    }
}

/// The configuration, where none is named.
pub(super) const CONFIG: &str = "cutover.toml";

/// Options of every command.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(super) struct Global {
    /// The configuration
    #[arg(short, long, global = true, value_name = "FILE", env = "CUTOVER_CONFIG", default_value = CONFIG)]
    pub(super) config: PathBuf,
    /// Where the daemon is; absent: where the configuration has it listen, else http://127.0.0.1:8090
    #[arg(long, global = true, value_name = "URL", env = "CUTOVER_URL", hide_env_values = true)]
    pub(super) url: Option<String>,
    /// A file that holds the token for the daemon, closed to everybody else
    #[arg(long, global = true, value_name = "FILE", env = "CUTOVER_TOKEN_FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// How data is printed on stdout; a command prints some of these
    #[arg(short, long, global = true, value_name = "FORMAT", value_enum, default_value_t = Output::Text)]
    pub(super) output: Output,
    /// Say nothing but what is wrong
    #[arg(short, long, global = true)]
    pub(super) quiet: bool,
    /// Say more: -v what happens, -vv how; CUTOVER_LOG or RUST_LOG may hold a filter instead
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(super) verbose: u8,
    /// Whether talk on stderr is colored; NO_COLOR turns colors off where this says auto
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = Color::Auto)]
    pub(super) color: Color,
    /// Never ask: what needs a confirmation wants --yes
    #[arg(long, global = true)]
    pub(super) no_input: bool,
}

impl Global {
    /// Refuses a format in which `command` does not print, and options of it that contradict each other.
    pub(super) fn check(&self, command: &Command) -> Result<(), clap::Error> {
        if let Some(why) = command.contradiction() {
            return Err(Args::command().error(ErrorKind::ArgumentConflict, why));
        }
        let (name, outputs) = command.outputs();
        if outputs.contains(&self.output) {
            return Ok(());
        }
        let words: Vec<&str> = outputs.iter().map(|o| o.word()).collect();
        let message = format!("{name} prints {}, not {}", words.join(" or "), self.output.word());
        Err(Args::command().error(ErrorKind::InvalidValue, message))
    }
}

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// For people.
    Text,
    /// One document.
    Json,
    /// One document a line.
    Ndjson,
    /// Variables for a shell.
    Env,
}

impl Output {
    fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
            Self::Env => "env",
        }
    }
}

impl ValueEnum for Output {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Text, Self::Json, Self::Ndjson, Self::Env]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.word()))
    }
}

/// When talk is colored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Color {
    /// On a terminal.
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_arguments_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn global_options_stand_before_or_behind_the_command() {
        for line in ["cutover -c a.toml -vv run --once", "cutover run -c a.toml --once -vv"] {
            let args = parse(line).unwrap();
            assert_eq!(args.global.config, PathBuf::from("a.toml"), "{line}");
            assert_eq!(args.global.verbose, 2, "{line}");
        }
    }

    #[test]
    fn a_command_refuses_formats_it_does_not_print_and_contradictions() {
        let check = |line: &str| {
            let Args { global, command } = parse(line).unwrap();
            global.check(&command).map_err(|e| e.to_string())
        };
        assert_eq!(check("cutover run -o json"), Ok(()));
        let refused = check("cutover run -o env").unwrap_err();
        assert!(refused.contains("run prints text or json, not env"), "{refused}");
        for (line, said) in [
            ("cutover status --watch -o json", "status prints text or ndjson, not json"),
            ("cutover push v --format arrow --batch-rows 5", "counts lines, which Arrow has none of"),
            ("cutover push v --format arrow --update-format raw", "tells of lines"),
        ] {
            let refused = check(line).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
    }
}

#[cfg(test)]
#[path = "flags_tests.rs"]
mod flags;
