//! A disk that loses what was not synced, and whose calls fail.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cutover::ErrorKind;

use super::*;
use crate::platter::{Does, Moment, Script, Trouble};
use crate::program::{Chance, size};

/// How far the workload goes.
const END: u64 = 60;

/// What the workload was told, packed so that a moment of the disk can keep it: steps answered, and steps let go.
#[derive(Debug, Default)]
struct Told(AtomicU64);

impl Told {
    fn set(&self, answered: u64, released: u64) {
        self.0.store((released << 32) | answered, Ordering::SeqCst);
    }

    fn unpack(packed: u64) -> (u64, u64) {
        (packed & 0xffff_ffff, packed >> 32)
    }
}

/// Sends all steps, several at once, again until each is stored; releases; opens anew. In the end nothing is missing.
async fn workload(model: &Arc<dyn Disk>, directory: &Path, told: &Told, chance: &mut Chance) -> Result<(), String> {
    let open = || -> Result<StepLog, String> {
        for _ in 0..200 {
            match on(model, directory, SMALL) {
                Ok((log, _)) => return Ok(log),
                Err(e) if e.kind() == ErrorKind::Unavailable => {}
                Err(e) => return Err(format!("it does not open: {e:?}")),
            }
        }
        Err("it does not open".into())
    };
    let mut log = open()?;
    let (mut answered, mut released, mut tries) = (0, 0, 0);
    while answered < END {
        tries += 1;
        if tries > 2000 {
            return Err(format!("it comes no further than {answered}"));
        }
        let to = (answered + 1 + chance.below(4)).min(END);
        let answers = futures::future::join_all((answered + 1..=to).map(|n| log.append(dense(n)))).await;
        for (answer, n) in answers.into_iter().zip(answered + 1..) {
            match answer {
                Ok(Answer::Stored(_) | Answer::AlreadyStored(_)) if n == answered + 1 => answered = n,
                // Behind one that was not stored.
                Ok(Answer::Gap { last }) if last.get() < n => {}
                Err(e) if e.kind() == ErrorKind::Unavailable => {}
                other => return Err(format!("step {n} after {answered} is answered {other:?}")),
            }
        }
        told.set(answered, released);
        if chance.one_in(6) {
            released = released.max(answered.saturating_sub(chance.below(12)));
            told.set(answered, released);
            if let Err(e) = log.release(step(released)).await
                && e.kind() != ErrorKind::Unavailable
            {
                return Err(format!("a release ends with {e:?}"));
            }
        }
        if chance.one_in(10) {
            log.close().await.unwrap();
            log = open()?;
            if let Some(wrong) = fault(&log, released, answered) {
                return Err(format!("opened again, {wrong}"));
            }
        }
    }
    let wrong = fault(&log, released, answered);
    log.close().await.unwrap();
    wrong.map_or(Ok(()), Err)
}

/// Runs the workload under a script: what was so after each call of the disk, how it ended, what came.
fn run(seed: u64, script: Script) -> (Place, Vec<Moment>, Result<(), String>, BTreeMap<Trouble, u64>) {
    let (place, told) = (Place::new(), Arc::new(Told::default()));
    let model = Model::new(
        &place.root,
        Arc::new({
            let told = Arc::clone(&told);
            move || Some(told.0.load(Ordering::SeqCst))
        }),
        script,
    );
    let disk: Arc<dyn Disk> = Arc::new(model.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let ended = runtime.block_on(workload(&disk, &place.log(), &told, &mut Chance::of(seed)));
    let (moments, fired) = (model.take_moments(), model.fired());
    (place, moments, ended, fired)
}

/// Cuts the power after a call: what is wrong then.
fn cut(place: &Place, number: usize, moment: &Moment, chance: &mut Chance) -> Option<String> {
    let (answered, released) = Told::unpack(moment.acknowledged.unwrap());
    let left = Place::with(&moment.platter.after_a_cut(&place.root, chance));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let wrong = runtime.block_on(async {
        let (log, _) = match left.open() {
            Ok(opened) => opened,
            Err(e) => return Some(format!("it does not open: {e:?}")),
        };
        if let Some(wrong) = fault(&log, released, answered) {
            return Some(wrong);
        }
        let last = log.stand().last.get();
        store(&log, last + 1, last + 2).await;
        log.close().await.unwrap();
        let (log, _) = left.open().unwrap();
        let wrong = fault(&log, released, last + 2);
        log.close().await.unwrap();
        wrong
    });
    wrong.map(|wrong| format!("a cut after call {number}, {:?}: {wrong}", moment.does))
}

fn none(seed: u64, wrong: &[String]) {
    let shown: Vec<&str> = wrong.iter().take(20).map(String::as_str).collect();
    assert!(wrong.is_empty(), "seed {seed}: {} violations:\n{}", wrong.len(), shown.join("\n"));
}

#[test]
fn what_was_answered_is_there_whenever_the_power_is_cut() {
    const TEST: &str = "what_was_answered_is_there_whenever_the_power_is_cut";
    let (seed, rounds) = (Chance::new(TEST).seed, size("CUTOVER_STEP_LOG_CUTS", 2));
    let (mut wrong, mut cuts) = (Vec::new(), 0);
    for round in 0..rounds {
        let mut chance = Chance::of(seed.wrapping_add(round));
        let (place, moments, ended, _) = run(seed.wrapping_add(round), Box::new(|_, _| None));
        ended.unwrap();
        for (number, moment) in moments.iter().enumerate() {
            for _ in 0..2 {
                cuts += 1;
                wrong.extend(cut(&place, number, moment, &mut chance));
            }
        }
    }
    none(seed, &wrong);
    eprintln!("{TEST}: {cuts} cuts, 0 violations");
    assert!(cuts > 200);
}

#[test]
fn a_disk_that_fails_loses_no_step_that_was_answered() {
    const TEST: &str = "a_disk_that_fails_loses_no_step_that_was_answered";
    use Trouble::{DirectoryNotSynced, FileNotSynced, NamedWithAnError, NotCreated, NotNamed, NotTruncated, Short};
    let seed = Chance::new(TEST).seed;
    let kinds = [Short, FileNotSynced, DirectoryNotSynced, NamedWithAnError, NotCreated, NotNamed, NotTruncated];
    let cases = size("CUTOVER_STEP_LOG_FAILURES", 112);
    let (mut wrong, mut cuts, mut fired) = (Vec::new(), 0, BTreeMap::<Trouble, u64>::new());
    for case in 0..cases {
        let mut chance = Chance::of(seed.wrapping_add(case));
        let kind = kinds[case as usize % kinds.len()];
        let (begin, mut left) = (chance.below(150) as usize, [1, 2, 5, 20][chance.below(4) as usize]);
        // Where nothing fails before it, a file is never cut.
        let first = [Short, FileNotSynced][chance.below(2) as usize];
        let script = move |number: usize, does: Does| {
            let trouble = if kind == NotTruncated && first.fits(does) { first } else { kind };
            let comes = number >= begin && left > 0 && trouble.fits(does);
            left -= i32::from(comes);
            comes.then_some(trouble)
        };
        let (place, moments, ended, came) = run(seed.wrapping_add(case), Box::new(script));
        came.into_iter().for_each(|(trouble, times)| *fired.entry(trouble).or_default() += times);
        let label = |what: String| format!("{kind:?} from call {begin} (case {case}): {what}");
        wrong.extend(ended.err().map(label));
        let some = (0..6).map(|_| begin + chance.below(30) as usize).chain([moments.len() - 1]);
        for number in some.collect::<Vec<_>>() {
            let Some(moment) = moments.get(number) else { continue };
            cuts += 1;
            wrong.extend(cut(&place, number, moment, &mut chance).map(label));
        }
    }
    none(seed, &wrong);
    eprintln!("{TEST}: {cases} runs, {cuts} cuts, fired {fired:?}, 0 violations");
    assert!(cases < 100 || fired.len() == kinds.len(), "a failure never came: {fired:?}");
}

/// A segment is tried and fails, so that it may be there or not; the log is opened anew and goes on without it.
#[test]
fn a_segment_that_did_not_come_into_being_is_never_the_newest_again() {
    const TEST: &str = "a_segment_that_did_not_come_into_being_is_never_the_newest_again";
    let (mut chance, mut wrong) = (Chance::new(TEST), Vec::new());
    for round in 0..8 {
        let (place, told, fails) = (Place::new(), Arc::new(Told::default()), Arc::new(AtomicBool::new(false)));
        let (of_disk, of_script) = (Arc::clone(&told), Arc::clone(&fails));
        let script = move |_: usize, does: Does| {
            (does == Does::SyncDirectory && of_script.load(Ordering::SeqCst)).then_some(Trouble::DirectoryNotSynced)
        };
        let acknowledged = Arc::new(move || Some(of_disk.0.load(Ordering::SeqCst)));
        let model = Model::new(&place.root, acknowledged, Box::new(script));
        let disk: Arc<dyn Disk> = Arc::new(model.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (log, _) = on(&disk, &place.log(), SMALL).unwrap();
            store(&log, 1, 60).await;
            told.set(60, 0);
            fails.store(true, Ordering::SeqCst);
            let mut last = 60;
            while log.append(dense(last + 1)).await.is_ok() {
                last += 1;
                told.set(last, 0);
            }
            for _ in 0..3 {
                assert!(log.append(dense(last + 1)).await.is_err(), "the next segment fails too");
            }
            log.close().await.unwrap();
            fails.store(false, Ordering::SeqCst);
            let (log, _) = on(&disk, &place.log(), SMALL).unwrap();
            store(&log, last + 1, last + 1).await;
            told.set(last + 1, last);
            for released in [last / 4, last / 2, last] {
                log.release(step(released)).await.unwrap();
            }
            log.close().await.unwrap();
        });
        let moments = model.take_moments();
        for (number, moment) in moments.iter().enumerate().rev().take(30) {
            let cut = cut(&place, number, moment, &mut chance);
            wrong.extend(cut.map(|wrong| format!("round {round}: {wrong}")));
        }
    }
    none(chance.seed, &wrong);
}

#[tokio::test]
async fn a_disk_without_room_is_told_leaves_no_trace_and_takes_steps_again_when_there_is_room() {
    let place = Place::new();
    let is_full = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let full = Arc::clone(&is_full);
    let script =
        move |_: usize, does: Does| (full.load(Ordering::SeqCst) && does == Does::Write).then_some(Trouble::Short);
    let disk: Arc<dyn Disk> = Arc::new(Model::new(&place.root, Arc::new(|| None), Box::new(script)));
    let (log, _) = on(&disk, &place.log(), SMALL).unwrap();
    store(&log, 1, 2).await;
    let before = place.files();
    is_full.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        let told = log.append(dense(3)).await.unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Unavailable);
        assert!(told.message().contains("no room"), "{told}");
        assert_eq!(place.files(), before);
    }
    is_full.store(false, Ordering::SeqCst);
    store(&log, 3, 5).await;
    assert_eq!(fault(&log, 0, 5), None);
    log.close().await.unwrap();
}
