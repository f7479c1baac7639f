//! The kinds of errors.

use super::Page;

pub(super) const PAGES: &[Page] = &[
    Page {
        code: "unavailable",
        means: "Storage, source or daemon cannot be used for now; the same may succeed later without anybody's help.",
        why: "A network, an object store, a disk or a server does not answer, or answers that it is busy; or files that a feed needs are not landed yet.",
        remedy: "None is needed where a daemon runs: it tries again by itself. Look at what is away with `cutover doctor`; repeat a command that ended so.",
        shows: "As kind of an error, as `code` of check and doctor and of a connector that is `retrying`, as `error_code` with status 503, as exit code 75 (69 where the daemon is away).",
    },
    Page {
        code: "fenced",
        means: "Another writer took the table: it holds a higher epoch, and this one commits nothing more.",
        why: "Two processes deliver to one table, or somebody reset or adopted it from elsewhere.",
        remedy: "Find the other writer: the commits with the highest epoch in `cutover history URI` are its. Stop one of the two, then start the one that is to go on.",
        shows: "As kind of an error, as state and `code` of a connector, as `error_code` with status 409, as exit code 6.",
    },
    Page {
        code: "continuity_lost",
        means: "Table and source no longer fit together, so nothing is appended: readers would miss changes, or see some twice.",
        why: "The cause says it: gap, drift, other_source, source_behind, table_behind, table_gone or unproved; `cutover explain CAUSE` has a page about each.",
        remedy: "Read both values that the message names, repair what can be, else load the table anew: `cutover reset CONNECTOR --reason TEXT`.",
        shows: "As kind of an error, as state and `code` of a connector, as event, as `error_code` with status 409 (410 for a stream), as exit code 3.",
    },
    Page {
        code: "incompatible",
        means: "A type, a feature of the table or a change of columns cannot be kept as it is.",
        why: "The view has a type that Delta has not, the table has a feature that a commit would break, or columns changed in a way that `schema_change` does not allow.",
        remedy: "The message names column or feature and what helps: a cast in the view, a statement for the table, or `schema_change = \"reload\"`. `cutover check` says it beforehand.",
        shows: "As kind of an error, as `code` of check, doctor and connectors, as `error_code` with status 422, as exit code 5.",
    },
    Page {
        code: "refused",
        means: "A rule forbids it, or a consent is missing; nothing was changed.",
        why: "A table that is not ours, an object store that lets two writers through, missing rights, an older cutover, a command without its confirmation.",
        remedy: "The message names what would allow it, such as `--yes`, `--allow-older` or `on_existing = \"truncate\"`. `cutover check` lists what forbids a delivery.",
        shows: "As kind of an error, as `code` of check, doctor and connectors, as `error_code` with status 409, as exit code 5.",
    },
    Page {
        code: "corrupt",
        means: "Stored data is damaged: it is not what was written.",
        why: "A log entry, checkpoint, data file, step log or landed file was cut, altered or deleted by a disk or by somebody.",
        remedy: "See how far it goes with `cutover verify URI`, which names the repairs in their order; mostly `cutover reset CONNECTOR`, with `--rebuild-log` where no engine loads the log.",
        shows: "As kind of an error, as `code` of check, doctor and connectors, as `error_code` with status 500, as exit code 3.",
    },
    Page {
        code: "config",
        means: "The configuration, or what a command was given, is wrong.",
        why: "A misspelled key, a value that does not fit, a variable that is not set, a name that nothing has.",
        remedy: "Correct it at the place that the message names; `cutover check --offline` lists every problem at once, `cutover config show --origin` says which value came from where.",
        shows: "As kind of an error, as `code` of check and doctor, as `error_code` with status 422, as exit code 78.",
    },
    Page {
        code: "internal",
        means: "Anything else: a table that does not exist, an output that cannot be written, or a defect of this program.",
        why: "The message and what caused it say so.",
        remedy: "Correct the path or the place where output goes. For a defect, run the command again with `-vv` and report what it says.",
        shows: "As kind of an error, as `code` of connectors, as `error_code` with status 500, as exit code 1.",
    },
];
