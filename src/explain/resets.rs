//! What a call about a reset may be answered.

use super::Page;

pub(super) const PAGES: &[Page] = &[
    Page {
        code: "generation_differs",
        means: "The table is at another generation than the one that was expected, so nothing was reset.",
        why: "Somebody reset it since you looked.",
        remedy: "Look again with `cutover status CONNECTOR`; repeat with the generation that is `found`, if a reset is still wanted.",
        shows: "As `error_code` with status 409 of a reset with `expected_generation`.",
    },
    Page {
        code: "reset_under_way",
        means: "A reset is being carried out that this call cannot be joined to.",
        why: "A dry run, or a call with another expectation, came while one is under way.",
        remedy: "Wait for it: `cutover resets CONNECTOR` shows how far it is.",
        shows: "As `error_code` with status 409 of a reset.",
    },
    Page {
        code: "no_snapshot",
        means: "There is no snapshot to load.",
        why: "The connector has `mode = \"follow\"`, or the view `materialized = false`, so its rows are not kept.",
        remedy: "Give the connector a mode with a snapshot, or let the view keep its rows; then load the configuration anew.",
        shows: "As `error_code` with status 422 of a reset, and of a call for a stream.",
    },
    Page {
        code: "too_long",
        means: "A text of the call is longer than what is remembered of it.",
        why: "A reason or a key with more bytes than `most_bytes`.",
        remedy: "Shorten what `what` names.",
        shows: "As `error_code` with status 422 of a reset.",
    },
    Page {
        code: "breaker_open",
        means: "No reset begins for now: the budget of resets is used up, or the last one failed.",
        why: "More than `max_resets` began within `window`; mostly the same damage comes again after each.",
        remedy: "Find out why in `cutover resets CONNECTOR`. It closes by itself after `cooldown`; `cutover reset CONNECTOR --override-breaker` does not wait.",
        shows: "As state of a connector, as event, as `error_code` with status 429 and `Retry-After` of a reset.",
    },
    Page {
        code: "too_many_calls",
        means: "Too many calls got the same reset, or wait for a look at the table.",
        why: "A client repeats its call without a pause.",
        remedy: "Come again after `Retry-After`; send one `Idempotency-Key` for one wish.",
        shows: "As `error_code` with status 429 of a reset.",
    },
    Page {
        code: "stopped",
        means: "The connector was stopped while the call waited, or is being started anew.",
        why: "The daemon ends, or its configuration was loaded anew.",
        remedy: "Come again after `Retry-After`; `cutover status CONNECTOR` shows whether it runs.",
        shows: "As `error_code` with status 503 of calls about a connector.",
    },
    Page {
        code: "not_recorded",
        means: "The journal cannot be written, so nothing was begun.",
        why: "The disk of the data directory is full or fails.",
        remedy: "Make room there; `cutover doctor` says how much is free. Then repeat the call.",
        shows: "As `error_code` with status 507 of calls that change a connector.",
    },
    Page {
        code: "gone",
        means: "What the call names is not remembered any more.",
        why: "A reset of another life of the connector or beyond the last thousand, a token of another life of its view, or a step from too long ago.",
        remedy: "List what is known: `cutover resets CONNECTOR`. Of a token, push again what it stood for.",
        shows: "As `error_code` with status 410.",
    },
    Page {
        code: "not_cancellable",
        means: "The reset can be taken back no more.",
        why: "Its commit has begun, or it has ended.",
        remedy: "See what became of it: `cutover resets CONNECTOR`.",
        shows: "As `error_code` with status 409 of `DELETE …/resets/{id}`.",
    },
];
