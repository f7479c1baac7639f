use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use async_trait::async_trait;
use clap::Parser;

use super::*;
use crate::cli::args::{Args, Command};
use crate::config::ConnectorName;
use crate::connector::{CommitBounds, ConnectorSettings};
use crate::log::{Access, Durability, Location};
use crate::schema::View;
use crate::sink::SinkSettings;
use crate::snapshot::Snapshot;
use crate::source::{Next, Pick, Position, Source};

/// A source of one snapshot, or of a panic.
struct Scripted {
    panics: bool,
}

#[async_trait]
impl Source for Scripted {
    fn name(&self) -> &str {
        "v"
    }

    fn key(&self) -> &[String] {
        &[]
    }

    async fn view(&mut self, _after: Step) -> Result<View> {
        assert!(!self.panics, "no view today");
        View::new("v", &Schema::new(vec![Field::new("id", DataType::Int64, true)]), Vec::new())
    }

    fn fingerprint(&self) -> &str {
        "scripted"
    }

    async fn position(&mut self) -> Result<Position> {
        Ok(Position { earliest: None, latest: Step::new(5).ok() })
    }

    async fn snapshot(&mut self, _pick: Pick) -> Result<(View, Snapshot)> {
        let view = self.view(Step::ZERO).await?;
        let rows = RecordBatch::try_new(view.schema().clone(), vec![std::sync::Arc::new(Int64Array::from(vec![1, 2]))]);
        Ok((view, Snapshot::from_batches(Step::new(5)?, vec![rows.unwrap()])))
    }

    async fn changes(&mut self, _after: Step, _view: &View) -> Result<Next> {
        Ok(Next::Idle { hole: None })
    }

    async fn acknowledge(&mut self, _step: Step) -> Result<()> {
        Ok(())
    }
}

fn scripted(name: &str, panics: bool, world: &World) -> Connector {
    let settings = ConnectorSettings {
        sink: SinkSettings::new(ConnectorName::new("p", "v", name).unwrap().to_string(), ""),
        commit: CommitBounds::default(),
        heartbeat: None,
        poll_interval: std::time::Duration::from_millis(1),
        reload_ratio: None,
    };
    let location = Location::open("memory:///", Access::Write(Durability::None)).unwrap();
    Connector::new(settings, Box::new(Scripted { panics }), location, world.clone())
}

#[test]
fn a_panic_is_one_connectors_failure() {
    let Args { global, command } = Args::parse_from(["cutover", "run", "-q", "--once"]);
    let Command::Run(args) = command else { panic!("run was parsed") };
    let session = Session { talk: Talk::new(&global), global };
    let members = session
        .block_on(async |world| {
            let mut fleet =
                Fleet { args: &args, session: &session, world: world.clone(), members: Vec::new(), ready: Vec::new() };
            for (place, (name, panics)) in [("bad", true), ("good", false)].into_iter().enumerate() {
                let connector = scripted(name, panics, &world);
                let status = connector.status();
                fleet.members.push(Member { name: connector.name().to_string(), status, outcome: None });
                fleet.ready.push((place, connector));
            }
            fleet.run(&mut Signals::listen()?).await;
            Ok(fleet.members)
        })
        .unwrap();
    let error = members[0].report().error.unwrap();
    assert_eq!(error["kind"], "internal");
    assert_eq!(error["message"], "a defect of this program: no view today");
    assert_eq!(
        members[1].summary(),
        "p/v/good: generation 1, cutover step 5, last step 5, 2 rows loaded, 0 appends, 0 rows appended"
    );
    assert_eq!(members.iter().fold(End::Good, |end, member| end.and(member.end())).exit_code(), 1);
}

#[test]
fn steps_are_numbers_in_range() {
    assert_eq!(parse_step("7"), Ok(Step::new(7).unwrap()));
    for bad in ["", "-1", "x", "1.5", "9223372036854775807"] {
        assert!(parse_step(bad).is_err(), "{bad}");
    }
}
