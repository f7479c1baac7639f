//! What a task controls: a connector to a table, or one whose client comes for the changes.

use tokio::sync::{mpsc, watch};

use super::Command;
use crate::clock::World;
use crate::connector::{Connector, Reloaded, Reset, ResetPreview, ResetRecord, Status, StreamConnector, Until};
use crate::continuity::plan::Older;
use crate::continuity::stamp::ResetStamp;
use crate::error::{Error, Result};
use crate::generation::Generation;
use crate::sink::Applied;

/// A connector of either kind.
pub enum Work {
    /// To a table.
    Table(Box<Connector>),
    /// To a client.
    Stream(Box<StreamConnector>),
}

impl From<Connector> for Work {
    fn from(connector: Connector) -> Self {
        Self::Table(Box::new(connector))
    }
}

impl From<StreamConnector> for Work {
    fn from(connector: StreamConnector) -> Self {
        Self::Stream(Box::new(connector))
    }
}

impl Work {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Table(connector) => connector.name(),
            Self::Stream(connector) => connector.name(),
        }
    }

    pub(super) fn world(&self) -> &World {
        match self {
            Self::Table(connector) => &connector.world,
            Self::Stream(connector) => connector.world(),
        }
    }

    /// What is shown of it.
    pub(super) fn shown(&self) -> &watch::Sender<Status> {
        match self {
            Self::Table(connector) => &connector.status,
            Self::Stream(connector) => connector.shown(),
        }
    }

    /// Refused: it has no snapshot to load.
    pub(super) fn check_resets(&self) -> Result<()> {
        match self {
            Self::Table(connector) => connector.check_mode().and_then(|()| connector.source.check_snapshots()),
            Self::Stream(connector) => connector.check_resets(),
        }
    }

    /// It asks before it reloads by itself, which only a table can need.
    pub(super) fn ask_before_reloads(&mut self, commands: mpsc::WeakSender<Command>) {
        if let Self::Table(connector) = self {
            connector.control = Some(commands);
        }
    }

    /// Delivers until all is delivered, or until an error that needs somebody's help.
    pub(super) async fn run(&mut self) -> Result<()> {
        match self {
            Self::Table(connector) => connector.run(Until::Stopped).await.map(drop),
            Self::Stream(connector) => connector.run().await,
        }
    }

    /// The generation, after a look.
    pub(super) async fn see(&mut self) -> Result<Option<Generation>> {
        match self {
            Self::Table(connector) => connector.see().await,
            Self::Stream(connector) => Ok(connector.generation()),
        }
    }

    /// What the reset with this id made, where that can be told.
    pub(super) async fn committed_reset(&mut self, id: &str) -> Result<Option<Reloaded>> {
        match self {
            Self::Table(connector) => connector.committed_reset(id).await,
            Self::Stream(connector) => Ok(connector.committed_reset(id)),
        }
    }

    /// What a reset would do.
    pub(super) async fn preview(&mut self, reset: Reset) -> Result<ResetPreview> {
        match self {
            Self::Table(connector) => Ok(connector.prepare_reset(reset).await?.preview().clone()),
            Self::Stream(connector) => connector.preview(&reset).await,
        }
    }

    /// Carries a reset out, or finds that it was.
    pub(super) async fn carry_out(&mut self, reset: &ResetRecord) -> Result<Reloaded> {
        if reset.tries > 0
            && let Some(found) = self.committed_reset(&reset.id).await?
        {
            return Ok(found);
        }
        let stamp = ResetStamp { id: reset.id.clone(), who: reset.who.clone(), why: reset.why.clone() };
        let wanted = Reset { stamp, expected_generation: reset.expected_generation, older: Older::Refused };
        match self {
            Self::Table(connector) => reload(connector, wanted).await,
            Self::Stream(connector) => connector.reset(&wanted).await,
        }
    }
}

async fn reload(connector: &mut Connector, wanted: Reset) -> Result<Reloaded> {
    connector.renew().await?;
    let prepared = connector.prepare_reset(wanted).await?;
    let applied = connector.reset(prepared).await?;
    // Nothing is awaited from here on: what the table holds is not taken back any more.
    let Status { generation: Some(generation), cutover: Some(step), .. } = *connector.status.borrow() else {
        return Err(Error::internal("a table that was loaded tells its generation"));
    };
    let version = match applied {
        Applied::Committed { version, .. } => Some(version),
        Applied::Already => None,
    };
    Ok(Reloaded { version, generation, step })
}
