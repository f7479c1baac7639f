use std::sync::Mutex;

use super::bench::{Bench, call, generation, state, step, yields};
use super::*;
use crate::connector::{BreakerRule, ResetState};
use crate::continuity::stamp::{Kind, Mode};

#[tokio::test]
async fn a_paused_connector_keeps_its_place_over_restarts() {
    let bench = Bench::new();
    let running = bench.following().await;
    running.handle().pause("ops").await.unwrap();
    running.handle().pause("ops").await.unwrap();
    bench.reach(&running, Phase::Paused).await;
    bench.feed(|feed| feed.latest = 9);
    running.stop().await.unwrap();

    let running = bench.start();
    bench.reach(&running, Phase::Paused).await;
    bench.clock.advance(Duration::from_secs(100));
    yields(1000).await;
    assert_eq!(bench.feed.lock().unwrap().acknowledged, 5);
    assert_eq!(bench.stamps().await.last().unwrap().to, step(5));

    running.handle().resume("ops").await.unwrap();
    bench.until(&running, |status| status.last_step == Some(step(9))).await;
    bench.reach(&running, Phase::Following).await;
    assert_eq!(bench.feed.lock().unwrap().acknowledged, 9);
    let kinds: Vec<Kind> = bench.stamps().await.iter().map(|stamp| stamp.kind).collect();
    assert_eq!(kinds, [Kind::Reload, Kind::Mark, Kind::Append]);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_reset_loads_the_table_anew_and_delivery_goes_on() {
    let bench = Bench::new();
    let running = bench.following().await;
    let accepted = running.handle().reset(call("ops")).await.unwrap();
    assert!(accepted.is_new);
    bench.until(&running, |status| status.generation == generation(2) && status.phase == Phase::Following).await;
    let reset = running.handle().reset_by_id(&accepted.id).await.unwrap().unwrap();
    let ResetState::Committed(reloaded) = reset.state else { panic!("{reset:?}") };
    let stamps = bench.stamps().await;
    let stamp = &stamps[reloaded.version.unwrap() as usize];
    assert_eq!((stamp.generation, stamp.to), (reloaded.generation, reloaded.step));
    let stamped = stamp.reset.clone().unwrap();
    assert_eq!((stamped.id, stamped.who, stamped.why), (accepted.id, "ops".into(), "rows look wrong".into()));

    bench.feed(|feed| feed.latest = 6);
    bench.pass_until(&running, |status| status.last_step == Some(step(6))).await;
    assert_eq!(bench.stamps().await.last().unwrap().generation, reloaded.generation);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_thousand_calls_at_once_make_one_reload() {
    let bench = Bench::new();
    let running = bench.following().await;
    let handle = running.handle();
    let calls = (0..1000).map(|n| {
        let key = (n % 2 == 0).then(|| format!("key {}", n % 20));
        let (handle, request) = (handle.clone(), ResetRequest { key, ..call("ops") });
        async move { handle.reset(request).await.unwrap() }
    });
    let mut answers = futures::future::join_all(calls).await;
    bench.until(&running, |status| status.reset.is_none() && status.phase == Phase::Following).await;
    // The reload is done, and the second is not over.
    answers.push(handle.reset(call("ops")).await.unwrap());
    assert_eq!(answers.iter().filter(|accepted| accepted.is_new).count(), 1);
    assert!(answers.iter().all(|accepted| accepted.id == answers[0].id));
    assert_eq!(bench.reloads().await, [answers[0].id.clone()]);

    // A key is good for ever, another call for a moment.
    bench.clock.advance(Duration::from_secs(5));
    let keyed = ResetRequest { key: Some("key 4".into()), ..call("ops") };
    assert_eq!(handle.reset(keyed.clone()).await.unwrap().id, answers[0].id);
    let next = handle.reset(call("ops")).await.unwrap();
    assert!(next.is_new);
    bench.until(&running, |status| status.reset.is_none() && status.phase == Phase::Following).await;
    running.stop().await.unwrap();
    let running = bench.following().await;
    assert_eq!(running.handle().reset(keyed).await.unwrap().id, answers[0].id);
    assert_eq!(bench.reloads().await, [answers[0].id.clone(), next.id]);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_call_with_a_key_of_its_own_takes_no_reset_that_has_ended() {
    let bench = Bench::new();
    let running = bench.following().await;
    let handle = running.handle();
    let first = handle.reset(call("ops")).await.unwrap();
    bench.until(&running, |status| status.reset.is_none() && status.phase == Phase::Following).await;
    let keyed = ResetRequest { key: Some("own".into()), ..call("ops") };
    let second = handle.reset(keyed.clone()).await.unwrap();
    assert!(second.is_new && second.id != first.id);
    bench.until(&running, |status| status.reset.is_none() && status.phase == Phase::Following).await;
    assert_eq!(handle.reset(keyed).await.unwrap().id, second.id, "its key is good for ever");
    assert_eq!(handle.reset(call("ops")).await.unwrap().id, second.id, "without a key it is a burst");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_reset_that_expects_another_generation_is_refused_with_both() {
    let bench = Bench::new();
    bench.feed(|feed| feed.holds_rows = true);
    let running = bench.start();
    let expecting = |n| ResetRequest { expected_generation: generation(n), ..call("ops") };
    // The table is not there yet, then it is.
    let refusal = running.handle().reset(expecting(3)).await.unwrap_err();
    assert!(matches!(refusal, Refusal::Generation { found: None, .. }), "{refusal}");
    // A first load is not left for a question.
    bench.until(&running, |status| status.snapshot.as_ref().is_some_and(|s| s.rows() == 5)).await;
    let refusal = running.handle().reset(expecting(3)).await.unwrap_err();
    assert!(matches!(refusal, Refusal::Generation { found: None, .. }), "{refusal}");
    assert!(matches!(running.handle().preview(call("ops")).await, Err(Refusal::Failed(_))));
    assert_eq!(running.handle().status().borrow().phase, Phase::Snapshotting);
    running.stop().await.unwrap();
    bench.feed(|feed| feed.holds_rows = false);
    let running = bench.following().await;
    for _ in 0..2 {
        let refusal = running.handle().reset(expecting(3)).await.unwrap_err();
        let Refusal::Generation { expected, found } = refusal else { panic!("{refusal}") };
        assert_eq!((Some(expected), found), (generation(3), generation(1)));
        let refusal = running.handle().preview(expecting(3)).await.unwrap_err();
        assert!(matches!(refusal, Refusal::Generation { .. }), "{refusal}");
    }
    let accepted = running.handle().reset(expecting(1)).await.unwrap();
    assert_eq!(running.handle().reset(expecting(1)).await.unwrap(), Accepted { is_new: false, ..accepted });
    bench.until(&running, |status| status.reset.is_none()).await;
    assert_eq!(bench.reloads().await.len(), 1);
    // A call that knows of that reset is another one.
    assert!(running.handle().reset(expecting(2)).await.unwrap().is_new);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_preview_tells_and_writes_nothing() {
    let bench = Bench::new();
    let running = bench.following().await;
    let before = bench.stamps().await;
    let preview = running.handle().preview(call("ops")).await.unwrap();
    assert_eq!((Some(preview.generation), preview.cutover), (generation(2), step(5)));
    bench.reach(&running, Phase::Following).await;
    assert_eq!((bench.stamps().await, running.handle().resets().await.unwrap().len()), (before, 0));
    running.stop().await.unwrap();
}

#[tokio::test]
async fn however_often_the_table_is_looked_at_changes_are_committed_in_time() {
    let mut bench = Bench::new();
    bench.max_interval = Duration::from_secs(10);
    let running = bench.following().await;
    bench.feed(|feed| feed.latest = 6);
    let begun = bench.clock.boot();
    while bench.feed.lock().unwrap().acknowledged < 6 {
        let waited = bench.clock.boot() - begun;
        assert!(waited < Duration::from_secs(60), "nothing was committed for {waited:?}");
        let handle = running.handle();
        let mut preview = std::pin::pin!(handle.preview(call("ops")));
        loop {
            tokio::select! {
                biased;
                previewed = &mut preview => {
                    previewed.unwrap();
                    break;
                }
                () = yields(50) => bench.clock.advance(Duration::from_millis(100)),
            }
        }
    }
    running.stop().await.unwrap();
}

#[tokio::test]
async fn without_a_snapshot_there_is_no_reset() {
    for (mode, has_no_snapshots, remedy) in
        [(Mode::Follow, false, "snapshot_and_follow"), (Mode::SnapshotAndFollow, true, "materialized = true")]
    {
        let mut bench = Bench::new();
        bench.mode = mode;
        bench.feed(|feed| feed.has_no_snapshots = has_no_snapshots);
        let running = bench.following().await;
        for refusal in [
            running.handle().reset(call("ops")).await.unwrap_err(),
            running.handle().preview(call("ops")).await.unwrap_err(),
        ] {
            assert!(matches!(&refusal, Refusal::NoSnapshot(why) if why.contains(remedy)), "{refusal}");
        }
        running.stop().await.unwrap();
    }
}

#[tokio::test]
async fn an_open_breaker_says_when_and_can_be_overridden() {
    let bench = Bench::new();
    let running = bench.following().await;
    for n in 2..=4 {
        assert!(running.handle().reset(call(&format!("asker {n}"))).await.unwrap().is_new);
        bench.until(&running, |status| status.generation == generation(n) && status.phase == Phase::Following).await;
        bench.clock.advance(Duration::from_secs(60));
    }
    let refusal = running.handle().reset(call("ops")).await.unwrap_err();
    let Refusal::BreakerOpen { retry_after } = refusal else { panic!("{refusal}") };
    assert_eq!(retry_after, Duration::from_secs(3600 - 180));
    running.stop().await.unwrap();

    let running = bench.following().await;
    assert!(matches!(running.handle().reset(call("ops")).await, Err(Refusal::BreakerOpen { .. })));
    let request = ResetRequest { breaker: BreakerRule::Override, ..call("ops") };
    assert!(running.handle().reset(request).await.unwrap().is_new);
    bench.until(&running, |status| status.generation == generation(5) && status.reset.is_none()).await;
    // The last three began after 60, 120 and 180 seconds.
    bench.clock.advance(retry_after + Duration::from_secs(60));
    assert!(running.handle().reset(call("ops")).await.unwrap().is_new);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_source_that_loses_continuity_every_second_costs_the_budget_and_no_more() {
    let mut bench = Bench::new();
    bench.on_loss = OnContinuityLoss::Reset;
    bench.feed(|feed| feed.loses_again = true);
    let mut running = bench.following().await;
    for second in 0..3600 {
        bench.clock.advance(Duration::from_secs(1));
        yields(50).await;
        // A crash loop is no way around it.
        if second % 60 == 59 {
            drop(running);
            yields(5).await;
            running = bench.start();
        }
    }
    let within_the_hour = running.handle().resets().await.unwrap().len();
    assert!((1..=3).contains(&within_the_hour), "{within_the_hour}");
    bench.pass_until(&running, |status| status.phase == Phase::BreakerOpen).await;
    let trouble = running.handle().status().borrow().trouble.clone().unwrap();
    assert!(trouble.reason.starts_with("the source forgot its changes; too many resets"), "{trouble:?}");
    assert!(matches!(running.handle().reset(call("ops")).await, Err(Refusal::BreakerOpen { .. })));

    // It heals, and so does the connector.
    bench.feed(|feed| feed.loses_again = false);
    bench.pass_until(&running, |status| status.phase == Phase::Following).await;
    let resets = running.handle().resets().await.unwrap();
    assert!(resets.iter().all(|reset| reset.trigger == Trigger::ContinuityLost && reset.who.contains("reset")));
    assert_eq!(bench.reloads().await.len(), resets.len());
    let begun: Vec<i64> = resets.iter().rev().map(|reset| reset.accepted_millis).collect();
    assert!(begun.windows(4).all(|four| four[3] - four[0] >= 3_600_000), "{begun:?}");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn lost_continuity_is_repaired_by_nobody_unless_the_policy_says_so() {
    let bench = Bench::new();
    let running = bench.following().await;
    bench.feed(|feed| feed.is_lost = true);
    bench.clock.advance(Duration::from_secs(1));
    bench.reach(&running, Phase::ContinuityLost).await;
    bench.clock.advance(Duration::from_secs(100_000));
    yields(1000).await;
    let status = running.handle().status().borrow().clone();
    assert_eq!((status.phase, status.since), (Phase::ContinuityLost, Some(1000)));
    assert_eq!(status.trouble.unwrap().next_action, "reset the connector");
    running.handle().reset(call("ops")).await.unwrap();
    bench.reach(&running, Phase::Following).await;
    assert_eq!(bench.reloads().await.len(), 1);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_hundred_restarts_reset_nothing() {
    let mut bench = Bench::new();
    bench.on_loss = OnContinuityLoss::Reset;
    for n in 0..100 {
        let running = bench.following().await;
        if n % 2 == 0 {
            running.stop().await.unwrap()
        } else {
            drop(running)
        }
        yields(5).await;
    }
    assert_eq!(bench.stamps().await.len(), 1);
}

/// Runs `task` until it was woken so often, or to its end.
async fn live(task: Task, wakes: usize, meanwhile: impl Future<Output = ()>) {
    let (mut run, mut meanwhile) = (Box::pin(task.run()), pin!(meanwhile.fuse()));
    let mut left = wakes;
    poll_fn(|context| {
        let _ = meanwhile.as_mut().poll_unpin(context);
        left = left.saturating_sub(1);
        if left == 0 || run.poll_unpin(context).is_ready() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[tokio::test]
async fn a_crash_at_any_point_of_a_reset_leaves_one_reload() {
    let mut seen = std::collections::BTreeSet::new();
    for wakes in 1..400 {
        let bench = Bench::new();
        bench.following().await.stop().await.unwrap();
        let (connector, settings) = bench.parts();
        let (handle, task) = Task::new(connector, settings).unwrap();
        let answer = Mutex::new(None);
        live(task, wakes, async { *answer.lock().unwrap() = handle.reset(call("ops")).await.ok() }).await;
        let answer = answer.into_inner().unwrap();

        let running = bench.start();
        let known = running.handle().resets().await.unwrap();
        // What was answered is known; what is known and was not answered is carried out too.
        assert!(answer.as_ref().is_none_or(|answer| known.iter().any(|reset| reset.id == answer.id)), "{wakes}");
        seen.extend(known.iter().map(|reset| reset.state.to_string()));
        bench.pass_until(&running, |status| status.reset.is_none() && status.phase == Phase::Following).await;
        let expected: Vec<String> = known.iter().map(|reset| reset.id.clone()).collect();
        assert_eq!(bench.reloads().await, expected, "{wakes}");
        for id in expected {
            assert!(matches!(state(&running, &id).await, ResetState::Committed(_)), "{wakes}");
        }
        running.stop().await.unwrap();
        if seen.contains("committed") {
            break;
        }
    }
    assert!(["snapshotting", "committed"].into_iter().all(|state| seen.contains(state)), "{seen:?}");
}

#[tokio::test]
async fn a_crash_after_any_line_of_the_journal_leaves_one_reload() {
    let whole = Bench::new();
    let running = whole.following().await;
    let id = running.handle().reset(call("ops")).await.unwrap().id;
    whole.until(&running, |status| status.reset.is_none() && status.phase == Phase::Following).await;
    running.stop().await.unwrap();
    let journal = std::fs::read_to_string(whole.dir.path().join("journal/resets.jsonl")).unwrap();
    let lines: Vec<&str> = journal.lines().collect();
    // Begun, accepted, snapshotting, perhaps committing, committed. Before the commit the table was as another one is; after
    // it, as this one is.
    assert!((4..=5).contains(&lines.len()), "{journal}");
    let cases = (2..lines.len()).map(|count| (count, false)).chain((3..=lines.len()).map(|count| (count, true)));
    for (count, is_committed) in cases {
        let fresh = Bench::new();
        fresh.following().await.stop().await.unwrap();
        let bench = if is_committed { &whole } else { &fresh };
        let path = bench.dir.path().join("journal/resets.jsonl");
        std::fs::write(&path, lines[..count].join("\n") + "\n").unwrap();
        let running = bench.start();
        bench.pass_until(&running, |status| status.reset.is_none() && status.phase == Phase::Following).await;
        assert_eq!(bench.reloads().await, std::slice::from_ref(&id), "{count} {is_committed}");
        assert!(matches!(state(&running, &id).await, ResetState::Committed(Reloaded { version: Some(_), .. })));
        running.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_reset_is_cancelled_before_its_commit_and_the_old_rows_stay() {
    let bench = Bench::new();
    let running = bench.following().await;
    bench.feed(|feed| feed.holds_rows = true);
    let id = running.handle().reset(call("ops")).await.unwrap().id;
    bench.until(&running, |status| status.snapshot.as_ref().is_some_and(|s| s.rows() == 5)).await;
    let status = running.handle().status().borrow().clone();
    assert_eq!((status.phase, status.reset.as_ref()), (Phase::Snapshotting, Some(&id)));
    let pace = status.pace(bench.clock.boot() + Duration::from_secs(2)).unwrap();
    assert_eq!((pace.rows_per_second, pace.left), (2.5, Some(Duration::ZERO)));
    assert!(matches!(running.handle().preview(call("ops")).await, Err(Refusal::UnderWay { .. })));
    assert!(matches!(running.handle().cancel("x", "ops").await, Err(Refusal::Unknown { .. })));

    let cancelled = running.handle().cancel(&id, "somebody").await.unwrap();
    assert_eq!(cancelled.state, ResetState::Cancelled { who: "somebody".into() });
    bench.reach(&running, Phase::Following).await;
    assert!(matches!(running.handle().cancel(&id, "ops").await, Err(Refusal::NotCancellable { .. })));
    assert_eq!((bench.reloads().await.len(), running.handle().status().borrow().reset.clone()), (0, None));
    bench.feed(|feed| (feed.holds_rows, feed.latest) = (false, 6));
    bench.pass_until(&running, |status| status.last_step == Some(step(6))).await;
    // It asks again at once, and gets another.
    assert!(running.handle().reset(call("ops")).await.unwrap().is_new);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_reset_whose_commit_has_begun_is_not_taken_back() {
    let bench = Bench::new();
    bench.following().await.stop().await.unwrap();
    let (connector, settings) = bench.parts();
    let (handle, mut task) = Task::new(connector, settings).unwrap();
    let id = task.desk.begin(Trigger::Asked, "ops".into(), "why".into()).unwrap();
    task.desk.record(Event::Snapshotting { id: id.clone() }).unwrap();
    task.desk.record(Event::Committing { id: id.clone() }).unwrap();
    drop((handle, task));

    // Whether the put came through is not known until the table tells.
    bench.feed(|feed| feed.snapshot_error = Some(ErrorKind::Unavailable));
    let running = bench.start();
    bench.reach(&running, Phase::Retrying).await;
    let refusal = running.handle().cancel(&id, "ops").await.unwrap_err();
    assert!(matches!(refusal, Refusal::NotCancellable { .. }), "{refusal}");
    bench.clock.advance(Duration::from_secs(30 * 3600));
    bench.until(&running, |status| status.trouble.as_ref().is_some_and(|t| t.reason == "no snapshot today")).await;
    bench.feed(|feed| feed.snapshot_error = None);
    bench.pass_until(&running, |status| status.generation == generation(2) && status.reset.is_none()).await;
    assert_eq!(bench.reloads().await, [id]);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_pause_lets_a_reset_end_and_delivery_rest() {
    let bench = Bench::new();
    let running = bench.following().await;
    bench.feed(|feed| feed.snapshot_error = Some(ErrorKind::Unavailable));
    let id = running.handle().reset(call("ops")).await.unwrap().id;
    bench.reach(&running, Phase::Retrying).await;
    running.handle().pause("ops").await.unwrap();
    bench.feed(|feed| (feed.snapshot_error, feed.latest) = (None, 7));
    bench.pass_until(&running, |status| status.phase == Phase::Paused).await;
    assert!(matches!(state(&running, &id).await, ResetState::Committed(_)));
    // A paused one is reset too.
    bench.clock.advance(Duration::from_secs(100));
    let next = running.handle().reset(call("ops")).await.unwrap().id;
    bench.until(&running, |status| status.reset.is_none() && status.phase == Phase::Paused).await;
    bench.feed(|feed| feed.latest = 8);
    bench.clock.advance(Duration::from_secs(100));
    yields(1000).await;
    assert_eq!((bench.reloads().await, bench.stamps().await.last().unwrap().to), (vec![id, next], step(7)));
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_connector_that_ended_is_tried_again_when_somebody_resumes_it() {
    let bench = Bench::new();
    bench.feed(|feed| feed.snapshot_error = Some(ErrorKind::Incompatible));
    let running = bench.start();
    bench.reach(&running, Phase::Failed).await;
    bench.feed(|feed| feed.snapshot_error = None);
    running.handle().resume("ops").await.unwrap();
    bench.reach(&running, Phase::Following).await;
    assert_eq!(running.handle().status().borrow().trouble, None);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_reset_that_fails_for_now_is_tried_again_at_growing_distances() {
    let bench = Bench::new();
    let running = bench.following().await;
    bench.feed(|feed| feed.snapshot_error = Some(ErrorKind::Unavailable));
    let id = running.handle().reset(call("ops")).await.unwrap().id;
    bench.reach(&running, Phase::Retrying).await;
    assert_eq!(running.handle().status().borrow().trouble.clone().unwrap().reason, "no snapshot today");
    let tries = async || running.handle().reset_by_id(&id).await.unwrap().unwrap().tries;
    for n in 1..=6 {
        // No time passes while the try lasts.
        while tries().await < n {
            yields(1).await;
        }
        bench.reach(&running, Phase::Retrying).await;
        let most = Duration::from_secs(5 << (n - 1));
        bench.clock.advance(most / 2 - Duration::from_millis(1));
        yields(100).await;
        assert_eq!(tries().await, n, "before half of {most:?}");
        bench.clock.advance(most / 2 + Duration::from_millis(1));
    }
    bench.feed(|feed| feed.snapshot_error = None);
    bench.pass_until(&running, |status| status.generation == generation(2) && status.reset.is_none()).await;
    assert_eq!(bench.reloads().await, [id]);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_reset_that_nobody_gets_done_within_a_day_expires() {
    let bench = Bench::new();
    let running = bench.following().await;
    bench.feed(|feed| feed.snapshot_error = Some(ErrorKind::Unavailable));
    let id = running.handle().reset(call("ops")).await.unwrap().id;
    bench.reach(&running, Phase::Retrying).await;
    bench.clock.advance(Duration::from_secs(25 * 3600));
    bench.reach(&running, Phase::Following).await;
    assert_eq!(state(&running, &id).await, ResetState::Expired);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_reset_that_fails_for_good_leaves_the_connector_as_it_was() {
    let bench = Bench::new();
    let running = bench.following().await;
    bench.feed(|feed| (feed.is_lost, feed.snapshot_error) = (true, Some(ErrorKind::Incompatible)));
    bench.clock.advance(Duration::from_secs(1));
    bench.reach(&running, Phase::ContinuityLost).await;
    let before = running.handle().status().borrow().trouble.clone();
    let id = running.handle().reset(call("ops")).await.unwrap().id;
    bench.until(&running, |status| status.reset.is_none()).await;
    let failed = ResetState::Failed { code: "incompatible".into(), reason: "no snapshot today".into() };
    assert_eq!(state(&running, &id).await, failed);
    bench.reach(&running, Phase::ContinuityLost).await;
    assert_eq!(running.handle().status().borrow().trouble, before);
    assert_eq!(bench.stamps().await.len(), 1);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_panic_is_a_named_state_of_one_connector() {
    let (bad, good) = (Bench::new(), Bench::new());
    let (mut running, other) = (bad.following().await, good.following().await);
    bad.feed(|feed| feed.panics = true);
    bad.clock.advance(Duration::from_secs(1));
    bad.reach(&running, Phase::Failed).await;
    let status = running.handle().status().borrow().clone();
    assert_eq!(status.trouble.unwrap().reason, "a defect of this program: no changes today");
    assert!(matches!(running.handle().reset(call("ops")).await, Err(Refusal::Failed(_))));
    assert!(matches!(running.handle().resume("ops").await, Err(Refusal::Failed(_))));
    good.feed(|feed| feed.latest = 6);
    good.pass_until(&other, |status| status.last_step == Some(step(6))).await;
    other.stop().await.unwrap();
    running.handle().stop().await;
    running.ended().await.unwrap();
    assert!(matches!(running.handle().resets().await, Err(Refusal::Stopped)));
}

#[tokio::test]
async fn a_view_with_other_columns_is_reloaded_within_the_budget() {
    let bench = Bench::new();
    let running = bench.following().await;
    for n in 2..=4 {
        bench.feed(|feed| feed.has_name = !feed.has_name);
        bench.pass_until(&running, |s| s.generation == generation(n) && s.phase == Phase::Following).await;
    }
    bench.feed(|feed| feed.has_name = !feed.has_name);
    bench.pass_until(&running, |status| status.phase == Phase::BreakerOpen).await;
    let resets = running.handle().resets().await.unwrap();
    assert!(resets.iter().all(|reset| reset.trigger == Trigger::SchemaChange), "{resets:?}");
    assert!(resets.iter().all(|reset| matches!(reset.state, ResetState::Committed(_))), "{resets:?}");
    let ids: Vec<String> = resets.into_iter().rev().map(|reset| reset.id).collect();
    assert_eq!(bench.reloads().await, ids);
    bench.clock.advance(Duration::from_secs(3600));
    bench.until(&running, |status| status.generation == generation(5) && status.phase == Phase::Following).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_changelog_with_too_many_rows_for_each_of_the_views_is_loaded_anew_within_the_budget() {
    let mut bench = Bench::new();
    bench.reload_ratio = std::num::NonZeroU32::new(3);
    bench.feed(|feed| feed.updates = true);
    let running = bench.following().await;
    // Five rows, and up to three times as many in the table.
    bench.feed(|feed| feed.latest = 15);
    bench.pass_until(&running, |status| status.last_step == Some(step(15))).await;
    bench.reach(&running, Phase::Following).await;
    assert_eq!(bench.reloads().await, Vec::<String>::new());
    for n in 2..=4 {
        bench.feed(|feed| feed.latest += 11);
        let latest = bench.feed.lock().unwrap().latest;
        bench.pass_until(&running, |s| s.generation == generation(n) && s.phase == Phase::Following).await;
        bench.pass_until(&running, |s| s.last_step == Some(step(latest))).await;
    }
    let resets = running.handle().resets().await.unwrap();
    assert!(resets.iter().all(|reset| reset.trigger == Trigger::ReloadRatio), "{resets:?}");
    assert_eq!(
        (resets[2].who.as_str(), resets[2].why.as_str()),
        ("reload_ratio = 3", "the table has 26 rows, and the view 5")
    );
    let ids: Vec<String> = resets.into_iter().rev().map(|reset| reset.id).collect();
    assert_eq!(bench.reloads().await, ids);
    // The budget is used up: the changelog grows on.
    bench.feed(|feed| feed.latest += 50);
    let latest = bench.feed.lock().unwrap().latest;
    bench.pass_until(&running, |s| s.last_step == Some(step(latest)) && s.phase == Phase::Following).await;
    assert_eq!(bench.reloads().await.len(), 3);
    bench.clock.advance(Duration::from_secs(3600));
    bench.feed(|feed| feed.latest += 1);
    bench.pass_until(&running, |status| status.generation == generation(5)).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn two_processes_do_not_share_a_journal() {
    let bench = Bench::new();
    let running = bench.following().await;
    let (connector, settings) = bench.parts();
    assert_eq!(Running::start(connector, settings).unwrap_err().kind(), ErrorKind::Refused);
    running.stop().await.unwrap();
}
