//! pgbench at full speed while its tables are loaded, followed and loaded again: at drawn positions of the server's log,
//! each table is what the server had there.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cutover::{Clock, SystemClock};
use serde_json::Value;

use super::follow::address;
use super::server::Postgres;
use super::site::Site;
use crate::program::{Chance, PATIENCE, Ran, Readers, Running, size, wait_until};

/// Views, and the text of a row as `pgbench.py` has it. Blanks at the end of a `char(n)` stay only where it is not cast.
const TABLES: [(&str, &str); 4] = [
    ("accounts", "concat_ws('|', aid, bid, abalance, CASE WHEN filler IS NULL THEN '~' ELSE concat(filler) END)"),
    ("branches", "concat_ws('|', bid, bbalance, CASE WHEN filler IS NULL THEN '~' ELSE concat(filler) END)"),
    ("tellers", "concat_ws('|', tid, bid, tbalance, CASE WHEN filler IS NULL THEN '~' ELSE concat(filler) END)"),
    (
        "history",
        "concat_ws('|', tid, bid, aid, delta, (extract(epoch FROM mtime) * 1000000)::int8,
        CASE WHEN filler IS NULL THEN '~' ELSE concat(filler) END)",
    ),
];
/// How many samples have all rows rather than their sums alone.
const IN_FULL: u64 = 3;

/// What the server had at a position of its log.
struct Sample {
    at: u64,
    /// Rows and their sum, table by table.
    figures: Vec<(String, String)>,
    /// All rows, a file for each table.
    rows: Option<Vec<PathBuf>>,
    /// How many versions the tables had by then.
    known: Vec<usize>,
}

/// Where the state at a step is read from.
struct Held {
    version: usize,
    generation: u64,
    loaded_by: usize,
}

/// One of the server's programs that is not psql.
fn client(server: &Postgres, program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(Path::new(server.psql().get_program()).with_file_name(program));
    command.args(args).arg(server.url_of("postgres")).current_dir("/").stdin(Stdio::null());
    command
}

/// The server's own answer, in the snapshot of a slot that ends with the session.
fn sample(server: &Postgres, site: &Site, into: Option<PathBuf>) -> Sample {
    let known = TABLES.iter().map(|(view, _)| site.stamps(view).len()).collect();
    let rows = into.map(|folder| {
        std::fs::create_dir(&folder).unwrap();
        server.give(&folder);
        TABLES.iter().map(|(view, _)| folder.join(view)).collect::<Vec<_>>()
    });
    let mut said = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;\n\
        CREATE_REPLICATION_SLOT sample TEMPORARY LOGICAL pgoutput USE_SNAPSHOT;\n"
        .to_owned();
    for (number, (view, text)) in TABLES.iter().enumerate() {
        let text = text.replace('\n', " ");
        said += &format!(
            "SELECT count(*), coalesce(sum(('x' || substr(md5({text}), 1, 15))::bit(60)::int8), 0) FROM pgbench_{view};\n"
        );
        if let Some(rows) = &rows {
            said += &format!("\\copy (SELECT {text} FROM pgbench_{view}) TO '{}'\n", rows[number].display());
        }
    }
    // Statements that come in one message are refused in such a session.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &said).unwrap();
    let mut psql = server.psql();
    psql.args(["-d", "dbname=postgres replication=database"]).stdin(file.reopen().unwrap());
    let ran = Ran::of(psql.output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let mut lines = ran.stdout.lines();
    let slot = lines.next().unwrap();
    let (high, low) = slot.split('|').nth(1).and_then(|lsn| lsn.split_once('/')).unwrap();
    let half = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let pair = |line: &str| line.split_once('|').map(|(count, sum)| (count.to_owned(), sum.to_owned())).unwrap();
    Sample { at: half(high) << 32 | half(low), figures: lines.map(pair).collect(), rows, known }
}

/// The first version from which the state at `step` is read; `None` where a load began after it, and nothing before
/// the load reached it.
fn held(stamps: &[Value], step: u64) -> Option<Held> {
    let mut load = None;
    for (version, stamp) in stamps.iter().enumerate() {
        let (Some(to), Some(generation)) = (stamp["to"].as_u64(), stamp["generation"].as_u64()) else { continue };
        if stamp["kind"] == "reload" {
            load = Some((version, to));
        }
        match load {
            Some((loaded_by, begun)) if begun <= step && step <= to => {
                return Some(Held { version, generation, loaded_by });
            }
            _ => {}
        }
    }
    None
}

/// Waits until every table is as far as each of the samples, and takes those again that no version has.
fn settle(server: &Postgres, site: &Site, running: &mut Running, samples: &mut [Sample]) -> u64 {
    let mut again = 0;
    loop {
        assert!(running.ended().is_none(), "the program ended; it said: {}", running.said());
        let last = samples.iter().map(|sample| sample.at).max().unwrap_or(0);
        let stamps: Vec<Vec<Value>> = TABLES.iter().map(|(view, _)| site.stamps(view)).collect();
        if !stamps.iter().all(|stamps| reached(stamps) >= last) {
            std::thread::park_timeout(Duration::from_millis(50));
            touch(server);
            continue;
        }
        let is_lost = |sample: &Sample| stamps.iter().any(|stamps| held(stamps, sample.at).is_none());
        let Some(lost) = samples.iter_mut().find(|sample| is_lost(sample)) else { return again };
        again += 1;
        let into = lost.rows.as_ref().map(|rows| rows[0].parent().unwrap().with_extension(again.to_string()));
        *lost = sample(server, site, into);
    }
}

fn reached(stamps: &[Value]) -> u64 {
    stamps.iter().filter_map(|stamp| stamp["to"].as_u64()).max().unwrap_or(0)
}

/// Changes every table, so that each has a step after all that came before.
fn touch(server: &Postgres) {
    server.sql(
        "BEGIN; UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = 1;
        UPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 1;
        UPDATE pgbench_tellers SET tbalance = tbalance + 1 WHERE tid = 1;
        INSERT INTO pgbench_history VALUES (1, 1, 1, 1, now(), NULL); COMMIT",
    );
}

/// What pgbench says of its speed.
fn rate(bench: Child) -> String {
    let ran = Ran::of(bench.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let line = ran.stdout.lines().find_map(|line| line.strip_prefix("tps = ")).unwrap();
    line.split(' ').next().unwrap().to_owned()
}

#[test]
fn tables_under_pgbench_are_the_servers_at_any_position() {
    const TEST: &str = "tables_under_pgbench_are_the_servers_at_any_position";
    if std::env::var_os("CUTOVER_PGBENCH_SECONDS").is_none() {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: {TEST}; it takes minutes, set CUTOVER_PGBENCH_SECONDS, see tests/deep.sh"
        );
        return;
    }
    let (Some(server), Some(readers)) = (Postgres::find(TEST), Readers::find(TEST)) else { return };
    let mut chance = Chance::new(TEST);
    let seed = chance.seed;
    let (scale, clients) = (size("CUTOVER_PGBENCH_SCALE", 1), size("CUTOVER_PGBENCH_CLIENTS", 4));
    let (seconds, count) = (size("CUTOVER_PGBENCH_SECONDS", 4), size("CUTOVER_PGBENCH_SAMPLES", 3));
    let made = client(&server, "pgbench", &["-i", "-q", "-s", &scale.to_string()]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    server.sql("ALTER TABLE pgbench_history REPLICA IDENTITY FULL");
    let named = TABLES.map(|(view, _)| (view, format!("pgbench_{view}")));
    let site = Site::new(&server, &named.each_ref().map(|(view, table)| (*view, table.as_str())), "");
    let (clients, limit) = (clients.to_string(), seconds.to_string());
    let mut bench = client(&server, "pgbench", &["-n", "-j", "2", "-c", &clients, "-T", &limit]);
    let mut bench = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = SystemClock.boot();
    let mut running = site.start();
    let url = address(&running);
    let is_loading = || server.sql("SELECT count(*) FROM pg_replication_slots WHERE temporary") != "0";
    let (mut samples, mut at_full_speed) = (Vec::new(), 0);
    for number in 0..count {
        if number == 0 {
            wait_until(Duration::from_secs(1), is_loading);
        } else if number == count * 2 / 3 {
            // A reset during the first load takes its place, and begins the first generation.
            let is_loaded = wait_until(PATIENCE, || !site.stamps("accounts").is_empty());
            assert!(is_loaded, "{}; seed {seed}", running.said());
            site.run(&["reset", "p/accounts/lake", "--url", &url, "--yes"]).ended(0, seed);
            wait_until(Duration::from_secs(1), is_loading);
        } else if number * 4 >= count && number != count * 2 / 3 + 1 {
            // The last ones leave time to take them again.
            let part = Duration::from_secs(seconds).mul_f64(0.85) / u32::try_from(count).unwrap();
            let moment = part * u32::try_from(number).unwrap() + part.mul_f64(chance.below(100) as f64 / 100.0);
            wait_until(moment.saturating_sub(SystemClock.boot() - begun), || false);
        }
        let into = number % count.div_ceil(IN_FULL) == 0;
        let into = into.then(|| server.data().with_file_name(format!("sample-{number}")));
        samples.push(sample(&server, &site, into));
        at_full_speed += u64::from(bench.try_wait().unwrap().is_none());
    }
    // A reset that was asked for is carried out, however late.
    assert!(wait_until(PATIENCE, || site.generation("accounts") == 2), "{}; seed {seed}", running.said());
    let again = settle(&server, &site, &mut running, &mut samples);
    let rate = rate(bench);
    touch(&server);
    let end = SystemClock.boot();
    let number = |text: String| text.parse::<u64>().unwrap();
    let last = number(server.sql("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"));
    // The last commit may be a little before that, and nothing of the tables is between them.
    touch(&server);
    let caught_up = wait_until(PATIENCE, || TABLES.iter().all(|(view, _)| reached(&site.stamps(view)) >= last));
    assert!(caught_up, "{}; seed {seed}", running.said());
    let behind = SystemClock.boot() - end;
    // A checkpoint writes what a slot moves on by.
    let kept = "CHECKPOINT; SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)) FROM pg_replication_slots";
    let segment = number(server.sql("SELECT setting FROM pg_settings WHERE name = 'wal_segment_size'"));
    let is_free = || number(server.sql(kept)) <= segment;
    assert!(wait_until(PATIENCE, is_free), "{} bytes of WAL are kept; {}", server.sql(kept), running.said());
    let wal = number(server.sql(kept));
    assert_eq!(server.sql("SELECT count(*) FROM pg_replication_slots"), "1", "slots; seed {seed}");
    running.signal("TERM");
    assert_eq!(running.code(), Some(0), "{}; seed {seed}", running.said());
    assert_eq!(site.generation("accounts"), 2, "seed {seed}");

    let (mut lines, mut loading) = (String::new(), 0);
    let stamps = TABLES.map(|(view, _)| site.stamps(view));
    for sample in &samples {
        let mut was_loading = 0;
        for (number, (view, _)) in TABLES.iter().enumerate() {
            let held = held(&stamps[number], sample.at).unwrap();
            was_loading = u64::from(held.loaded_by >= sample.known[number]).max(was_loading);
            let (rows, sum) = &sample.figures[number];
            let file = sample.rows.as_ref().map_or(String::new(), |rows| rows[number].display().to_string());
            let (table, Held { version, generation, .. }) = (site.path(view).display().to_string(), held);
            lines += &format!("{view}\t{table}\t{version}\t{generation}\t{}\t{rows}\t{sum}\t{file}\n", sample.at);
        }
        loading += was_loading;
    }
    let told = readers.tell("pgbench.py", &[], &lines);
    for (view, _) in TABLES {
        site.run(&["verify", view, "--deep"]).ended(0, seed);
        site.run(&["verify", view, "--against", &format!("{view}/lake")]).ended(0, seed);
    }
    eprintln!(
        "pgbench -s {scale} -c {clients} -T {seconds}: {rate} transactions/s; {count} samples, {at_full_speed} of them before it ended, \
         {loading} during a load, {again} taken again later; {}; caught up {:.2} s after the end, {wal} bytes of WAL kept; {} versions",
        told.trim(),
        behind.as_secs_f64(),
        stamps.iter().map(Vec::len).sum::<usize>(),
    );
}
