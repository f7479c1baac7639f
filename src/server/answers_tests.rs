//! Every answer that a test's server gives is held to what `/openapi.json` says of its call.

use std::sync::{Arc, LazyLock, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::call::{Content, Shape};
use super::calls::{Calls, Route};
use super::{calls, openapi, problem};

/// Headers that mean something to a client.
const TELLING: [&str; 4] = ["location", "retry-after", "www-authenticate", "allow"];

/// What was found wrong with the answers of a server; found by whoever drops it.
#[derive(Default)]
pub(super) struct Judged(Arc<Mutex<Vec<String>>>);

impl Judged {
    /// `router`, whose answers are looked at.
    pub(super) fn over(&self, router: Router) -> Router {
        router.layer(from_fn_with_state(Arc::clone(&self.0), judge))
    }
}

impl Drop for Judged {
    fn drop(&mut self) {
        let found = self.0.lock().unwrap();
        assert!(found.is_empty() || std::thread::panicking(), "answers that are not documented: {found:#?}");
    }
}

async fn judge(State(found): State<Arc<Mutex<Vec<String>>>>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let path = BOOK.template(request.uri().path());
    let asked = format!("{method} {}", request.uri());
    let (parts, body) = next.run(request).await.into_parts();
    let answer = BOOK.answer(&method, path, parts.status.as_u16());
    let (body, said) = match answer {
        Ok(said) if said.is_endless => (body, said.fits(&parts.headers, None)),
        answer => {
            let bytes = to_bytes(body, usize::MAX).await.unwrap();
            let said = answer.and_then(|said| said.fits(&parts.headers, (method != Method::HEAD).then_some(&bytes)));
            (Body::from(bytes), said)
        }
    };
    if let Err(why) = said {
        found.lock().unwrap().push(format!("{asked} answered {}: {why}", parts.status));
    }
    Response::from_parts(parts, body)
}

/// The document, read as a client reads it.
struct Book {
    calls: Calls,
    document: Value,
}

static BOOK: LazyLock<Book> = LazyLock::new(|| {
    let calls = calls();
    let document = openapi::of(&calls);
    Book { calls, document }
});

/// What is said of an answer.
struct Said<'a> {
    /// The call; `None` where there is none.
    route: Option<&'a Route>,
    response: Value,
    is_endless: bool,
}

impl Book {
    /// The path that leads to a call, as it is documented or as an alias of that.
    fn template(&self, path: &str) -> Option<&str> {
        let is_placeholder = |part: &str| part.starts_with('{');
        let fits = |template: &str| {
            let (known, given) = (template.split('/'), path.split('/'));
            known.clone().count() == given.clone().count()
                && known.zip(given).all(|(known, given)| known == given || (is_placeholder(known) && !given.is_empty()))
        };
        let all = self.calls.routes().iter().flat_map(|route| route.aliases.iter().chain([&route.path]));
        let found = all.filter(|template| fits(template));
        found.min_by_key(|template| template.split('/').filter(|part| is_placeholder(part)).count()).map(String::as_str)
    }

    fn answer(&self, method: &Method, path: Option<&str>, status: u16) -> Result<Said<'_>, String> {
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        let is_it = |route: &&Route| {
            route.method == *method
                && path.is_some_and(|path| route.path == path || route.aliases.iter().any(|a| a == path))
        };
        let Some(route) = self.calls.routes().iter().find(is_it) else {
            // What stands before the calls: any of these is a problem, and told by `info`.
            let expected: &[u16] = if path.is_some() { &[400, 401, 403, 405, 421] } else { &[400, 401, 403, 404, 421] };
            let schema = json!({ "$ref": "#/components/schemas/Problem" });
            let response = json!({ "content": { problem::TYPE: { "schema": schema } } });
            let said = Said { route: None, response, is_endless: false };
            return expected.contains(&status).then_some(said).ok_or_else(|| "there is no such call".to_owned());
        };
        let response = &self.document["paths"][&route.path][method.as_str().to_ascii_lowercase()]["responses"];
        let response = response.get(status.to_string()).ok_or("the status is not documented")?.clone();
        let is_endless = |content: &Content| matches!(content.shape, Shape::Endless);
        let is_endless =
            route.call.replies.iter().any(|r| r.status == status && r.content.as_ref().is_some_and(is_endless));
        Ok(Said { route: Some(route), response, is_endless })
    }
}

impl Said<'_> {
    /// Holds headers and body to it; `None` where a body is not sent.
    fn fits(&self, headers: &HeaderMap, body: Option<&axum::body::Bytes>) -> Result<(), String> {
        let documented = |name: &str| {
            self.response["headers"]
                .as_object()
                .is_some_and(|all| all.keys().any(|known| known.eq_ignore_ascii_case(name)))
        };
        let untold =
            TELLING.iter().find(|name| self.route.is_some() && headers.contains_key(**name) && !documented(name));
        if let Some(name) = untold {
            return Err(format!("the header {name} is not documented"));
        }
        for (name, header) in self.response["headers"].as_object().into_iter().flatten() {
            if header["required"] == true && !headers.contains_key(name.as_str()) {
                return Err(format!("the header {name} is missing"));
            }
        }
        let Some(content) = self.response["content"].as_object() else {
            return if body.is_none_or(|body| body.is_empty()) {
                Ok(())
            } else {
                Err("a body is not documented".to_owned())
            };
        };
        let kind = headers.get("content-type").map_or("", |kind| kind.to_str().unwrap());
        let media = content.get(kind).ok_or_else(|| format!("the content type {kind:?} is not documented"))?;
        let Some(body) = body.filter(|_| kind.ends_with("json")) else { return Ok(()) };
        let body: Value = serde_json::from_slice(body).map_err(|e| e.to_string())?;
        fits(&media["schema"], &body, &BOOK.document).map_err(|why| format!("{why}: {body}"))?;
        match self.route {
            Some(route) if kind == problem::TYPE => known(route, &body),
            _ => Ok(()),
        }
    }
}

/// Whether the members of a problem's details are those of its code.
fn known(route: &Route, problem: &Value) -> Result<(), String> {
    let faults = route.faults();
    let fault = faults.iter().find(|f| problem["status"] == f.status && problem["error_code"] == f.code).unwrap();
    let unknown = problem["details"].as_object().unwrap().keys().find(|name| !fault.details.contains(&name.as_str()));
    unknown.map_or(Ok(()), |name| Err(format!("the detail {name:?} of {} is not documented", fault.code)))
}

/// Whether `value` has the form of `schema`, with no member that is not documented. A keyword that is not looked at fails.
pub(super) fn fits(schema: &Value, value: &Value, document: &Value) -> Result<(), String> {
    let Some(keywords) = schema.as_object() else {
        return if *schema == true { Ok(()) } else { Err(format!("there may be no {value}")) };
    };
    let fits = |schema: &Value, value: &Value| fits(schema, value, document);
    let number = |limit: &Value, is_in: fn(f64, f64) -> bool| match value.as_f64() {
        Some(number) => is_in(number, limit.as_f64().unwrap()),
        None => true,
    };
    let length = |limit: &Value, is_in: fn(u64, u64) -> bool| match value.as_str() {
        Some(text) => is_in(text.chars().count() as u64, limit.as_u64().unwrap()),
        None => true,
    };
    for (keyword, said) in keywords {
        let is_so = match keyword.as_str() {
            "$ref" => {
                let target = document.pointer(said.as_str().unwrap().trim_start_matches('#'));
                fits(target.ok_or_else(|| format!("{said} leads nowhere"))?, value)?;
                true
            }
            "type" => match said {
                Value::Array(kinds) => kinds.iter().any(|kind| is_of(kind, value)),
                kind => is_of(kind, value),
            },
            "const" => value == said,
            "enum" => said.as_array().unwrap().contains(value),
            "allOf" => {
                said.as_array().unwrap().iter().try_for_each(|all| fits(all, value))?;
                true
            }
            "anyOf" => said.as_array().unwrap().iter().any(|any| fits(any, value).is_ok()),
            "oneOf" => said.as_array().unwrap().iter().filter(|one| fits(one, value).is_ok()).count() == 1,
            "items" => {
                value.as_array().into_iter().flatten().try_for_each(|item| fits(said, item))?;
                true
            }
            "properties" => {
                // A part of a form says nothing of the members that it does not name.
                let is_whole = keywords.get("type").is_some_and(|kind| kind == "object");
                let others = keywords.get("additionalProperties");
                members(said, value, others, is_whole, &fits)?;
                true
            }
            "additionalProperties" if !keywords.contains_key("properties") => {
                members(&json!({}), value, Some(said), true, &fits)?;
                true
            }
            "required" => said.as_array().unwrap().iter().all(|name| value.get(name.as_str().unwrap()).is_some()),
            "minimum" => number(said, |number, least| number >= least),
            "maximum" => number(said, |number, most| number <= most),
            "minLength" => length(said, |length, least| length >= least),
            "maxLength" => length(said, |length, most| length <= most),
            "additionalProperties" | "default" | "description" | "examples" | "format" | "title" => true,
            other => return Err(format!("the keyword {other} is not looked at")),
        };
        if !is_so {
            return Err(format!("{value} is not what {keyword} says: {said}"));
        }
    }
    Ok(())
}

fn members(
    known: &Value,
    value: &Value,
    others: Option<&Value>,
    is_whole: bool,
    fits: &impl Fn(&Value, &Value) -> Result<(), String>,
) -> Result<(), String> {
    for (name, member) in value.as_object().unwrap_or(&Map::new()) {
        match (known.get(name), others) {
            (Some(schema), _) | (None, Some(schema)) => fits(schema, member).map_err(|why| format!("{name}: {why}"))?,
            (None, None) if is_whole => return Err(format!("the member {name} is not documented")),
            (None, None) => {}
        }
    }
    Ok(())
}

fn is_of(kind: &Value, value: &Value) -> bool {
    match kind.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the type {other} is not looked at"),
    }
}
