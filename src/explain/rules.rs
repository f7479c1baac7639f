//! The rules of the contract with readers.

use super::Page;

pub(super) const PAGES: &[Page] = &[
    Page {
        code: "R1",
        means: "A generation begins with exactly one reload, in one version, after which the live files are exactly its own.",
        why: "Broken where a reload left files of before alive, where a generation began without one, or where the properties are not the reload's.",
        remedy: "`cutover reset CONNECTOR` loads a generation that keeps it.",
        shows: "As `rule` of a finding of `cutover verify`; PROTOCOL.md has the query that checks it.",
    },
    Page {
        code: "R2",
        means: "Each commit starts at the step at which the one before it ended, and its running digest is the one before plus its own.",
        why: "Broken where a commit is missing, there twice or altered, or, with `--deep`, where rows are not those that were written.",
        remedy: "Read up to the version that `cutover verify URI` names as trusted; then `cutover reset CONNECTOR`.",
        shows: "As `rule` of a finding of `cutover verify`; PROTOCOL.md has the query that checks it.",
    },
    Page {
        code: "R3",
        means: "Generations and epochs never decrease, one epoch has one writer, and the connector is the same but for adoptions.",
        why: "Broken where a writer that was fenced committed all the same: a store that lets two puts of one name through, or a log edited by hand.",
        remedy: "Stop all writers but one, see that `cutover check` finds the store sound, then `cutover reset CONNECTOR`.",
        shows: "As `rule` of a finding of `cutover verify`; PROTOCOL.md has the query that checks it.",
    },
    Page {
        code: "R4",
        means: "A data file with its deletion vector is added as a change of rows by one commit only.",
        why: "Broken where a commit was applied twice, or files were added again by hand: their rows count twice.",
        remedy: "`cutover reset CONNECTOR`.",
        shows: "As `rule` of a finding of `cutover verify`; PROTOCOL.md has the query that checks it.",
    },
    Page {
        code: "R5",
        means: "What others commit changes no row, and nothing of ours: it is maintenance.",
        why: "Broken by an INSERT, UPDATE, DELETE or MERGE of somebody else, by changed columns or partitioning, by properties of ours, by a feature that is refused.",
        remedy: "Keep others from writing there; `cutover history URI` says who did. Then `cutover reset CONNECTOR`.",
        shows: "As `rule` of a finding of `cutover verify`; PROTOCOL.md has the query that checks it.",
    },
    Page {
        code: "R6",
        means: "Counts are those of the files' statistics, and every live file, vector, entry and checkpoint is there as the log says.",
        why: "Broken where a file is gone, cut or altered, a checkpoint untrue, or statistics make readers skip rows.",
        remedy: "`cutover verify URI` names the file and the repairs in their order; mostly `cutover reset CONNECTOR`.",
        shows: "As `rule` of a finding of `cutover verify`; PROTOCOL.md has the query that checks its counts.",
    },
    Page {
        code: "R7",
        means: "A table with another contract number, or without a trace of this one, is inconclusive, never healthy.",
        why: "Another version of this program wrote the table, or another program did.",
        remedy: "Correct the URI, or verify with the version of this program that wrote the table. `--strict` takes it for broken.",
        shows: "At the head of the reason of `cutover verify` for an inconclusive verdict, which ends with 4.",
    },
];
