//! What is wrong with views and connectors of a daemon, beside the kinds of errors.

use super::Page;

pub(super) const PAGES: &[Page] = &[
    Page {
        code: "behind",
        means: "The connector has no error, and yet nothing goes on for too long while steps wait.",
        why: "A storage that hangs, or, of a connector without table, a client that does not come or does not say what it has.",
        remedy: "`cutover doctor CONNECTOR` looks at the storage. Let the client run and acknowledge; else `cutover resume CONNECTOR`, or start the daemon anew.",
        shows: "As `code` of a connector in `cutover status -o json` and in `GET /v1/health`.",
    },
    Page {
        code: "view_failed",
        means: "The view is not open, or does not store what it is given.",
        why: "Its step log or its rows are damaged, the disk failed, or its table of a database is not what it was.",
        remedy: "Do what the reason says, then load the configuration anew (SIGHUP, or `POST /v1/reload`). Where rows are missing: `cutover reset CONNECTOR`.",
        shows: "As `code` of a view in `GET /v1/health`, as event.",
    },
    Page {
        code: "step_log_full",
        means: "The step log has no room: pushes are refused, or the slot waits, until a connector went on.",
        why: "A connector is paused, fails or is slow, and `when_full` is `backpressure`.",
        remedy: "`cutover status` shows which connector holds it; resume or reset it, give the log a larger `max_bytes`, or let it go with `when_full = \"detach\"`.",
        shows: "As `code` of a view in `GET /v1/health`, as `error_code` with status 503 of a push.",
    },
    Page {
        code: "source_away",
        means: "Nothing can be read from the view's source for now.",
        why: "The database server does not answer, or refuses the connection.",
        remedy: "None is needed when it comes back: it is tried again. `cutover check` says what keeps it away.",
        shows: "As `code` of a view in `GET /v1/health`.",
    },
];
