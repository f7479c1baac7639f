use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use async_trait::async_trait;
use serde_json::Value;

use super::*;
use crate::change::Changes;
use crate::clock::SystemClock;
use crate::error::{Error, Lost, Result};
use crate::snapshot::Snapshot;
use crate::source::{NextView, Position};
use crate::step::StepRange;

fn step(n: u64) -> Step {
    Step::new(n).unwrap()
}

fn view(columns: &[&str]) -> View {
    let fields: Vec<_> = columns.iter().map(|name| Field::new(*name, DataType::Int64, true)).collect();
    View::new("v", &Schema::new(fields), vec!["id".into()]).unwrap()
}

fn rows(view: &View, count: i64) -> RecordBatch {
    let columns =
        view.schema().fields().iter().map(|_| -> ArrayRef { Arc::new(Int64Array::from_iter_values(0..count)) });
    RecordBatch::try_new(view.schema().clone(), columns.collect()).unwrap()
}

fn inserts(view: &View, from: u64, to: u64) -> Changes {
    let steps: Vec<i64> = (from as i64 + 1..=to as i64).collect();
    let mut columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from(steps.clone())), Arc::new(StringArray::from(vec!["i"; steps.len()]))];
    columns.extend(view.schema().fields().iter().map(|_| -> ArrayRef { Arc::new(Int64Array::from(steps.clone())) }));
    let batch = RecordBatch::try_new(view.change_schema(), columns).unwrap();
    Changes::new(StepRange::new(step(from), step(to)).unwrap(), vec![batch]).unwrap()
}

/// Gives what it was told to give, then nothing.
struct Scripted {
    view: View,
    snapshot: Option<(u64, i64)>,
    answers: Vec<Result<Next>>,
}

#[async_trait]
impl Source for Scripted {
    fn name(&self) -> &str {
        self.view.name()
    }

    fn key(&self) -> &[String] {
        self.view.key()
    }

    fn fingerprint(&self) -> &str {
        "scripted"
    }

    async fn position(&mut self) -> Result<Position> {
        Ok(Position { earliest: None, latest: None })
    }

    async fn view(&mut self, _after: Step) -> Result<View> {
        Ok(self.view.clone())
    }

    async fn snapshot(&mut self, _pick: Pick) -> Result<(View, Snapshot)> {
        let (at, count) = self.snapshot.ok_or_else(|| Error::refused("no snapshot"))?;
        Ok((self.view.clone(), Snapshot::from_batches(step(at), vec![rows(&self.view, count)])))
    }

    async fn changes(&mut self, _after: Step, _view: &View) -> Result<Next> {
        if self.answers.is_empty() { Ok(Next::Idle { hole: None }) } else { self.answers.remove(0) }
    }

    async fn acknowledge(&mut self, _step: Step) -> Result<()> {
        Ok(())
    }
}

const QUICK: Bounds =
    Bounds { rows: 10, bytes: 1 << 20, alive: Duration::from_secs(3600), patience: Duration::from_secs(3600) };

fn stream(source: Scripted, format: Format, begin: Begin, bounds: Bounds) -> Stream {
    Stream::new(Settings {
        view: source.view.clone(),
        source: Box::new(source),
        format,
        begin,
        generation: Generation::FIRST,
        sequence_number: 0,
        poll_interval: Duration::from_secs(3600),
        bounds,
        sent: Arc::default(),
        clock: Arc::new(SystemClock),
    })
}

fn scripted(snapshot: Option<(u64, i64)>, answers: Vec<Result<Next>>) -> Scripted {
    Scripted { view: view(&["id", "n"]), snapshot, answers }
}

/// All that a stream sends until it ends, and its last line.
async fn told(mut stream: Stream) -> (Vec<Value>, End) {
    let (out, mut chunks) = mpsc::channel::<Bytes>(1);
    let reading = async {
        let mut lines = Vec::new();
        while let Some(chunk) = chunks.recv().await {
            lines.push(serde_json::from_slice(&chunk).unwrap());
        }
        lines
    };
    let sending = async {
        let end = stream.run(&out).await;
        drop(out);
        end
    };
    let (mut lines, end) = tokio::join!(reading, sending);
    lines.extend(stream.last(&end).map(|last| serde_json::from_slice(&last).unwrap()));
    (lines, end)
}

fn code(end: &End) -> &str {
    match end {
        End::Fault(fault) => fault.error_code,
        _ => "",
    }
}

#[tokio::test]
async fn changes_that_are_sent_again_are_told_once_and_a_gap_ends_the_stream() {
    let view = view(&["id", "n"]);
    let answers = vec![
        Ok(Next::Changes(inserts(&view, 1, 4))),
        Ok(Next::Changes(inserts(&view, 2, 6))),
        Ok(Next::Changes(inserts(&view, 7, 8))),
    ];
    let (lines, end) = told(stream(scripted(None, answers), Format::Ndjson, Begin::After(step(3)), QUICK)).await;
    let shown: Vec<_> = lines.iter().map(|l| (l["from"].as_u64(), l["to"].as_u64())).collect();
    assert_eq!(shown, [(Some(3), Some(3)), (Some(3), Some(4)), (Some(4), Some(6)), (None, None)]);
    assert_eq!(lines[2]["json_data"].as_array().unwrap().len(), 2);
    assert_eq!(code(&end), "continuity_lost");
    assert_eq!((&lines[3]["details"]["step"], &lines[3]["details"]["generation"]), (&6.into(), &1.into()));
}

#[tokio::test]
async fn a_source_that_fails_ends_the_stream_with_what_the_client_has() {
    let answers = vec![Err(Error::continuity_lost(Lost::Gap, "gone"))];
    let (lines, end) =
        told(stream(scripted(Some((9, 25)), answers), Format::Ndjson, Begin::SnapshotAndFollow, QUICK)).await;
    let rows: Vec<_> = lines.iter().filter_map(|l| l["json_data"].as_array()).map(Vec::len).collect();
    assert_eq!(rows, [0, 10, 10, 5, 0], "{lines:?}");
    assert_eq!((code(&end), &lines[5]["details"]["step"]), ("continuity_lost", &9.into()));
    let (lines, _) = told(stream(scripted(None, Vec::new()), Format::Ndjson, Begin::Snapshot, QUICK)).await;
    assert_eq!((lines.len(), &lines[0]["error_code"]), (1, &"refused".into()));
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_cut_off_by_name() {
    let bounds = Bounds { patience: Duration::from_millis(5), ..QUICK };
    let mut stream = stream(scripted(Some((9, 100)), Vec::new()), Format::Ndjson, Begin::SnapshotAndFollow, bounds);
    let (out, mut chunks) = mpsc::channel::<Bytes>(1);
    let end = stream.run(&out).await;
    assert_eq!(code(&end), "slow_client");
    drop(out);
    assert!(chunks.recv().await.is_some() && chunks.recv().await.is_none(), "no more than one chunk waits");
    let last: Value = serde_json::from_slice(&stream.last(&end).unwrap()).unwrap();
    assert!(last["details"].get("step").is_none(), "it has a part of a snapshot: {last}");
}

#[tokio::test]
async fn a_stream_that_is_left_alone_goes_on_and_another_generation_begins_with_a_snapshot() {
    let mut stream = stream(scripted(Some((9, 25)), Vec::new()), Format::Ndjson, Begin::SnapshotAndFollow, QUICK);
    let (out, mut chunks) = mpsc::channel::<Bytes>(1);
    for generation in 1..=3 {
        stream.begin(Generation::new(generation).unwrap());
        let taken = async {
            // The begin and the first rows; then it is dropped in the middle.
            let first: Value = serde_json::from_slice(&chunks.recv().await.unwrap()).unwrap();
            chunks.recv().await.unwrap();
            first
        };
        let first = tokio::select! {
            biased;
            first = taken => first,
            end = stream.run(&out) => panic!("{end:?}"),
        };
        assert_eq!((&first["mark"], &first["generation"]), (&"begin".into(), &generation.into()));
        while chunks.try_recv().is_ok() {}
    }
    drop(chunks);
    assert_eq!(stream.run(&out).await, End::Left);
    assert_eq!(stream.last(&End::Left), None);
}

#[tokio::test]
async fn columns_that_are_added_go_on_in_text_and_those_that_lead_nowhere_end_the_stream() {
    let wider = view(&["id", "n", "more"]);
    let grown = |is_filled| {
        let next = NextView { view: wider.clone(), is_filled, position: "there".into() };
        vec![Ok(Next::View(next)), Ok(Next::Changes(inserts(&wider, 3, 4))), Err(Error::unavailable("the end"))]
    };
    let begin = Begin::After(step(3));
    let (lines, _) = told(stream(scripted(None, grown(false)), Format::Ndjson, begin, QUICK)).await;
    assert_eq!(lines[1]["json_data"][0]["insert"]["more"], 4, "{lines:?}");
    let mut arrow = stream(scripted(None, grown(false)), Format::Arrow, begin, QUICK);
    let (out, _chunks) = mpsc::channel::<Bytes>(9);
    assert_eq!(code(&arrow.run(&out).await), "columns_added");
    assert!(arrow.outdated().is_none(), "it is resumed");
    for format in [Format::Ndjson, Format::Arrow] {
        let mut stream = stream(scripted(None, grown(true)), format, begin, QUICK);
        assert_eq!(code(&stream.run(&out).await), "columns_changed");
        let (generation, view, at) = stream.outdated().unwrap();
        assert_eq!((generation, view, at), (Generation::FIRST, wider.clone(), step(3)));
    }
}
