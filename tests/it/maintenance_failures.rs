//! Maintenance that fails: files that cannot be deleted, checkpoints that are tried again or turn out untrue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use cutover::{Access, Durability, ErrorKind, Location, Sink, Target};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::faults::{Call, Fault, FaultStore, Verb};
use crate::maintenance::{Aged, DAY, live, three_weeks};
use crate::world::{changes, log, settings, view};

const MINUTE: Duration = Duration::from_secs(60);
const HINT: &str = "_delta_log/_last_checkpoint";

fn faulty(table: &Aged, script: impl FnMut(&Call) -> Option<Fault> + Send + 'static) -> FaultStore {
    let inner = LocalFileSystem::new_with_prefix(table.folder()).unwrap();
    FaultStore::new(Arc::new(inner), None, Box::new(script))
}

async fn claimed(store: &Arc<dyn ObjectStore>, table: &Aged) -> Sink {
    let location = Location::on(Arc::clone(store));
    let target = Target::open(location, view(), settings(), table.world.clone()).await.unwrap();
    target.claim().await.unwrap()
}

fn is_write(call: &Call) -> bool {
    matches!(call.verb, Verb::Create | Verb::Overwrite | Verb::Begin)
}

fn checkpoint(version: u64) -> String {
    format!("_delta_log/{version:020}.checkpoint.parquet")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_deleted_keeps_none_of_the_others() {
    let (table, sink) = three_weeks(421, &[]).await;
    drop(sink);
    let stray = |n: u64| format!("cutover-0192f3c4-7d8e-8a7b-9c0d-{n:012}.parquet");
    (0..30).for_each(|n| table.stray(&stray(n), 90));
    let kept = [stray(3), stray(7)];
    let refused = kept.clone();
    let script =
        move |call: &Call| (call.verb == Verb::Delete && refused.contains(&call.path)).then_some(Fault::Before);
    let store: Arc<dyn ObjectStore> = Arc::new(faulty(&table, script));
    let log = log(&store, &table.world);
    let garbage = log.garbage().await.unwrap();
    let mut deleted = 0;
    let error = log.delete_garbage(&garbage, |_| deleted += 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("2 cannot be deleted"), "{error}");
    assert!(kept.iter().any(|path| error.message().contains(path.as_str())), "{error}");
    let left: Vec<String> = (0..30).map(stray).filter(|name| table.has(name)).collect();
    assert_eq!(left, kept);
    // Two reloads have removed what is older than a week.
    assert!(deleted > 28, "{deleted}");
    table.is_healthy().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storage_that_deletes_nothing_is_not_asked_for_every_file() {
    for kind in [ErrorKind::Unavailable, ErrorKind::Refused] {
        let fault = move || if kind == ErrorKind::Refused { Fault::Expired } else { Fault::Before };
        let (table, sink) = three_weeks(422, &[]).await;
        drop(sink);
        (0..30).for_each(|n| table.stray(&format!("cutover-0192f3c4-7d8e-8a7b-9c0d-{n:012}.parquet"), 90));
        let store = faulty(&table, move |call: &Call| (call.verb == Verb::Delete).then(fault));
        let log = log(&(Arc::new(store.clone()) as Arc<dyn ObjectStore>), &table.world);
        let garbage = log.garbage().await.unwrap();
        let error = log.delete_garbage(&garbage, |_| ()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains("10 cannot be deleted") && error.message().contains("is left"), "{error}");
        assert_eq!(store.calls().iter().filter(|call| call.verb == Verb::Delete).count(), 10);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_that_failed_is_tried_again_soon_and_ever_less_often() {
    let mut table = Aged::new(423, 0);
    drop(table.sink(&[]).await);
    table.age();
    let (fails, tries) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (failing, tried) = (Arc::clone(&fails), Arc::clone(&tries));
    let script = move |call: &Call| {
        let is_checkpoint = is_write(call) && call.path.ends_with(".checkpoint.parquet");
        tried.fetch_add(usize::from(is_checkpoint), Ordering::Relaxed);
        (is_checkpoint && failing.load(Ordering::Relaxed)).then_some(Fault::Before)
    };
    let store: Arc<dyn ObjectStore> = Arc::new(faulty(&table, script));
    let mut sink = claimed(&store, &table).await;
    let mut step = 10;
    sink.maintain().await.unwrap_err();
    let mut tries_after = async |passed: Duration, sink: &mut Sink| {
        table.clock.time.advance(passed);
        // However many commits there are.
        for _ in 0..3 {
            sink.append(changes(step, step + 1)).await.unwrap();
            sink.rest().await;
            step += 1;
        }
        tries.swap(0, Ordering::Relaxed)
    };
    assert_eq!(tries_after(Duration::ZERO, &mut sink).await, 1, "the first one");
    for minutes in [1, 2, 4, 8] {
        assert_eq!(tries_after(MINUTE * minutes - Duration::from_secs(1), &mut sink).await, 0, "{minutes} minutes");
        assert_eq!(tries_after(Duration::from_secs(1), &mut sink).await, 1, "{minutes} minutes");
    }
    assert_eq!(sink.facts().checkpoint, None);
    fails.store(false, Ordering::Relaxed);
    assert_eq!(tries_after(MINUTE * 16, &mut sink).await, 1);
    assert!(sink.facts().checkpoint.is_some());
    assert_eq!(tries_after(DAY, &mut sink).await, 0, "the next one is due after as many versions as ever");
}

/// A table whose next checkpoint is untrue: it holds what the checkpoint of version 20 does, or nothing at all where
/// that is not there. Behind it the process dies before so many calls that change something.
async fn untrue(table: &Aged, dies_before: usize) -> Arc<dyn ObjectStore> {
    let (mut is_untrue, mut changes) = (false, 0);
    let script = move |call: &Call| {
        if !is_untrue && is_write(call) && call.path == HINT {
            is_untrue = true;
            let alter = |inner: Arc<dyn ObjectStore>| -> futures::future::BoxFuture<'static, ()> {
                Box::pin(async move {
                    let older = match inner.get(&Path::from(checkpoint(20))).await {
                        Ok(object) => object.bytes().await.unwrap(),
                        Err(_) => "no checkpoint".into(),
                    };
                    let names = inner.list_with_delimiter(Some(&Path::from("_delta_log"))).await.unwrap();
                    let newest = names.objects.into_iter().map(|o| o.location);
                    let newest = newest.filter(|path| path.as_ref().ends_with(".checkpoint.parquet")).max().unwrap();
                    inner.put(&newest, older.into()).await.unwrap();
                })
            };
            return Some(Fault::First(Box::new(alter)));
        }
        let is_change = is_untrue && (is_write(call) || call.verb == Verb::Delete);
        changes += usize::from(is_change);
        (is_change && changes > dies_before).then_some(Fault::CrashBefore)
    };
    Arc::new(faulty(table, script))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_of_ours_that_is_untrue_is_taken_out_of_readers_way() {
    let (mut table, mut sink) = three_weeks(424, &[]).await;
    table.append(&mut sink).await;
    drop(sink);
    let mut sink = claimed(&untrue(&table, usize::MAX).await, &table).await;
    let (head, hint) = (sink.facts().version.unwrap(), std::fs::read(table.folder().join(HINT)).unwrap());
    let right = live(&table.log(), head).await;
    let names = table.names();
    let error = sink.maintain().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(table.names(), names, "nothing stays of the checkpoint, and nothing is cleaned up");
    assert_eq!(std::fs::read(table.folder().join(HINT)).unwrap(), hint);
    assert_eq!(live(&table.log(), head).await, right);
    table.is_healthy().await;
    table.append(&mut sink).await;
    assert_eq!(sink.maintain().await.unwrap().checkpoint, Some(head + 1));
    table.is_healthy().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_older_checkpoint_readers_are_led_to_none() {
    let mut table = Aged::new(425, 0);
    let mut sink = table.sink(&[]).await;
    table.append(&mut sink).await;
    drop(sink);
    let mut sink = claimed(&untrue(&table, usize::MAX).await, &table).await;
    let names = table.names();
    assert_eq!(sink.maintain().await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(table.names(), names);
    table.is_healthy().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_dies_while_a_checkpoint_is_withdrawn_leaves_what_was_there_or_what_is_right() {
    // The hint, then the checkpoint.
    for dies_before in 0..=2 {
        let (mut table, mut sink) = three_weeks(426, &[]).await;
        table.append(&mut sink).await;
        drop(sink);
        let mut sink = claimed(&untrue(&table, dies_before).await, &table).await;
        let head = sink.facts().version.unwrap();
        let (right, as_of_20) = (live(&table.log(), head).await, live(&table.log(), 20).await);
        assert_ne!(right, as_of_20);
        sink.maintain().await.unwrap_err();
        let seen = live(&table.log(), head).await;
        assert_eq!(seen, if dies_before == 2 { right } else { as_of_20 }, "dead before change {dies_before}");
        assert_eq!(table.has(&checkpoint(head)), dies_before < 2, "dead before change {dies_before}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_writer_withdraws_no_checkpoint() {
    let (mut table, mut sink) = three_weeks(427, &[]).await;
    table.append(&mut sink).await;
    drop(sink);
    let mut is_untrue = false;
    let (world, folder) = (table.world.clone(), table.folder().to_string_lossy().to_string());
    let script = move |call: &Call| {
        if is_untrue || !is_write(call) || call.path != HINT {
            return None;
        }
        is_untrue = true;
        let (world, folder) = (world.clone(), folder.clone());
        Some(Fault::First(Box::new(move |inner| {
            let fence = async move {
                let location = Location::open(&folder, Access::Write(Durability::None)).unwrap();
                let other = Target::open(location, view(), settings(), world).await.unwrap().claim().await.unwrap();
                let version = other.facts().version.unwrap() - 1;
                let older = inner.get(&Path::from(checkpoint(20))).await.unwrap().bytes().await.unwrap();
                inner.put(&Path::from(checkpoint(version)), older.into()).await.unwrap();
            };
            // The kernel, in which this happens, runs no other kernel.
            let fence = || tokio::runtime::Runtime::new().unwrap().block_on(fence);
            Box::pin(async move { std::thread::spawn(fence).join().unwrap() })
        })))
    };
    let store: Arc<dyn ObjectStore> = Arc::new(faulty(&table, script));
    let mut sink = claimed(&store, &table).await;
    let head = sink.facts().version.unwrap();
    assert_eq!(sink.maintain().await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(table.has(&checkpoint(head)));
}
