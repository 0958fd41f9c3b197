use super::*;
use crate::mixer::Mixer;
use crate::odds::ALPHA;
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
    cut(&events)
}

fn cut(events: &[Event]) -> Accesses {
    Accesses::cut(|| Ok(events.iter().copied().map(Ok::<_, Infallible>))).unwrap()
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
fn a_sound_library_passes_and_a_broken_one_does_not() {
    let sound = judge(&path_oram(1, 512, 0), &path_oram(2, 4, 0));
    assert_eq!((fails(&sound.alone), fails(&sound.together)), (0, 0), "{sound:?}");
    let broken = judge(&path_oram(3, 512, 0), &path_oram(4, 4, 20));
    assert!(fails(&broken.alone) > 0 && fails(&broken.together) > 0, "{broken:?}");
}

/// Each fault is in one access of ten.
#[test]
fn what_is_written_elsewhere_or_in_another_order_is_found() {
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
        cut(&all)
    };
    assert_eq!(fails(&judge(&honest, &changed(|_| ())).together), 0);
    let faults: [fn(&mut Vec<Event>); 4] = [
        |events| events[21].at ^= 256,
        |events| events[11..].reverse(),
        |events| events[..11].reverse(),
        |events| events.push(Event { op: Op::Sync, at: 0, len: 0, ..events[0] }),
    ];
    for (nth, fault) in faults.into_iter().enumerate() {
        let judged = judge(&honest, &changed(fault));
        assert!(fails(&judged.together) > 0, "{nth}: {judged:?}");
    }
}

/// Accesses to random paths. One in `tells` is at a place that follows from the secret `before`
/// accesses earlier. A request precedes each access, but every third one is a sync.
fn with_secrets(seed: u64, tells: u64, before: usize) -> Accesses {
    let mut rng = Mixer(seed << 32);
    let (mut events, mut asked) = (vec![], Vec::<Request>::new());
    for access in 0..6000u64 {
        let (leaf, block) = (rng.below(1024), rng.below(512));
        let op = if access % 3 == 0 { Op::Sync } else { Op::Read };
        asked.push(Request { seen: events.len() as u64, op, at: block * 64, len: 64 });
        let earlier = asked.iter().nth_back(before).filter(|asked| asked.op == Op::Read);
        let shows = earlier.filter(|_| tells > 0 && rng.below(tells) == 0);
        events.extend(path_events(shows.map_or(leaf, |asked| asked.at / 32 + leaf % 2)));
    }
    let cut = cut(&events);
    assert_eq!(cut.len(), 6000);
    cut.with_secrets(asked.into_iter().map(Ok::<_, Infallible>)).unwrap()
}

#[test]
fn what_tells_of_a_known_secret_is_found_and_else_nothing() {
    let honest = with_secrets(1, 0, 0);
    assert!(honest.secrets.contains(&0));
    assert!(honest.secrets.iter().any(|&secret| secret > 500));
    let judged = judge(&honest, &with_secrets(2, 0, 0));
    assert_eq!((fails(&judged.alone), fails(&judged.together)), (0, 0), "{judged:?}");
    assert_eq!(judged.together.len(), 10);
    // A secret may show in later accesses, too, but not in all.
    for before in [0, 1, 4, 16, 17] {
        let judged = judge(&honest, &with_secrets(3, 10, before));
        let found = if before < 5 { 2 } else { usize::from(before < 17) };
        assert_eq!((fails(&judged.alone), fails(&judged.together)), (0, found), "{judged:?}");
        let mut told = judged.together.iter().filter(|claim| claim.verdict != Verdict::Pass);
        assert!(told.all(|claim| claim.name.contains("secrets")), "{judged:?}");
    }
}

#[test]
fn accesses_of_other_kinds_do_not_look_alike() {
    let event = |i: u64, len| Event {
        time: i / 2,
        surface: Surface::Wire,
        op: Op::Write,
        at: Mixer(i).below(1 << 40),
        len,
    };
    let cut = |events: Vec<Event>| cut(&events);
    let same = cut((0..8000).map(|i| event(i, 64)).collect());
    let other = cut((9000..17_000).map(|i| event(i, 64 + (i % 9 / 8) as u32)).collect());
    assert_eq!(same.len(), 4000, "two events at a time");
    let judged = judge(&same, &other);
    assert_eq!(fails(&judged.alone), 0, "{judged:?}");
    assert!(judged.together[0].p.unwrap() < ALPHA);
    assert_eq!(fails(&judged.together[1..]), 0, "{judged:?}");
    assert!(judged.told.evidence.contains("4000 and 4000 accesses; times"), "{judged:?}");
    let slower = cut((9000..17_000).map(|i| Event { time: i / 2 * 3, ..event(i, 64) }).collect());
    let told = judge(&same, &slower).told;
    assert!(told.evidence.contains("1.000 apart, p = 0"), "{told:?}");
    let moved = |i| Event { surface: Surface::Dram, ..event(i, 64) };
    let judged = judge(&same, &cut((9000..17_000).map(moved).collect()));
    assert!(judged.together[0].p.unwrap() < ALPHA);
    assert!(cut(vec![]).is_empty());
    assert_eq!(fails(&judge(&cut(vec![]), &same).together), 0);
}

/// The trace of a log: some writes in a row, a read now and then, and no draws.
#[test]
fn users_of_whom_nothing_is_drawn_must_be_equal() {
    let event = |op, at| Event { time: 0, surface: Surface::Storage, op, at: at * 4096, len: 4096 };
    let log = |accesses: u64| {
        let events = (0..accesses).flat_map(|nth| {
            let writes = (0..=nth % 2).map(move |more| event(Op::Write, nth * 7 % 1024 + more));
            let looked_up = (nth % 100 == 0).then(|| event(Op::Read, nth / 100));
            looked_up.into_iter().chain(writes)
        });
        cut(&events.collect::<Vec<_>>())
    };
    let judged = judge(&log(20_000), &log(19_999));
    assert!(fails(&judged.alone) > 0 || judged.too_few.is_some(), "{judged:?}");
}
