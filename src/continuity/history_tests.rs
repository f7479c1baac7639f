use proptest::prelude::*;

use super::*;
use crate::continuity::commit::{Added, Removed};
use crate::continuity::stamp::{CONTRACT, Layout};

/// What happens to the model's table next.
#[derive(Debug, Clone)]
enum Event {
    Append { steps: u64, files: usize },
    Claim,
    Reload { ahead: u64, files: usize },
    Compact,
    Property,
    Vacuum,
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1u64..5, 0usize..3).prop_map(|(steps, files)| Event::Append { steps, files }),
        1 => Just(Event::Claim),
        1 => (0u64..3, 0usize..4).prop_map(|(ahead, files)| Event::Reload { ahead, files }),
        1 => Just(Event::Compact),
        1 => Just(Event::Property),
        1 => Just(Event::Vacuum),
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
            source: None,
            reset: None,
            adopt: None,
        };
        let mut model =
            Self { commits: Vec::new(), table: Table::default(), live: Vec::new(), last: last.clone(), drawn: 0 };
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
        let (refused_features, unknown_actions) = (Vec::new(), Vec::new());
        self.commits.push(Commit {
            version,
            millis: None,
            author,
            adds,
            removes,
            txns,
            table,
            refused_features,
            unknown_actions,
        });
    }

    fn ours(&mut self, stamp: CommitStamp, adds: Vec<Added>, removes: Vec<Removed>, table: Option<Table>) {
        let mut txns = vec![(TXN_STEP.to_string(), stamp.to.as_i64())];
        if matches!(stamp.kind, Kind::Mark | Kind::Reload) {
            txns.push((TXN_EPOCH.to_string(), stamp.epoch.as_i64()));
        }
        self.last = stamp.clone();
        let output_rows = Some(stamp.rows.total());
        self.push(Author::Ours { stamp: Box::new(stamp), output_rows, first: true }, adds, removes, txns, table);
    }

    fn files(&mut self, files: usize, data_change: bool) -> Vec<Added> {
        (0..files)
            .map(|_| {
                let n = self.draw();
                let file = FileId { path: format!("f{n}.parquet"), vector: None };
                Added { file, size: n * 10, rows: Some(n % 7 + 1), data_change }
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
        stamp.digest_total = Some(stamp.digest);
        let table = TableStamp {
            connector: stamp.connector.clone(),
            generation: stamp.generation,
            step: stamp.to,
            mode: Mode::SnapshotAndFollow,
            layout: Layout::Changelog,
            key: vec![],
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
                self.ours(
                    CommitStamp { kind: Kind::Append, to, rows, digest, digest_total, ..next },
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
            Event::Compact => {
                let rows = self.live.iter().map(|(_, rows)| rows).sum();
                let removes = self.removes(false);
                let mut adds = self.files(1, false);
                adds[0].rows = Some(rows);
                self.push(Author::Foreign(Some("OPTIMIZE".into())), adds, removes, vec![], None);
            }
            Event::Property => {
                let mut table = self.table.clone();
                table.properties.insert("delta.logRetentionDuration".into(), format!("interval {n} days"));
                self.push(Author::Foreign(Some("SET TBLPROPERTIES".into())), vec![], vec![], vec![], Some(table));
            }
            Event::Vacuum => self.push(
                Author::Foreign(Some("VACUUM START".into())),
                vec![],
                vec![],
                vec![("their app".into(), 7)],
                None,
            ),
        }
    }
}

fn findings(commits: &[Commit]) -> Vec<Finding> {
    let mut history = History::from_the_start();
    commits.iter().for_each(|c| history.fold(c));
    history.findings().to_vec()
}

/// A commit of ours changed in one way that breaks a rule.
fn damaged(commit: &Commit, way: usize) -> Option<Commit> {
    let mut commit = commit.clone();
    let Author::Ours { stamp, output_rows, first } = &mut commit.author else { return None };
    match way {
        0 => stamp.to = Step::new(stamp.to.get() + 1).unwrap(),
        1 => stamp.digest_total = Some(Digest::from_u128(1 << 100)),
        2 => stamp.rows.d += 1,
        3 => stamp.writer = "somebody".into(),
        4 => stamp.connector = "p/v/other".into(),
        5 => *output_rows = output_rows.map(|n| n + 1),
        6 => *first = false,
        7 => commit.txns.clear(),
        8 if !commit.adds.is_empty() => commit.adds[0].data_change = false,
        9 if !commit.adds.is_empty() => drop(commit.adds.pop()),
        10 => commit.author = Author::Foreign(None),
        11 => stamp.kind = Kind::Maintenance,
        _ => return None,
    }
    Some(commit)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn a_table_that_keeps_the_contract_has_no_findings(events in proptest::collection::vec(any_event(), 0..40)) {
        let mut model = Model::new();
        events.iter().for_each(|e| model.apply(e));
        prop_assert_eq!(findings(&model.commits), vec![]);
    }

    #[test]
    fn a_commit_that_breaks_a_rule_is_found_at_its_version(
        events in proptest::collection::vec(any_event(), 1..20), at in any::<prop::sample::Index>(), way in 0usize..12,
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
    };
    assert!(!foreign(&|_| {}));
    assert!(foreign(&|c| c.adds.push(added(true, 1))));
    assert!(foreign(&|c| c.adds.push(added(false, 1))), "rows out of nowhere");
    assert!(foreign(&|c| c.txns.push((TXN_STEP.into(), 9))));
    assert!(foreign(&|c| c.unknown_actions.push("magic".into())));
    assert!(foreign(&|c| c.refused_features.push("rowTracking".into())));
    assert!(foreign(&|c| c.table = Some(Table { schema: "other".into(), ..model.table.clone() })));
    assert!(foreign(&|c| c.table = Some(Table { properties: Default::default(), ..model.table.clone() })));
}

#[test]
fn a_commit_of_ours_adds_nullable_columns_and_changes_nothing_else_of_the_table() {
    let field =
        |name: &str, null: bool| format!(r#"{{"name":"{name}","type":"long","nullable":{null},"metadata":{{}}}}"#);
    let schema = |fields: &[String]| format!(r#"{{"type":"struct","fields":[{}]}}"#, fields.join(","));
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
    told(&set(Kind::Append, with(&|t| t.properties.clear())), Rule::Reload, "properties that a reload writes");
}
