//! `cutover state`: a view's rows at a step, folded from its changelog, one JSON object a line.

use std::io::{self, BufWriter, Write};

use futures::TryStreamExt;

use super::Session;
use super::args::Output;
use super::show::parse_step;
use super::table::TableArgs;
use crate::error::{Error, Result};
use crate::inspect::json_rows::write_ndjson;
use crate::inspect::state::state;
use crate::step::Step;

/// Arguments of `state`.
#[derive(Debug, clap::Args)]
pub(super) struct StateArgs {
    #[command(flatten)]
    table: TableArgs,
    /// The step of the current generation, instead of the last one
    #[arg(long, value_name = "N", value_parser = parse_step)]
    step: Option<Step>,
}

impl StateArgs {
    /// The formats in which rows are printed; text is the same as NDJSON.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Ndjson];
}

/// Runs the command; the exit code.
pub(super) fn run(args: &StateArgs, session: &Session) -> Result<u8> {
    session.block_on(async |world| {
        let folded = state(&args.table.log(world)?, args.step).await?;
        session.talk.line(&format!("generation {}, step {}", folded.generation, folded.step));
        let mut out = BufWriter::new(io::stdout().lock());
        let mut rows = folded.rows;
        while let Some(batch) = rows.try_next().await? {
            let mut lines = Vec::new();
            write_ndjson(&batch, &mut lines)?;
            if !written(out.write_all(&lines))? {
                return Ok(0);
            }
        }
        written(out.flush()).map(|_| 0)
    })
}

/// Whether somebody still reads; one who went away is no failure.
fn written(result: io::Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(Error::internal("the output cannot be written").with_source(e)),
    }
}
