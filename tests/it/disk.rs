//! A local table on a file system that loses what was not synced.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FsPath;
use std::sync::Arc;
use std::time::Duration;

use cutover::log::SyncedStore;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt};
use tempfile::TempDir;

use crate::crashes::{finished, on_threads};
use crate::platter::{Does, Model, Script, Trouble};
use crate::program::{Chance, size};
use crate::workload::{END, Process, Truth, checked, truth};

/// A disk whose book says how far the workload was acknowledged.
fn model(root: &FsPath, truth: &Truth, script: Script) -> Model {
    let truth = Arc::clone(truth);
    Model::new(root, Arc::new(move || truth.lock().unwrap().acknowledged()), script)
}

fn store(model: &Model) -> Arc<dyn ObjectStore> {
    let prefix = Path::from_absolute_path(model.root()).unwrap();
    Arc::new(PrefixStore::new(SyncedStore::on(Arc::new(model.clone())), prefix))
}

/// A storage with these files, as it is found when the machine has started again.
async fn started_again(files: &BTreeMap<String, Vec<u8>>) -> Arc<dyn ObjectStore> {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    for (path, bytes) in files {
        store.put(&Path::from(path.as_str()), bytes.clone().into()).await.unwrap();
    }
    store
}

/// The workload on a disk, in one process or more of them one after another.
async fn written(script: Script, stops: &[u64]) -> (TempDir, Model, Result<(), cutover::Error>) {
    let (home, truth) = (TempDir::new().unwrap(), truth());
    // The store reaches the table by the path as it is.
    let root = home.path().canonicalize().unwrap();
    let model = self::model(&root, &truth, script);
    for (seed, until) in (10..).zip(stops) {
        let process = Process::untroubled(&store(&model), seed);
        if let Err(e) = process.deliver(&truth, *until, Duration::from_secs(900)).await {
            return (home, model, Err(e));
        }
    }
    (home, model, Ok(()))
}

/// Cuts the power after the moments that `is_meant`: how often, and what is wrong then.
async fn cut(
    model: &Model,
    chance: &mut Chance,
    is_meant: impl Fn(usize) -> bool,
    goes_on: usize,
) -> (u64, Vec<String>) {
    let moments = model.take_moments();
    let (mut cuts, mut wrong) = (0, Vec::new());
    for (number, moment) in moments.iter().enumerate().filter(|(number, _)| is_meant(*number)) {
        let files = moment.platter.after_a_cut(model.root(), chance);
        let (store, truth) = (started_again(&files).await, truth());
        if let Some(acknowledged) = moment.acknowledged {
            truth.lock().unwrap().acknowledge(acknowledged);
        }
        cuts += 1;
        let place = format!("a cut after call {number}, {:?}", moment.does);
        if let Err(found) = checked(&store, &truth).await {
            wrong.push(format!("{place}: {found}"));
            continue;
        }
        if number % goes_on == 0 {
            let next = Process::untroubled(&store, 70);
            match next.deliver(&truth, END, Duration::ZERO).await {
                Ok(()) => {
                    wrong.extend(finished(&store, &truth, END).await.err().map(|found| format!("{place}: {found}")))
                }
                Err(e) => wrong.push(format!("{place}: the next process ends with {e:?}")),
            }
        }
    }
    (cuts, wrong)
}

fn none(seed: u64, wrong: &[String]) {
    let shown: Vec<&str> = wrong.iter().take(30).map(String::as_str).collect();
    assert!(wrong.is_empty(), "seed {seed}: {} violations:\n{}", wrong.len(), shown.join("\n"));
}

#[test]
fn what_was_acknowledged_is_there_whenever_the_power_is_cut() {
    const TEST: &str = "what_was_acknowledged_is_there_whenever_the_power_is_cut";
    let (seed, rounds) = (Chance::new(TEST).seed, size("CUTOVER_POWER_CUTS", 1));
    let rounds: Vec<u64> = (0..rounds).collect();
    let went = on_threads(rounds, |round| async move {
        let mut chance = Chance::of(seed.wrapping_add(round));
        // In one process, and in several, each of which finds what the one before it left.
        let stops: &[u64] = if round % 2 == 0 { &[17, 25, END] } else { &[END] };
        let (_home, model, ended) = written(Box::new(|_, _| None), stops).await;
        ended.unwrap();
        cut(&model, &mut chance, |_| true, 12).await
    });
    let wrong: Vec<String> = went.iter().flat_map(|(_, wrong)| wrong.clone()).collect();
    none(seed, &wrong);
    let cuts: u64 = went.iter().map(|(cuts, _)| cuts).sum();
    eprintln!("{TEST}: {cuts} cuts, 0 violations");
    assert!(cuts > 100);
}

#[test]
fn a_disk_that_fails_once_or_for_a_while_loses_nothing_that_was_acknowledged() {
    const TEST: &str = "a_disk_that_fails_once_or_for_a_while_loses_nothing_that_was_acknowledged";
    use Trouble::{DirectoryNotSynced, FileNotSynced, NamedWithAnError, NotCreated, NotNamed, Short};
    let seed = Chance::new(TEST).seed;
    let plain = on_threads(vec![()], |()| async {
        let (_home, model, ended) = written(Box::new(|_, _| None), &[END]).await;
        ended.unwrap();
        model.take_moments().into_iter().map(|moment| moment.does).collect::<Vec<Does>>()
    });
    let plain = &plain[0];
    let cases: Vec<u64> = (0..size("CUTOVER_DISK_FAILURES", 12)).collect();
    let went = on_threads(cases, |case| async move {
        let mut chance = Chance::of(seed.wrapping_add(case));
        let trouble =
            [Short, FileNotSynced, DirectoryNotSynced, NamedWithAnError, NotCreated, NotNamed][case as usize % 6];
        let fitting: Vec<usize> = (0..plain.len()).filter(|number| trouble.fits(plain[*number])).collect();
        let (first, times) = (chance.below(fitting.len() as u64) as usize, [1, 2, 5, 30][chance.below(4) as usize]);
        let (begin, mut seen) = (fitting[first], 0);
        let script = move |_: usize, does: Does| {
            seen += usize::from(trouble.fits(does));
            let comes = trouble.fits(does) && (first + 1..=first + times).contains(&seen);
            comes.then_some(trouble)
        };
        let (_home, model, ended) = written(Box::new(script), &[END]).await;
        let fired = model.fired();
        let calls = model.calls();
        let mut wrong: Vec<String> = ended.err().map(|e| format!("the process ends with {e:?}")).into_iter().collect();
        assert!(!fired.is_empty(), "{trouble:?} from call {begin} never happened");
        let some: BTreeSet<usize> = (0..20).map(|_| begin + chance.below(60) as usize).chain([calls - 1]).collect();
        let (cuts, found) = cut(&model, &mut chance, |number| some.contains(&number), 6).await;
        wrong.extend(found);
        let wrong: Vec<String> =
            wrong.into_iter().map(|what| format!("{trouble:?} from call {begin} (case {case}): {what}")).collect();
        (fired, cuts, wrong)
    });
    let mut fired: BTreeMap<Trouble, u64> = BTreeMap::new();
    went.iter().flat_map(|(each, ..)| each).for_each(|(trouble, times)| *fired.entry(*trouble).or_default() += times);
    let wrong: Vec<String> = went.iter().flat_map(|(.., wrong)| wrong.clone()).collect();
    none(seed, &wrong);
    let cuts: u64 = went.iter().map(|(_, cuts, _)| cuts).sum();
    eprintln!("{TEST}: {} runs, {cuts} cuts, fired {fired:?}, 0 violations", went.len());
    assert_eq!(fired.len(), 6, "a failure never fired: {fired:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_in_parts_is_there_whole_once_it_is_complete_and_not_at_all_before() {
    const TEST: &str = "an_upload_in_parts_is_there_whole_once_it_is_complete_and_not_at_all_before";
    let (home, mut chance) = (TempDir::new().unwrap(), Chance::new(TEST));
    let model = self::model(&home.path().canonicalize().unwrap(), &truth(), Box::new(|_, _| None));
    let (store, path) = (store(&model), Path::from("data.parquet"));
    let mut upload = store.put_multipart(&path).await.unwrap();
    for part in ["ab", "cde", "f"] {
        upload.put_part(part.into()).await.unwrap();
    }
    let named_at = model.calls();
    upload.complete().await.unwrap();
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "abcdef");
    let moments = model.take_moments();
    let complete = moments.len() - 1;
    for (number, moment) in moments.iter().enumerate() {
        for _ in 0..20 {
            let found = moment.platter.after_a_cut(model.root(), &mut chance).remove("data.parquet");
            let is_right = match &found {
                Some(bytes) => number >= named_at && bytes == b"abcdef",
                None => number < complete,
            };
            assert!(is_right, "after call {number} of {complete}: {found:?}; seed {}", chance.seed);
        }
    }
    let mut upload = store.put_multipart(&path).await.unwrap();
    upload.put_part("x".into()).await.unwrap();
    upload.abort().await.unwrap();
    assert_eq!(crate::program::names(home.path()), ["data.parquet"], "nothing staged stays");
}
