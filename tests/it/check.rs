//! What `cutover check` finds of a configuration and of this machine.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::full_disk::{in_a_namespace, mount};
use crate::program::Ran;

const CONFIG: &str = "config_version = 1
[server]
listen = \"LISTEN\"
data_dir = \"data\"
[pipelines.p.source.files]
path = \"feed\"
[pipelines.p.views.v]
key = [\"id\"]
columns = { id = \"bigint\" }
[pipelines.p.views.v.connectors.c.delta]
uri = \"table\"
";

fn run(home: &Path, args: &[&str]) -> Ran {
    Ran::of(Command::new(env!("CARGO_BIN_EXE_cutover")).args(args).current_dir(home).output().unwrap())
}

/// Each problem: how bad it is, and where.
fn places(home: &Path, code: i32) -> Vec<(String, String)> {
    let ran = run(home, &["check", "-o", "json"]).ended(code, 0);
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    let text = |finding: &Value, member: &str| finding[member].as_str().unwrap().to_owned();
    let findings = document["findings"].as_array().unwrap().iter();
    let wrong = findings.filter(|finding| finding["severity"] != "note");
    wrong.map(|finding| (text(finding, "severity"), text(finding, "place"))).collect()
}

fn configure(home: &Path, change: impl Fn(String) -> String) {
    fs::write(home.join("cutover.toml"), change(CONFIG.replace("LISTEN", "127.0.0.1:0"))).unwrap();
}

#[test]
fn each_problem_of_a_configuration_and_its_machine_is_said_at_its_place() {
    let home = TempDir::new().unwrap();
    let home = home.path();
    let at = |severity: &str, place: &str| (severity.to_owned(), format!("cutover.toml:{place}"));
    configure(home, |text| text.replace("version = 1", "version = 2").replace("key =", "kee ="));
    let listed = places(home, 78);
    assert_eq!(listed, [at("error", "1:18"), at("error", "8:1")]);
    // Whatever is held already.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    configure(home, |text| text.replace("127.0.0.1:0", &address));
    let expected = [at("error", "3:1: server.listen"), at("error", "6:1: pipelines.p.source.files.path")];
    assert_eq!(places(home, 78), expected);
    configure(home, |text| text);
    fs::create_dir(home.join("feed")).unwrap();
    assert_eq!(places(home, 0), [at("warning", "6:1: pipelines.p.source.files.path")]);
    fs::create_dir(home.join("feed/v")).unwrap();
    let nothing = run(home, &["check"]).ended(0, 0);
    assert_eq!(nothing.stdout, "nothing is wrong\n");
    assert!(!home.join("data").exists() && !home.join("table").exists(), "nothing is made");
    fs::write(home.join("data"), "no directory").unwrap();
    assert_eq!(places(home, 78).first(), Some(&at("error", "4:1: server.data_dir")));
    fs::remove_file(home.join("data")).unwrap();
    // A table of another connector, and one of nobody's.
    fs::write(home.join("feed/v/snapshot-1.ndjson"), "{\"id\":1}\n").unwrap();
    run(home, &["run", "--once"]).ended(0, 0);
    assert_eq!(places(home, 0), []);
    configure(home, |text| text.replace("connectors.c.", "connectors.d."));
    let ran = run(home, &["check", "-o", "json", "--offline"]).ended(5, 0);
    let found = &serde_json::from_str::<Value>(&ran.stdout).unwrap()["findings"][0];
    assert_eq!((&found["code"], &found["remedy"]), (&json!("refused"), &json!("cutover adopt table --as p/v/d")));
    fs::remove_dir_all(home.join("table/_delta_log")).unwrap();
    fs::write(home.join("table/others.parquet"), "rows").unwrap();
    let folder = places(home, 5);
    assert_eq!(folder, [at("error", "11:1: pipelines.p.views.v.connectors.d.delta.uri")]);
    let other = run(home, &["check", "-c", "none.toml"]).ended(78, 0);
    assert!(other.stdout.contains("there is no configuration none.toml"), "{}", other.stdout);
}

const TWO: &str = "config_version = 1
[server]
listen = \"127.0.0.1:0\"
data_dir = \"data\"
[pipelines.p.source.files]
path = \"feed\"
[pipelines.p.views.v]
key = [\"id\"]
columns = { id = \"bigint\", part = \"bigint\" }
[pipelines.p.views.v.connectors.c.delta]
uri = \"table\"
";

/// The program on a table that is loaded, and a configuration that a case changes.
struct Loaded {
    home: TempDir,
    config: String,
}

impl Loaded {
    fn new(more: &str) -> Self {
        let home = TempDir::new().unwrap();
        fs::create_dir_all(home.path().join("feed/v")).unwrap();
        fs::write(home.path().join("feed/v/snapshot-1.ndjson"), "{\"id\":1,\"part\":2}\n").unwrap();
        let loaded = Self { home, config: format!("{TWO}{more}") };
        loaded.write(&loaded.config);
        run(loaded.home.path(), &["run", "--once"]).ended(0, 0);
        loaded
    }

    fn write(&self, config: &str) {
        fs::write(self.home.path().join("cutover.toml"), config).unwrap();
    }

    fn change(&self, change: impl Fn(&str) -> String) {
        self.write(&change(&self.config));
    }

    /// Others set a property of the table, with the feature that it needs.
    fn set(&self, property: &str, feature: &str) {
        let log = self.home.path().join("table/_delta_log");
        let entry = |version: usize| log.join(format!("{version:020}.json"));
        let versions = (0..).take_while(|version| entry(*version).exists()).count();
        let text = (0..versions).map(|version| fs::read_to_string(entry(version)).unwrap()).collect::<String>();
        let last = |member: &str| {
            let mut actions = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            actions.rfind(|action| action.get(member).is_some()).unwrap()
        };
        let (mut protocol, mut metadata) = (last("protocol"), last("metaData"));
        metadata["metaData"]["configuration"][property] = "true".into();
        if let Some(features) = protocol["protocol"]["writerFeatures"].as_array_mut() {
            features.push(feature.into());
        }
        let info = json!({"commitInfo": {"timestamp": 1, "operation": "SET TBLPROPERTIES", "operationParameters": {}}});
        fs::write(entry(versions), format!("{info}\n{protocol}\n{metadata}\n")).unwrap();
    }

    fn versions(&self) -> usize {
        fs::read_dir(self.home.path().join("table/_delta_log")).unwrap().count()
    }
}

#[test]
fn whatever_a_run_is_refused_for_when_it_meets_its_table_a_check_says_at_its_place() {
    let current = "layout = \"current\"\n";
    let at = "pipelines.p.views.v.connectors.c.delta.uri";
    type Change = fn(&Loaded);
    let cases: [(&str, &str, Change, &[&str]); 10] = [
        ("as it was", "", |_| {}, &[]),
        ("another layout", "", |t| t.change(|text| format!("{text}layout = \"current\"\n")), &["changelog", "reset"]),
        ("the layout back", current, |t| t.write(TWO), &["current", "reset"]),
        (
            "partitioned otherwise",
            "",
            |t| t.change(|text| format!("{text}partition_by = [\"part\"]\n")),
            &["part", "reset"],
        ),
        (
            "another key",
            "",
            |t| t.change(|text| text.replace("[\"id\"]", "[\"id\", \"part\"]")),
            &["[\"id\"]", "reset"],
        ),
        ("a feed of changes", current, |t| t.set("delta.enableChangeDataFeed", "changeDataFeed"), &["\"false\""]),
        ("append only", current, |t| t.set("delta.appendOnly", "appendOnly"), &["\"false\""]),
        ("appends to what takes appends only", "", |t| t.set("delta.appendOnly", "appendOnly"), &[]),
        (
            "a feed that was moved",
            "",
            |t| {
                fs::rename(t.home.path().join("feed"), t.home.path().join("other")).unwrap();
                t.change(|text| text.replace("\"feed\"", "\"other\""));
            },
            &["/feed/v", "/other/v", "reset"],
        ),
        (
            "a source that is behind",
            "",
            |t| {
                let (snapshot, changes) = ("feed/v/snapshot-1.ndjson", "feed/v/changes-1-4.ndjson");
                fs::write(t.home.path().join(changes), "{\"step\":3,\"insert\":{\"id\":2}}\n").unwrap();
                run(t.home.path(), &["run", "--once"]).ended(0, 0);
                fs::remove_file(t.home.path().join(changes)).unwrap();
                assert!(t.home.path().join(snapshot).exists());
            },
            &["behind", "--allow-older"],
        ),
    ];
    for (case, more, change, words) in cases {
        let table = Loaded::new(more);
        change(&table);
        let (home, versions) = (table.home.path(), table.versions());
        let checked = run(home, &["check", "-o", "json"]);
        assert_eq!(table.versions(), versions, "{case}: nothing is written");
        let document: Value = serde_json::from_str(&checked.stdout).unwrap();
        let findings: Vec<&Value> = document["findings"].as_array().unwrap().iter().collect();
        let ran = run(home, &["run", "--once"]);
        assert_eq!(checked.code, ran.code, "{case}: {document}; {}", ran.stderr);
        match (&findings[..], words) {
            ([], []) => {}
            ([one], [_, ..]) => {
                assert_ne!(ran.code, Some(0), "{case}");
                assert!(one["place"].as_str().unwrap().ends_with(at), "{case}: {one}");
                assert!(one["remedy"].is_string(), "{case}: {one}");
                let missing = words.iter().find(|word| !one.to_string().contains(&word.replace('"', "\\\"")));
                assert_eq!(missing, None, "{case}: {one}");
                // The words of the run are those of the check.
                let said = one["said"].as_str().unwrap();
                assert!(ran.stderr.contains(said), "{case}: {said}; {}", ran.stderr);
            }
            _ => panic!("{case}: {document}"),
        }
        if case.contains("layout") || case.contains("key") || case.contains("partitioned") || case.contains("moved") {
            run(home, &["reset", "c", "--yes"]).ended(0, 0);
            run(home, &["check"]).ended(0, 0);
            run(home, &["run", "--once"]).ended(0, 0);
        }
    }
}

#[test]
fn a_loss_that_a_daemon_repairs_by_itself_keeps_no_configuration_from_working() {
    let table = Loaded::new("");
    fs::rename(table.home.path().join("feed"), table.home.path().join("other")).unwrap();
    let resets = "[pipelines.p.views.v.connectors.c]\non_continuity_loss = \"reset\"\n";
    table.change(|text| format!("{}{resets}", text.replace("\"feed\"", "\"other\"")));
    let document: Value =
        serde_json::from_str(&run(table.home.path(), &["check", "-o", "json"]).ended(0, 0).stdout).unwrap();
    let found = &document["findings"][0];
    assert_eq!((&found["severity"], &document["errors"]), (&json!("warning"), &json!(0)), "{document}");
    assert!(found["remedy"].as_str().unwrap().starts_with("cutover reset p/v/c"), "{document}");
}

/// The program as a user who owns nothing; `None` where it cannot be run so.
fn by_nobody(home: &Path, args: &[&str]) -> Option<Ran> {
    let program = env!("CARGO_BIN_EXE_cutover");
    let is_root = rustix::process::geteuid().is_root();
    let mut command = Command::new(if is_root { "setpriv" } else { program });
    if is_root {
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", program]);
    }
    let ran = Ran::of(command.args(args).current_dir(home).output().ok()?);
    // Whoever owns nothing may not reach the program either.
    (!is_root || ran.code != Some(126) && ran.code != Some(127)).then_some(ran)
}

#[test]
fn a_directory_that_forbids_is_named_and_what_is_said_to_repair_it_does() {
    let home = TempDir::new().unwrap();
    let home = home.path();
    let mode = |name: &str, mode: u32| fs::set_permissions(home.join(name), Permissions::from_mode(mode)).unwrap();
    fs::create_dir_all(home.join("locked")).unwrap();
    fs::create_dir_all(home.join("closed/feed/v")).unwrap();
    configure(home, |text| {
        let text = text.replace("\"data\"", "\"locked/a/data\"").replace("\"table\"", "\"locked/b/table\"");
        text.replace("\"feed\"", "\"closed/feed\"")
    });
    mode("", 0o755);
    mode("locked", 0o555);
    mode("closed", 0o000);
    let Some(checked) = by_nobody(home, &["check", "-o", "json"]) else {
        let _ = writeln!(std::io::stderr(), "skipped: nobody cannot run the program here");
        return;
    };
    let document: Value = serde_json::from_str(&checked.ended(78, 0).stdout).unwrap();
    let findings = document["findings"].as_array().unwrap();
    let (locked, closed) = (home.join("locked"), home.join("closed"));
    let (locked, closed) = (locked.display(), closed.display());
    for (place, remedy) in [
        ("server.data_dir", format!("chown \"$USER\" {locked} #")),
        ("source.files.path", format!("chmod +rx {closed}")),
        ("delta.uri", format!("chown \"$USER\" {locked} #")),
    ] {
        let found = findings.iter().find(|finding| finding["place"].as_str().unwrap().ends_with(place)).unwrap();
        assert!(found["remedy"].as_str().unwrap().starts_with(&remedy), "{found}");
        let named = remedy.split(' ').find(|word| word.starts_with('/')).unwrap().to_owned();
        assert!(found["said"].as_str().unwrap().contains(&format!("{named}: ")), "{found}");
    }
    assert_eq!(findings.len(), 3, "{document}");
    let ran = by_nobody(home, &["run"]).unwrap().ended(78, 0);
    assert!(ran.stderr.contains(&format!("chown \"$USER\" {locked}, or name another")), "{}", ran.stderr);
    // What the remedies come to.
    mode("locked", 0o777);
    mode("closed", 0o755);
    let checked = by_nobody(home, &["check"]).unwrap().ended(0, 0);
    assert_eq!(checked.stdout, "nothing is wrong\n");
    fs::write(home.join("closed/feed/v/snapshot-1.ndjson"), "{\"id\":1}\n").unwrap();
    by_nobody(home, &["run", "--once"]).unwrap().ended(0, 0);
    // A log of others in a folder of one's own.
    mode("locked/b/table/_delta_log", 0o555);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(home.join("locked/b/table/_delta_log"), Some(0), Some(0)).unwrap();
    }
    let checked = by_nobody(home, &["check"]).unwrap().ended(78, 0);
    assert!(checked.stdout.contains("table/_delta_log cannot be written to"), "{}", checked.stdout);
    mode("locked/b/table/_delta_log", 0o755);
}

#[test]
fn a_file_system_that_is_read_only_is_not_repaired_by_another_owner() {
    const TEST: &str = "a_file_system_that_is_read_only_is_not_repaired_by_another_owner";
    in_a_namespace("check", TEST, || {
        let home = TempDir::new().unwrap();
        let home = home.path();
        fs::create_dir_all(home.join("feed/v")).unwrap();
        fs::create_dir(home.join("disk")).unwrap();
        mount(&home.join("disk"), "ro");
        configure(home, |text| text.replace("\"data\"", "\"disk/data\"").replace("\"table\"", "\"disk/table\""));
        let checked = run(home, &["check"]).ended(78, 0).stdout;
        let remedy = format!("repair: mount the file system of {} for writing", home.join("disk").display());
        assert_eq!(checked.matches(&remedy).count(), 2, "{checked}");
        assert!(!checked.contains("chown"), "{checked}");
    });
}
