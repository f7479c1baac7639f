//! Many who append at once, and readers that follow.

use std::sync::atomic::Ordering;

use cutover::ErrorKind;
use futures::FutureExt;

use super::*;
use crate::platter::Trouble;

#[tokio::test]
async fn all_who_wait_share_one_sync_and_its_failure() {
    for trouble in [None, Some(Trouble::FileNotSynced)] {
        let place = Place::new();
        let (disk, armed, open, syncs) = gated(&place.root, trouble);
        let limits = Limits { segment_bytes: 1 << 20, max_bytes: 8 << 20, queue_bytes: 1 << 20 };
        let (log, _) = on(&disk, &place.log(), limits).unwrap();
        armed.store(true, Ordering::SeqCst);
        let first = in_hand(&log, dense(1), &syncs);
        let mut others: Vec<_> = (2..=32).map(|n| Box::pin(log.append(dense(n)))).collect();
        assert!(others.iter_mut().all(|other| other.as_mut().now_or_never().is_none()));
        open.send(()).unwrap();
        assert_eq!(first.await.unwrap(), Answer::Stored(step(1)));
        let answers = futures::future::join_all(others).await;
        match trouble {
            None => {
                assert!(answers.into_iter().zip(2..).all(|(answer, n)| answer.unwrap() == Answer::Stored(step(n))));
                assert_eq!(syncs.load(Ordering::SeqCst), 2, "32 callers");
            }
            Some(_) => {
                assert!(answers.into_iter().all(|answer| answer.unwrap_err().kind() == ErrorKind::Unavailable));
                assert_eq!(fault(&log, 0, 1), None);
                assert_eq!(log.stand().last, step(1), "what was not synced is not read");
                store(&log, 2, 32).await;
            }
        }
        assert_eq!(fault(&log, 0, 32), None);
        log.close().await.unwrap();
        let (log, _) = on(&place.disk, &place.log(), limits).unwrap();
        assert_eq!(fault(&log, 0, 32), None);
        log.close().await.unwrap();
    }
}

#[tokio::test]
async fn the_same_step_sent_twice_at_once_is_stored_once() {
    let place = Place::new();
    let (log, _) = place.open().unwrap();
    let at = At::Step { step: step(1), after: step(0) };
    let entries = [entry(at, 1, 0), entry(at, 1, 0), entry(at, 1, 1), entry(At::Next, 2, 0)];
    let answers = futures::future::join_all(entries.map(|entry| log.append(entry))).await;
    let answers: Vec<Answer> = answers.into_iter().map(Result::unwrap).collect();
    let one = step(1);
    assert_eq!(
        answers,
        [Answer::Stored(one), Answer::AlreadyStored(one), Answer::OtherContent(one), Answer::Stored(step(2))]
    );
    assert_eq!(fault(&log, 0, 2), None);
    log.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_follows_while_steps_are_appended_and_released_behind_it() {
    let place = Place::new();
    let (log, _) = place.open().unwrap();
    let log = Arc::new(log);
    let writer = tokio::spawn({
        let log = Arc::clone(&log);
        async move {
            let mut fulls = 0;
            let mut n = 1;
            while n <= 1500 {
                match log.append(dense(n)).await.unwrap() {
                    Answer::Stored(_) => n += 1,
                    Answer::Full { .. } => {
                        fulls += 1;
                        tokio::task::yield_now().await;
                    }
                    other => panic!("{other:?}"),
                }
            }
            fulls
        }
    });
    let (mut reader, mut last) = (log.read(Step::ZERO), 0);
    while last < 1500 {
        match reader.read_next().unwrap() {
            Next::Step(stored) => {
                last += 1;
                assert_eq!((stored.step.get(), changes(&stored)), expected(last, 0));
                if last % 50 == 0 {
                    log.release(step(last)).await.unwrap();
                }
            }
            Next::End => assert!(reader.more().await),
            Next::Gone { earliest } => panic!("gone up to {earliest}, at {last}"),
        }
    }
    writer.await.unwrap();
    let mut late = log.read(step(10));
    assert!(matches!(late.read_next().unwrap(), Next::Gone { earliest } if earliest > step(10)));
    Arc::into_inner(log).unwrap().close().await.unwrap();
    assert!(!reader.more().await, "a reader learns that the log is closed");
}
