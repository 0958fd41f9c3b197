use super::*;
use crate::mixer::Mixer;
use crate::stats::ALPHA;
use core::convert::Infallible;
use traceless_core::trace::{Event, Op, Request, Surface};

/// The trace of a foreign Path ORAM: eleven levels in heap order, one bucket of 256 bytes a level.
/// In one access of `forgets` the block is not remapped.
fn path_oram(seed: u64, hot: u64, forgets: u64) -> Accesses {
    let mut rng = Mixer(seed << 32);
    let mut position: Vec<u64> = (0..512).map(|_| rng.below(1024)).collect();
    let mut events = vec![];
    for _ in 0..20_000 {
        let block = rng.below(hot) as usize;
        let leaf = position[block];
        if forgets == 0 || rng.below(forgets) > 0 {
            position[block] = rng.below(1024);
        }
        events.extend(path_events(leaf));
    }
    segment(&events)
}

fn segment(events: &[Event]) -> Accesses {
    Accesses::segment(|| Ok(events.iter().copied().map(Ok::<_, Infallible>))).unwrap()
}

/// Reads a path, and writes it.
fn path_events(leaf: u64) -> impl Iterator<Item = Event> {
    let event = move |op, level: u64| {
        let bucket = (1u64 << level) - 1 + (leaf >> (10 - level));
        Event { time: 0, surface: Surface::Storage, op, at: bucket * 256, len: 256 }
    };
    let ops = [Op::Read, Op::Write].into_iter();
    ops.flat_map(move |op| (0..=10).map(move |level| event(op, level)))
}

fn fails(claims: &[Claim]) -> usize {
    claims.iter().filter(|claim| claim.verdict != Verdict::Pass).count()
}

#[test]
fn sound_traces_pass_and_leaking_traces_do_not() {
    let sound = judge(&path_oram(1, 512, 0), &path_oram(2, 4, 0));
    assert_eq!((fails(&sound.alone), fails(&sound.together)), (0, 0), "{sound:?}");
    let broken = judge(&path_oram(3, 512, 0), &path_oram(4, 4, 20));
    assert!(fails(&broken.alone) > 0 && fails(&broken.together) > 0, "{broken:?}");
}

/// Each fault is in one access of ten.
#[test]
fn writes_elsewhere_or_in_another_order_are_found() {
    let honest = path_oram(1, 512, 0);
    let changed = |change: fn(&mut Vec<Event>)| {
        let mut rng = Mixer(7);
        let mut all = vec![];
        for _ in 0..4000 {
            let leaf = rng.below(1024);
            let mut events: Vec<Event> = path_events(leaf).collect();
            if rng.below(10) == 0 {
                change(&mut events);
            }
            all.extend(events);
        }
        segment(&all)
    };
    assert_eq!(fails(&judge(&honest, &changed(|_| ())).together), 0);
    let faults: [fn(&mut Vec<Event>); 4] = [
        |events| events[21].at ^= 256,
        |events| events[11..].reverse(),
        |events| events[..11].reverse(),
        |events| events.push(Event { op: Op::Sync, at: 0, len: 0, ..events[0] }),
    ];
    for (nth, fault) in faults.into_iter().enumerate() {
        let judgement = judge(&honest, &changed(fault));
        assert!(fails(&judgement.together) > 0, "{nth}: {judgement:?}");
    }
}

/// Accesses to random paths. One in `leak_rate` is at a place that follows from the secret `before`
/// accesses earlier. A request precedes each access, but every third one is a sync.
fn with_secrets(seed: u64, leak_rate: u64, before: usize) -> Accesses {
    let mut rng = Mixer(seed << 32);
    let (mut events, mut requests) = (vec![], Vec::<Request>::new());
    for access in 0..6000u64 {
        let (leaf, block) = (rng.below(1024), rng.below(512));
        let op = if access % 3 == 0 { Op::Sync } else { Op::Read };
        requests.push(Request { events_before: events.len() as u64, op, at: block * 64, len: 64 });
        let earlier = requests.iter().nth_back(before).filter(|requests| requests.op == Op::Read);
        let leaked = earlier.filter(|_| leak_rate > 0 && rng.below(leak_rate) == 0);
        events.extend(path_events(leaked.map_or(leaf, |requests| requests.at / 32 + leaf % 2)));
    }
    let segment = segment(&events);
    assert_eq!(segment.len(), 6000);
    segment.with_secrets(requests.into_iter().map(Ok::<_, Infallible>)).unwrap()
}

#[test]
fn only_claims_about_secrets_fail_if_places_depend_on_secrets() {
    let honest = with_secrets(1, 0, 0);
    assert!(honest.secrets.contains(&0));
    assert!(honest.secrets.iter().any(|&secret| secret > 500));
    let judgement = judge(&honest, &with_secrets(2, 0, 0));
    assert_eq!((fails(&judgement.alone), fails(&judgement.together)), (0, 0), "{judgement:?}");
    assert_eq!(judgement.together.len(), 10);
    // A secret may show in later accesses, too, but not in all.
    for before in [0, 1, 4, 16, 17] {
        let judgement = judge(&honest, &with_secrets(3, 10, before));
        let found = if before < 5 { 2 } else { usize::from(before < 17) };
        assert_eq!(
            (fails(&judgement.alone), fails(&judgement.together)),
            (0, found),
            "{judgement:?}"
        );
        let mut failed = judgement.together.iter().filter(|claim| claim.verdict != Verdict::Pass);
        assert!(failed.all(|claim| claim.name.contains("secrets")), "{judgement:?}");
    }
}

#[test]
fn accesses_of_different_kinds_are_found() {
    let event = |i: u64, len| Event {
        time: i / 2,
        surface: Surface::Wire,
        op: Op::Write,
        at: Mixer(i).below(1 << 40),
        len,
    };
    let segment = |events: Vec<Event>| segment(&events);
    let same = segment((0..8000).map(|i| event(i, 64)).collect());
    let other = segment((9000..17_000).map(|i| event(i, 64 + (i % 9 / 8) as u32)).collect());
    assert_eq!(same.len(), 4000, "two events at a time");
    let judgement = judge(&same, &other);
    assert_eq!(fails(&judgement.alone), 0, "{judgement:?}");
    assert!(judgement.together[0].p.unwrap() < ALPHA);
    assert_eq!(fails(&judgement.together[1..]), 0, "{judgement:?}");
    assert!(judgement.rate.evidence.contains("4000 and 4000 accesses; times"), "{judgement:?}");
    let slower =
        segment((9000..17_000).map(|i| Event { time: i / 2 * 3, ..event(i, 64) }).collect());
    let rate = judge(&same, &slower).rate;
    assert!(rate.evidence.contains("1.000 apart, p = 0"), "{rate:?}");
    let moved = |i| Event { surface: Surface::Dram, ..event(i, 64) };
    let judgement = judge(&same, &segment((9000..17_000).map(moved).collect()));
    assert!(judgement.together[0].p.unwrap() < ALPHA);
    assert!(segment(vec![]).is_empty());
    assert_eq!(fails(&judge(&segment(vec![]), &same).together), 0);
}

/// The trace of a log: some writes in a row, a read now and then, and no draws.
#[test]
fn users_without_drawn_places_must_be_equal() {
    let event = |op, at| Event { time: 0, surface: Surface::Storage, op, at: at * 4096, len: 4096 };
    let log = |accesses: u64| {
        let events = (0..accesses).flat_map(|nth| {
            let writes = (0..=nth % 2).map(move |more| event(Op::Write, nth * 7 % 1024 + more));
            let looked_up = (nth % 100 == 0).then(|| event(Op::Read, nth / 100));
            looked_up.into_iter().chain(writes)
        });
        segment(&events.collect::<Vec<_>>())
    };
    let judgement = judge(&log(20_000), &log(19_999));
    assert!(fails(&judgement.alone) > 0 || judgement.too_few.is_some(), "{judgement:?}");
}
