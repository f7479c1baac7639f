//! A data directory that was restored to an earlier state, and those who have more of its history than it has.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use super::Bounds;
use super::egress_tests::{APP, EGRESS, Lines, insert};
use super::fixture::{LAKE, Served, answer, client_of};
use crate::continuity::stamp::Mode;

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// What has the view at its last step: the last chunk that counts of a stream from its beginning.
async fn told_all(served: &Served) -> Value {
    let last = served.last_step();
    let mut lines = Lines::open(served, "").await;
    loop {
        let line = lines.next().await.unwrap();
        if line["partial"].is_null() && line["to"] == last {
            return line;
        }
    }
}

fn place(chunk: &Value) -> String {
    let strand = chunk["strand"].as_str().unwrap();
    format!("&generation={}&after_step={}&after_strand={strand}", chunk["generation"], chunk["to"])
}

#[tokio::test]
async fn who_has_steps_that_a_restored_view_lost_is_told_though_others_got_their_numbers() {
    let only_client = |config: &mut crate::config::Config, _: &Path| {
        config.connectors = vec![client_of("app", Mode::SnapshotAndFollow)]
    };
    let mut served = Served::with(Bounds::default(), only_client).await;
    served.push("", &insert(1)).await;
    let early = told_all(&served).await;
    served.begin_stop();
    let home = served.ended().await;
    copy(&home.path().join("data"), &home.path().join("backup"));

    let mut served = Served::at(home, Bounds::default(), only_client).await;
    let (_, pushed) = served.push("", &insert(2)).await;
    served.push("", &insert(3)).await;
    let (lost, token) = (told_all(&served).await, pushed["token"].as_str().unwrap().to_owned());
    assert_eq!((&early["to"], &lost["to"]), (&json!(1), &json!(3)));
    assert_eq!(early["generation"], lost["generation"], "a restart begins no generation");
    served.begin_stop();
    let home = served.ended().await;
    std::fs::remove_dir_all(home.path().join("data")).unwrap();
    std::fs::rename(home.path().join("backup"), home.path().join("data")).unwrap();

    let served = Served::at(home, Bounds::default(), only_client).await;
    let resumed = async |query: &str| answer(served.ask(Method::POST, &format!("{EGRESS}{query}"))).await;
    let (status, body) = resumed(&place(&lost)).await;
    assert_eq!((status.as_u16(), &body["error_code"]), (410, &json!("step_beyond")), "{body}");
    for n in 4..=6 {
        served.push("", &insert(n)).await;
    }
    for query in [place(&lost), format!("{}&connector=app", place(&lost))] {
        let (status, body) = resumed(&query).await;
        assert_eq!((status.as_u16(), &body["error_code"]), (410, &json!("other_strand")), "{body}");
        assert_eq!(body["details"]["generation"], lost["generation"], "{body}");
        assert_ne!(body["details"]["strand"], lost["strand"], "{body}");
    }
    let (status, body) = answer(served.ask(Method::POST, &format!("{APP}/acknowledge?{}", &place(&lost)[1..]))).await;
    assert_eq!((status.as_u16(), &body["error_code"]), (410, &json!("other_strand")), "{body}");
    let (status, _) = served.get(&format!("/v1/pipelines/shop/completion_status?token={token}")).await;
    assert_eq!(status, 410, "the step of the token is lost");
    // What the view had when it was copied leads on.
    let mut lines = Lines::open(&served, &place(&early)).await;
    lines.has(json!({"mark": "start", "to": 1, "strand": early["strand"]})).await;
    let rows: Vec<Value> = (4..=6).map(|n| json!({"insert": {"id": n, "name": format!("n{n}")}})).collect();
    lines.has(json!({"from": 1, "to": 4, "json_data": rows})).await;
}

#[tokio::test]
async fn a_table_with_steps_that_a_restored_view_lost_gets_nothing_though_others_got_their_numbers() {
    let mut served = Served::usual().await;
    served.push("", &insert(1)).await;
    served.begin_stop();
    let home = served.ended().await;
    copy(&home.path().join("data"), &home.path().join("backup"));

    let mut served = Served::at(home, Bounds::default(), |_, _| {}).await;
    served.push("", &insert(2)).await;
    served.until(|status| status.last_step.is_some_and(|step| step.get() == 2)).await;
    served.begin_stop();
    let home = served.ended().await;
    std::fs::remove_dir_all(home.path().join("data")).unwrap();
    std::fs::rename(home.path().join("backup"), home.path().join("data")).unwrap();

    // While nobody looks at the table, other steps get the numbers.
    let mut served = Served::at(home, Bounds::default(), |config, _| config.connectors.clear()).await;
    for n in 3..=5 {
        served.push("", &insert(n)).await;
    }
    served.begin_stop();
    let home = served.ended().await;

    let served = Served::at(home, Bounds::default(), |_, _| {}).await;
    served.until(|status| status.trouble.is_some()).await;
    let (_, report) = served.get(LAKE).await;
    assert_eq!(
        (&report["state"], &report["trouble"]["cause"], &report["last_step"]),
        (&json!("continuity_lost"), &json!("other_source"), &json!(2)),
        "{report}"
    );
    served.post(&format!("{LAKE}/reset")).await;
    served.until(|status| status.trouble.is_none() && status.last_step.is_some_and(|step| step.get() == 4)).await;
}
