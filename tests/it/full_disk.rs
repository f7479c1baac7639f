//! The program on a disk that has no room left.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::program::{Chance, Model, PATIENCE, Site, UNSYNCED, size, wait_until};

const TEST: &str = "without_room_no_version_names_a_file_that_is_not_whole_and_with_room_delivery_goes_on_by_itself";
/// Set where the test runs in a namespace of its own, in which it may mount.
const INSIDE: &str = "CUTOVER_IN_A_NAMESPACE";

/// Takes the disk's room away but for `left` bytes.
pub(crate) fn fill(path: &Path, left: u64) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    let length = file.metadata().unwrap().len();
    file.set_len(length.saturating_sub(left)).unwrap();
}

/// Whether this machine lets us mount in a namespace of our own.
fn is_mountable() -> bool {
    let mounted = Command::new("unshare").args(["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    mounted.is_ok_and(|ran| ran.status.success())
}

/// Runs `played` where it may mount: in a namespace of its own, in which the test `module::test` runs once more.
pub(crate) fn in_a_namespace(module: &str, test: &str, played: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return played();
    }
    if !is_mountable() {
        // Not by a macro, whose words the test harness would keep to itself.
        let _ = writeln!(std::io::stderr(), "skipped: {test}; nothing can be mounted by unshare -rm");
        return;
    }
    let mut command = Command::new("unshare");
    command.arg("-rm").arg(std::env::current_exe().unwrap()).args(["--nocapture", "--exact"]);
    let status = command.arg(format!("{module}::{test}")).env(INSIDE, "1").status().unwrap();
    assert!(status.success(), "what happened inside is said above");
}

/// Mounts a file system of memory at `path`.
pub(crate) fn mount(path: &Path, options: &str) {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(path).status();
    assert!(mounted.unwrap().success());
}

#[test]
fn without_room_no_version_names_a_file_that_is_not_whole_and_with_room_delivery_goes_on_by_itself() {
    in_a_namespace("full_disk", TEST, on_a_small_disk);
}

fn on_a_small_disk() {
    let site = Site::new();
    fs::create_dir(site.table()).unwrap();
    mount(&site.table(), "size=2m");
    let mut model = Model::new(&site, 300, Chance::new(TEST));
    let (seed, rounds) = (model.chance.seed, size("CUTOVER_FULL_DISKS", 2));
    let filler = site.table().join("_filler");
    let (mut in_data, mut in_log) = (0, 0);
    for round in 0..rounds {
        let args: &[&str] = if model.chance.one_in(2) { &["run", UNSYNCED] } else { &["run"] };
        // From nothing at all to a data file and a half.
        let left = model.chance.below(6) * 4096;
        let is_begun = round > 0 && model.chance.one_in(2);
        if !is_begun {
            fill(&filler, left);
        }
        let mut process = site.start(args);
        if is_begun {
            model.land_changes();
            assert!(wait_until(PATIENCE, || site.last_step() == Some(model.step)), "{}; seed {seed}", process.said());
            fill(&filler, left);
        }
        let mut is_stuck = false;
        wait_until(PATIENCE, || {
            if model.step < 100_000 && model.chance.one_in(20) {
                model.land_changes();
            }
            is_stuck = process.said().contains("again");
            is_stuck || process.ended().is_some()
        });
        assert!(is_stuck, "the disk was not full: {:?}, {}; seed {seed}", process.ended(), process.said());
        if process.said().contains("put again") {
            in_log += 1;
        } else {
            in_data += 1;
        }
        if !site.stamps().is_empty() {
            site.run(&["verify", "table"]).ended(0, seed);
        }
        if model.chance.one_in(4) {
            process.kill();
            process = site.start(args);
        }
        File::options().write(true).open(&filler).unwrap().set_len(0).unwrap();
        let is_done = wait_until(PATIENCE, || site.last_step() == Some(model.step) || process.ended().is_some());
        assert!(is_done && process.ended().is_none(), "it does not go on: {}; seed {seed}", process.said());
        process.kill();
    }
    site.check(&model, TEST);
    let versions = site.stamps().len();
    eprintln!(
        "{TEST}: the disk was full {rounds} times, in data files {in_data}, in the log {in_log}; {versions} versions"
    );
}
