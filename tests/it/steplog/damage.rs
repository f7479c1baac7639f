//! Bytes that changed, files that end early or are missing.

use cutover::ErrorKind;

use super::*;
use crate::program::{Chance, size};

/// How many steps the sample holds.
const STEPS: u64 = 9;

/// A log of several segments, and the offset at which each step of the newest one ends there.
async fn sample() -> (BTreeMap<String, Vec<u8>>, String, Vec<(u64, usize)>) {
    let place = Place::new();
    let (log, _) = place.open().unwrap();
    let mut ends = Vec::new();
    let mut newest = String::new();
    for n in 1..=STEPS {
        store(&log, n, n).await;
        let (name, bytes) = place.files().pop_last().unwrap();
        if name != newest {
            (newest, ends) = (name, Vec::new());
        }
        ends.push((n, bytes.len()));
    }
    let files = place.files();
    log.close().await.unwrap();
    assert!(files.len() >= 3 && ends.len() >= 2, "{} {ends:?}", files.len());
    (files, newest, ends)
}

/// What is found: the last step, or where damage was told.
async fn found(files: &BTreeMap<String, Vec<u8>>) -> Result<(u64, Recovery), Error> {
    let place = Place::with(files);
    let (log, recovery) = place.open()?;
    let last = log.stand().last.get();
    assert_eq!(fault(&log, 0, 0), None);
    log.close().await.unwrap();
    Ok((last, recovery))
}

/// What is left takes the next step, and is found again.
async fn goes_on(files: &BTreeMap<String, Vec<u8>>, last: u64) {
    let place = Place::with(files);
    let (log, _) = place.open().unwrap();
    store(&log, last + 1, last + 1).await;
    log.close().await.unwrap();
    let (log, again) = place.open().unwrap();
    assert_eq!((fault(&log, 0, last + 1), again), (None, Recovery { is_new: false, cut: None }));
    log.close().await.unwrap();
}

#[tokio::test]
async fn a_bit_that_changed_anywhere_is_found_or_cut_off_with_the_last_write() {
    const TEST: &str = "a_bit_that_changed_anywhere_is_found_or_cut_off_with_the_last_write";
    let (mut chance, bits) = (Chance::new(TEST), size("CUTOVER_STEP_LOG_BITS", 1));
    let (files, newest, ends) = sample().await;
    let (last, before_last) = (ends[ends.len() - 1], ends[ends.len() - 2]);
    let (mut cut, mut told) = (0, 0);
    for (name, bytes) in &files {
        for at in 0..bytes.len() {
            let first = chance.below(8);
            for bit in (first..first + bits).map(|bit| bit % 8) {
                let mut files = files.clone();
                files.get_mut(name).unwrap()[at] ^= 1 << bit;
                match found(&files).await {
                    Ok((step, recovery)) => {
                        assert!(*name == newest && at >= before_last.1, "{name} {at} {bit} went unseen");
                        assert_eq!((step, recovery.cut.unwrap().offset), (before_last.0, before_last.1 as u64));
                        cut += 1;
                        if cut % 20 == 0 {
                            goes_on(&files, step).await;
                        }
                    }
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::Corrupt, "{name} {at} {bit}: {e:?}");
                        assert!(e.message().contains(name.as_str()) && e.message().contains("at byte"), "{e}");
                        told += 1;
                    }
                }
            }
        }
    }
    assert_eq!(cut, (last.1 - before_last.1) as u64 * bits);
    eprintln!("{TEST}: {told} told, {cut} cut off");
}

#[tokio::test]
async fn a_file_that_ends_anywhere_leaves_the_whole_steps_before_or_is_told() {
    let (files, newest, ends) = sample().await;
    // The newest header names all others, and one strand.
    let header = 72 + 24 * (files.len() - 1) + 8 + 16;
    for (name, bytes) in &files {
        for length in 0..bytes.len() {
            let mut files = files.clone();
            files.get_mut(name).unwrap().truncate(length);
            match found(&files).await {
                Ok((step, recovery)) => {
                    assert!(*name == newest && length >= header, "{name} {length} went unseen");
                    let before = (ends[0].0 - 1, header);
                    let (last, end) = *ends.iter().rev().find(|(_, end)| *end <= length).unwrap_or(&before);
                    let cut = recovery.cut.map(|cut| (cut.offset as usize, cut.bytes as usize));
                    assert_eq!((step, cut), (last, (length > end).then_some((end, length - end))), "{name} {length}");
                    if length % 20 == 0 {
                        goes_on(&files, step).await;
                    }
                }
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Corrupt);
                    assert!(*name != newest || length < header, "{name} {length}: {e}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_step_that_is_bad_and_followed_by_a_later_write_is_damage_and_not_a_torn_end() {
    let (files, newest, ends) = sample().await;
    let [.., (_, begin), (_, end)] = ends[..] else { panic!() };
    // The last step alone is cut off; a bad one before it is not, since it was durable when the last was written.
    let files_with = |at: usize| {
        let mut files = files.clone();
        files.get_mut(&newest).unwrap()[at] ^= 1;
        files
    };
    let (last, recovery) = found(&files_with(end - 1)).await.unwrap();
    assert!(recovery.cut.is_some());
    goes_on(&files_with(end - 1), last).await;
    let told = found(&files_with(begin - 1)).await.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn steps_of_one_write_reach_the_disk_in_any_order_and_are_a_torn_end() {
    let place = Place::new();
    let (disk, armed, open, syncs) = gated(&place.root, None);
    let (log, _) = on(&disk, &place.log(), SMALL).unwrap();
    // Two steps in one write: the second is whole on disk, and the first is not.
    armed.store(true, Ordering::SeqCst);
    let first = in_hand(&log, dense(1), &syncs);
    let mut others = [2, 3].map(|n| Box::pin(log.append(dense(n))));
    assert!(others.iter_mut().all(|other| other.as_mut().now_or_never().is_none()));
    open.send(()).unwrap();
    first.await.unwrap();
    assert!(futures::future::join_all(others).await.iter().all(Result::is_ok));
    log.close().await.unwrap();
    let mut files = place.files();
    let newest = files.last_key_value().unwrap().0.clone();
    let bytes = files.get_mut(&newest).unwrap();
    let at = bytes.windows(9).position(|window| window == b"row 2.0 o").unwrap();
    bytes[at] ^= 1;
    let (last, recovery) = found(&files).await.unwrap();
    assert_eq!(last, 1);
    assert!(recovery.cut.is_some());
}

#[tokio::test]
async fn a_segment_that_is_missing_between_others_is_told() {
    let (files, newest, _) = sample().await;
    let names: Vec<String> = files.keys().cloned().collect();
    for (i, name) in names.iter().enumerate().filter(|(_, name)| **name != newest) {
        let mut files = files.clone();
        files.remove(name);
        match found_after_release(&files).await {
            Ok(earliest) => assert!(i == 0 && earliest > 0, "{name} is missing unseen"),
            Err(e) => {
                assert!(i > 0 && e.kind() == ErrorKind::Corrupt, "{e}");
                assert!(e.message().contains(name.as_str()), "{e}");
            }
        }
    }
}

/// The earliest step of a log whose oldest segments may have been released.
async fn found_after_release(files: &BTreeMap<String, Vec<u8>>) -> Result<u64, Error> {
    let place = Place::with(files);
    let (log, _) = place.open()?;
    let earliest = log.stand().earliest.get();
    assert_eq!(read(&log, 0).unwrap(), Err(earliest));
    assert_eq!(fault(&log, earliest, STEPS), None);
    log.close().await.unwrap();
    Ok(earliest)
}
