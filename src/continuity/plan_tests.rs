use proptest::prelude::*;

use super::*;

fn step(n: u64) -> Step {
    Step::new(n).unwrap()
}

fn range(from: u64, to: u64) -> StepRange {
    StepRange::new(step(from), step(to)).unwrap()
}

fn identity() -> Identity {
    Identity {
        connector: "p/v/c".into(),
        mode: Mode::SnapshotAndFollow,
        layout: Layout::Changelog,
        key: vec!["id".into()],
        source: "s".into(),
    }
}

fn stamp(generation: Generation, cutover: u64, commit: &str) -> TableStamp {
    let Identity { connector, mode, layout, key, source } = identity();
    TableStamp { connector, generation, step: step(cutover), mode, layout, key, source, commit: commit.into() }
}

fn ours(last: u64, epoch: u64, writer: &str) -> Ours {
    Ours {
        strand: None,
        stamp: Some(stamp(Generation::FIRST, 0, "first")),
        connector: identity().connector,
        generation: Generation::FIRST,
        last_step: step(last),
        epoch: Epoch::new(epoch).unwrap(),
        writer: Some(writer.into()),
        digest_total: Some(Digest::EMPTY),
        rows_total: Some(RowCounts::default()),
        drift: None,
        last_millis: None,
    }
}

fn held(epoch: u64, writer: &str) -> Claim {
    Claim { epoch: Epoch::new(epoch).unwrap(), writer: writer.into() }
}

fn request(cutover: u64, commit: &str) -> ReloadRequest {
    ReloadRequest {
        cutover: step(cutover),
        commit: commit.into(),
        on_existing: OnExisting::Error,
        older: Older::Refused,
    }
}

#[test]
fn an_append_is_applied_cut_or_refused_by_where_the_table_ends() {
    let at = |last| Standing::Ours(Box::new(ours(last, 1, "w")));
    for (last, expected) in [
        (20, Ok(AppendPlan::AlreadyApplied)),
        (25, Ok(AppendPlan::AlreadyApplied)),
        (10, Ok(AppendPlan::Go(range(10, 20)))),
        (15, Ok(AppendPlan::Go(range(15, 20)))),
        (9, Err(ErrorKind::ContinuityLost)),
    ] {
        let planned = append(&at(last), &held(1, "w"), &identity(), range(10, 20)).map_err(|e| e.kind());
        assert_eq!(planned, expected, "at {last}");
    }
}

#[test]
fn only_the_holder_of_the_highest_epoch_may_write() {
    for (epoch, writer, expected) in [
        (1, "w", Ok(())),
        (2, "w", Err(ErrorKind::Fenced)),
        (2, "x", Err(ErrorKind::Fenced)),
        (1, "x", Err(ErrorKind::Fenced)),
    ] {
        let checked = check_claim(&ours(5, epoch, writer), &held(1, "w")).map_err(|e| e.kind());
        assert_eq!(checked, expected, "epoch {epoch} of {writer}");
    }
    let gone_back = check_claim(&ours(5, 1, "w"), &held(3, "w")).map_err(|e| e.kind());
    assert_eq!(gone_back, Err(ErrorKind::ContinuityLost));
}

#[test]
fn what_does_not_fit_the_table_is_refused() {
    let refused = |change: fn(&mut Ours, &mut Identity)| {
        let (mut table, mut identity) = (ours(10, 1, "w"), identity());
        change(&mut table, &mut identity);
        check_follow(&table, &identity).unwrap_err().kind()
    };
    assert_eq!(refused(|t, _| t.drift = Some("rows".into())), ErrorKind::ContinuityLost);
    assert_eq!(refused(|t, _| t.stamp = None), ErrorKind::ContinuityLost);
    assert_eq!(refused(|_, i| i.source = "other".into()), ErrorKind::ContinuityLost);
    assert_eq!(refused(|_, i| i.key = vec![]), ErrorKind::Refused);
    assert_eq!(refused(|_, i| i.connector = "p/v/d".into()), ErrorKind::Refused);
    assert_eq!(refused(|t, _| t.stamp.as_mut().unwrap().mode = Mode::Follow), ErrorKind::Refused);
    assert_eq!(check_not_behind(&ours(10, 1, "w"), step(9)).unwrap_err().kind(), ErrorKind::ContinuityLost);
    assert!(check_not_behind(&ours(10, 1, "w"), step(10)).is_ok());
}

#[test]
fn only_a_table_of_ours_changes_its_connector() {
    let standing = |change: fn(&mut Ours)| {
        let mut found = ours(12, 3, "w");
        change(&mut found);
        Standing::Ours(Box::new(found))
    };
    let connector = identity().connector;
    let planned = adopt(&standing(|_| {}), "p/v/other").unwrap();
    assert_eq!(planned, AdoptPlan::Go { epoch: Epoch::new(4).unwrap(), from: connector.clone() });
    assert_eq!(adopt(&standing(|_| {}), &connector).unwrap(), AdoptPlan::AlreadyApplied);
    let drifted = standing(|ours| ours.drift = Some("others wrote rows".into()));
    assert!(matches!(adopt(&drifted, "p/v/other"), Ok(AdoptPlan::Go { .. })));
    let without = standing(|ours| ours.stamp = None);
    let disagrees = standing(|ours| ours.connector = "p/v/third".into());
    for (standing, kind) in [
        (Standing::Absent, ErrorKind::Internal),
        (Standing::Foreign, ErrorKind::Refused),
        (without, ErrorKind::ContinuityLost),
        (disagrees, ErrorKind::ContinuityLost),
    ] {
        assert_eq!(adopt(&standing, "p/v/other").unwrap_err().kind(), kind, "{standing:?}");
    }
}

#[test]
fn a_reload_goes_on_from_what_stands_there() {
    let go = |generation: u64, epoch: u64| {
        Ok(ReloadPlan::Go { generation: Generation::new(generation).unwrap(), epoch: Epoch::new(epoch).unwrap() })
    };
    let plan = |standing: &Standing, claim: Option<&Claim>, request: &ReloadRequest| {
        reload(standing, claim, &identity(), request).map_err(|e| e.kind())
    };
    let truncate = ReloadRequest { on_existing: OnExisting::Truncate, ..request(10, "r") };
    assert_eq!(plan(&Standing::Absent, None, &request(10, "r")), go(1, 1));
    assert_eq!(plan(&Standing::Foreign, None, &request(10, "r")), Err(ErrorKind::Refused));
    assert_eq!(plan(&Standing::Foreign, None, &truncate), go(1, 1));
    let table = Standing::Ours(Box::new(ours(10, 4, "w")));
    let claim = held(4, "w");
    assert_eq!(plan(&table, Some(&claim), &request(10, "r")), go(2, 4));
    assert_eq!(plan(&table, None, &request(10, "r")), Err(ErrorKind::Refused));
    assert_eq!(plan(&table, Some(&claim), &request(9, "r")), Err(ErrorKind::Refused));
    assert_eq!(plan(&table, Some(&claim), &ReloadRequest { older: Older::Allowed, ..request(9, "r") }), go(2, 4));
    assert_eq!(plan(&table, Some(&claim), &request(10, "first")), Ok(ReloadPlan::AlreadyApplied));
    assert_eq!(plan(&table, Some(&held(3, "w")), &request(10, "r")), Err(ErrorKind::Fenced));
    assert_eq!(plan(&Standing::Absent, Some(&claim), &request(10, "r")), Err(ErrorKind::ContinuityLost));
    // Steps of another source are never compared.
    let mut other = ours(10, 4, "w");
    other.stamp.as_mut().unwrap().source = "other".into();
    assert_eq!(plan(&Standing::Ours(Box::new(other)), Some(&claim), &request(3, "r")), go(2, 4));
}

/// What a writer does next in the model.
#[derive(Debug, Clone)]
enum Act {
    Claim,
    Append { from_back: u64, length: u64 },
    Reload { ahead: u64 },
    Look,
}

fn any_act() -> impl Strategy<Value = (usize, Act)> {
    let act = prop_oneof![
        1 => Just(Act::Claim),
        4 => (0u64..4, 1u64..5).prop_map(|(from_back, length)| Act::Append { from_back, length }),
        1 => (0u64..3).prop_map(|ahead| Act::Reload { ahead }),
        2 => Just(Act::Look),
    ];
    (0usize..3, act)
}

/// One commit of the model's table.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    writer: usize,
    epoch: Epoch,
    generation: Generation,
    from: Option<Step>,
    to: Step,
}

/// A writer of the model: what it saw last, at which version, and its claim.
#[derive(Clone)]
struct Writer {
    seen: Ours,
    version: usize,
    claim: Option<Claim>,
    fenced: bool,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    /// Three writers with facts of any age, put-if-absent between them: the table stays continuous, and who is fenced
    /// stays so.
    #[test]
    fn writers_that_follow_their_plans_keep_the_table_continuous(acts in proptest::collection::vec(any_act(), 1..60)) {
        let first = ours(0, 1, "0");
        let mut head = first.clone();
        let mut rows = vec![Row { writer: 0, epoch: first.epoch, generation: first.generation, from: None, to: step(0) }];
        let start = Writer { seen: first, version: 1, claim: None, fenced: false };
        let mut writers = [Writer { claim: Some(held(1, "0")), ..start.clone() }, start.clone(), start];
        for (n, (who, act)) in acts.into_iter().enumerate() {
            let writer = &mut writers[who];
            let standing = Standing::Ours(Box::new(writer.seen.clone()));
            let last = writer.seen.last_step.get();
            let mut next = writer.seen.clone();
            let mut row = Row { writer: who, epoch: next.epoch, generation: next.generation, from: Some(next.last_step), to: next.last_step };
            let planned: Result<()> = match act {
                Act::Look => { writer.seen = head.clone(); writer.version = rows.len(); continue }
                Act::Claim => claim(&writer.seen, &identity()).map(|epoch| {
                    next.epoch = epoch;
                    next.writer = Some(who.to_string());
                    row.epoch = epoch;
                }),
                Act::Append { from_back, length } => {
                    let Some(claim) = writer.claim.clone() else { continue };
                    let from = last.saturating_sub(from_back);
                    match append(&standing, &claim, &identity(), range(from, from + length)) {
                        Ok(AppendPlan::Go(go)) => {
                            next.last_step = go.to();
                            row.from = Some(go.from());
                            row.to = go.to();
                            Ok(())
                        }
                        Ok(AppendPlan::AlreadyApplied) => continue,
                        Err(e) => Err(e),
                    }
                }
                Act::Reload { ahead } => {
                    let Some(claim) = writer.claim.clone() else { continue };
                    match reload(&standing, Some(&claim), &identity(), &request(last + ahead, &format!("r{n}"))) {
                        Ok(ReloadPlan::Go { generation, .. }) => {
                            next.generation = generation;
                            next.last_step = step(last + ahead);
                            next.stamp = Some(stamp(generation, last + ahead, &format!("r{n}")));
                            row = Row { generation, from: None, to: step(last + ahead), ..row };
                            Ok(())
                        }
                        Ok(ReloadPlan::AlreadyApplied) => continue,
                        Err(e) => Err(e),
                    }
                }
            };
            match planned {
                Err(e) => {
                    if e.kind() == ErrorKind::Fenced {
                        writer.fenced = true;
                        writer.claim = None;
                    }
                }
                // Put-if-absent: only on the newest version does it land.
                Ok(()) if writer.version == rows.len() => {
                    if let Act::Claim = act {
                        writer.claim = Some(Claim { epoch: row.epoch, writer: who.to_string() });
                    }
                    rows.push(row);
                    head = next.clone();
                    writer.seen = next;
                    writer.version = rows.len();
                }
                Ok(()) => { writer.seen = head.clone(); writer.version = rows.len(); }
            }
        }
        let mut owners = std::collections::HashMap::new();
        for pair in rows.windows(2) {
            let (before, after) = (&pair[0], &pair[1]);
            prop_assert!(after.epoch >= before.epoch && after.generation >= before.generation, "{pair:?}");
            match after.from {
                Some(from) => prop_assert_eq!(from, before.to),
                None => prop_assert!(after.to >= before.to && after.generation > before.generation),
            }
        }
        for row in &rows {
            prop_assert_eq!(*owners.entry(row.epoch).or_insert(row.writer), row.writer);
        }
    }
}
