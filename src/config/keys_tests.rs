use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::config::place::{Place, Problems};
use crate::config::tests::{load_with, with_inputs};
use crate::config::tree::{self, Entries, Node, Value};

/// Configurations that together have every key, each key in one place or in headers.
pub(in crate::config) const DOCUMENTS: [&str; 3] = [
    r#"config_version = 1
[server]
listen = "127.0.0.1:0"
data_dir = "data"
hosts = ["lake.example.com"]
[server.auth.tokens.ci]
role = "admin"
token = "${env:TOKEN}"
[server.ingress]
max_request = "512MiB"
max_line = "128MiB"
[server.webhooks.ops]
url = "${env:HOOK}"
events = ["appended", "continuity_lost"]
secret = "${env:HOOK_SECRET}"
[defaults.connector]
mode = "snapshot_and_follow"
on_existing = "truncate"
on_continuity_loss = "reset"
schema_change = "add_columns"
durability = "none"
heartbeat = "1m"
commit = { max_interval = "1s", max_rows = 5, max_bytes = "1MiB" }
[defaults.reset]
breaker = { max_resets = 9, window = "2h", cooldown = "1m" }
backoff = { initial = "20m", factor = 1.5, max = "1h" }
[defaults.step_log]
max_bytes = "2GiB"
when_full = "detach"
[pipelines.orders.source.files]
path = "feed"
id = "orders"
poll_interval = "250ms"
[pipelines.orders.views.prices]
key = ["id"]
columns = { id = "bigint", name = "string" }
[pipelines.orders.views.prices.connectors.lake]
mode = "snapshot_and_follow"
on_existing = "error"
on_continuity_loss = "fail_closed"
schema_change = "reload"
durability = "commit"
heartbeat = "off"
[pipelines.orders.views.prices.connectors.lake.commit]
max_interval = "2s"
max_rows = 7
max_bytes = 1000000
[pipelines.orders.views.prices.connectors.lake.reset]
breaker = { max_resets = 2, window = "3h", cooldown = "2m" }
backoff = { initial = "1s", factor = 3, max = "2s" }
[pipelines.orders.views.prices.connectors.lake.delta]
uri = "s3://lake/prices"
layout = "changelog"
compaction = false
reload_ratio = 3
compression = "zstd(5)"
target_file_size = "64MiB"
partition_by = ["name"]
storage = { region = "${env:REGION}" }
properties = { "delta.logRetentionDuration" = "interval 90 days" }
[pipelines.orders.views.prices.connectors.mirror.delta]
uri = "mirror"
layout = "current"
"#,
    r#"[defaults.connector]
send_snapshot = true
[pipelines.live.source.push]
[pipelines.live.views.prices]
key = ["id"]
columns = { id = "bigint" }
materialized = false
step_log = { max_bytes = "1GiB" }
[pipelines.live.views.prices.connectors.client]
mode = "follow"
on_continuity_loss = "fail_closed"
when_full = "backpressure"
[pipelines.live.views.prices.connectors.client.reset]
breaker = { max_resets = 4, window = "5h", cooldown = "6m" }
[pipelines.live.views.prices.connectors.client.http]
"#,
    r#"[pipelines.shop.source.postgres]
url = "${env:PG_URL}"
slot = "shop"
publication = "shop"
max_wal = "64GiB"
[pipelines.shop.views.orders]
table = "public.orders"
step_log = { max_bytes = "3GiB" }
[pipelines.shop.views.orders.connectors.lake]
send_snapshot = true
when_full = "detach"
[pipelines.shop.views.orders.connectors.lake.delta]
uri = "lake"
layout = "current"
"#,
];

pub(in crate::config) const ENV: [(&str, &str); 5] = [
    ("PG_URL", "postgres://u:p@localhost/d"),
    ("TOKEN", "0123456789abcdef"),
    ("HOOK", "https://example.com/hook"),
    ("HOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("REGION", "eu-west-1"),
];

/// A key that stands in a document, with the list's word on it.
struct Written {
    path: Vec<String>,
    key: &'static Key,
    /// The value's place.
    at: Place,
    value: Value,
}

fn parsed(text: &str) -> Entries {
    tree::parse(text, &Problems::default()).unwrap_or_else(|| panic!("no TOML:\n{text}"))
}

/// Every key of the list that stands in `entries`.
fn written(table: &'static Table, entries: &Entries, around: &[String], found: &mut Vec<Written>) {
    for (name, Node { at, value, .. }) in entries {
        let key = table.keys.iter().find(|key| key.name == name.name);
        let key = key.unwrap_or_else(|| panic!("{around:?} has {:?}, which the list lacks", name.name));
        let path = [around, std::slice::from_ref(&name.name)].concat();
        match (key.form, value) {
            (Form::Table(of), Value::Table(below)) => written(of, below, &path, found),
            (Form::Named(of, _), Value::Table(named)) => {
                for (name, node) in named {
                    let Value::Table(below) = &node.value else { panic!("{path:?}.{} is no table", name.name) };
                    written(of, below, &[&path[..], std::slice::from_ref(&name.name)].concat(), found);
                }
            }
            _ => {}
        }
        found.push(Written { path, key, at: at.clone(), value: value.clone() });
    }
}

fn keys_of(text: &str) -> Vec<Written> {
    let mut found = Vec::new();
    written(&ROOT, &parsed(text), &[], &mut found);
    found
}

/// The same path with names that a user chose left out.
fn pattern(path: &[String]) -> String {
    let mut parts = Vec::new();
    for part in path {
        let is_named = parts
            .last()
            .is_some_and(|last: &&str| ["pipelines", "views", "connectors", "tokens", "webhooks"].contains(last));
        parts.push(if is_named { "*" } else { part });
    }
    parts.join(".")
}

/// Every path of the list.
fn listed(table: &Table, around: &str, found: &mut BTreeSet<String>) {
    for key in table.keys {
        let path = if around.is_empty() { key.name.to_owned() } else { format!("{around}.{}", key.name) };
        match key.form {
            Form::Table(of) => listed(of, &path, found),
            Form::Named(of, _) => listed(of, &format!("{path}.*"), found),
            _ => {}
        }
        found.insert(path);
    }
}

/// `text` with another name for the key at `path`, wherever it stands; where it stands first.
fn renamed(text: &str, path: &[String], name: &str) -> (String, usize, usize) {
    let (last, depth) = (path.len() - 1, path.len());
    let mut out = String::new();
    let mut table: Vec<String> = Vec::new();
    for line in text.lines() {
        let header = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(header) = header {
            table = header.split('.').map(str::to_owned).collect();
            let mut parts = table.clone();
            if table.len() >= depth && table[..depth] == *path {
                parts[last] = name.to_owned();
            }
            out.push_str(&format!("[{}]\n", parts.join(".")));
            continue;
        }
        // What is left of the path stands in the line: its key, and that of a table within it.
        let own = path.strip_prefix(&table[..]).unwrap_or_default();
        let line = match own {
            [key] => line.strip_prefix(&format!("{key} =")).map(|rest| format!("{name} ={rest}")),
            [outer, key] if line.starts_with(&format!("{outer} = {{")) => {
                Some(line.replace(&format!(" {key} ="), &format!(" {name} =")))
            }
            _ => None,
        }
        .unwrap_or(line.to_owned());
        out.push_str(&format!("{line}\n"));
    }
    let above = [&path[..last], &[name.to_owned()]].concat();
    let (line, column) = tree::position(&out, &above.join(".")).unwrap();
    assert_ne!(out, text, "{path:?} was not found");
    (out, line, column)
}

fn typos(word: &str) -> Vec<String> {
    let letters: Vec<char> = word.chars().collect();
    let middle = letters.len() / 2;
    let short: String = letters[..letters.len() - 1].iter().collect();
    let double: String = letters[..1].iter().chain(&letters).collect();
    let other: String = letters.iter().enumerate().map(|(i, c)| if i == middle { 'x' } else { *c }).collect();
    vec![short, double, other]
}

#[test]
fn the_documents_are_right_and_have_every_key() {
    let (mut wanted, mut seen) = (BTreeSet::new(), BTreeSet::new());
    listed(&ROOT, "", &mut wanted);
    for text in DOCUMENTS {
        load_with(text, &[], &ENV).unwrap_or_else(|e| panic!("{e}\n{text}"));
        seen.extend(keys_of(text).iter().map(|written| pattern(&written.path)));
    }
    let lacking: Vec<_> = wanted.difference(&seen).collect();
    // One table serves defaults, and every connector.
    let elsewhere = |path: &&&String| path.ends_with("reset.backoff") || path.contains("reset.backoff.");
    assert_eq!(lacking.iter().filter(|path| !elsewhere(path)).collect::<Vec<_>>(), Vec::<&&String>::new());
}

#[test]
fn the_list_has_what_the_readers_know_and_nothing_else() {
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for text in DOCUMENTS {
        let mut tables: BTreeSet<Vec<String>> = [Vec::new()].into();
        tables.extend(keys_of(text).into_iter().filter(|w| matches!(w.key.form, Form::Table(_))).map(|w| w.path));
        for line in text.lines() {
            if let Some(header) = line.strip_prefix('[') {
                let parts: Vec<String> = header.trim_end_matches(']').split('.').map(str::to_owned).collect();
                tables.extend((1..=parts.len()).map(|depth| parts[..depth].to_vec()));
            }
        }
        // The keys of these are names.
        let is_named = |table: &Vec<String>| {
            table
                .last()
                .is_some_and(|last| ["pipelines", "views", "connectors", "tokens", "webhooks"].contains(&last.as_str()))
        };
        for table in tables.into_iter().filter(|table| !is_named(table)) {
            let path = [&table[..], &["qqqqqqqqqqqq".to_owned()]].concat().join(".");
            let said = load_with(text, &[&format!("{path}=1")], &ENV).unwrap_err();
            let line = said.message().lines().find(|line| line.contains("known here: "));
            let line = line.unwrap_or_else(|| panic!("{path}: {said}"));
            let words = line.split_once("known here: ").unwrap().1.split(", ");
            let words = words.map(|word| word.trim_matches('"').to_owned()).filter(|word| !word.is_empty());
            known.entry(pattern(&table)).or_default().extend(words);
        }
    }
    let mut wanted = BTreeSet::new();
    listed(&ROOT, "", &mut wanted);
    for (table, keys) in known {
        let of_table = |path: &&String| match path.rsplit_once('.') {
            Some((around, last)) => around == table && last != "*",
            None => table.is_empty(),
        };
        let listed: BTreeSet<String> =
            wanted.iter().filter(of_table).map(|path| path.rsplit('.').next().unwrap().to_owned()).collect();
        assert_eq!(keys, listed, "[{table}]");
    }
}

#[test]
fn a_key_with_a_typo_is_said_once_at_its_place_with_the_key_that_was_meant() {
    for text in DOCUMENTS {
        for Written { path, key, .. } in keys_of(text) {
            for name in typos(key.name) {
                let (changed, line, column) = renamed(text, &path, &name);
                let above = [&path[..path.len() - 1], &[name]].concat().join(".");
                let said = load_with(&changed, &[], &ENV).map(|_| ()).unwrap_err();
                let wanted =
                    format!("cutover.toml:{line}:{column}: {above}: unknown key; did you mean {:?}?", key.name);
                assert_eq!(said.message(), wanted, "\n{changed}");
            }
        }
    }
}

#[test]
fn a_word_with_a_typo_is_said_at_its_place_with_the_word_that_was_meant() {
    let mut words = BTreeSet::new();
    for text in DOCUMENTS {
        for Written { path, key, at, value } in keys_of(text) {
            let (Form::Word(_), Value::Text(word)) = (key.form, value) else { continue };
            let Place::File { line, column } = at else { panic!("{path:?} is not in the file") };
            for typo in typos(&word) {
                let changed: Vec<String> = text
                    .lines()
                    .enumerate()
                    .map(|(i, l)| if i + 1 == line { l.replace(&quoted(&word), &quoted(&typo)) } else { l.to_owned() })
                    .collect();
                let said = load_with(&changed.join("\n"), &[], &ENV).map(|_| ()).unwrap_err();
                let (at, meant) = (format!("cutover.toml:{line}:{column}: "), format!("; did you mean {word:?}?"));
                let is_said = said.message().lines().any(|line| line.starts_with(&at) && line.ends_with(&meant));
                assert!(is_said, "{at}{meant}: {said}");
            }
            words.insert(pattern(&path));
        }
    }
    assert!(words.len() > 10, "{words:?}");
}

#[test]
fn an_option_of_a_store_with_a_typo_is_said_at_its_place_with_the_option_that_was_meant() {
    use crate::log::Service;
    let mut tried = 0;
    for (uri, service) in [("s3://b/t", Service::S3), ("az://c/t", Service::Azure), ("gs://b/t", Service::Google)] {
        for option in service.options() {
            for typo in typos(option).into_iter().filter(|typo| !service.knows(typo)) {
                let text =
                    DOCUMENTS[2].replace("uri = \"lake\"", &format!("uri = {uri:?}\nstorage = {{ {typo} = \"x\" }}"));
                let said = load_with(&text, &[], &ENV).map(|_| ()).unwrap_err();
                let place = "pipelines.shop.views.orders.connectors.lake.delta.storage";
                let wanted = format!("cutover.toml:14:13: {place}.{typo}: unknown option; did you mean {option:?}?");
                assert_eq!(said.message(), wanted, "\n{text}");
                tried += 1;
            }
        }
    }
    assert!(tried > 60, "{tried}");
}

#[test]
fn every_word_of_the_list_is_one_that_the_readers_take() {
    let mut tried = 0;
    for text in DOCUMENTS {
        for Written { path, key, .. } in keys_of(text) {
            let Form::Word(words) = key.form else { continue };
            let known = with_inputs(text, &[&format!("{}=qqqqqqqqqqqqqqqq", path.join("."))], &ENV, |inputs| {
                crate::config::Config::load(inputs).unwrap_err().message().to_owned()
            });
            let said: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
            assert!(known.contains(&format!("write one of {}", said.join(", "))), "{path:?}: {known}");
            tried += 1;
        }
    }
    assert!(tried > 10, "{tried}");
}
