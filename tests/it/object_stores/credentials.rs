//! Credentials: those of the machine's role, and those that users write.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cutover::{Access, Durability, Location, Target, World};
use serde_json::json;

use super::Lake;
use super::proxy::read_request;
use super::server::{BUCKET, Server, storage};
use crate::program::{Chance, Model, Site};
use crate::world::{changes, settings, state, view};

/// A metadata service of a machine whose role has other credentials each time; how often it was asked for them.
fn metadata_service() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    // It ends with the process, as the server does.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let Some((line, _)) = read_request(&mut stream) else { continue };
            let body = match line.split(' ').nth(1).unwrap() {
                "/latest/api/token" => "session".to_string(),
                "/latest/meta-data/iam/security-credentials/" => "role".to_string(),
                _ => {
                    let n = count.fetch_add(1, Ordering::Relaxed);
                    // So soon over that the next request needs others.
                    json!({"AccessKeyId": format!("ROLE{n}"), "SecretAccessKey": "s", "Token": "t",
                        "Expiration": "2020-01-01T00:00:00Z", "Code": "Success", "Type": "AWS-HMAC"})
                    .to_string()
                }
            };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            // A client that goes away is its own matter.
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    (port, asked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_of_the_machines_role_are_renewed_while_a_writer_goes_on() {
    let Some(lake) = Lake::new("credentials_of_the_machines_role") else { return };
    let (port, asked) = metadata_service();
    let mut options: Vec<_> = lake.options.iter().filter(|(name, _)| !name.contains("access_key")).cloned().collect();
    options.push(("metadata_endpoint", format!("http://127.0.0.1:{port}")));
    let uri = format!("s3://{BUCKET}/{}", lake.prefix);
    let location = Location::open_with(&uri, Access::Write(Durability::Commit), &storage(&options)).unwrap();
    let target = Target::open(location, view(), settings(), World::system()).await.unwrap();
    let mut sink = target.load(state(10, &[1, 2, 3])).await.unwrap();
    for from in 10..13 {
        sink.append(changes(from, from + 1)).await.unwrap();
    }
    let keys = lake.proxy.access_keys();
    assert!(keys.len() > 2 && keys.iter().all(|key| key.starts_with("ROLE")), "{keys:?}");
    assert!(asked.load(Ordering::Relaxed) >= keys.len());
    lake.assert_healthy(13).await;
}

#[test]
fn options_reach_the_store_from_the_configuration_and_the_command_line_and_no_secret_is_said() {
    const TEST: &str = "options_reach_the_store";
    let Some(server) = Server::find(TEST) else { return };
    let site = Site::new();
    let mut model = Model::new(&site, 100, Chance::new(TEST));
    model.land_changes();
    let (seed, delta) = (model.chance.seed, "pipelines.p.views.rows.connectors.lake.delta");
    let uri = format!("s3://{BUCKET}/{TEST}-{seed}");
    let mut options = Server::options(server.port);
    options.iter_mut().filter(|(name, _)| *name == "secret_access_key").for_each(|(_, value)| *value = "CANARY".into());
    let mut sets = vec![format!("--set={delta}.uri={uri}")];
    sets.extend(options.iter().map(|(name, value)| format!("--set={delta}.storage.{name}={value}")));
    let flags: Vec<String> = options.iter().map(|(name, value)| format!("--storage={name}={value}")).collect();
    let run = |before: &[&str], after: &[String], code: i32| {
        let args: Vec<&str> = before.iter().copied().chain(after.iter().map(String::as_str)).collect();
        let ran = site.run(&args).ended(code, seed);
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains("CANARY"), "{before:?}: {}", ran.stderr);
        ran
    };
    run(&["run", "--once", "-vvv"], &sets, 0);
    run(&["verify", &uri, "-vvv"], &flags, 0);
    let shown = run(&["show", &uri], &flags, 0).stdout;
    assert!(shown.contains(&format!("last step   {}", model.step)), "{shown}");
    assert_eq!(run(&["state", &uri], &flags, 0).stdout.lines().count(), model.rows.len());
    let adopt = ["adopt", &uri, "--as", "p/rows/other", "--yes"];
    run(&adopt, &flags, 0);
    for (wrong, part) in [
        ("--storage=CANARY", "not of the form KEY=VALUE"),
        ("--storage=regoin=CANARY", "\"regoin\" is not known"),
        ("--storage=conditional_put=CANARY", "do not fit"),
    ] {
        let said = run(&["show", &uri], &[&flags[..], &[wrong.to_string()]].concat(), 78).stderr;
        assert!(said.contains(part), "{said}");
    }
    let said = run(&["show", "table"], &flags, 78).stderr;
    assert!(said.contains("a local table has none"), "{said}");
    let other = [format!("--set={delta}.uri={uri}-2"), format!("--set={delta}.storage.conditional_put=disabled")];
    let refused = run(&["run", "--once"], &[&sets[..], &other[..]].concat(), 5).stderr;
    assert!(refused.contains("does not support conditional puts"), "{refused}");
}
