use proptest::prelude::*;

use super::*;
use crate::continuity::columns::MAX_COLUMN_ID;
use crate::continuity::commit::{Added, Removed, Shown};
use crate::continuity::stamp::{CONTRACT, Layout};
use crate::step::Step;

/// What happens to the model's table next.
#[derive(Debug, Clone)]
enum Event {
    Append { steps: u64, files: usize },
    Claim,
    Reload { ahead: u64, files: usize },
    Merge,
    Split { parts: usize },
    Delete,
    Analyze { which: usize },
    Property,
    Comment,
    Other { operation: &'static str },
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1u64..5, 0usize..3).prop_map(|(steps, files)| Event::Append { steps, files }),
        1 => Just(Event::Claim),
        1 => (0u64..3, 0usize..4).prop_map(|(ahead, files)| Event::Reload { ahead, files }),
        1 => Just(Event::Merge),
        1 => (1usize..4).prop_map(|parts| Event::Split { parts }),
        1 => Just(Event::Delete),
        1 => any::<usize>().prop_map(|which| Event::Analyze { which }),
        1 => Just(Event::Property),
        1 => Just(Event::Comment),
        1 => prop::sample::select(vec!["VACUUM START", "VACUUM END", "ADD FEATURE", "CLUSTER BY"])
            .prop_map(|operation| Event::Other { operation }),
    ]
}

/// A table that keeps the contract.
struct Model {
    commits: Vec<Commit>,
    table: Table,
    live: Vec<(FileId, u64)>,
    last: CommitStamp,
    drawn: u64,
}

impl Model {
    fn new() -> Self {
        let last = CommitStamp {
            cutover: CONTRACT,
            kind: Kind::Reload,
            connector: "p/v/c".into(),
            generation: Generation::FIRST,
            epoch: Epoch::FIRST,
            writer: "w1".into(),
            commit: "c0".into(),
            from: None,
            to: Step::new(100).unwrap(),
            rows: RowCounts::default(),
            digest: Digest::EMPTY,
            digest_total: Some(Digest::EMPTY),
            rows_total: Some(RowCounts::default()),
            source: None,
            strand: None,
            reset: None,
            adopt: None,
        };
        let schema = format!(
            "{{\"type\":\"struct\",\"fields\":[{},{{\"name\":\"x\",\"type\":\"long\",\"nullable\":true,\"metadata\":{{}}}}]}}",
            row_fields()
        );
        let table = Table { schema, ..Table::default() };
        let mut model = Self { commits: Vec::new(), table, live: Vec::new(), last: last.clone(), drawn: 0 };
        model.reload(last, 2);
        model
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    fn push(
        &mut self,
        author: Author,
        adds: Vec<Added>,
        removes: Vec<Removed>,
        txns: Vec<(String, i64)>,
        table: Option<Table>,
    ) {
        self.live.retain(|(file, _)| !removes.iter().any(|r| r.file == *file));
        self.live.extend(adds.iter().map(|a| (a.file.clone(), a.rows.unwrap())));
        if let Some(table) = &table {
            self.table = table.clone();
        }
        let version = self.commits.len() as u64;
        self.commits.push(Commit {
            version,
            millis: None,
            author,
            adds,
            removes,
            txns,
            table,
            dated_txns: vec![],
            refused_features: vec![],
            unknown_actions: vec![],
            repeated_actions: vec![],
        });
    }

    fn ours(&mut self, stamp: CommitStamp, adds: Vec<Added>, removes: Vec<Removed>, table: Option<Table>) {
        let mut txns = vec![(TXN_STEP.to_string(), stamp.to.as_i64())];
        if matches!(stamp.kind, Kind::Mark | Kind::Reload) {
            txns.push((TXN_EPOCH.to_string(), stamp.epoch.as_i64()));
        }
        self.last = stamp.clone();
        let reload = stamp.kind == Kind::Reload;
        let shown = Shown {
            first: true,
            blind_append: Some(!reload),
            rows: Some(stamp.rows.total()),
            files: Some(adds.len() as u64),
            bytes: Some(adds.iter().map(|a| a.size).sum()),
            removed: reload.then_some(removes.len() as u64),
        };
        self.push(Author::Ours { stamp: Box::new(stamp), shown }, adds, removes, txns, table);
    }

    fn files(&mut self, files: usize, data_change: bool) -> Vec<Added> {
        (0..files)
            .map(|_| {
                let n = self.draw();
                let file = FileId { path: format!("f{n}.parquet"), vector: None };
                Added { file, size: n * 10, rows: Some(n % 7 + 1), data_change, partition_values: 0 }
            })
            .collect()
    }

    fn removes(&self, data_change: bool) -> Vec<Removed> {
        self.live.iter().map(|(file, _)| Removed { file: file.clone(), data_change }).collect()
    }

    fn reload(&mut self, mut stamp: CommitStamp, files: usize) {
        let adds = self.files(files, true);
        stamp.rows = RowCounts { i: adds.iter().map(|a| a.rows.unwrap()).sum(), ..RowCounts::default() };
        stamp.digest = Digest::from_u128(u128::from(self.draw()));
        (stamp.digest_total, stamp.rows_total) = (Some(stamp.digest), Some(stamp.rows));
        let table = TableStamp {
            connector: stamp.connector.clone(),
            generation: stamp.generation,
            step: stamp.to,
            mode: Mode::SnapshotAndFollow,
            layout: Layout::Changelog,
            key: vec!["x".into()],
            source: "s".into(),
            commit: stamp.commit.clone(),
        };
        let table = Table { properties: table.encode(), ..self.table.clone() };
        let removes = self.removes(true);
        self.ours(stamp, adds, removes, Some(table));
    }

    fn apply(&mut self, event: &Event) {
        let n = self.draw();
        let next = CommitStamp { commit: format!("c{n}"), from: Some(self.last.to), ..self.last.clone() };
        let later = |steps| Step::new(self.last.to.get() + steps).unwrap();
        match event {
            Event::Append { steps, files } => {
                let to = later(*steps);
                let adds = self.files(*files, true);
                let digest = Digest::from_u128(u128::from(n));
                let rows = RowCounts { u: adds.iter().map(|a| a.rows.unwrap()).sum(), ..RowCounts::default() };
                let digest_total = self.last.digest_total.map(|total| total.plus(digest));
                let rows_total = self.last.rows_total.map(|total| total + rows);
                self.ours(
                    CommitStamp { kind: Kind::Append, to, rows, digest, digest_total, rows_total, ..next },
                    adds,
                    vec![],
                    None,
                );
            }
            Event::Claim => {
                let epoch = self.last.epoch.next().unwrap();
                let (rows, digest) = (RowCounts::default(), Digest::EMPTY);
                self.ours(
                    CommitStamp { kind: Kind::Mark, epoch, writer: format!("w{epoch}"), rows, digest, ..next },
                    vec![],
                    vec![],
                    None,
                );
            }
            Event::Reload { ahead, files } => {
                let (to, generation) = (later(*ahead), self.last.generation.next().unwrap());
                self.reload(CommitStamp { kind: Kind::Reload, from: None, to, generation, ..next }, *files);
            }
            Event::Merge => self.rewrite(1, false),
            Event::Split { parts } => self.rewrite(*parts, false),
            // The rows that go with a file's vector are in another file.
            Event::Delete => self.rewrite(2, true),
            Event::Analyze { which } => {
                if !self.live.is_empty() {
                    let (file, rows) = self.live.remove(which % self.live.len());
                    let again = Added { file, size: 1, rows: Some(rows), data_change: false, partition_values: 0 };
                    self.push(Author::Foreign(Some("COMPUTE STATS".into())), vec![again], vec![], vec![], None);
                }
            }
            Event::Comment => {
                let schema = format!(
                    "{{\"type\":\"struct\",\"fields\":[{},{{\"name\":\"x\",\"type\":\"long\",\"nullable\":true,\"metadata\":{{\"comment\":\"{n}\"}}}}]}}",
                    row_fields()
                );
                self.push(
                    Author::Foreign(Some("CHANGE COLUMN".into())),
                    vec![],
                    vec![],
                    vec![],
                    Some(Table { schema, ..self.table.clone() }),
                );
            }
            Event::Property => {
                let mut table = self.table.clone();
                table.properties.insert("delta.logRetentionDuration".into(), format!("interval {n} days"));
                self.push(Author::Foreign(Some("SET TBLPROPERTIES".into())), vec![], vec![], vec![], Some(table));
            }
            Event::Other { operation } => {
                let author = Author::Foreign(Some(operation.to_string()));
                self.push(author, vec![], vec![], vec![("their app".into(), 7)], None);
                self.commits.last_mut().unwrap().unknown_actions.push("theirs".into());
            }
        }
    }

    /// Files of others in place of ours, with the same rows.
    fn rewrite(&mut self, parts: usize, vectors: bool) {
        let rows: u64 = self.live.iter().map(|(_, rows)| rows).sum();
        let removes = self.removes(false);
        let mut adds = self.files(parts, false);
        for (at, add) in adds.iter_mut().enumerate() {
            add.rows = Some(rows / parts as u64 + if at == 0 { rows % parts as u64 } else { 0 });
            add.file.vector = vectors.then(|| format!("u{at}"));
        }
        self.push(Author::Foreign(Some("OPTIMIZE".into())), adds, removes, vec![], None);
    }
}

fn row_fields() -> String {
    let fields = ["__generation", "__step", "__op"].iter().zip(["long", "long", "string"]);
    let fields =
        fields.map(|(n, t)| format!("{{\"name\":\"{n}\",\"type\":\"{t}\",\"nullable\":false,\"metadata\":{{}}}}"));
    fields.collect::<Vec<_>>().join(",")
}

/// How many histories are tried.
fn cases() -> u32 {
    std::env::var("CUTOVER_HISTORIES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000)
}

fn findings(commits: &[Commit]) -> Vec<Finding> {
    let mut history = History::from_the_start();
    commits.iter().for_each(|c| history.fold(c));
    history.findings().to_vec()
}

/// A commit of ours changed in one way that breaks a rule.
fn damaged(commit: &Commit, way: usize) -> Option<Commit> {
    let mut commit = commit.clone();
    let Author::Ours { stamp, shown } = &mut commit.author else { return None };
    match way {
        0 => stamp.to = Step::new(stamp.to.get() + 1).unwrap(),
        1 => stamp.digest_total = Some(Digest::from_u128(1 << 100)),
        2 => stamp.rows.d += 1,
        3 => stamp.writer = "somebody".into(),
        4 => stamp.connector = "p/v/other".into(),
        5 => shown.rows = shown.rows.map(|n| n + 1),
        6 => shown.first = false,
        7 => commit.txns.clear(),
        8 if !commit.adds.is_empty() => commit.adds[0].data_change = false,
        9 if !commit.adds.is_empty() => drop(commit.adds.pop()),
        10 => commit.author = Author::Foreign(None),
        11 => stamp.kind = Kind::Maintenance,
        12 => shown.files = None,
        13 => shown.blind_append = shown.blind_append.map(|blind| !blind),
        14 => commit.dated_txns.push(TXN_STEP.into()),
        15 => commit.txns.push((TXN_STEP.into(), stamp.to.as_i64())),
        16 => commit.repeated_actions.push("metaData".into()),
        17 if !commit.adds.is_empty() => commit.adds[0].partition_values = 1,
        18 if !commit.adds.is_empty() => commit.adds[0].file.path = "s3://elsewhere/f.parquet".into(),
        19 if !commit.adds.is_empty() => commit.adds.push(commit.adds[0].clone()),
        20 => commit.removes.push(Removed { file: FileId { path: "never".into(), vector: None }, data_change: true }),
        21 => stamp.commit = "c0".into(),
        22 => stamp.digest_total = None,
        23 => stamp.rows.i += 1,
        24 => stamp.rows_total = stamp.rows_total.map(|total| RowCounts { u: total.u + 1, ..total }),
        25 if !commit.removes.is_empty() => commit.removes[0].data_change = !commit.removes[0].data_change,
        _ => return None,
    }
    Some(commit)
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 4 * cases(), ..ProptestConfig::with_cases(cases()) })]
    #[test]
    fn a_table_that_keeps_the_contract_has_no_findings(events in proptest::collection::vec(any_event(), 0..40)) {
        let mut model = Model::new();
        events.iter().for_each(|e| model.apply(e));
        prop_assert_eq!(findings(&model.commits), vec![]);
    }

    #[test]
    fn a_commit_that_breaks_a_rule_is_found_at_its_version(
        events in proptest::collection::vec(any_event(), 1..20), at in any::<prop::sample::Index>(), way in 0usize..26,
    ) {
        let mut model = Model::new();
        events.iter().for_each(|e| model.apply(e));
        let version = at.index(model.commits.len());
        // The first epoch's writer and connector are whatever its first commit says.
        prop_assume!(version > 0);
        if let Some(broken) = damaged(&model.commits[version], way) {
            // A new writer of a new epoch may have any name, and commits without rows may be called maintenance.
            let stamp = model.commits[version].stamp().unwrap();
            prop_assume!(!(way == 3 && model.commits[version].txn(TXN_EPOCH).is_some()));
            prop_assume!(!(way == 11 && stamp.kind == Kind::Mark));
            model.commits[version] = broken;
            let found = findings(&model.commits[..=version]);
            prop_assert!(found.iter().any(|f| f.version == version as u64), "way {way}: {found:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 4 * cases(), ..ProptestConfig::with_cases(cases()) })]
    #[test]
    fn a_log_without_its_beginning_has_no_findings_either(
        events in proptest::collection::vec(any_event(), 1..40), at in any::<prop::sample::Index>(),
    ) {
        let mut model = Model::new();
        events.iter().for_each(|e| model.apply(e));
        let cut = at.index(model.commits.len());
        let (cleaned, kept) = model.commits.split_at(cut);
        prop_assume!(!cleaned.is_empty());
        let mut before = History::from_the_start();
        cleaned.iter().for_each(|c| before.fold(c));
        let mut history = History::from_the_middle(before.table().cloned());
        let last = before.last().map(|l| l.stamp.clone());
        history.know_txns(last.as_ref().map(|l| l.to.as_i64()), last.as_ref().map(|l| l.epoch.as_i64()));
        history.know_live_files(|| before.live().unwrap().clone());
        kept.iter().for_each(|c| history.fold(c));
        prop_assert_eq!(history.findings().to_vec(), vec![]);
        prop_assert_eq!(history.unclear().to_vec(), vec![]);
    }
}

#[test]
fn segments_tell_the_generations() {
    let mut model = Model::new();
    for event in [
        Event::Append { steps: 3, files: 1 },
        Event::Reload { ahead: 2, files: 1 },
        Event::Append { steps: 1, files: 1 },
    ] {
        model.apply(&event);
    }
    let mut history = History::from_the_start();
    model.commits.iter().for_each(|c| history.fold(c));
    let seen: Vec<_> = history
        .segments()
        .iter()
        .map(|s| (s.generation.get(), s.cutover.unwrap().get(), s.last_step.get(), s.commits))
        .collect();
    assert_eq!(seen, [(1, 100, 103, 2), (2, 105, 106, 2)]);
}

#[test]
fn what_others_change_is_told_apart() {
    let model = Model::new();
    let mut history = History::from_the_start();
    model.commits.iter().for_each(|c| history.fold(c));
    let foreign = |change: &dyn Fn(&mut Commit)| {
        let mut commit = Commit {
            version: 1,
            author: Author::Foreign(None),
            adds: vec![],
            removes: vec![],
            txns: vec![],
            table: None,
            ..model.commits[0].clone()
        };
        change(&mut commit);
        matches!(history.classify(&commit), Foreign::Drift(_))
    };
    let added = |data_change, rows| Added {
        file: FileId { path: "x".into(), vector: None },
        size: 1,
        rows: Some(rows),
        data_change,
        partition_values: 0,
    };
    assert!(!foreign(&|_| {}));
    assert!(foreign(&|c| c.adds.push(added(true, 1))));
    assert!(foreign(&|c| c.adds.push(added(false, 1))), "rows out of nowhere");
    assert!(foreign(&|c| c.txns.push((TXN_STEP.into(), 9))));
    assert!(!foreign(&|c| c.unknown_actions.push("magic".into())), "readers pass over what they do not know");
    assert!(foreign(&|c| c
        .removes
        .push(Removed { file: FileId { path: "x".into(), vector: None }, data_change: false })));
    assert!(foreign(&|c| c.refused_features.push("rowTracking".into())));
    assert!(foreign(&|c| c.table = Some(Table { schema: "other".into(), ..model.table.clone() })));
    assert!(foreign(&|c| c.table = Some(Table { properties: Default::default(), ..model.table.clone() })));
}

#[test]
fn a_commit_of_ours_adds_nullable_columns_and_changes_nothing_else_of_the_table() {
    let typed = |name: &str, data_type: &str, null: bool| {
        format!(r#"{{"name":"{name}","type":"{data_type}","nullable":{null},"metadata":{{}}}}"#)
    };
    let field = |name: &str, null: bool| typed(name, "long", null);
    let marks = [("__generation", "long"), ("__step", "long"), ("__op", "string")];
    let marks = marks.map(|(name, data_type)| typed(name, data_type, false));
    let schema =
        |fields: &[String]| format!(r#"{{"type":"struct","fields":[{}]}}"#, [&marks, fields].concat().join(","));
    let wider = schema(&[field("a", false), field("b", true)]);
    let base = Model::new();
    let old = Table { schema: schema(&[field("a", false)]), ..base.table.clone() };
    let set = |kind: Kind, table: Table| {
        let mut model = Model::new();
        model.commits[0].table = Some(old.clone());
        model.apply(&if kind == Kind::Mark { Event::Claim } else { Event::Append { steps: 1, files: 1 } });
        model.commits[1].table = Some(table);
        findings(&model.commits)
    };
    let told = |found: &[Finding], rule: Rule, part: &str| {
        assert!(found.iter().any(|f| f.rule == rule && f.message.contains(part)), "{part}: {found:?}");
    };
    let with = |change: &dyn Fn(&mut Table)| {
        let mut table = Table { schema: wider.clone(), ..old.clone() };
        change(&mut table);
        table
    };
    assert_eq!(set(Kind::Append, with(&|_| {})), []);
    told(&set(Kind::Mark, with(&|_| {})), Rule::Drift, "which an append alone does");
    let never_null = schema(&[field("a", false), field("b", false)]);
    told(&set(Kind::Append, with(&|t| t.schema = never_null.clone())), Rule::Drift, "may not be null");
    let looser = schema(&[field("a", true)]);
    told(&set(Kind::Append, with(&|t| t.schema = looser.clone())), Rule::Drift, "\"a\" is not what it was");
    told(&set(Kind::Append, with(&|t| t.partition_by.push("a".into()))), Rule::Drift, "partitioning");
    let owner = |t: &mut Table| drop(t.properties.insert("owner".into(), "me".into()));
    told(&set(Kind::Append, with(&owner)), Rule::Drift, "changes the table properties");
    // Ids of mapped columns only grow.
    let highest = |t: &mut Table, id: &str| drop(t.properties.insert(MAX_COLUMN_ID.into(), id.into()));
    assert_eq!(set(Kind::Append, with(&|t| highest(t, "7"))), []);
    let mut mapped = old.clone();
    highest(&mut mapped, "7");
    let mut model = Model::new();
    model.commits[0].table = Some(mapped);
    model.apply(&Event::Append { steps: 1, files: 1 });
    model.commits[1].table = Some(with(&|t| highest(t, "6")));
    told(&findings(&model.commits), Rule::Drift, "changes the table properties");
    told(&set(Kind::Append, with(&|t| t.properties.clear())), Rule::Reload, "properties that a reload writes");
}
