//! A client of a view's stream, which believes nothing that it does not see proved.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::Int64Type;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::root_as_message;
use reqwest::{Client, Response};
use serde_json::{Value, json};

use super::ledger::{Mark, Row};

/// The state of the view after each step, from step 0 on, each of them there before it is pushed.
pub(crate) type Oracle = Arc<RwLock<Vec<Mark>>>;

/// What a change does to a row.
type Change = (i64, Option<Row>);

/// A line, or a batch.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) head: Value,
    pub(crate) changes: Vec<Change>,
}

/// A stream that is read.
pub(crate) struct Pull {
    response: Response,
    held: Vec<u8>,
    /// Of an Arrow stream.
    decoder: Option<StreamDecoder>,
}

impl Pull {
    /// The stream, or the status and the code with which there is none; `None` when nobody answers.
    pub(crate) async fn open(client: &Client, url: &str, query: &str) -> Option<Result<Self, (u16, String)>> {
        let response = client.post(format!("{url}/v1/pipelines/p/egress/rows?{query}")).send().await.ok()?;
        let status = response.status().as_u16();
        if status != 200 {
            let problem: Value = response.json().await.ok()?;
            assert!(!problem["message"].as_str().unwrap().is_empty(), "{problem}");
            return Some(Err((status, problem["error_code"].as_str().unwrap().to_owned())));
        }
        let decoder = query.contains("format=arrow").then(StreamDecoder::new);
        Some(Ok(Self { response, held: Vec::new(), decoder }))
    }

    /// What is told next; `None` at the end, or when the connection broke.
    pub(crate) async fn next(&mut self) -> Option<Told> {
        loop {
            let told = match &mut self.decoder {
                None => line(&mut self.held),
                Some(decoder) => message(&mut self.held, decoder),
            };
            if told.is_some() {
                return told;
            }
            let chunk = self.response.chunk().await.ok()??;
            self.held.extend(chunk);
        }
    }
}

fn line(held: &mut Vec<u8>) -> Option<Told> {
    let end = held.iter().position(|byte| *byte == b'\n')?;
    let line: Vec<u8> = held.drain(..=end).collect();
    let head: Value = serde_json::from_slice(&line).unwrap();
    let change = |data: &Value| {
        let (word, row) = data.as_object().unwrap().iter().next().unwrap();
        let id = row["id"].as_i64().unwrap();
        assert!(word != "delete" || *row == json!({ "id": id }), "a delete tells the key: {data}");
        let name = row["name"].as_str().map(str::to_owned);
        (id, (word != "delete").then(|| Row { name, amount: row["amount"].as_i64() }))
    };
    let changes = head["json_data"].as_array().into_iter().flatten().map(change).collect();
    Some(Told { head, changes })
}

/// The next batch and what its message says beside it; a schema is passed over, and so is the stream's end.
fn message(held: &mut Vec<u8>, decoder: &mut StreamDecoder) -> Option<Told> {
    loop {
        let length = u32::from_le_bytes(held.get(4..8)?.try_into().unwrap()) as usize;
        let head = held.get(8..8 + length)?;
        if head.is_empty() {
            return None;
        }
        let head = root_as_message(head).unwrap();
        let whole = 8 + length + head.bodyLength() as usize;
        if held.len() < whole {
            return None;
        }
        let told = head.custom_metadata().map(|pairs| {
            assert_eq!((pairs.len(), pairs.get(0).key()), (1, Some("cutover")));
            serde_json::from_str::<Value>(pairs.get(0).value().unwrap()).unwrap()
        });
        let mut bytes = Buffer::from_vec(held.drain(..whole).collect::<Vec<u8>>());
        let batch = decoder.decode(&mut bytes).unwrap();
        if let Some(head) = told {
            let changes = batch.map_or(Vec::new(), |batch| changes(&batch, &head));
            return Some(Told { head, changes });
        }
    }
}

fn changes(batch: &RecordBatch, head: &Value) -> Vec<Change> {
    let number = |column: usize, row: usize| {
        let column = batch.column(column).as_primitive::<Int64Type>();
        column.is_valid(row).then(|| column.value(row))
    };
    let (ops, names) = (batch.column(2).as_string::<i32>(), batch.column(4).as_string::<i32>());
    let change = |row: usize| {
        assert_eq!(number(0, row), head["generation"].as_i64());
        assert!(number(1, row) > head["from"].as_i64() || head["snapshot"] == true, "{head}");
        assert!(number(1, row) <= head["to"].as_i64(), "{head}");
        let name = names.is_valid(row).then(|| names.value(row).to_owned());
        let after = (ops.value(row) != "d").then(|| Row { name, amount: number(5, row) });
        (number(3, row).unwrap(), after)
    };
    (0..batch.num_rows()).map(change).collect()
}

/// What a client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) generation: u64,
    pub(crate) step: u64,
    pub(crate) sequence: u64,
    /// Of a view that is pushed.
    strand: Option<u64>,
}

impl At {
    pub(crate) fn query(self) -> String {
        let Self { generation, step, sequence, strand } = self;
        let strand = strand.map(|strand| format!("&after_strand={strand:016x}")).unwrap_or_default();
        format!("generation={generation}&after_step={step}{strand}&after_sequence={sequence}")
    }
}

/// A state that follows a stream, and holds each step that it is told to what it must be.
#[derive(Default)]
pub(crate) struct Follower {
    pub(crate) at: Option<At>,
    pub(crate) rows: BTreeMap<i64, Row>,
    mark: Mark,
    /// What is not whole yet: the rows of a snapshot, or the changes of a step.
    part: Vec<Change>,
    in_snapshot: bool,
    /// The number of the last line of the stream that is read.
    last: Option<u64>,
    pub(crate) steps: u64,
    pub(crate) snapshots: u64,
    /// By which names streams ended.
    pub(crate) ends: BTreeMap<String, u64>,
}

impl Follower {
    /// Another stream begins, behind what it has.
    pub(crate) fn reconnects(&mut self) {
        (self.part, self.in_snapshot) = (Vec::new(), false);
        self.last = self.at.map(|at| at.sequence);
    }

    /// It forgets all.
    pub(crate) fn forgets(&mut self) {
        let Self { steps, snapshots, .. } = *self;
        *self = Self { steps, snapshots, ends: std::mem::take(&mut self.ends), ..Self::default() };
    }

    /// Takes a line; whether the stream goes on.
    pub(crate) fn take(&mut self, told: Told, oracle: &Oracle, why: &str) -> bool {
        let Told { head, changes } = told;
        let number = |name: &str| head[name].as_u64().unwrap_or_else(|| panic!("{name}: {head}; {why}"));
        if let Some(code) = head["error_code"].as_str() {
            *self.ends.entry(code.to_owned()).or_default() += 1;
            return false;
        }
        let sequence = number("sequence_number");
        assert_eq!(sequence, self.last.map_or(sequence, |last| last + 1), "no line is missing: {head}; {why}");
        self.last = Some(sequence);
        let strand = head["strand"].as_str().map(|strand| u64::from_str_radix(strand, 16).unwrap());
        let at = At { generation: number("generation"), step: number("to"), sequence, strand };
        let is_partial = head["partial"] == true;
        match head["mark"].as_str() {
            Some("begin") => {
                (self.at, self.part, self.in_snapshot) = (None, Vec::new(), true);
                assert!(is_partial && head["snapshot"] == true && head["from"] == head["to"], "{head}; {why}");
                return true;
            }
            Some("end") => {
                assert!(self.in_snapshot && !is_partial, "{head}; {why}");
                (self.rows, self.mark) = (BTreeMap::new(), Mark::default());
                assert_eq!(self.part.len() as u64, number("rows"), "{head}; {why}");
                self.apply();
                (self.in_snapshot, self.snapshots) = (false, self.snapshots + 1);
            }
            Some("close") => {
                *self.ends.entry(head["reason"].as_str().unwrap().to_owned()).or_default() += 1;
                return false;
            }
            Some("start" | "alive") => {
                if !is_partial {
                    let same = self.at.map(|at| (at.generation, at.step));
                    assert!(same.is_none_or(|same| same == (at.generation, at.step)), "{head}, not {same:?}; {why}");
                    self.at = Some(at);
                }
                return true;
            }
            Some(other) => panic!("{other}: {head}; {why}"),
            None if self.in_snapshot => {
                assert!(is_partial && head["snapshot"] == true, "{head}; {why}");
                self.part.extend(changes);
                return true;
            }
            None => {
                let had = self.at.unwrap_or_else(|| panic!("changes of nothing: {head}; {why}"));
                assert_eq!((had.generation, had.step), (at.generation, number("from")), "a gap: {head}; {why}");
                assert!(head["snapshot"] == false && at.step > had.step, "{head}; {why}");
                self.part.extend(changes);
                if is_partial {
                    return true;
                }
                self.apply();
                self.steps += at.step - had.step;
            }
        }
        self.at = Some(at);
        let expected = oracle.read().unwrap()[at.step as usize];
        assert_eq!(self.mark, expected, "the state at the step that was told: {head}; {why}");
        true
    }

    fn apply(&mut self) {
        for (id, after) in std::mem::take(&mut self.part) {
            let before = self.rows.get(&id).cloned();
            self.mark.change(id, before.as_ref(), after.as_ref());
            match after {
                Some(row) => self.rows.insert(id, row),
                None => self.rows.remove(&id),
            };
        }
    }
}
