use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode};

use super::Bounds;
use super::fixture::{LAKE, Served};
use crate::config::{Role, Secret, TokenConfig};
use crate::connector::Phase;

async fn page(served: &Served, path: &str, token: Option<&str>) -> (StatusCode, HeaderMap, String) {
    let mut request = served.ask(Method::GET, path);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let response = request.send().await.unwrap();
    (response.status(), response.headers().clone(), response.text().await.unwrap())
}

#[tokio::test]
async fn the_page_shows_each_connector_and_lets_nobody_else_in() {
    let served = Served::with(Bounds::default(), |config, home| {
        super::fixture::table(&mut config.connectors[0]).uri =
            home.join("<img src=x onerror=alert(1)>").display().to_string();
    })
    .await;
    served.until(|status| status.phase == Phase::Following).await;
    let reset = served.ask(Method::POST, &format!("{LAKE}/reset")).json(&serde_json::json!({"reason": "\"><script>"}));
    assert_eq!(reset.send().await.unwrap().status(), StatusCode::ACCEPTED);
    served.until(|status| status.generation.is_some_and(|g| g.get() == 2) && status.phase == Phase::Following).await;
    let mut last = served.daemon.events().last();
    while served.daemon.events().newest(1, |e| e.event == crate::events::Kind::ResetCommitted).is_empty() {
        last.changed().await.unwrap();
    }

    let (status, headers, body) = page(&served, "/", None).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(headers["content-type"], "text/html; charset=utf-8");
    let policy = headers["content-security-policy"].to_str().unwrap();
    for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe") && headers["x-frame-options"] == "DENY", "{headers:?}");
    for shown in [
        "shop/orders/lake",
        "following",
        "<svg",
        "data-call=\"pause\"",
        "data-call=\"reset\"",
        "Continuous: generation 2 has every step from 0 to 0.",
        "reset committed as generation 2",
        "&lt;img src=x onerror=alert(1)&gt;",
        "&lt;script&gt;",
        "aria-live=\"polite\"",
        "<html lang=\"en\">",
    ] {
        assert!(body.contains(shown), "{shown}: {body}");
    }
    assert!(!body.contains("<img") && !body.contains("\"><script>"), "{body}");
    assert!(!body.contains(" style=") && !body.contains(" onclick"), "{body}");
    assert_eq!(body.matches("<script").count(), 1, "{body}");
    // Each part has an id of its own.
    let mut ids: Vec<&str> = body.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "{ids:?}");
    let labels: Vec<&str> = body.split(" for=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(!labels.is_empty() && labels.iter().all(|id| ids.binary_search(id).is_ok()), "{labels:?}");
}

#[tokio::test]
async fn who_has_no_token_sees_no_name_and_who_may_only_see_has_no_buttons() {
    let served = Served::with(Bounds::default(), |config, _| {
        let token = |name: &str, role| TokenConfig {
            name: name.into(),
            role,
            token: Secret::new(format!("{name}-0123456789abcdef")),
        };
        config.server.tokens = vec![token("eye", Role::Read), token("ops", Role::Admin)];
    })
    .await;
    let (status, _, body) = page(&served, "/", None).await;
    assert_eq!(status, StatusCode::OK);
    assert!(body.contains("id=\"unlock\"") && body.contains("type=\"password\""), "{body}");
    assert!(!body.contains("lake") && !body.contains("orders"), "{body}");
    for path in ["/page/style.css", "/page/script.js"] {
        let (status, headers, body) = page(&served, path, None).await;
        assert_eq!(status, StatusCode::OK);
        assert!(headers["x-content-type-options"] == "nosniff" && !body.is_empty());
    }
    let parts = "/page/connectors";
    assert_eq!(page(&served, parts, None).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(page(&served, parts, Some("wrong-0123456789abcdef")).await.0, StatusCode::UNAUTHORIZED);
    let (status, _, seen) = page(&served, parts, Some("eye-0123456789abcdef")).await;
    assert_eq!(status, StatusCode::OK);
    assert!(seen.contains("shop/orders/lake") && !seen.contains("data-call"), "{seen}");
    let (_, _, ruled) = page(&served, parts, Some("ops-0123456789abcdef")).await;
    assert!(ruled.contains("data-call=\"pause\""), "{ruled}");
    assert_eq!(page(&served, "/?token=ops-0123456789abcdef", None).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn the_page_says_what_is_wrong_and_what_to_do() {
    let served = Served::with(Bounds::default(), |_, home| {
        // A table that is not ours.
        let log = home.join("lake/_delta_log");
        std::fs::create_dir_all(&log).unwrap();
        std::fs::write(log.join(format!("{:020}.json", 0)), "{}\n").unwrap();
    })
    .await;
    served.until(|status| status.phase == Phase::Failed).await;
    let (_, _, body) = page(&served, "/", None).await;
    for shown in ["class=\"trouble\"", "Next: ", "1 unhealthy", "data-call=\"resume\"", "href=\"#c:shop:orders:lake\""]
    {
        assert!(body.contains(shown), "{shown}: {body}");
    }
}
