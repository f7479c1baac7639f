use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use super::answers::fits;
use super::call::{Key, Need, Value as Of};
use super::calls::Route;
use super::fixture::{Served, answer};
use super::metrics::PHASES;
use super::{Bounds, access, calls, openapi};
use crate::config::{Role, Secret, TokenConfig};

const METHODS: [&str; 8] = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUERY"];

/// A path with names that there are.
fn filled(path: &str) -> String {
    let id = uuid::Uuid::nil().to_string();
    [("{p}", "shop"), ("{v}", "orders"), ("{c}", "lake"), ("{id}", id.as_str())]
        .iter()
        .fold(path.to_owned(), |path, (place, name)| path.replace(place, name))
}

/// What a call has to be given.
fn required(route: &Route) -> String {
    let given = |key: &Key| match key.value {
        Of::Word(words) => format!("{}={}", key.name, words[0]),
        Of::Step | Of::Number => format!("{}=1", key.name),
        Of::Strand => format!("{}={:016x}", key.name, 1),
        Of::Text(_) | Of::Name => format!("{}=x", key.name),
    };
    let keys: Vec<String> = route.call.query.iter().filter(|key| key.need == Need::Required).map(given).collect();
    keys.join("&")
}

#[tokio::test]
async fn what_is_documented_is_there_and_nothing_else_is() {
    let served = Served::usual().await;
    let calls = calls();
    let paths: BTreeSet<&String> = calls.routes().iter().flat_map(|r| r.aliases.iter().chain([&r.path])).collect();
    assert!(paths.len() > 30, "{paths:?}");
    for path in paths {
        let at = |method: &str| {
            let is_it = |r: &&Route| r.method.as_str() == method && (r.path == *path || r.aliases.contains(path));
            calls.routes().iter().find(is_it)
        };
        let there: BTreeSet<&str> = METHODS.into_iter().filter(|method| at(method).is_some()).collect();
        for method in METHODS {
            let url = format!("{}?{}", filled(path), at(method).map(required).unwrap_or_default());
            let response = served.ask(Method::from_bytes(method.as_bytes()).unwrap(), &url).send().await.unwrap();
            let (status, allow) = (response.status(), response.headers().get("allow").cloned());
            let is_endless = at(method).is_some_and(|route| route.call.is_endless());
            let said = if is_endless { String::new() } else { response.text().await.unwrap() };
            assert_eq!(status == 405, !there.contains(method), "{method} {path}: {status} {said}");
            assert!(!said.contains("there is nothing at"), "{method} {path}: {said}");
            if let Some(allow) = allow {
                let allowed: BTreeSet<&str> = allow.to_str().unwrap().split(',').filter(|m| *m != "HEAD").collect();
                assert_eq!(allowed, there, "{path}");
            }
        }
    }
}

#[tokio::test]
async fn the_document_is_there_for_everybody() {
    let token = TokenConfig { name: "boss".into(), role: Role::Admin, token: Secret::new("secret-of-the-boss") };
    let served = Served::with(Bounds::default(), |config, _| config.server.tokens = vec![token]).await;
    let (status, document) = served.get("/openapi.json").await;
    assert_eq!((status.as_u16(), &document), (200, &openapi::of(&calls())));
    for route in calls().routes() {
        let is_open = access::OPEN.contains(&route.path.as_str());
        assert_eq!(is_open, route.call.role.is_none(), "{}", route.path);
        let request = served.ask(route.method.clone(), &format!("{}?{}", filled(&route.path), required(route)));
        assert_eq!(answer(request).await.0 == 401, !is_open, "{}", route.path);
    }
}

#[tokio::test]
async fn the_keys_of_a_query_are_those_that_are_documented() {
    let served = Served::usual().await;
    for route in calls().routes() {
        let url = format!("{}?nobodyknows=1", filled(&route.path));
        let (status, body) = answer(served.ask(route.method.clone(), &url)).await;
        assert_eq!(status, 400, "{url}: {body}");
        let said = body["detail"].as_str().unwrap();
        let keys = route.call.query;
        assert!(keys.iter().all(|key| said.contains(&format!("{:?}", key.name))), "{}: {said}", route.path);
        assert_eq!(said.matches('"').count(), 2 * (1 + keys.len()), "{}: {said}", route.path);
    }
}

#[test]
fn the_document_holds_together() {
    let document = openapi::of(&calls());
    let mut ids = BTreeSet::new();
    for route in calls().routes() {
        let call = route.call;
        assert!(ids.insert(call.id), "{} is the name of two calls", call.id);
        assert!(call.about.ends_with('.') && !call.replies.is_empty(), "{}", call.id);
        let operation = &document["paths"][&route.path][route.method.as_str().to_ascii_lowercase()];
        assert_eq!(operation["operationId"], call.id);
        let role = call.role.map(|role| json!([{ "token": [role.to_string()] }]));
        assert_eq!(operation["security"], role.unwrap_or(json!([])));
    }
    let mut seen = 0;
    walk(&document, &mut |value| {
        if let Some(target) = value.get("$ref").and_then(Value::as_str) {
            seen += 1;
            assert!(document.pointer(target.trim_start_matches('#')).is_some(), "{target} leads nowhere");
        }
        for (name, member) in value.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let is_told = member.get("description").is_some() || member.get("enum").is_some();
            assert!(is_told, "nothing is said of the member {name}: {member}");
        }
        for example in value.get("examples").and_then(Value::as_array).into_iter().flatten() {
            fits(value, example, &document).unwrap_or_else(|why| panic!("{example}: {why}"));
        }
    });
    assert!(seen > 100, "{seen}");
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        assert!(schema["description"].is_string(), "nothing is said of {name}");
    }
}

/// Shows `value` and everything in it.
fn walk(value: &Value, look: &mut impl FnMut(&Value)) {
    look(value);
    match value {
        Value::Object(members) => members.values().for_each(|member| walk(member, look)),
        Value::Array(items) => items.iter().for_each(|item| walk(item, look)),
        _ => {}
    }
}

#[test]
fn phases_are_spelled_as_they_are_documented() {
    let document = openapi::of(&calls());
    let documented = document["components"]["schemas"]["Phase"]["oneOf"].as_array().unwrap();
    let documented: BTreeSet<&str> = documented.iter().map(|phase| phase["const"].as_str().unwrap()).collect();
    let spelled = PHASES.map(|phase| phase.to_string());
    assert_eq!(documented, spelled.iter().map(String::as_str).collect());
}
