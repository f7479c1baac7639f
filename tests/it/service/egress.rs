//! Views as streams: clients of all speeds, cut off at any moment, over restarts and resets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cutover::{Clock, SystemClock};
use reqwest::Client;
use serde_json::json;
use tokio::sync::watch;

use super::ledger::Ledger;
use super::puller::{Follower, Oracle, Pull};
use super::{FREE_RESETS, Home, client, memory};
use crate::program::{Chance, size};

/// Where the daemon is, and what is still to come.
#[derive(Clone, Default)]
struct Scene {
    url: Option<String>,
    /// The last step, once no other follows.
    last: Option<u64>,
}

/// One client's life, until it has the last step.
async fn live(name: Option<String>, mut chance: Chance, mut scene: watch::Receiver<Scene>, oracle: Oracle) -> Follower {
    let (http, mut follower) = (Client::new(), Follower::default());
    let format = ["ndjson", "arrow"][chance.below(2) as usize];
    let slowness = [0, 0, 1, 20, 400][chance.below(5) as usize];
    let why = format!("{name:?}, {format}, slowness {slowness}, seed {}", chance.seed);
    loop {
        let now = scene.wait_for(|scene| scene.url.is_some()).await.unwrap().clone();
        if now.last.is_some() && follower.at.map(|at| at.step) == now.last {
            return follower;
        }
        let url = now.url.unwrap();
        let connector = name.as_ref().map(|name| format!("&connector={name}")).unwrap_or_default();
        let position = follower.at.map(|at| format!("&{}", at.query())).unwrap_or_default();
        let query = format!("format={format}{connector}{position}");
        let mut pull = match Pull::open(&http, &url, &query).await {
            Some(Ok(pull)) => pull,
            Some(Err((410, code))) => {
                *follower.ends.entry(code).or_default() += 1;
                follower.forgets();
                continue;
            }
            Some(Err((409 | 429 | 503, _))) | None => {
                tokio::task::yield_now().await;
                continue;
            }
            Some(Err(other)) => panic!("{other:?}; {why}"),
        };
        follower.reconnects();
        // Until it is cut off, or leaves by itself.
        let mut patience = chance.below(60);
        while let Some(told) = pull.next().await {
            if !follower.take(told, &oracle, &why) {
                break;
            }
            for _ in 0..slowness {
                tokio::task::yield_now().await;
            }
            if chance.one_in(100) && scene.borrow().last.is_none() {
                // It reads nothing while this daemon lives.
                let _ = scene.changed().await;
            }
            if now.last.is_some() && follower.at.map(|at| at.step) == now.last {
                return follower;
            }
            patience = patience.saturating_sub(u64::from(now.last.is_none()));
            if patience == 0 && now.last.is_none() {
                break;
            }
            if let (Some(name), Some(at)) = (&name, follower.at)
                && chance.one_in(5)
            {
                let path = format!("/v1/pipelines/p/views/rows/connectors/{name}/acknowledge?{}", at.query());
                if let Ok(answer) = http.post(format!("{url}{path}")).send().await {
                    assert!([200, 409, 410, 503].contains(&answer.status().as_u16()), "{answer:?}; {why}");
                }
            }
        }
    }
}

#[test]
fn clients_of_all_speeds_have_what_they_were_told_over_restarts_and_resets() {
    const TEST: &str = "clients_of_all_speeds_have_what_they_were_told_over_restarts_and_resets";
    let (clients, minutes) = (size("CUTOVER_EGRESS_CLIENTS", 6), size("CUTOVER_EGRESS_MINUTES", 0));
    let names: Vec<String> = (0..clients.div_ceil(3)).map(|n| format!("app{n}")).collect();
    let home = Home::new(&names.iter().map(|name| client(name, FREE_RESETS)).collect::<String>());
    let mut ledger = Ledger::new(Chance::new(TEST));
    let seed = ledger.chance.seed;
    let oracle: Oracle = Arc::default();
    oracle.write().unwrap().push(ledger.mark());
    let (tell, scene) = watch::channel(Scene::default());
    let lives: Vec<_> = (0..clients)
        .map(|n| {
            let name = names.get(n as usize).cloned();
            let chance = Chance::of(seed.wrapping_add(n * 7919));
            home.runtime.spawn(live(name, chance, scene.clone(), Arc::clone(&oracle)))
        })
        .collect();
    let begun = SystemClock.boot();
    let (mut rounds, mut resets, mut most, mut open) = (0, 0, 0, Some(ledger.insert(3000)));
    while rounds < 4 || SystemClock.boot() - begun < Duration::from_secs(minutes * 60) {
        let mut service = home.start();
        tell.send_modify(|scene| scene.url = Some(service.url.clone()));
        for _ in 0..10 + ledger.chance.below(40) {
            let lines = open.take().unwrap_or_else(|| match ledger.chance.one_in(40) {
                true => ledger.insert(6000),
                false => ledger.change(40),
            });
            oracle.write().unwrap().truncate(ledger.step() as usize);
            oracle.write().unwrap().push(ledger.mark());
            service.push(ledger.step(), lines);
            let name = &names[ledger.chance.below(names.len() as u64) as usize];
            match ledger.chance.below(12) {
                0 => {
                    let asked = service.post(&service.of(name, "/reset"), json!({"override_breaker": true}));
                    assert!([202, 409].contains(&asked.status), "{asked:?}; seed {seed}");
                    resets += 1;
                }
                1 => {
                    service.call(&service.of(name, "/pause")).is(200);
                    service.call(&service.of(name, "/resume")).is(200);
                }
                _ => {}
            }
        }
        most = most.max(memory(service.process.id()));
        rounds += 1;
        tell.send_modify(|scene| scene.url = None);
        match ledger.chance.one_in(2) {
            true => service.stop(),
            false => service.process.kill(),
        }
    }
    let service = home.start();
    let (url, last) = (Some(service.url.clone()), Some(ledger.step()));
    tell.send_modify(|scene| *scene = Scene { url, last });
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    let (mut steps, mut snapshots) = (0, 0);
    for life in lives {
        let waited = home.runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), life).await });
        let follower = waited.unwrap_or_else(|_| panic!("a client does not get to the end; seed {seed}")).unwrap();
        assert_eq!(follower.rows, *ledger.rows(), "seed {seed}");
        (steps, snapshots) = (steps + follower.steps, snapshots + follower.snapshots);
        follower.ends.into_iter().for_each(|(end, count)| *ends.entry(end).or_default() += count);
    }
    let grown = most.max(memory(service.process.id()));
    service.stop();
    eprintln!(
        "{TEST}: {clients} clients, {rounds} lives of the daemon, {} steps, {resets} resets; clients took {steps} steps and {snapshots} snapshots; streams ended by {ends:?}; the daemon had up to {} MiB",
        ledger.step(),
        grown >> 20
    );
    assert!(grown < 1 << 30, "{grown} bytes; seed {seed}");
}
