//! What the request for snapshot-and-follow connectors asks of streams over HTTP, question by question.

use reqwest::Method;
use serde_json::{Value, json};

use super::ledger::Ledger;
use super::puller::{Follower, Oracle, Pull, Told};
use super::{FREE_RESETS, Home, Service, client, memory};
use crate::program::{Chance, Readers, wait_until};

/// A daemon whose view has rows, and the states that it had.
struct Fed<'a> {
    service: Service<'a>,
    ledger: Ledger,
    oracle: Oracle,
}

impl<'a> Fed<'a> {
    fn new(home: &'a Home, test: &str) -> Self {
        let mut fed = Self { service: home.start(), ledger: Ledger::new(Chance::new(test)), oracle: Oracle::default() };
        fed.oracle.write().unwrap().push(fed.ledger.mark());
        let lines = fed.ledger.insert(300);
        fed.push(lines);
        fed
    }

    fn push(&mut self, lines: String) {
        self.oracle.write().unwrap().push(self.ledger.mark());
        self.service.push(self.ledger.step(), lines);
    }

    fn push_some(&mut self, steps: u64) {
        for _ in 0..steps {
            let lines = self.ledger.change(20);
            self.push(lines);
        }
    }

    fn restart(self) -> Self {
        let Self { service, ledger, oracle } = self;
        let home = service.home;
        service.stop();
        Self { service: home.start(), ledger, oracle }
    }

    fn pull(&self, query: &str) -> Pull {
        self.try_pull(query).unwrap_or_else(|refused| panic!("{query}: {refused:?}"))
    }

    fn try_pull(&self, query: &str) -> Result<Pull, (u16, String)> {
        let (home, url) = (self.service.home, &self.service.url);
        home.runtime.block_on(Pull::open(&home.client, url, &format!("format=ndjson&{query}"))).expect("an answer")
    }

    fn next(&self, pull: &mut Pull) -> Option<Told> {
        self.service.home.runtime.block_on(pull.next())
    }

    /// Reads until the last step, which each line on the way leads to.
    fn follow(&self, follower: &mut Follower, pull: &mut Pull) -> Vec<Value> {
        let (mut heads, last) = (Vec::new(), Some(self.ledger.step()));
        follower.reconnects();
        while follower.at.map(|at| at.step) != last {
            let told = self.next(pull).expect("another line");
            heads.push(told.head.clone());
            assert!(follower.take(told, &self.oracle, "a question"), "{heads:?}");
        }
        assert_eq!(follower.rows, *self.ledger.rows());
        heads
    }
}

#[test]
fn q09_each_chunk_says_which_steps_it_covers() {
    const TEST: &str = "q09_each_chunk_says_which_steps_it_covers";
    let home = Home::new("");
    let mut fed = Fed::new(&home, TEST);
    let (mut follower, mut pull) = (Follower::default(), fed.pull("mode=snapshot_and_follow"));
    let heads = fed.follow(&mut follower, &mut pull);
    assert!(heads.iter().all(|head| head["to"] == fed.ledger.step() && head["from"] == head["to"]), "{heads:?}");
    fed.push_some(5);
    let mut at = heads.last().unwrap()["to"].clone();
    for head in fed.follow(&mut follower, &mut pull) {
        assert_eq!(head["from"], at, "{head}");
        at = head["to"].clone();
    }
    assert_eq!(at, fed.ledger.step());
}

#[test]
fn q10_a_client_resumes_with_generation_and_step_exactly_or_is_gone() {
    const TEST: &str = "q10_a_client_resumes_with_generation_and_step_exactly_or_is_gone";
    let home = Home::new("");
    let mut fed = Fed::new(&home, TEST);
    let mut follower = Follower::default();
    fed.follow(&mut follower, &mut fed.pull(""));
    fed.push_some(3);
    fed.service.process.kill();
    let Fed { service, ledger, oracle } = fed;
    drop(service);
    let mut fed = Fed { service: home.start(), ledger, oracle };
    fed.push_some(3);
    let position = follower.at.unwrap().query();
    let heads = fed.follow(&mut follower, &mut fed.pull(&position));
    assert_eq!(heads[0]["mark"], "start", "no snapshot again: {heads:?}");
    let generation = follower.at.unwrap().generation;
    for (query, code) in [
        ("generation=7&after_step=1".to_owned(), "generation_gone"),
        (format!("generation={generation}&after_step=1000000"), "step_beyond"),
    ] {
        assert_eq!(fed.try_pull(&query).err(), Some((410, code.to_owned())));
    }
}

#[test]
fn q11_a_snapshot_has_its_beginning_and_its_end_also_when_it_is_empty() {
    const TEST: &str = "q11_a_snapshot_has_its_beginning_and_its_end_also_when_it_is_empty";
    let home = Home::new("");
    let service = home.start();
    let fed = Fed { service, ledger: Ledger::new(Chance::new(TEST)), oracle: Oracle::default() };
    let mut pull = fed.pull("mode=snapshot");
    let heads: Vec<Value> = std::iter::from_fn(|| fed.next(&mut pull)).map(|told| told.head).collect();
    let marks: Vec<_> = heads.iter().map(|head| (&head["mark"], &head["rows"], &head["to"])).collect();
    assert_eq!(
        marks,
        [
            (&json!("begin"), &json!(0), &json!(0)),
            (&json!("end"), &json!(0), &json!(0)),
            (&json!("close"), &Value::Null, &json!(0))
        ]
    );
    drop(fed);
    let home = Home::new("");
    let fed = Fed::new(&home, TEST);
    let heads = fed.follow(&mut Follower::default(), &mut fed.pull("mode=snapshot"));
    assert_eq!((&heads[0]["rows"], &heads.last().unwrap()["rows"]), (&json!(300), &json!(300)));
    assert!(heads.iter().all(|head| head["snapshot"] == true), "{heads:?}");
}

#[test]
fn q12_sequence_numbers_go_on_over_restarts_within_a_generation() {
    const TEST: &str = "q12_sequence_numbers_go_on_over_restarts_within_a_generation";
    let home = Home::new(&client("app", FREE_RESETS));
    let mut fed = Fed::new(&home, TEST);
    let mut follower = Follower::default();
    let mut numbers = Vec::new();
    let mut told = |heads: Vec<Value>| {
        numbers.extend(heads.iter().filter(|h| h["mark"] != "start").map(|h| h["sequence_number"].as_u64().unwrap()));
    };
    told(fed.follow(&mut follower, &mut fed.pull("connector=app")));
    for _ in 0..3 {
        fed = fed.restart();
        fed.push_some(2);
        let position = follower.at.unwrap().query();
        told(fed.follow(&mut follower, &mut fed.pull(&format!("connector=app&{position}"))));
    }
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    // The daemon knows them too, of a client that said what it has.
    let at = follower.at.unwrap();
    fed.service.call(&fed.service.of("app", &format!("/acknowledge?{}", at.query()))).is(200);
    fed = fed.restart();
    let start = fed.next(&mut fed.pull("connector=app")).unwrap().head;
    assert_eq!(
        (&start["mark"], start["sequence_number"].as_u64()),
        (&json!("start"), Some(at.sequence + 1)),
        "{start}"
    );
    assert_eq!((start["generation"].as_u64(), start["to"].as_u64()), (Some(at.generation), Some(at.step)), "{start}");
}

#[test]
fn q13_history_that_is_kept_is_resumed_and_after_a_gap_a_client_begins_anew() {
    const TEST: &str = "q13_history_that_is_kept_is_resumed_and_after_a_gap_a_client_begins_anew";
    let home = Home::new("");
    let small = "step_log = { max_bytes = \"1MiB\" }\nkey = [\"id\"]";
    home.write("cutover.toml", &super::VIEW.replace("key = [\"id\"]", small));
    let mut fed = Fed::new(&home, TEST);
    let mut follower = Follower::default();
    fed.follow(&mut follower, &mut fed.pull(""));
    let gone = follower.at.unwrap().query();
    fed.push_some(2);
    fed.follow(&mut follower, &mut fed.pull(&gone));
    // Nothing is held back for a client that is no connector's.
    for _ in 0..40 {
        let lines = fed.ledger.insert(1500);
        fed.push(lines);
    }
    assert_eq!(fed.try_pull(&gone).err(), Some((410, "step_gone".to_owned())));
    let mut anew = Follower::default();
    fed.follow(&mut anew, &mut fed.pull(""));
    assert_eq!(anew.snapshots, 1);
}

#[test]
fn q14_a_stream_that_is_no_longer_valid_ends_and_says_so() {
    const TEST: &str = "q14_a_stream_that_is_no_longer_valid_ends_and_says_so";
    let home = Home::new(&client("app", FREE_RESETS));
    let fed = Fed::new(&home, TEST);
    let mut follower = Follower::default();
    fed.follow(&mut follower, &mut fed.pull("connector=app"));
    let (at, generation) = (follower.at.unwrap().query(), follower.at.unwrap().generation);
    let mut pull = fed.pull(&format!("connector=app&{at}"));
    let Fed { service, .. } = fed;
    service.stop();
    let last = std::iter::from_fn(|| home.runtime.block_on(pull.next())).last().unwrap().head;
    assert_eq!((&last["mark"], &last["reason"]), (&json!("close"), &json!("stopped")), "{last}");
    // Another life of the view has none of the history.
    std::fs::remove_dir_all(home.path("data/views")).unwrap();
    let fed = Fed::new(&home, TEST);
    let lost = fed.service.wait("app", "lost", |s| s["state"] == "continuity_lost");
    assert_eq!((&lost["health"], &lost["trouble"]["code"]), (&json!("unhealthy"), &json!("continuity_lost")), "{lost}");
    for query in ["connector=app".to_owned(), format!("connector=app&{at}")] {
        assert_eq!(fed.try_pull(&query).err(), Some((410, "continuity_lost".to_owned())));
    }
    assert_eq!(fed.service.reset("app", json!({}))["state"], "committed");
    let mut anew = Follower::default();
    fed.follow(&mut anew, &mut fed.pull("connector=app"));
    assert!(anew.at.unwrap().generation > generation, "another history has a number of its own");
    // What is no connector's, too, is told apart from what had the same steps before.
    assert_eq!(fed.try_pull(&at).err(), Some((410, "generation_gone".to_owned())));
}

#[test]
fn q18_a_client_that_reads_nothing_holds_nothing_but_its_place() {
    const TEST: &str = "q18_a_client_that_reads_nothing_holds_nothing_but_its_place";
    let home = Home::new("");
    let mut fed = Fed::new(&home, TEST);
    let pulls: Vec<Pull> = (0..20).map(|_| fed.pull("")).collect();
    let before = memory(fed.service.process.id());
    for _ in 0..20 {
        let lines = fed.ledger.insert(10_000);
        fed.push(lines);
    }
    let grown = memory(fed.service.process.id()).saturating_sub(before);
    eprintln!("{TEST}: 20 streams that nobody reads, 200,000 rows: {} MiB more", grown >> 20);
    assert!(grown < 512 << 20, "{grown} bytes for 20 streams that nobody reads");
    // Those who read come to the end, and pushes waited for nobody.
    let mut follower = Follower::default();
    fed.follow(&mut follower, &mut fed.pull(""));
    drop(pulls);
    let view = "/v1/pipelines/p";
    assert!(wait_until(crate::program::PATIENCE, || fed.service.get(view).body["views"][0]["streams"] == 0));
}

#[test]
fn arrow_streams_are_read_by_pyarrow() {
    const TEST: &str = "arrow_streams_are_read_by_pyarrow";
    let Some(readers) = Readers::find(TEST) else { return };
    let home = Home::new("");
    let mut fed = Fed::new(&home, TEST);
    fed.push_some(3);
    let read = |query: &str, until: u64| -> Value {
        let url = format!("{}/v1/pipelines/p/egress/rows?format=arrow&{query}", fed.service.url);
        serde_json::from_str(&readers.tell("egress.py", &[&url, &until.to_string()], "")).unwrap()
    };
    let snapshot = read("mode=snapshot", u64::MAX);
    let expected: Vec<Value> = fed.ledger.rows().iter().map(|(id, row)| json!([id, row.name, row.amount])).collect();
    assert_eq!(snapshot["rows"], json!(expected));
    let marks: Vec<_> = snapshot["heads"].as_array().unwrap().iter().filter_map(|h| h["mark"].as_str()).collect();
    assert_eq!(marks, ["begin", "end", "close"]);
    let generation = &snapshot["heads"][0]["generation"];
    let changes = read(&format!("generation={generation}&after_step=0"), fed.ledger.step());
    assert_eq!(changes["rows"], json!(expected), "from the beginning on");
    assert_eq!(changes["schema"], json!(["__generation", "__step", "__op", "id", "name", "amount"]));
    let refused = fed.service.send(fed.service.request(Method::POST, "/v1/pipelines/p/egress/rows?format=parquet"));
    assert_eq!(refused.status, 400);
}
