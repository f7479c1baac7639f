//! Snapshots that several processes stage and one commits: each part counts once, whatever happened to the workers.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::ipc::writer::StreamWriter;
use cutover::continuity::plan::Older;
use cutover::{Applied, ErrorKind, Manifest, Part, PartOf, StagedSnapshot, Step};
use serde_json::{Value, json};

use crate::foreign::{Foreign, Table, changes, check_mapping, entries, reset, state};
use crate::object_stores::server::{BUCKET, Server};
use crate::program::{Landing, PATIENCE, Ran, Readers, Site, names, wait_until};

/// The rows of one part.
const ROWS: i64 = 150_000;
const PARTS: i64 = 4;
const BATCH: i64 = 10_000;

/// Rows of the view `rows (id bigint, name string, amount bigint)`, which follow from their ids.
fn batch(ids: std::ops::Range<i64>) -> RecordBatch {
    let names: StringArray = ids.clone().map(|id| (id % 7 != 0).then(|| format!("näme {id}"))).collect();
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int64Array::from_iter_values(ids.clone()))),
        ("name", Arc::new(names)),
        ("amount", Arc::new(Int64Array::from_iter_values(ids.map(|id| id * 3)))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

/// What is left of a stream of these rows, and its end.
fn stream(rows: std::ops::Range<i64>) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch(0..0).schema()).unwrap();
    let mut from = rows.start;
    while from < rows.end {
        writer.write(&batch(from..rows.end.min(from + BATCH))).unwrap();
        from += BATCH;
    }
    writer.finish().unwrap();
    writer.into_inner().unwrap()
}

/// Of part `part`, from 1.
fn part_rows(part: i64) -> std::ops::Range<i64> {
    (part - 1) * ROWS..part * ROWS
}

struct Workers<'a> {
    site: &'a Site,
    server: Option<&'static Server>,
}

impl<'a> Workers<'a> {
    fn of(site: &'a Site) -> Self {
        Self { site, server: None }
    }

    /// Starts a worker that reads a part from its stdin.
    fn start(&self, options: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cutover"));
        command.arg("stage").arg("lake").args(options).current_dir(self.site.path("."));
        if let Some(server) = self.server {
            command.envs(Server::environment(server.port));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Stages `bytes` as a part of a snapshot; the manifest is `{snapshot}-{name}.json`.
    fn stage_bytes(&self, snapshot: &str, step: &str, part: &str, name: &str, bytes: &[u8]) -> (Ran, String) {
        let manifest = format!("{snapshot}-{name}.json");
        let options = ["--snapshot", snapshot, "--step", step, "--part", part, "--manifest", &manifest];
        let mut child = self.start(&options);
        // One that refuses does not read to the end.
        let _ = child.stdin.take().unwrap().write_all(bytes);
        (Ran::of(child.wait_with_output().unwrap()), manifest)
    }

    fn stage(&self, snapshot: &str, step: &str, part: i64, parts: i64, name: &str) -> String {
        let bytes = stream(part_rows(part));
        let (ran, manifest) = self.stage_bytes(snapshot, step, &format!("{part}/{parts}"), name, &bytes);
        ran.ended(0, 0);
        manifest
    }

    fn reload(&self, manifests: &[String], options: &[&str]) -> Ran {
        let mut args = vec!["reload", "lake", "--yes", "-o", "json"];
        args.extend(options);
        args.push("--staged");
        args.extend(manifests.iter().map(String::as_str));
        self.site.run(&args)
    }
}

/// A feed without a snapshot, which is too large for it: only changes, of the steps 101 to 103.
fn site(site: Site) -> Site {
    let config = fs::read_to_string(site.path("cutover.toml")).unwrap();
    // So that a worker leaves complete files before it ends.
    fs::write(site.path("cutover.toml"), config + "target_file_size = \"4KiB\"\n").unwrap();
    land(&site, 100);
    site
}

/// Changes of three steps: a row changes, one comes, one goes.
fn land(site: &Site, after: i64) {
    let lines = [
        json!({ "step": after + 1, "update": { "id": 1, "name": format!("step {}", after + 1), "amount": 0 } }),
        json!({ "step": after + 2, "insert": { "id": -after, "name": "new", "amount": 0 } }),
        json!({ "step": after + 3, "delete": { "id": after } }),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let name = format!("changes-{after}-{}.ndjson", after + 3);
    Landing::new(&site.feed().join("rows"), name).bytes(text.as_bytes()).land();
}

fn columns(site: &Site) {
    let config = fs::read_to_string(site.path("cutover.toml")).unwrap();
    let with = "key = [\"id\"]\ncolumns = { id = \"bigint\", name = \"string\", amount = \"bigint\" }\n";
    fs::write(site.path("cutover.toml"), config.replace("key = [\"id\"]\n", with)).unwrap();
}

fn kinds(site: &Site) -> Vec<String> {
    site.stamps().iter().map(|stamp| stamp["kind"].as_str().unwrap().to_string()).collect()
}

/// Counts the table's rows, and those that are not what their ids say.
const COUNT: &str = "
import json, sys
import read
db = read.duckdb_connection()
print(json.dumps(db.execute(f'''
    SELECT count(*), count(DISTINCT id), min(id), max(id), count(*) FILTER (
        amount IS DISTINCT FROM id * 3
        OR name IS DISTINCT FROM CASE WHEN id % 7 <> 0 THEN 'näme ' || id END
        OR __generation <> {sys.argv[2]} OR __step <> {sys.argv[3]} OR __op <> 'i')
    FROM delta_scan('{sys.argv[1]}')''').fetchone()))
";

/// Holds the table to the rows of all parts, to the cell, as DuckDB reads them.
fn check_rows(site: &Site, generation: u64, step: u64, test: &str) {
    let Some(readers) = Readers::find(test) else { return };
    let (table, generation, step) = (site.table().display().to_string(), generation.to_string(), step.to_string());
    let counted = Ran::of(readers.code(COUNT).args([&table, &generation, &step]).output().unwrap());
    let counted: Value = serde_json::from_str(&counted.ended(0, 0).stdout).unwrap();
    assert_eq!(counted, json!([ROWS * PARTS, ROWS * PARTS, 0, ROWS * PARTS - 1, 0]));
}

#[test]
fn four_processes_stage_a_snapshot_one_is_killed_one_works_twice_and_the_reload_is_one_version() {
    const TEST: &str = "four_processes_stage_a_snapshot_one_is_killed_one_works_twice_and_the_reload_is_one_version";
    let site = site(Site::new());
    columns(&site);
    let workers = Workers::of(&site);
    // One dies in the middle: files are there, and no manifest.
    let options = ["--snapshot", "first", "--step", "100", "--part", "2/4", "--manifest", "first-2.json"];
    let mut killed = workers.start(&options);
    let mut stdin = killed.stdin.take().unwrap();
    let bytes = stream(part_rows(2));
    stdin.write_all(&bytes[..bytes.len() * 9 / 10]).unwrap();
    let has_files = || names(&site.table()).iter().any(|name| name.ends_with(".parquet"));
    assert!(wait_until(PATIENCE, has_files), "a worker leaves files before it ends");
    killed.kill().unwrap();
    killed.wait().unwrap();
    drop(stdin);
    assert!(!site.path("first-2.json").exists());
    // One whose feeder dies says so, and leaves no manifest either.
    let (torn, manifest) = workers.stage_bytes("first", "100", "2/4", "torn", &bytes[..bytes.len() / 2]);
    let torn = torn.ended(3, 0);
    assert!(torn.stderr.contains("ends before the end mark"), "{}", torn.stderr);
    assert!(!site.path(&manifest).exists());

    let mut manifests: Vec<String> = std::thread::scope(|scope| {
        let staged = (1..=PARTS).map(|part| {
            let workers = &workers;
            scope.spawn(move || workers.stage("first", "100", part, PARTS, &part.to_string()))
        });
        staged.collect::<Vec<_>>().into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    manifests.push(workers.stage("first", "100", 3, PARTS, "3-again"));
    assert_eq!(site.last_step(), None, "nobody sees anything yet");
    let ran = workers
        .reload(&manifests, &["--rows", &(ROWS * PARTS).to_string(), "--reason", "too large for one"])
        .ended(0, 0);
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        said,
        json!({
            "schema": "cutover.reload/1", "name": "p/rows/lake", "outcome": "committed", "generation": 1, "cutover": 100,
            "version": 0, "rows": ROWS * PARTS, "parts": 4, "spare": 1,
        })
    );
    let stamps = site.stamps();
    assert_eq!(stamps.len(), 1, "one version");
    assert_eq!(stamps[0]["kind"], "reload");
    assert_eq!(stamps[0]["rows"]["i"], ROWS * PARTS);
    assert_eq!(stamps[0]["reset"]["id"], "first");
    assert_eq!(stamps[0]["reset"]["why"], "too large for one");
    check_rows(&site, 1, 100, TEST);
    site.run(&["verify", "--deep", &site.uri()]).ended(0, 0);

    // Again: nothing changes, and it says so; the same after appends.
    let before = site.listing();
    let again = workers.reload(&manifests, &[]).ended(0, 0);
    assert!(again.stdout.contains("already_committed"), "{}", again.stdout);
    assert_eq!(site.listing(), before);
    site.run(&["run", "--once"]).ended(0, 0);
    assert_eq!(site.last_step(), Some(103));
    assert!(kinds(&site)[1..].iter().all(|kind| kind != "reload"), "{:?}", kinds(&site));
    site.run(&["verify", "--deep", &site.uri()]).ended(0, 0);
    let (rows, versions) = (site.run(&["state", &site.uri()]).ended(0, 0).stdout, site.stamps().len());
    assert_eq!(rows.lines().count() as i64, ROWS * PARTS);
    workers.reload(&manifests, &[]).ended(0, 0);
    assert_eq!(site.stamps().len(), versions);
    let (late, _) = workers.stage_bytes("first", "103", "1/4", "late", &bytes);
    let late = late.ended(5, 0);
    assert!(late.stderr.contains("loaded with the snapshot first already"), "{}", late.stderr);
}

#[test]
fn what_is_no_whole_snapshot_of_the_table_as_it_is_changes_nothing() {
    let site = site(Site::new());
    columns(&site);
    let workers = Workers::of(&site);
    let small = |snapshot: &str, step: &str, part: &str, name: &str| {
        let (ran, manifest) = workers.stage_bytes(snapshot, step, part, name, &stream(part_rows(1).start..7));
        ran.ended(0, 0);
        manifest
    };
    let other = |snapshot: &str, part: &str, name: &str| {
        let (ran, manifest) = workers.stage_bytes(snapshot, "100", part, name, &stream(7..9));
        ran.ended(0, 0);
        manifest
    };
    let (one, two) = (small("s", "100", "1/2", "1"), other("s", "2/2", "2"));
    let more = workers.stage_bytes("s", "100", "2/2", "more", &stream(7..10)).1;
    let stranger = other("t", "2/2", "2");
    let of_101 = workers.stage_bytes("s", "101", "2/2", "late", &stream(7..9)).1;
    let of_three = other("s", "2/3", "three");
    let both = [one.clone(), two.clone()];
    // Of other columns: the configuration of this worker names none, and its rows have another one.
    let text = fs::read_to_string(site.path("cutover.toml")).unwrap();
    fs::write(site.path("cutover.toml"), text.replace("amount = \"bigint\"", "amount = \"bigint\", more = \"int\""))
        .unwrap();
    let lines = site.path("lines.ndjson");
    fs::write(&lines, "{\"id\": 7, \"name\": \"x\", \"amount\": 1, \"more\": 2}\n").unwrap();
    let stage = ["stage", "lake", "lines.ndjson", "--format", "ndjson", "--snapshot", "s", "--step", "100"];
    let wide = |part: &str, manifest: &str| {
        let options = ["--part", part, "--manifest", manifest];
        site.run(&[&stage[..], &options].concat()).ended(0, 0);
        manifest.to_string()
    };
    let wider = wide("2/2", "wider.json");
    let alone = wide("1/1", "alone.json");
    fs::write(site.path("cutover.toml"), text).unwrap();

    let before = site.listing();
    let refused = |manifests: &[String], options: &[&str], code: i32, said: &str| {
        let ran = workers.reload(manifests, options).ended(code, 0);
        assert!(ran.stderr.contains(said), "{said}: {}", ran.stderr);
        assert_eq!(site.listing(), before, "{said}");
    };
    refused(std::slice::from_ref(&one), &[], 5, "1 of the 2 parts of the snapshot s are missing: 2");
    refused(&[one.clone(), stranger], &[], 5, "id is \"t\", not \"s\"");
    refused(&[one.clone(), of_101.clone()], &[], 5, "step is 101, not 100");
    refused(&[one.clone(), of_three], &[], 5, "parts is 3, not 2");
    refused(&[one.clone(), wider], &[], 5, "columns are others");
    refused(&[alone], &[], 5, "column \"more\" int is added");
    refused(&[one.clone(), two.clone(), more], &[], 5, "are both part 2 of 2");
    refused(&both, &["--rows", "10"], 5, "have 9 rows, and 10 are expected");
    refused(&[one.clone(), "nowhere.json".into()], &[], 5, "there is no manifest nowhere.json");
    let far = [small("far", "500", "1/1", "1")];
    let before = site.listing();
    let ran = workers.reload(&far, &[]).ended(75, 0);
    assert!(ran.stderr.contains("names none beyond 103"), "{}", ran.stderr);
    let early = [small("early", "50", "1/1", "1")];
    let ran = workers.reload(&early, &[]).ended(5, 0);
    assert!(ran.stderr.contains("has changes after step 100 only"), "{}", ran.stderr);
    assert_eq!(site.stamps().len(), 0, "{before:?}");

    // The table moves on: what was staged for its first generation is for no other.
    let late = [small("late", "100", "1/1", "1")];
    workers.reload(&both, &["--rows", "9"]).ended(0, 0);
    let before = site.listing();
    let ran = workers.reload(&late, &[]).ended(5, 0);
    assert!(ran.stderr.contains("generation is 1, not 2"), "{}", ran.stderr);
    let [gone] = [small("gone", "103", "1/1", "1")];
    let stale = [small("stale", "103", "1/1", "1")];
    site.run(&["run", "--once"]).ended(0, 0);
    let listed = site.listing();
    let manifest: Value = serde_json::from_slice(&fs::read(site.path(&gone)).unwrap()).unwrap();
    let file = site.table().join(manifest["files"][0]["path"].as_str().unwrap());
    let kept = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let ran = workers.reload(std::slice::from_ref(&gone), &[]).ended(75, 0);
    assert!(ran.stderr.contains("cannot be found again"), "{}", ran.stderr);
    fs::write(&file, &kept[..kept.len() - 1]).unwrap();
    let ran = workers.reload(std::slice::from_ref(&gone), &[]).ended(75, 0);
    assert!(ran.stderr.contains("bytes, written were"), "{}", ran.stderr);
    fs::write(&file, &kept).unwrap();
    assert_eq!(site.listing(), listed, "{before:?}");
    workers.reload(std::slice::from_ref(&gone), &[]).ended(0, 0);
    let ran = workers.reload(&stale, &[]).ended(5, 0);
    assert!(ran.stderr.contains("generation is 2, not 3"), "{}", ran.stderr);
    // Back in time only where that is said; what comes after is appended again.
    let older = [small("older", "101", "1/1", "1")];
    let ran = workers.reload(&older, &[]).ended(5, 0);
    assert!(ran.stderr.contains("readers never go back"), "{}", ran.stderr);
    workers.reload(&older, &["--allow-older"]).ended(0, 0);
    site.run(&["run", "--once"]).ended(0, 0);
    assert_eq!(site.last_step(), Some(103));
    site.run(&["verify", "--deep", &site.uri()]).ended(0, 0);
    // What was committed before needs no confirmation, and any other does.
    site.run(&["reload", "lake", "--staged", &older[0]]).ended(0, 0);
    let fresh = small("fresh", "103", "1/1", "1");
    let unconfirmed = site.run(&["reload", "lake", "--staged", &fresh]).ended(5, 0);
    assert!(unconfirmed.stderr.contains("confirm it with --yes"), "{}", unconfirmed.stderr);
}

#[test]
fn parts_are_staged_for_tables_that_are_partitioned_or_are_the_view() {
    for (is_current, settings) in [(false, "partition_by = [\"name\"]\n"), (true, "")] {
        let site = if is_current { Site::new().of_current() } else { Site::new() };
        let config = fs::read_to_string(site.path("cutover.toml")).unwrap();
        fs::write(site.path("cutover.toml"), config + settings).unwrap();
        land(&site, 100);
        let workers = Workers::of(&site);
        let stage = |snapshot: &str, step: &str| -> Vec<String> {
            let parts = [("1/3", 0..70), ("2/3", 70..70), ("3/3", 70..140)];
            let staged = parts.map(|(part, rows)| {
                let (ran, manifest) = workers.stage_bytes(snapshot, step, part, &part[..1], &stream(rows));
                ran.ended(0, 0);
                manifest
            });
            staged.to_vec()
        };
        workers.reload(&stage("first", "100"), &["--rows", "140"]).ended(0, 0);
        site.run(&["run", "--once"]).ended(0, 0);
        land(&site, 103);
        workers.reload(&stage("second", "103"), &["--rows", "140"]).ended(0, 0);
        site.run(&["run", "--once"]).ended(0, 0);
        assert_eq!(site.last_step(), Some(106));
        site.run(&["verify", "--deep", &site.uri()]).ended(0, 0);
        let state = site.run(&["state", &site.uri()]).ended(0, 0).stdout;
        // 103 is gone, and -103 there.
        assert_eq!(state.lines().count(), 140, "{settings}");
        assert!(state.contains("\"step 104\""), "{settings}");
    }
    // A key that two parts have is found where the table is the view.
    let site = Site::new().of_current();
    land(&site, 100);
    let workers = Workers::of(&site);
    let manifests: Vec<String> = ["1/2", "2/2"]
        .map(|part| {
            let (ran, manifest) = workers.stage_bytes("s", "100", part, &part[..1], &stream(0..5));
            ran.ended(0, 0);
            manifest
        })
        .to_vec();
    let ran = workers.reload(&manifests, &[]);
    assert_ne!(ran.code, Some(0));
    assert_eq!(site.stamps().len(), 0, "{}", ran.stderr);
}

#[test]
fn a_daemon_that_delivers_is_to_be_stopped_first() {
    let site = Site::new().of_current();
    land(&site, 100);
    let config = fs::read_to_string(site.path("cutover.toml")).unwrap();
    fs::write(site.path("cutover.toml"), config + "[server]\ndata_dir = \"data\"\n").unwrap();
    let workers = Workers::of(&site);
    let (staged, manifest) = workers.stage_bytes("s", "100", "1/1", "1", &stream(0..5));
    staged.ended(0, 0);
    let mut daemon = site.start(&["run"]);
    // What is asked for is not there, so nothing happens before the daemon is.
    let is_held = || workers.reload(&["nowhere".into()], &[]).stderr.contains("stop it, reload the table");
    assert!(wait_until(PATIENCE, is_held), "{}", daemon.said());
    workers.reload(std::slice::from_ref(&manifest), &[]).ended(5, 0);
    daemon.signal("TERM");
    assert_eq!(daemon.code(), Some(0), "{}", daemon.said());
    workers.reload(&[manifest], &[]).ended(0, 0);
    site.run(&["run", "--once"]).ended(0, 0);
    assert_eq!(site.last_step(), Some(103));
}

#[test]
fn manifests_and_files_may_be_in_an_object_store() {
    let Some(server) = Server::find("manifests_and_files_may_be_in_an_object_store") else { return };
    let site = Site::in_bucket(server);
    land(&site, 100);
    let workers = Workers { site: &site, server: Some(server) };
    let place = |part: i64| format!("s3://{BUCKET}/staged-{}/part-{part}.json", site.uri().rsplit('/').next().unwrap());
    let manifests: Vec<String> = (1..=2i64)
        .map(|part| {
            let (manifest, of) = (place(part), format!("{part}/2"));
            let options = ["--snapshot", "s", "--step", "100", "--part", &of, "--manifest", &manifest];
            let mut child = workers.start(&options);
            child.stdin.take().unwrap().write_all(&stream(part * 10..part * 10 + 10)).unwrap();
            Ran::of(child.wait_with_output().unwrap()).ended(0, 0);
            manifest
        })
        .collect();
    let missing = workers.reload(&[place(1), place(3)], &[]).ended(5, 0);
    assert!(missing.stderr.contains("there is no manifest"), "{}", missing.stderr);
    workers.reload(&manifests, &["--rows", "20"]).ended(0, 0);
    site.run(&["run", "--once"]).ended(0, 0);
    assert_eq!(site.last_step(), Some(103));
    site.run(&["verify", "--deep", &site.uri()]).ended(0, 0);
}

#[test]
fn a_worker_reads_files_of_every_format_and_says_what_it_did() {
    let site = site(Site::new());
    columns(&site);
    let path = |name: &str| -> PathBuf { site.path(name) };
    let rows = batch(0..5);
    let mut parquet =
        parquet::arrow::ArrowWriter::try_new(fs::File::create(path("a.parquet")).unwrap(), rows.schema(), None)
            .unwrap();
    parquet.write(&rows).unwrap();
    parquet.close().unwrap();
    fs::write(path("b.arrow"), stream(5..9)).unwrap();
    fs::write(path("c.ndjson"), "{\"id\": 9, \"amount\": 27}\n").unwrap();
    let stage = |part: &str, format: &str, inputs: &[&str]| {
        let manifest = format!("{format}.json");
        let options = ["--snapshot", "s", "--step", "100", "--part", part, "--manifest", &manifest, "--format", format];
        let ran = site.run(&[&["stage", "lake"], inputs, &options, &["-o", "json"]].concat()).ended(0, 0);
        let said: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(said["schema"], "cutover.stage/1");
        (manifest, said["rows"].as_u64().unwrap())
    };
    let staged = [
        stage("1/3", "parquet", &["a.parquet"]),
        stage("2/3", "arrow", &["b.arrow"]),
        stage("3/3", "ndjson", &["c.ndjson"]),
    ];
    assert_eq!(staged.each_ref().map(|(_, rows)| *rows), [5, 4, 1]);
    let manifests = staged.map(|(manifest, _)| manifest);
    Workers::of(&site).reload(&manifests, &["--rows", "10"]).ended(0, 0);
    let state = site.run(&["state", &site.uri()]).ended(0, 0).stdout;
    let mut ids: Vec<i64> =
        state.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].as_i64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..10).collect::<Vec<_>>());
    // A key that a part has twice is found by its worker.
    let options = ["--snapshot", "t", "--step", "100", "--part", "1/1", "--manifest", "t.json", "--format", "parquet"];
    let twice = site.run(&[&["stage", "lake", "a.parquet", "a.parquet"][..], &options].concat()).ended(5, 0);
    assert!(twice.stderr.contains("two rows with the key 0"), "{}", twice.stderr);
    // The form of a manifest is what the program says of it.
    let schema = site.run(&["schema", "manifest"]).ended(0, 0).stdout;
    assert!(schema.contains("cutover"), "{schema}");
    let Some(readers) = Readers::find("a_worker_reads_files_of_every_format_and_says_what_it_did") else { return };
    fs::write(path("schema.json"), schema).unwrap();
    let files = ["schema.json", "parquet.json"].map(|name| path(name).display().to_string());
    let validated = Ran::of(readers.command("validate.py", &files.each_ref().map(String::as_str)).output().unwrap());
    let answer: Value = serde_json::from_str(validated.ended(0, 0).stdout.lines().next().unwrap()).unwrap();
    assert_eq!(answer["errors"], json!([]), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_agree_on_the_names_that_a_table_with_column_mapping_gets_and_old_files_are_named_no_more() {
    const KEPT: &[(&str, &str, i64)] = &[("id", "col-1", 1), ("info", "col-3", 3), ("info.a", "col-4", 4)];
    let table = Table::of(&Foreign::with(&["columnMapping"]).mapped("name"), 47).await;
    let stage = async |id: &str, at: u64, ids: [&[i64]; 2]| {
        let mut manifests = Vec::new();
        for (number, ids) in (1..).zip(ids) {
            // Each worker is a process of its own, that looks at the table itself.
            let target = table.target().await.unwrap();
            let part = Part::new(id, Step::new(at).unwrap(), PartOf::new(number, 2).unwrap()).unwrap();
            let manifest = target.stage(&part, state(at, ids).rows).await.unwrap();
            let json = manifest.to_json().unwrap();
            manifests.push((format!("part {number}"), Manifest::from_json("a part", json.as_bytes()).unwrap()));
        }
        StagedSnapshot::of(manifests).unwrap()
    };
    let first = stage("first", 10, [&[1, 2], &[3]]).await;
    let target = table.target().await.unwrap();
    target.check_staged(&first, Older::Refused).await.unwrap();
    let (mut sink, applied) = target.load_staged(first.clone(), reset("first")).await.unwrap();
    assert!(matches!(applied, Applied::Committed { rows: 3, .. }), "{applied:?}");
    sink.append(changes(10, 12)).await.unwrap();
    table.check(&[1, 2, 3, 11, 12], "staged").await;
    check_mapping(&entries(table.location.store()).await, &table, KEPT, 7);

    // Appends between staging and the reload change nothing about it.
    let second = stage("second", 13, [&[4], &[5, 6]]).await;
    sink.append(changes(12, 13)).await.unwrap();
    assert!(!table.target().await.unwrap().has_loaded(&second).unwrap());
    let applied = sink.reload_staged(second.clone(), reset("second"), Older::Refused).await.unwrap();
    assert!(matches!(applied, Applied::Committed { rows: 3, .. }), "{applied:?}");
    let again = sink.reload_staged(second.clone(), reset("second"), Older::Refused).await.unwrap();
    assert_eq!(again, Applied::Already);
    assert!(table.target().await.unwrap().has_loaded(&second).unwrap());
    let stale = sink.reload_staged(first, reset("first"), Older::Allowed).await.unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::Refused, "{stale}");
    sink.append(changes(13, 15)).await.unwrap();
    table.check(&[4, 5, 6, 14, 15], "staged again").await;

    let third = stage("third", 15, [&[7], &[8]]).await;
    table.clock.advance(Duration::from_secs(20 * 366 * 24 * 60 * 60));
    let old = table.target().await.unwrap().check_staged(&third, Older::Refused).await.unwrap_err();
    assert!(old.message().contains("half the time"), "{old}");
    let before = entries(table.location.store()).await.len();
    sink.reload_staged(third, reset("third"), Older::Refused).await.unwrap_err();
    assert_eq!(entries(table.location.store()).await.len(), before);
}
