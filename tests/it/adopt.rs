//! Tables that change their connector's name.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;

use cutover::continuity::plan::Older;
use cutover::continuity::stamp::ResetStamp;
use cutover::inspect::{Report, Verdict, verify};
use cutover::sink::{Adopted, Adoption};
use cutover::{Applied, ErrorKind, Location, SinkSettings, Target, World};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::Ran;
use crate::world::{changes, log, memory, settings, sink, state, view, world};

async fn adopt(store: &Arc<dyn ObjectStore>, world: &World, name: &str) -> cutover::Result<Adopted> {
    let adoption = Adoption::look(Location::on(Arc::clone(store)), name, world.clone()).await?;
    adoption.commit("ada", "a new name").await
}

async fn target(store: &Arc<dyn ObjectStore>, world: &World, settings: SinkSettings) -> cutover::Result<Target> {
    Target::open(Location::on(Arc::clone(store)), view(), settings, world.clone()).await
}

fn named(name: &str) -> SinkSettings {
    SinkSettings { connector: name.into(), ..settings() }
}

fn entry_path(version: u64) -> Path {
    Path::from(format!("_delta_log/{version:020}.json"))
}

async fn lines(store: &Arc<dyn ObjectStore>, version: u64) -> Vec<Value> {
    let bytes = store.get(&entry_path(version)).await.unwrap().bytes().await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

async fn write(store: &Arc<dyn ObjectStore>, version: u64, lines: &[Value]) {
    let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
    store.put(&entry_path(version), text.into()).await.unwrap();
}

async fn check(store: &Arc<dyn ObjectStore>) -> Report {
    verify(&log(store, &world(0).0), None).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adopted_table_goes_on_under_the_other_name_only() {
    let (store, (world, _)) = (memory(), world(1));
    let mut old = sink(&store, &world).await;
    old.append(changes(10, 12)).await.unwrap();
    let adopted = adopt(&store, &world, "p/v/renamed").await.unwrap();
    assert!(matches!(&adopted, Adopted::Committed { version: 2, from, .. } if from == "p/v/c"), "{adopted:?}");
    assert_eq!(adopt(&store, &world, "p/v/renamed").await.unwrap(), Adopted::Already);
    // The process that delivered until now is fenced, whatever it tries.
    let reset = ResetStamp { id: "r".into(), who: "a test".into(), why: "to see".into() };
    assert_eq!(old.append(changes(12, 13)).await.unwrap_err().kind(), ErrorKind::Fenced);
    let fenced = old.reload(state(20, &[7]), reset, Older::Refused).await.unwrap_err();
    assert_eq!(fenced.kind(), ErrorKind::Fenced, "{fenced}");
    let refused = target(&store, &world, settings()).await.unwrap().claim().await.unwrap_err();
    assert!(refused.message().contains("p/v/renamed") && refused.message().contains("adopt"), "{refused}");
    // A source of another history is not made the same by a name.
    let other = SinkSettings { source: "source-2".into(), ..named("p/v/renamed") };
    let refused = target(&store, &world, other).await.unwrap().check_follow().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ContinuityLost, "{refused}");
    let mut renamed = target(&store, &world, named("p/v/renamed")).await.unwrap().claim().await.unwrap();
    assert!(matches!(renamed.append(changes(12, 13)).await.unwrap(), Applied::Committed { version: 4, .. }));
    let report = check(&store).await;
    assert_eq!(report.verdict, Verdict::Healthy, "{:?}", report.findings);
    assert_eq!((report.connector.as_deref(), report.generation.unwrap().get()), (Some("p/v/renamed"), 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adoption_changes_the_name_and_nothing_else() {
    let (store, (world, _)) = (memory(), world(2));
    sink(&store, &world).await.append(changes(10, 12)).await.unwrap();
    adopt(&store, &world, "p/v/renamed").await.unwrap();
    let metadata = |lines: Vec<Value>| lines.into_iter().find_map(|l| l.get("metaData").cloned()).unwrap();
    let (mut before, after) = (metadata(lines(&store, 0).await), metadata(lines(&store, 2).await));
    before["configuration"]["cutover.connector"] = "p/v/renamed".into();
    assert_eq!(before, after);
    let committed = lines(&store, 2).await;
    let stamp: Value = serde_json::from_str(committed[0]["commitInfo"]["userMetadata"].as_str().unwrap()).unwrap();
    assert_eq!(stamp["adopt"], json!({"from": "p/v/c", "who": "ada", "why": "a new name"}));
    assert_eq!((&stamp["kind"], &stamp["epoch"], &stamp["generation"]), (&"mark".into(), &2.into(), &1.into()));
    assert_eq!((&stamp["from"], &stamp["to"]), (&12.into(), &12.into()));
    assert!(committed.iter().all(|l| l.get("add").is_none() && l.get("remove").is_none()));
}

/// A way to spoil an adoption: the entry's lines and its stamp, and what must be said about it.
type Spoiling = (&'static str, fn(&mut Vec<Value>, &mut Value));

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_exactly_an_adoption_is_found() {
    fn configuration(lines: &mut [Value]) -> &mut Value {
        let metadata = lines.iter_mut().find(|l| l.get("metaData").is_some()).unwrap();
        &mut metadata["metaData"]["configuration"]
    }
    let spoilings: [Spoiling; 9] = [
        ("commits to the table of", |_, stamp| _ = stamp.as_object_mut().unwrap().remove("adopt")),
        ("it belonged to p/v/c", |_, stamp| stamp["adopt"]["from"] = "p/v/b".into()),
        ("no epoch", |_, stamp| stamp["epoch"] = 1.into()),
        ("only a mark may", |_, stamp| {
            stamp["kind"] = "append".into();
            stamp["to"] = 13.into();
        }),
        ("keep the name", |lines, _| lines.retain(|l| l.get("metaData").is_none())),
        ("another name", |lines, _| configuration(lines)["cutover.connector"] = "p/v/x".into()),
        ("beyond the name", |lines, _| configuration(lines)["cutover.step"] = "11".into()),
        ("beyond the name", |lines, _| configuration(lines)["delta.appendOnly"] = "true".into()),
        ("beyond the name", |lines, _| {
            let metadata = lines.iter_mut().find(|l| l.get("metaData").is_some()).unwrap();
            let schema =
                metadata["metaData"]["schemaString"].as_str().unwrap().replace("\"name\":\"name\"", "\"name\":\"x\"");
            metadata["metaData"]["schemaString"] = schema.into();
        }),
    ];
    for (said, spoil) in spoilings {
        let (store, (world, _)) = (memory(), world(3));
        sink(&store, &world).await.append(changes(10, 12)).await.unwrap();
        adopt(&store, &world, "p/v/renamed").await.unwrap();
        let mut committed = lines(&store, 2).await;
        let mut stamp: Value =
            serde_json::from_str(committed[0]["commitInfo"]["userMetadata"].as_str().unwrap()).unwrap();
        spoil(&mut committed, &mut stamp);
        committed[0]["commitInfo"]["userMetadata"] = stamp.to_string().into();
        write(&store, 2, &committed).await;
        let report = check(&store).await;
        assert_eq!(report.verdict, Verdict::Broken, "{said}");
        let found = report.findings.iter().any(|f| f.version == 2 && f.message.contains(said));
        assert!(found, "no finding says {said:?}: {:#?}", report.findings);
        // A writer sees the same, and does not go on.
        let opened = target(&store, &world, named("p/v/renamed")).await.unwrap();
        assert!(opened.check_follow().is_err(), "{said}");
    }
}

/// A feed, its table, and a configuration whose connector has the name given.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { dir: TempDir::new().unwrap() };
        let feed = place.dir.path().join("feed/v");
        fs::create_dir_all(&feed).unwrap();
        fs::write(feed.join("snapshot-10.ndjson"), "{\"id\":1}\n{\"id\":2}\n").unwrap();
        place.configure("lake");
        place
    }

    fn configure(&self, connector: &str) {
        let config = format!(
            "config_version = 1\n[pipelines.p.source.files]\npath = \"feed\"\n\
             [pipelines.p.views.v]\nkey = [\"id\"]\ncolumns = {{ id = \"bigint\" }}\n\
             [pipelines.p.views.v.connectors.{connector}.delta]\nuri = \"table\"\n"
        );
        fs::write(self.dir.path().join("cutover.toml"), config).unwrap();
    }

    fn run(&self, line: &str, code: i32) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cutover"));
        command.current_dir(self.dir.path()).args(line.split_whitespace()).stdin(Stdio::null());
        Ran::of(command.env("USER", "ada").env("HOSTNAME", "engine").output().unwrap()).ended(code, 0)
    }
}

#[test]
fn the_program_gives_a_table_to_another_name_and_readers_go_on() {
    let place = Place::new();
    place.run("run --once", 0);
    place.run("changes table --bookmark b.json", 0);
    fs::write(place.dir.path().join("feed/v/changes-10-11.ndjson"), "{\"step\":11,\"insert\":{\"id\":3}}\n").unwrap();
    place.configure("renamed");
    let refused = place.run("run --once", 5);
    assert!(refused.stderr.contains("cutover adopt"), "{refused:?}");
    let refused = place.run("adopt table --as p/v/renamed", 5);
    assert!(refused.stderr.contains("--yes") && refused.stderr.contains("s ago"), "{refused:?}");
    let done = place.run("adopt table --as p/v/renamed --yes --reason moved -o json", 0);
    let done: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(
        (&done["outcome"], &done["from"], &done["version"]),
        (&"committed".into(), &"p/v/lake".into(), &1.into())
    );
    let again = place.run("adopt table --as p/v/renamed", 0);
    assert!(again.stdout.contains("already"), "{again:?}");
    place.run("run --once", 0);
    place.run("verify table", 0);
    let read = place.run("changes table --bookmark b.json", 0);
    assert_eq!(read.stdout, "{\"__generation\":1,\"__step\":11,\"__op\":\"i\",\"id\":3}\n");
    assert!(read.stderr.contains("\"changes\""), "{read:?}");
    let history = place.run("history table -o ndjson", 0);
    assert!(
        history.stdout.contains("\"adopt\":{\"from\":\"p/v/lake\",\"who\":\"ada@engine\",\"why\":\"moved\"}"),
        "{history:?}"
    );
}

#[test]
fn only_a_table_of_ours_is_adopted() {
    let place = Place::new();
    place.run("adopt table --as p/v/c --yes", 1);
    place.run("adopt table --as lake --yes", 2);
    let log = place.dir.path().join("table/_delta_log");
    fs::create_dir_all(&log).unwrap();
    let schema =
        json!({"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": true, "metadata": {}}]});
    let metadata = json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema.to_string(), "partitionColumns": [], "configuration": {}, "createdTime": 1}});
    let entry = format!("{}\n{metadata}\n", json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}));
    fs::write(log.join(format!("{:020}.json", 0)), entry).unwrap();
    let refused = place.run("adopt table --as p/v/c --yes", 5);
    assert!(refused.stderr.contains("not ours"), "{refused:?}");
    assert_eq!(fs::read_dir(&log).unwrap().count(), 1);
}
