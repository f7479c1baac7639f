//! The command line: prints what the floors below know, and maps each kind of error to an exit code.
//!
//! Data goes to stdout, talk to stderr. Nothing is kept between two runs.

mod adopt;
#[cfg(feature = "postgres")]
mod against;
mod args;
mod changes;
mod check;
mod client;
mod completions;
mod config;
mod consent;
mod demo;
mod doctor;
mod explain;
mod failure;
mod gc;
mod history;
mod init;
mod manifests;
mod names;
mod pause;
mod progress;
mod push;
mod push_input;
mod reach;
mod reload;
mod reset;
mod resets;
mod run;
mod schema;
mod serve;
mod show;
mod signals;
mod snippets;
mod stage;
mod state;
mod status;
mod table;
mod talk;
mod text;
mod verify;
mod wait;

#[cfg(test)]
mod fake_daemon;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind as UsageKind;

use self::args::{Args, Command, Global};
use self::pause::Order;
use self::talk::Talk;
use crate::clock::World;
use crate::error::{Error, Result};

/// Runs the command that the process's arguments name.
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(usage) => return say_usage(&usage),
    };
    let Args { global, command } = args;
    if let Err(usage) = global.check(&command) {
        return say_usage(&usage);
    }
    let talk = Talk::new(&global);
    let ended = talk.trace(&global).and_then(|()| command.run(&Session { global, talk: talk.clone() }));
    ExitCode::from(match ended {
        Ok(code) => code,
        Err(error) => {
            talk.failure(None, &error);
            failure::exit_code(&error)
        }
    })
}

/// What every command is given beside its own arguments.
struct Session {
    global: Global,
    talk: Talk,
}

/// Where a command's data goes, a line a call.
type Print<'a> = Box<dyn FnMut(&str) -> Result<()> + 'a>;

/// What a thread's stack may grow to, in bytes: without optimization a reload has large frames.
const STACK: usize = 8 << 20;

impl Session {
    /// Does `work` on a runtime of its own; what still runs afterwards is left behind.
    fn block_on<T>(&self, work: impl AsyncFnOnce(World) -> Result<T>) -> Result<T> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_stack_size(STACK)
            .build()
            .map_err(|e| Error::internal("the threads of the program cannot be started").with_source(e))?;
        let done = runtime.block_on(work(World::system()));
        // Tearing down what a signal cut short would panic in it; the end of the process takes it all the same.
        std::mem::forget(runtime);
        done
    }
}

impl Command {
    fn run(self, session: &Session) -> Result<u8> {
        match self {
            Self::Demo(args) => demo::run(&args, session),
            Self::Init(args) => init::run(&args, session),
            Self::Check(args) => check::run(&args, session),
            Self::Config(args) => config::run(&args, session),
            Self::Doctor(args) => doctor::run(&args, session),
            Self::Run(args) => run::run(args, session),
            Self::Reset(args) => reset::run(args, session),
            Self::Stage(args) => stage::run(args, session),
            Self::Reload(args) => reload::run(&args, session),
            Self::Status(args) => status::run(&args, session),
            Self::Push(args) => push::run(&args, session),
            Self::Wait(args) => wait::run(&args, session),
            Self::Pause(args) => pause::run(&args, Order::Pause, session),
            Self::Resume(args) => pause::run(&args, Order::Resume, session),
            Self::Resets(args) => resets::run(&args, session),
            Self::Verify(args) => verify::run(&args, session),
            Self::History(args) => history::run(&args, session),
            Self::Show(args) => show::run(&args, session),
            Self::State(args) => state::run(&args, session),
            Self::Changes(args) => changes::run(&args, session),
            Self::Gc(args) => gc::run(&args, session),
            Self::Adopt(args) => adopt::run(&args, session),
            Self::Snippets(args) => snippets::run(&args, session),
            Self::Explain(args) => explain::run(&args, session),
            Self::Schema(args) => schema::run(&args, session),
            Self::Completions(args) => completions::run(&args, session),
        }
    }
}

/// Help and versions are printed the same way, and are no failure.
fn say_usage(usage: &clap::Error) -> ExitCode {
    // A closed terminal cannot be told that it is closed.
    let _ = usage.print();
    match usage.kind() {
        UsageKind::DisplayHelp | UsageKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::from(2),
    }
}
