//! What a push may be answered.

use super::Page;

pub(super) const PAGES: &[Page] = &[
    Page {
        code: "bad_changes",
        means: "The changes cannot be read; none of them was stored.",
        why: "A line is no JSON, has an unknown column, lacks the key, or a value does not fit its column.",
        remedy: "Correct the line that the message names; README.md says what a line may be.",
        shows: "As `error_code` with status 400 of a push.",
    },
    Page {
        code: "not_pushed",
        means: "Nothing can be pushed to the view.",
        why: "Its rows come from its pipeline's source: files or a database.",
        remedy: "Push to a view whose pipeline has `source.push`; `cutover status` lists the views.",
        shows: "As `error_code` with status 409 of a push.",
    },
    Page {
        code: "other_content",
        means: "The step is stored already, with other content.",
        why: "Two pushers number their steps alike, or one repeats a number for different changes.",
        remedy: "Let one pusher number the steps, or push without `step`, so that the daemon does.",
        shows: "As `error_code` with status 409 of a push.",
    },
    Page {
        code: "line_too_long",
        means: "A line has more bytes than `limit_bytes`.",
        why: "A row is larger than `server.ingress.max_line`, or line ends are missing.",
        remedy: "Raise `server.ingress.max_line`, or send the row as Arrow.",
        shows: "As `error_code` with status 413 of a push.",
    },
    Page {
        code: "too_many_requests",
        means: "Too many requests, or too much of them, is being read.",
        why: "More pushers at once than there is memory for.",
        remedy: "Come again after `Retry-After`; `cutover push` does so by itself.",
        shows: "As `error_code` with status 429 of a push.",
    },
    Page {
        code: "no_space",
        means: "The disk of the data directory is full; the step is not stored.",
        why: "Step logs and rows of views took what was free, or something else did.",
        remedy: "Make room; `cutover doctor` says how much is free and what the logs may take.",
        shows: "As `error_code` with status 507 of a push.",
    },
];
