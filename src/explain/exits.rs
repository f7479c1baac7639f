//! With what commands end.

use super::Page;

pub(super) const PAGES: &[Page] = &[
    Page {
        code: "0",
        means: "Good: all is done, or a signal asked to stop.",
        why: "SIGINT and SIGTERM end a command as it should.",
        remedy: "Nothing is to be done.",
        shows: "As exit code of every command.",
    },
    Page {
        code: "1",
        means: "Failed (internal): a table that does not exist, an output that cannot be written, a defect.",
        why: "The message on stderr says so; `cutover explain internal` has more.",
        remedy: "Correct what the message names.",
        shows: "As exit code of every command.",
    },
    Page {
        code: "2",
        means: "The command line is wrong.",
        why: "An unknown option or command, a value that does not fit, options that contradict each other.",
        remedy: "`cutover COMMAND --help` says what there is.",
        shows: "As exit code of every command.",
    },
    Page {
        code: "3",
        means: "Continuity is lost (continuity_lost), or stored data is damaged (corrupt); of verify, a rule is broken.",
        why: "The message names both values that disagree.",
        remedy: "`cutover verify URI` names the repairs in their order; mostly `cutover reset CONNECTOR`.",
        shows: "As exit code of run, reset, verify, changes, state and others.",
    },
    Page {
        code: "4",
        means: "Inconclusive: it cannot be told whether the table is healthy, or equal to its original.",
        why: "The table is not ours or of another contract, proof was cleaned up, or the table is behind its original.",
        remedy: "Read the reason. With `--against`, let the connector run and verify again; `--strict` makes it 3.",
        shows: "As exit code of verify.",
    },
    Page {
        code: "5",
        means: "Refused (refused), or something that cannot be kept (incompatible); nothing was changed.",
        why: "Not confirmed, another generation, a table that is not ours, a file that is there already, a type or feature.",
        remedy: "The message names what would allow it.",
        shows: "As exit code of run, reset, adopt, gc, init and others.",
    },
    Page {
        code: "6",
        means: "Another process writes to the table (fenced).",
        why: "It took the table with a higher epoch.",
        remedy: "Stop one of the two; `cutover history URI` shows both.",
        shows: "As exit code of run, reset and adopt.",
    },
    Page {
        code: "10",
        means: "The rows that were given are a whole generation: empty the target before they are applied.",
        why: "There was no bookmark, or the table was reset since.",
        remedy: "Apply them in place of what the target has.",
        shows: "As exit code of changes with `--exit-code`.",
    },
    Page {
        code: "11",
        means: "There are no rows beyond the bookmark.",
        why: "The table ends at the bookmark's step.",
        remedy: "Nothing is to be done.",
        shows: "As exit code of changes with `--exit-code`.",
    },
    Page {
        code: "69",
        means: "The daemon cannot be reached (unavailable).",
        why: "None runs there, or it listens elsewhere.",
        remedy: "Start it with `cutover run`, or say where it is with `--url` or `CUTOVER_URL`.",
        shows: "As exit code of status, push, wait, pause, resume, resets and reset.",
    },
    Page {
        code: "75",
        means: "For now it cannot be done (unavailable): storage or source are away, changes are missing, or the time is up.",
        why: "What is away may come back, and what is missing may be landed.",
        remedy: "Repeat it later; what is done is done once.",
        shows: "As exit code of run, wait, check and others.",
    },
    Page {
        code: "78",
        means: "The configuration, or a name that was given, is wrong (config).",
        why: "The message names file, line and column, or the variable or flag.",
        remedy: "Correct it there; `cutover check --offline` lists every problem at once.",
        shows: "As exit code of every command that reads a configuration or a name.",
    },
];
