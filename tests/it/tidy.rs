//! The invariants of ARCHITECTURE.md that a reader of the source can check.

use std::fs;
use std::path::{Path, PathBuf};

/// Modules by floor; imports point down, never sideways or up.
const FLOORS: &[&[&str]] = &[
    &[
        "ailment",
        "change",
        "clock",
        "continuity",
        "digest",
        "drawing",
        "epoch",
        "error",
        "explain",
        "generation",
        "ipc",
        "json",
        "quantity",
        "schema",
        "snapshot",
        "step",
        "strand",
    ],
    &["disk", "store"],
    &["embedded", "lines", "state_file"],
    &["events", "files", "ingest", "key_index", "log", "steplog", "view"],
    &["data_file", "source"],
    &["egress", "inspect", "sink"],
    &["connector"],
    &["config"],
    &["webhooks"],
    &["daemon"],
    &["server"],
    &["cli"],
];

const LONGEST_FILE: usize = 700;

struct Source {
    path: String,
    module: String,
    /// The text without the tests at its end.
    text: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&root).unwrap().to_string_lossy().to_string();
            let module = name.split(['/', '.']).next().unwrap().to_string();
            let is_test = name.ends_with("_tests.rs");
            // What is printed for readers is their code; a test beside it holds it against the contract's constants.
            let is_printed = name.starts_with("cli/snippets/") && name.ends_with(".py");
            if is_test || is_printed || module == "lib" || module == "main" {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests").next().unwrap().to_string();
            found.push(Source { path: name, module, text });
        }
    }
    assert!(found.len() > 50, "the sources were not found");
    found
}

fn floor(module: &str) -> usize {
    FLOORS.iter().position(|modules| modules.contains(&module)).unwrap_or_else(|| panic!("{module} stands on no floor"))
}

/// Lines of code that contain `words`, comments left out.
fn lines_with<'a>(source: &'a Source, words: &'a [&str]) -> impl Iterator<Item = &'a str> {
    let code = source.text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.filter(move |line| words.iter().any(|word| line.contains(word)))
}

#[test]
fn imports_point_down_only() {
    for source in sources() {
        let own = floor(&source.module);
        for line in lines_with(&source, &["crate::"]) {
            for (at, _) in line.match_indices("crate::") {
                let rest = &line[at + "crate::".len()..];
                let module: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let is_known = FLOORS.iter().any(|modules| modules.contains(&module.as_str()));
                let goes_down = module == source.module || !is_known || floor(&module) < own || own == 0;
                assert!(goes_down, "{} imports {module}, which is not below it: {line}", source.path);
                assert!(own > 0 || !is_known || floor(&module) == 0, "{} imports {module}: {line}", source.path);
            }
        }
    }
}

#[test]
fn the_ground_floor_never_awaits_and_reads_no_clock() {
    for source in sources().iter().filter(|s| floor(&s.module) == 0 && s.path != "clock.rs") {
        let found: Vec<_> =
            lines_with(source, &[".await", "async ", "SystemTime", "Instant", "tokio::", "object_store"]).collect();
        assert!(found.is_empty(), "{}: {found:?}", source.path);
    }
}

#[test]
fn only_the_log_knows_the_library_below_it() {
    for source in sources().iter().filter(|s| s.module != "log") {
        let found: Vec<_> = lines_with(source, &["deltalake", "delta_kernel"]).collect();
        assert!(found.is_empty(), "{}: {found:?}", source.path);
    }
}

#[test]
fn only_the_stamp_spells_the_keys_of_the_contract() {
    let keys = [
        "\"cutover/",
        "\"cutover.contract",
        "\"cutover.generation",
        "\"cutover.step",
        "\"__step",
        "\"__op",
        "\"__gen",
        "\"userMetadata\"",
        "\"cutover.connector\"",
    ];
    for source in sources().iter().filter(|s| s.path != "continuity/stamp.rs") {
        let found: Vec<_> = lines_with(source, &keys).filter(|l| !l.contains("concat!(\"cutover/\"")).collect();
        assert!(found.is_empty(), "{}: {found:?}", source.path);
    }
}

#[test]
fn one_place_writes_a_table_version() {
    let writers: Vec<String> = sources()
        .iter()
        .filter(|s| !["log/durable.rs", "log/probe.rs"].contains(&s.path.as_str()))
        .filter(|s| lines_with(s, &["PutMode::Create"]).next().is_some())
        .map(|s| s.path.clone())
        .collect();
    assert_eq!(writers, ["log/put.rs"]);
}

#[test]
fn a_route_is_added_with_what_is_said_of_it() {
    let routers: Vec<String> = sources()
        .iter()
        .filter(|s| s.module == "server" && lines_with(s, &[".route(", ".nest(", "route_service("]).next().is_some())
        .map(|s| s.path.clone())
        .collect();
    assert_eq!(routers, ["server/calls.rs"]);
}

#[test]
fn a_file_can_be_read_in_one_sitting() {
    for source in sources() {
        let lines = source.text.lines().count();
        assert!(lines <= LONGEST_FILE, "{} has {lines} lines", source.path);
    }
}

#[test]
fn time_and_randomness_have_one_home() {
    let words =
        ["SystemTime::now", "Instant::now", "Utc::now", "thread::sleep", "tokio::time::sleep", "new_v4", " rand::"];
    for source in sources().iter().filter(|s| s.path != "clock.rs") {
        let found: Vec<_> = lines_with(source, &words).collect();
        assert!(found.is_empty(), "{}: {found:?}", source.path);
    }
}
