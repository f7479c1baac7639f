//! Every key that the configuration may have: what it is about, what its value may be, and what holds where it is absent.
//!
//! The readers of sections decide what is right; tests hold this list against them, key by key. What is made of it: the JSON
//! schema, and the configuration as it counts.

use super::Config;
use super::source::own_name;
use super::webhook::default_events;
use crate::events::Kind;

/// A table whose keys are known.
pub(super) struct Table {
    /// What it is about.
    pub(super) about: &'static str,
    /// Its keys.
    pub(super) keys: &'static [Key],
    /// Those of its keys of which exactly one stands there; mostly none.
    pub(super) tags: &'static [&'static str],
}

/// A key.
pub(super) struct Key {
    /// Its name.
    pub(super) name: &'static str,
    /// What it is about.
    pub(super) about: &'static str,
    /// What its value may be.
    pub(super) form: Form,
    /// What holds where it is absent.
    pub(super) absent: Absent,
}

/// What a value may be.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// Any text.
    Text,
    /// A text that is shown to nobody.
    Secret,
    /// True or false.
    Boolean,
    /// A whole number between two, both included.
    Integer(u64, u64),
    /// A number between two, both included.
    Number(f64, f64),
    /// A whole number with a unit of time.
    Duration,
    /// The same, or "off".
    DurationOrOff,
    /// A number of bytes, with a unit or without.
    Size,
    /// One of these.
    Word(&'static [&'static str]),
    /// Some of the names of events.
    Events,
    /// Names of columns or hosts.
    Names,
    /// A table.
    Table(&'static Table),
    /// Tables under names that the user chooses; at least so many.
    Named(&'static Table, usize),
    /// Texts under names that the user chooses.
    Texts,
    /// The same, shown to nobody.
    Secrets,
}

/// What holds where a key is absent.
#[derive(Clone, Copy)]
pub(super) enum Absent {
    /// Nothing: it must be there.
    Required,
    /// Nothing is said.
    Unsaid,
    /// This value, as TOML.
    Is(&'static str),
    /// The value, as TOML, that follows from the configuration and the name of the innermost table that has one.
    Made(fn(&Config, &str) -> String),
}

use Absent::{Is, Made, Required, Unsaid};
use Form::{
    Boolean, Duration, DurationOrOff, Events, Integer, Named, Names, Number, Secret, Secrets, Size, Text, Texts, Word,
};

const fn key(name: &'static str, form: Form, absent: Absent, about: &'static str) -> Key {
    Key { name, about, form, absent }
}

const fn table(about: &'static str, keys: &'static [Key]) -> Table {
    Table { about, keys, tags: &[] }
}

/// The document.
pub(super) const ROOT: Table = table(
    "The configuration of Cutover.",
    &[
        key("config_version", Integer(1, 1), Is("1"), "The version of this file's format."),
        key("server", Form::Table(&SERVER), Unsaid, SERVER.about),
        key("defaults", Form::Table(&DEFAULTS), Unsaid, DEFAULTS.about),
        key("pipelines", Named(&PIPELINE, 1), Required, "Pipelines by their names."),
    ],
);

const SERVER: Table = table(
    "How the daemon is reached, and where it keeps what it must not forget.",
    &[
        key("listen", Text, Is("\"127.0.0.1:8090\""), "Where it listens; others than the loopback's need tokens."),
        key("data_dir", Text, Is("\"./cutover-data\""), "Step logs, rows of pushed views, journals."),
        key("hosts", Names, Is("[]"), "Names that a request may have in Host besides the loopback's and the address."),
        key("auth", Form::Table(&AUTH), Unsaid, AUTH.about),
        key("ingress", Form::Table(&INGRESS), Unsaid, INGRESS.about),
        key("webhooks", Named(&WEBHOOK, 0), Unsaid, "Who is told of events, by names."),
    ],
);

const AUTH: Table = table(
    "Who may do what.",
    &[key("tokens", Named(&TOKEN, 1), Required, "Tokens by the names of those who have them.")],
);

const TOKEN: Table = table(
    "A token.",
    &[
        key(
            "role",
            Word(&["read", "push", "admin"]),
            Required,
            "What it allows: read sees, push pushes too, admin all.",
        ),
        key("token", Secret, Required, "16 to 1024 bytes of ASCII without spaces, best written as a reference."),
    ],
);

const INGRESS: Table = table(
    "What requests of changes may take.",
    &[
        key("max_request", Size, Is("\"64MiB\""), "What a request may take, from 1KiB to 1GiB."),
        key(
            "max_line",
            Size,
            Made(|config, _| config.server.ingress.line.to_string()),
            "What a line of it may take: 8MiB, or max_request where that is less.",
        ),
    ],
);

const WEBHOOK: Table = table(
    "Who is told of events.",
    &[
        key("url", Secret, Required, "Where it is, by https or http, without user and password."),
        key("events", Events, Made(|_, _| words(default_events())), "Of what it is told: all but commits of changes."),
        key("secret", Secret, Required, "whsec_ and 24 to 64 bytes in base64; it signs what is sent."),
    ],
);

const DEFAULTS: Table = table(
    "What is said once for all.",
    &[
        key("connector", Form::Table(&DEFAULT_CONNECTOR), Unsaid, DEFAULT_CONNECTOR.about),
        key("reset", Form::Table(&RESET), Unsaid, RESET.about),
        key("step_log", Form::Table(&DEFAULT_STEP_LOG), Unsaid, DEFAULT_STEP_LOG.about),
    ],
);

const DEFAULT_CONNECTOR: Table = table(
    "What connectors do that do not say it themselves.",
    &[MODE, SEND_SNAPSHOT, ON_EXISTING, ON_CONTINUITY_LOSS, SCHEMA_CHANGE, DURABILITY, HEARTBEAT, COMMIT],
);

const DEFAULT_STEP_LOG: Table = table("The step logs of views that do not say it themselves.", &[MAX_BYTES, WHEN_FULL]);

const PIPELINE: Table = table(
    "A source, and its views.",
    &[
        key("source", Form::Table(&SOURCE), Required, SOURCE.about),
        key("views", Named(&VIEW, 1), Required, "Views by their names."),
    ],
);

const SOURCE: Table = Table {
    about: "Where the rows come from: one of these.",
    keys: &[
        key("files", Form::Table(&FILES), Unsaid, FILES.about),
        key("push", Form::Table(&PUSH), Unsaid, PUSH.about),
        key("postgres", Form::Table(&POSTGRES), Unsaid, POSTGRES.about),
    ],
    tags: &["files", "push", "postgres"],
};

const FILES: Table = table(
    "A directory to which files are landed.",
    &[
        key("path", Text, Required, "The directory, which has a folder for each view."),
        key("id", Text, Unsaid, "Names the feed's history, so that its directory may move."),
        key("poll_interval", Duration, Is("\"1s\""), "How often an idle feed is looked at."),
    ],
);

const PUSH: Table = table("Requests to the daemon.", &[]);

const POSTGRES: Table = table(
    "Tables of a PostgreSQL database.",
    &[
        key("url", Secret, Required, "postgres://USER:PASSWORD@HOST:PORT/DATABASE, best written as a reference."),
        key("slot", Text, Made(|_, pipeline| quoted(&own_name(pipeline))), "The replication slot."),
        key("publication", Text, Made(|_, pipeline| quoted(&own_name(pipeline))), "The publication."),
        key("max_wal", Size, Unsaid, "What the slot may make the server keep, from 16MiB on."),
    ],
);

const VIEW: Table = table(
    "A view.",
    &[
        key("table", Text, Unsaid, "Of a PostgreSQL database: the table, SCHEMA.TABLE."),
        key("key", Names, Unsaid, "The columns that identify a row; absent: a view without key."),
        key("columns", Texts, Unsaid, "Names and types; a pushed view must name them."),
        key("materialized", Boolean, Is("true"), "Of a pushed view: whether its rows are kept for snapshots."),
        key("step_log", Form::Table(&STEP_LOG), Unsaid, STEP_LOG.about),
        key("connectors", Named(&CONNECTOR, 0), Unsaid, "Connectors by their names."),
    ],
);

const STEP_LOG: Table = table("The log of a view that is pushed, or a table of PostgreSQL.", &[MAX_BYTES]);

const MAX_BYTES: Key = key("max_bytes", Size, Is("\"8GiB\""), "What it may take on disk, from 1MiB to 1024TiB.");
const WHEN_FULL: Key = key(
    "when_full",
    Word(&["backpressure", "detach"]),
    Is("\"backpressure\""),
    "When the step log is full because of a connector: refuse pushes, or let go of its steps.",
);

const CONNECTOR: Table = Table {
    about: "A view, delivered to one destination.",
    keys: &[
        MODE,
        SEND_SNAPSHOT,
        ON_EXISTING,
        ON_CONTINUITY_LOSS,
        SCHEMA_CHANGE,
        DURABILITY,
        HEARTBEAT,
        WHEN_FULL,
        COMMIT,
        key("reset", Form::Table(&RESET), Unsaid, RESET.about),
        key("delta", Form::Table(&DELTA), Unsaid, DELTA.about),
        key("http", Form::Table(&HTTP), Unsaid, HTTP.about),
    ],
    tags: &["delta", "http"],
};

const MODE: Key = key(
    "mode",
    Word(&["snapshot_and_follow", "follow", "snapshot"]),
    Is("\"snapshot_and_follow\""),
    "What is delivered.",
);
const SEND_SNAPSHOT: Key =
    key("send_snapshot", Boolean, Unsaid, "true is mode = \"snapshot_and_follow\", false is mode = \"follow\".");
const ON_EXISTING: Key = key(
    "on_existing",
    Word(&["error", "truncate"]),
    Is("\"error\""),
    "What to do with a table that is not Cutover's; truncate replaces its rows and columns in one version.",
);
const ON_CONTINUITY_LOSS: Key = key(
    "on_continuity_loss",
    Word(&["fail_closed", "reset"]),
    Is("\"fail_closed\""),
    "Stop until somebody resets the connector, or reset it within the bounds of reset.",
);
const SCHEMA_CHANGE: Key = key(
    "schema_change",
    Word(&["fail", "add_columns", "reload"]),
    Is("\"fail\""),
    "What to do when the view gets other columns.",
);
const DURABILITY: Key = key(
    "durability",
    Word(&["commit", "none"]),
    Is("\"commit\""),
    "Whether a local table is synced before a step counts as delivered.",
);
const HEARTBEAT: Key =
    key("heartbeat", DurationOrOff, Is("\"off\""), "After how long steps without changes are recorded.");
const COMMIT: Key = key("commit", Form::Table(&COMMIT_BOUNDS), Unsaid, COMMIT_BOUNDS.about);

const COMMIT_BOUNDS: Table = table(
    "When collected steps are committed; a step is never split.",
    &[
        key("max_interval", Duration, Is("\"10s\""), "After how long."),
        key("max_rows", Integer(1, i64::MAX.unsigned_abs()), Is("1000000"), "After how many rows."),
        key("max_bytes", Size, Is("\"128MiB\""), "After how many bytes."),
    ],
);

const RESET: Table = table(
    "How many resets there may be, and how long is waited between them.",
    &[
        key("breaker", Form::Table(&BREAKER), Unsaid, BREAKER.about),
        key("backoff", Form::Table(&BACKOFF), Unsaid, BACKOFF.about),
    ],
);

const BREAKER: Table = table(
    "How many resets may begin within a window, and how long none begins after that.",
    &[
        key("max_resets", Integer(1, 1000), Is("3"), "How many."),
        key("window", Duration, Is("\"1h\""), "Within how long, at most 30d."),
        key("cooldown", Duration, Is("\"15m\""), "How long none begins then, at most 30d."),
    ],
);

const BACKOFF: Table = table(
    "The wait after a reset failed, or came by itself.",
    &[
        key("initial", Duration, Is("\"5s\""), "The first wait, at most 1d."),
        key("factor", Number(1.0, 100.0), Is("2.0"), "By what each next one is longer."),
        key("max", Duration, Is("\"10m\""), "The longest one, at most 1d."),
    ],
);

const DELTA: Table = table(
    "A Delta table.",
    &[
        key("uri", Text, Required, "A local path, file://, memory://, s3://, az://, abfss:// or gs://."),
        key(
            "layout",
            Word(&["changelog", "current"]),
            Is("\"changelog\""),
            "Every change as a row, or the view itself as the table.",
        ),
        key("compaction", Boolean, Is("true"), "Whether small files are joined beside the commits."),
        key(
            "reload_ratio",
            Integer(2, u32::MAX as u64),
            Unsaid,
            "A changelog with more than so many rows for each of the view's is loaded anew.",
        ),
        key("compression", Text, Is("\"zstd(1)\""), "zstd, zstd(1) to zstd(22), snappy, lz4 or none."),
        key("target_file_size", Size, Is("\"128MiB\""), "What data files aim at, at most 64GiB."),
        key("partition_by", Names, Unsaid, "By which a reload partitions the table; absent: it stays as it is."),
        key("storage", Secrets, Unsaid, "Options of the object store."),
        key("properties", Texts, Unsaid, "Table properties that a reload sets where the table does not have them."),
    ],
);

const HTTP: Table = table("A client that comes for the rows and changes.", &[]);

/// The names of all events.
pub(super) fn events() -> Vec<String> {
    Kind::ALL.iter().map(ToString::to_string).collect()
}

fn words(events: Vec<Kind>) -> String {
    let words: Vec<String> = events.iter().map(|event| quoted(&event.to_string())).collect();
    format!("[{}]", words.join(", "))
}

/// `text` as a string of TOML.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
#[path = "keys_tests.rs"]
pub(super) mod tests;
