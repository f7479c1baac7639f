//! What appending, reading and releasing answer.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use cutover::ErrorKind;
use cutover::disk::FileSystem;
use cutover::steplog::Stand;
use proptest::prelude::*;

use super::*;

#[tokio::test]
async fn a_step_is_stored_once_whatever_is_sent_again() {
    let place = Place::new();
    let (log, recovery) = place.open().unwrap();
    assert!(recovery.is_new);
    store(&log, 1, 7).await;
    let send = async |s: u64, after: u64, content: u64, variant: u64| {
        log.append(entry(At::Step { step: step(s), after: step(after) }, content, variant)).await
    };
    assert_eq!(send(5, 4, 5, 0).await.unwrap(), Answer::AlreadyStored(step(5)));
    assert_eq!(send(7, 6, 7, 0).await.unwrap(), Answer::AlreadyStored(step(7)));
    assert_eq!(send(5, 4, 5, 1).await.unwrap(), Answer::OtherContent(step(5)));
    assert_eq!(send(5, 3, 5, 0).await.unwrap(), Answer::OtherContent(step(5)));
    assert_eq!(send(9, 8, 9, 0).await.unwrap(), Answer::Gap { last: step(7) });
    assert_eq!(send(9, 6, 9, 0).await.unwrap(), Answer::Gap { last: step(7) });
    assert_eq!(send(20, 7, 20, 0).await.unwrap(), Answer::Stored(step(20)), "steps need not be dense");
    assert_eq!(send(12, 7, 12, 0).await.unwrap(), Answer::Gap { last: step(20) });
    assert_eq!(log.append(entry(At::Next, 21, 0)).await.unwrap(), Answer::Stored(step(21)));
    assert_eq!(send(7, 7, 7, 0).await.unwrap_err().kind(), ErrorKind::Refused);
    let held: Vec<u64> = read(&log, 0).unwrap().unwrap().iter().map(|(n, _)| *n).collect();
    assert_eq!(held, [1, 2, 3, 4, 5, 6, 7, 20, 21]);
    let id = log.id();
    log.close().await.unwrap();
    let (log, recovery) = place.open().unwrap();
    assert_eq!((log.id(), recovery), (id, Recovery { is_new: false, cut: None }));
    assert_eq!(log.append(dense(5)).await.unwrap(), Answer::AlreadyStored(step(5)));
    assert_eq!(read(&log, 7).unwrap().unwrap(), [expected(20, 0), expected(21, 0)]);
    log.close().await.unwrap();
}

#[tokio::test]
async fn the_same_changes_in_another_order_and_in_other_batches_are_the_same_content() {
    let place = Place::new();
    let (log, _) = place.open().unwrap();
    let at = At::Step { step: step(3), after: step(0) };
    let [batch] = &batches(3, 0)[..] else { panic!() };
    assert_eq!(
        log.append(Entry::new(at, std::slice::from_ref(batch)).unwrap()).await.unwrap(),
        Answer::Stored(step(3))
    );
    let turned = [batch.slice(2, 1), batch.slice(0, 2)];
    assert_eq!(log.append(Entry::new(at, &turned).unwrap()).await.unwrap(), Answer::AlreadyStored(step(3)));
    let fewer = Entry::new(at, &[batch.slice(0, 2)]).unwrap();
    assert_eq!(log.append(fewer).await.unwrap(), Answer::OtherContent(step(3)));
    log.close().await.unwrap();
}

#[tokio::test]
async fn a_full_log_says_so_until_steps_are_released_and_never_takes_more_than_its_bound() {
    let place = Place::new();
    let limits = Limits { max_bytes: 16 << 10, ..SMALL };
    let (log, _) = on(&place.disk, &place.log(), limits).unwrap();
    let on_disk = || -> u64 { place.files().values().map(|bytes| bytes.len() as u64).sum() };
    let (mut next, mut fulls) = (1, 0);
    while next <= 200 {
        match log.append(dense(next)).await.unwrap() {
            Answer::Stored(_) => next += 1,
            Answer::Full { bytes, max_bytes } => {
                assert_eq!((bytes, max_bytes), (on_disk(), limits.max_bytes));
                fulls += 1;
                log.release(step(next - 5)).await.unwrap();
                let Stand { earliest, last, bytes } = log.stand();
                assert!(earliest <= step(next - 5) && last == step(next - 1) && bytes < 6 << 10, "{earliest} {bytes}");
                assert_eq!(read(&log, 0).unwrap(), Err(earliest.get()));
                assert_eq!(log.append(dense(1)).await.unwrap(), Answer::Gone { earliest });
                assert_eq!(fault(&log, next - 5, next - 1), None);
            }
            other => panic!("{other:?}"),
        }
        assert!(on_disk() <= limits.max_bytes);
    }
    assert!(fulls > 3);
    let large = vec![batches(3, 0)[0].clone(); 500];
    let refused = log.append(Entry::new(At::Next, &large).unwrap()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.message().contains("step_log.max_bytes"), "{refused}");
    log.close().await.unwrap();
}

#[tokio::test]
async fn the_largest_step_allowed_fits_once_everything_before_it_is_released() {
    let place = Place::new();
    let limits = Limits { max_bytes: 32 << 10, segment_bytes: 4 << 10, queue_bytes: 1 << 20 };
    let (log, _) = on(&place.disk, &place.log(), limits).unwrap();
    let sized = |n: usize| Entry::new(At::Next, &vec![batches(3, 0)[0].clone(); n]).unwrap();
    let mut largest = 1;
    while log.append(sized(largest + 1)).await.is_ok() {
        largest += 1;
        log.release(log.stand().last).await.unwrap();
    }
    assert!(sized(largest).bytes() > 20 << 10);
    for _ in 0..20 {
        log.append(entry(At::Next, 3, 0)).await.unwrap();
        log.release(log.stand().last).await.unwrap();
        let last = log.stand().last;
        assert_eq!(log.append(sized(largest)).await.unwrap(), Answer::Stored(step(last.get() + 1)));
        log.release(log.stand().last).await.unwrap();
    }
    log.close().await.unwrap();
}

#[tokio::test]
async fn a_log_has_one_owner_follows_no_link_and_is_for_nobody_else_to_read() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("data/log");
    let disk: Arc<dyn Disk> = Arc::new(FileSystem);
    let open = |directory: &Path| on(&disk, directory, SMALL);
    let (log, _) = open(&directory).unwrap();
    store(&log, 1, 3).await;
    let second = open(&directory).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Refused);
    assert!(second.message().contains(directory.to_str().unwrap()), "{second}");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    for entry in fs::read_dir(&directory).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
    log.close().await.unwrap();

    let link = home.path().join("link");
    symlink(&directory, &link).unwrap();
    assert_eq!(open(&link).unwrap_err().kind(), ErrorKind::Refused);
    let lock = directory.join("lock");
    fs::rename(&lock, home.path().join("lock")).unwrap();
    symlink(home.path().join("lock"), &lock).unwrap();
    assert_eq!(open(&directory).unwrap_err().kind(), ErrorKind::Refused);
    fs::remove_file(&lock).unwrap();
    let segment = fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
    fs::rename(&segment, home.path().join("segment")).unwrap();
    symlink(home.path().join("segment"), &segment).unwrap();
    assert_eq!(open(&directory).unwrap_err().kind(), ErrorKind::Refused);
    fs::rename(home.path().join("segment"), &segment).unwrap();
    let (log, recovery) = open(&directory).unwrap();
    assert!(!recovery.is_new);
    assert_eq!(fault(&log, 0, 3), None);
    log.close().await.unwrap();
}

#[tokio::test]
async fn a_log_that_was_lost_begins_as_another_one() {
    let place = Place::new();
    let (log, _) = place.open().unwrap();
    let id = log.id();
    log.close().await.unwrap();
    fs::remove_dir_all(place.log()).unwrap();
    let (log, recovery) = place.open().unwrap();
    assert!(recovery.is_new && log.id() != id);
    log.close().await.unwrap();
}

/// Something done to a log.
#[derive(Debug, Clone)]
enum Deed {
    Next,
    /// A step so far after the last one, with its content or another's.
    After {
        skip: u64,
        variant: u64,
    },
    /// One of the steps sent before, with its content or another's.
    Again {
        which: usize,
        variant: u64,
    },
    Gap {
        beyond: u64,
    },
    /// What is at or before one of the steps.
    Release {
        which: usize,
    },
    Read {
        which: usize,
    },
    Reopen,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        6 => Just(Deed::Next),
        6 => (1..5u64, 0..2u64).prop_map(|(skip, variant)| Deed::After { skip, variant }),
        3 => (any::<usize>(), 0..2u64).prop_map(|(which, variant)| Deed::Again { which, variant }),
        1 => (1..9u64).prop_map(|beyond| Deed::Gap { beyond }),
        1 => any::<usize>().prop_map(|which| Deed::Release { which }),
        2 => any::<usize>().prop_map(|which| Deed::Read { which }),
        1 => Just(Deed::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::program::size("CUTOVER_STEP_LOGS", 60) as u32))]

    #[test]
    fn a_log_answers_as_a_list_would(deeds in proptest::collection::vec(deed(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(against_a_list(deeds));
    }
}

async fn against_a_list(deeds: Vec<Deed>) {
    let place = Place::new();
    let mut log = place.open().unwrap().0;
    // Step, the one before it, variant.
    let mut list: Vec<(u64, u64, u64)> = vec![(0, 0, 0)];
    for deed in deeds {
        let last = list.last().unwrap().0;
        let earliest = log.stand().earliest.get();
        let chosen = |which: usize| list[which % list.len()];
        match deed {
            Deed::Next => {
                let answer = log.append(entry(At::Next, last + 1, 0)).await.unwrap();
                assert_eq!(answer, Answer::Stored(step(last + 1)));
                list.push((last + 1, last, 0));
            }
            Deed::After { skip, variant } => {
                let at = At::Step { step: step(last + skip), after: step(last) };
                let answer = log.append(entry(at, last + skip, variant)).await.unwrap();
                assert_eq!(answer, Answer::Stored(step(last + skip)));
                list.push((last + skip, last, variant));
            }
            Deed::Again { which, variant } => {
                let (n, after, stored) = chosen(which);
                if n == 0 {
                    continue;
                }
                let answer =
                    log.append(entry(At::Step { step: step(n), after: step(after) }, n, variant)).await.unwrap();
                // A step without rows is the same whatever the variant.
                let is_same = stored == variant || n % 4 == 0;
                let expected = match () {
                    () if n <= earliest => Answer::Gone { earliest: step(earliest) },
                    () if is_same => Answer::AlreadyStored(step(n)),
                    () => Answer::OtherContent(step(n)),
                };
                assert_eq!(answer, expected);
            }
            Deed::Gap { beyond } => {
                let at = At::Step { step: step(last + beyond + 1), after: step(last + beyond) };
                assert_eq!(log.append(entry(at, 1, 0)).await.unwrap(), Answer::Gap { last: step(last) });
            }
            Deed::Release { which } => {
                let (n, ..) = chosen(which);
                log.release(step(n)).await.unwrap();
                let now = log.stand().earliest.get();
                assert!(now >= earliest && now <= n.max(earliest), "{n} was released, and ({now} ..] is left");
                assert!(list.iter().any(|(n, ..)| *n == now));
            }
            Deed::Read { which } => {
                let (n, ..) = chosen(which);
                let found = read(&log, n).unwrap();
                if n < earliest {
                    assert_eq!(found, Err(earliest));
                    continue;
                }
                let wanted: Vec<Read> =
                    list.iter().filter(|(m, ..)| *m > n).map(|(m, _, variant)| expected(*m, *variant)).collect();
                assert_eq!(found.unwrap(), wanted);
            }
            Deed::Reopen => {
                let stand = log.stand();
                log.close().await.unwrap();
                log = place.open().unwrap().0;
                assert_eq!((log.stand().earliest, log.stand().last), (stand.earliest, stand.last));
            }
        }
    }
    log.close().await.unwrap();
}
