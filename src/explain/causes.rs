//! By what continuity is lost.

use super::Page;

pub(super) const PAGES: &[Page] = &[
    Page {
        code: "gap",
        means: "The changes that come next do not follow the last step that is there.",
        why: "A source lost changes that were not delivered yet: files were deleted, a slot was dropped or made anew. Of a push: the step is not the one after the last.",
        remedy: "Of a push, send the step that `expected_step` names, or say by `after` which one it follows. Of a table, land what is missing, or `cutover reset CONNECTOR`.",
        shows: "As `cause` of a connector in `cutover status -o json`, as `error_code` with status 409 of a push.",
    },
    Page {
        code: "drift",
        means: "The table is not what our commits made it.",
        why: "Somebody else wrote or deleted rows, or changed columns, partitioning, properties or features in a way that matters.",
        remedy: "`cutover history URI` shows whose commit it was, `cutover verify URI` which rule it broke. `cutover reset CONNECTOR` replaces it all in one version.",
        shows: "As `cause` of a connector in `cutover status -o json`, and in `cutover show URI`.",
    },
    Page {
        code: "other_source",
        means: "The source is another history than the one that the table was loaded from, so steps of the two cannot be compared.",
        why: "A feed was moved without `id`, a server was restored or failed over to another timeline, a slot was made anew, a pushed view's data directory is another.",
        remedy: "Bring the former source back, or load the table from this one: `cutover reset CONNECTOR`.",
        shows: "As `cause` of a connector in `cutover status -o json`.",
    },
    Page {
        code: "source_behind",
        means: "The source ends before the table's last step.",
        why: "The source was restored from an older copy, or landed files were deleted.",
        remedy: "Restore the source. Where the older state is the true one: `cutover reset CONNECTOR --allow-older`, by which readers go back.",
        shows: "As `cause` of a connector in `cutover status -o json`.",
    },
    Page {
        code: "table_behind",
        means: "The table is at an older state than one that was seen of it.",
        why: "It was restored from a copy, or newer versions were taken out of its log.",
        remedy: "`cutover history URI` shows what it holds. `cutover reset CONNECTOR` makes it equal to the view again.",
        shows: "As `cause` of a connector in `cutover status -o json`.",
    },
    Page {
        code: "table_gone",
        means: "The table is there no more, or is not ours any more.",
        why: "Its folder or log was deleted, or somebody replaced it.",
        remedy: "Restore it, or make it anew: `cutover reset CONNECTOR`; where only the log is gone, `cutover reset CONNECTOR --rebuild-log`.",
        shows: "As `cause` of a connector in `cutover status -o json`.",
    },
    Page {
        code: "unproved",
        means: "What is left of the table's log and properties proves nothing about where it stands.",
        why: "Properties or `txn` of ours were changed or taken away, or the log was cleaned up so far that they contradict each other.",
        remedy: "`cutover verify URI` says what contradicts what; then `cutover reset CONNECTOR`.",
        shows: "As `cause` of a connector in `cutover status -o json`.",
    },
];
