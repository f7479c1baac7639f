//! `cutover completions`: what lets a shell complete commands and options.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::args::{Args, Output};
use super::{Session, text};
use crate::error::{Error, Result};

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
bash: cutover completions bash > ~/.local/share/bash-completion/completions/cutover
zsh:  cutover completions zsh > ~/.zfunc/_cutover, with ~/.zfunc in fpath before compinit
fish: cutover completions fish > ~/.config/fish/completions/cutover.fish")]
pub(super) struct CompletionsArgs {
    /// For which shell
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsArgs {
    /// The formats in which a script is printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text];
}

/// Runs the command; the exit code.
pub(super) fn run(args: &CompletionsArgs, _: &Session) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "cutover", &mut script);
    let script =
        String::from_utf8(script).map_err(|e| Error::internal("the completions are no text").with_source(e))?;
    text::print(script.trim_end())?;
    Ok(0)
}
