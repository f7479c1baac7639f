use proptest::prelude::*;

use super::*;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn settings(max_resets: u32, window: u64, cooldown: u64) -> BreakerSettings {
    BreakerSettings { max_resets: NonZeroU32::new(max_resets).unwrap(), window: secs(window), cooldown: secs(cooldown) }
}

fn breaker(max_resets: u32, window: u64, cooldown: u64) -> Breaker {
    Breaker::new(settings(max_resets, window, cooldown), Backoff::default())
}

#[test]
fn waits_grow_up_to_the_longest_and_jitter_takes_at_most_half() {
    let backoff = Backoff::default();
    for (tries, most) in [(0, 0), (1, 5), (2, 10), (3, 20), (7, 320), (8, 600), (9, 600), (u32::MAX, 600)] {
        assert_eq!(backoff.delay(tries, 1.0), secs(most), "{tries}");
        assert_eq!(backoff.delay(tries, 0.0), secs(most) / 2, "{tries}");
    }
}

#[test]
fn a_budget_that_is_used_up_opens_it_until_the_oldest_reset_leaves_the_window() {
    let mut breaker = breaker(3, 3600, 900);
    for at in [0, 100, 200] {
        assert_eq!(breaker.asked(secs(at)), Permit::Go);
        breaker.begun(secs(at));
        breaker.committed(secs(at + 1));
    }
    assert_eq!(breaker.asked(secs(201)), Permit::Open(secs(3399)));
    assert_eq!(breaker.automatic(secs(3599), 0.5), Permit::Open(secs(1)));
    assert_eq!(breaker.asked(secs(3600)), Permit::Go);
}

#[test]
fn the_cooldown_counts_from_the_reset_that_used_up_the_budget() {
    let mut breaker = breaker(2, 60, 900);
    breaker.begun(secs(0));
    breaker.begun(secs(10));
    breaker.committed(secs(11));
    assert_eq!(breaker.asked(secs(100)), Permit::Open(secs(810)));
}

#[test]
fn a_probe_closes_it_or_opens_it_again() {
    let mut open = breaker(1, 10, 900);
    open.begun(secs(0));
    open.failed(secs(5));
    assert_eq!(open.asked(secs(904)), Permit::Open(secs(1)));
    assert_eq!(open.asked(secs(905)), Permit::Go);

    let mut failed = open.clone();
    failed.begun(secs(905));
    failed.failed(secs(1000));
    assert_eq!(failed.asked(secs(1000)), Permit::Open(secs(900)));

    let mut cancelled = open.clone();
    cancelled.begun(secs(905));
    cancelled.cancelled(secs(1000));
    assert_eq!(cancelled.asked(secs(1000)), Permit::Go);
    cancelled.begun(secs(1000));
    cancelled.failed(secs(1001));
    assert_eq!(cancelled.asked(secs(1900)), Permit::Open(secs(1)));

    open.begun(secs(905));
    open.committed(secs(920));
    assert_eq!(open.asked(secs(920)), Permit::Go);
}

#[test]
fn a_reset_against_an_open_breaker_counts() {
    let mut breaker = breaker(2, 3600, 900);
    for at in [0, 1, 1000] {
        breaker.begun(secs(at));
    }
    breaker.committed(secs(1001));
    assert_eq!(breaker.asked(secs(3600)), Permit::Open(secs(1)), "the last two began at 1 and 1000");
}

#[test]
fn automatic_resets_keep_a_distance_that_grows() {
    let mut breaker = breaker(10, 3600, 900);
    let mut at = 0;
    for most in [0, 5, 10, 20, 40] {
        match breaker.automatic(secs(at), 1.0) {
            Permit::Go => assert_eq!(most, 0),
            permit => assert_eq!(permit, Permit::Wait(secs(most))),
        }
        at += most;
        assert_eq!(breaker.automatic(secs(at), 1.0), Permit::Go);
        breaker.begun(secs(at));
        breaker.committed(secs(at));
    }
    assert_eq!(breaker.automatic(secs(at + 4000), 1.0), Permit::Go);
}

#[derive(Debug, Clone, Copy)]
enum Move {
    Wait(u64),
    Automatic,
    Asked,
    Override,
    Committed,
    Failed,
    Cancelled,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        (0u64..2000).prop_map(Move::Wait),
        Just(Move::Automatic),
        Just(Move::Automatic),
        Just(Move::Asked),
        Just(Move::Override),
        Just(Move::Committed),
        Just(Move::Failed),
        Just(Move::Cancelled),
    ];
    proptest::collection::vec(one, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn no_window_has_more_permitted_resets_than_the_budget(
        moves in moves(), max in 1u32..5, window in 1u64..5000, cooldown in 0u64..3000
    ) {
        let mut breaker = breaker(max, window, cooldown);
        let (mut now, mut permitted) = (0, Vec::new());
        for one in moves {
            match one {
                Move::Wait(by) => now += by,
                Move::Automatic if breaker.automatic(secs(now), 0.5) == Permit::Go => {
                    permitted.push(now);
                    breaker.begun(secs(now));
                }
                Move::Asked if breaker.asked(secs(now)) == Permit::Go => {
                    permitted.push(now);
                    breaker.begun(secs(now));
                }
                Move::Automatic | Move::Asked => {}
                Move::Override => breaker.begun(secs(now)),
                Move::Committed => breaker.committed(secs(now)),
                Move::Failed => breaker.failed(secs(now)),
                Move::Cancelled => breaker.cancelled(secs(now)),
            }
            // It opens again by itself, whatever happened.
            prop_assert!(breaker.open_for(secs(now)).is_none_or(|left| left <= secs(window.max(cooldown))));
        }
        for (i, at) in permitted.iter().enumerate() {
            let within = permitted.iter().skip(i).filter(|other| **other < at + window).count();
            prop_assert!(within <= max as usize, "{within} from {at} on: {permitted:?}");
        }
    }
}
