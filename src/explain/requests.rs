//! What any request may be answered.

use super::Page;

pub(super) const PAGES: &[Page] = &[
    Page {
        code: "bad_request",
        means: "The request itself is wrong; nothing was changed.",
        why: "A name, a key of the query, a member of the body or a header is unknown or has a value that does not fit.",
        remedy: "Correct what the message names; `GET /openapi.json` describes each call.",
        shows: "As `error_code` with status 400.",
    },
    Page {
        code: "unauthorized",
        means: "The daemon asks for a token, and got none that it knows.",
        why: "The configuration has `server.auth.tokens`, and the request none of them.",
        remedy: "Write the token into a file that others cannot read, and say `cutover --token-file FILE …` or `CUTOVER_TOKEN_FILE`.",
        shows: "As `error_code` with status 401.",
    },
    Page {
        code: "forbidden",
        means: "The token's role does not allow it.",
        why: "A role may do what it is for and what those before it may: `read`, `push`, `admin`.",
        remedy: "Use a token of the role that `role` names.",
        shows: "As `error_code` with status 403.",
    },
    Page {
        code: "origin_not_allowed",
        means: "A page of another origin asks, or made a browser ask.",
        why: "The request has an `Origin` that is not this server's.",
        remedy: "Open the page of the daemon itself, or call from a program, which sends no `Origin`.",
        shows: "As `error_code` with status 403.",
    },
    Page {
        code: "host_not_allowed",
        means: "The request names another host than this server's.",
        why: "`Host` is neither the loopback's, nor the address itself, nor one of `server.hosts`.",
        remedy: "Add the name to `server.hosts`, and load the configuration anew.",
        shows: "As `error_code` with status 421.",
    },
    Page {
        code: "not_found",
        means: "There is nothing of this name.",
        why: "The path is none, or pipeline, view, connector or reset are not there.",
        remedy: "`cutover status` lists what the daemon has; `GET /openapi.json` lists the calls.",
        shows: "As `error_code` with status 404.",
    },
    Page {
        code: "method_not_allowed",
        means: "The path has no such method.",
        why: "A `GET` was sent in place of a `POST`, or the like.",
        remedy: "The header `Allow` says which methods there are.",
        shows: "As `error_code` with status 405.",
    },
    Page {
        code: "request_timeout",
        means: "The request did not arrive in time.",
        why: "The network or the client stopped within it.",
        remedy: "Send it again; of a push, with the same `step`, so that it counts once.",
        shows: "As `error_code` with status 408.",
    },
    Page {
        code: "request_too_long",
        means: "The body has more bytes than `limit_bytes`.",
        why: "A push is larger than `server.ingress.max_request`, or a body of another call than it can be.",
        remedy: "Send smaller steps (`cutover push --batch-rows N`), or raise `server.ingress.max_request`.",
        shows: "As `error_code` with status 413.",
    },
    Page {
        code: "unsupported_media_type",
        means: "The body is said to be something that the call does not read.",
        why: "`Content-Type` is none of `allowed`, or the body is compressed.",
        remedy: "Send one of `allowed`, without `Content-Encoding`.",
        shows: "As `error_code` with status 415.",
    },
    Page {
        code: "starting",
        means: "The daemon, or some of its connectors, are starting.",
        why: "It was started a moment ago, or tables and sources do not answer.",
        remedy: "Come again after `Retry-After`; `cutover status` says what is slow.",
        shows: "As state of a connector, as `error_code` with status 503, of `/readyz` above all.",
    },
    Page {
        code: "still_configured",
        means: "The connector is named in the configuration, so it is not forgotten.",
        why: "What the daemon keeps of a connector is deleted only when its file names it no more.",
        remedy: "Take it out of the file, load the configuration anew, and repeat the call.",
        shows: "As `error_code` with status 409 of `DELETE …/connectors/{c}`.",
    },
    Page {
        code: "too_many_listeners",
        means: "So many others listen to events.",
        why: "Clients of `GET /v1/events` do not hang up.",
        remedy: "Close some, and come again after `Retry-After`.",
        shows: "As `error_code` with status 429 of `GET /v1/events`.",
    },
];
