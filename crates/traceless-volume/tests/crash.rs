//! Is anything acknowledged ever lost? A volume in memory, on a disk with a volatile cache, is
//! crashed at every point, also during recovery, with unsynced data lost, kept or torn in every
//! combination. Afterwards it must hold a prefix of the writes, at least up to the last flush;
//! opening it must write the same places for all data; no nonce may seal two contents.
//!
//! `cargo xtask crash` tests random volumes for any length of time.

#[path = "crash/cases.rs"]
mod cases;
#[path = "crash/check.rs"]
mod check;
#[path = "crash/disk.rs"]
mod disk;
#[path = "crash/effort.rs"]
mod effort;
#[path = "crash/fills.rs"]
mod fills;
#[path = "crash/hidden.rs"]
mod hidden;
#[path = "crash/lives.rs"]
mod lives;
#[path = "crash/mutants.rs"]
mod mutants;
#[path = "crash/nonces.rs"]
mod nonces;
#[path = "crash/rounds.rs"]
mod rounds;
#[path = "crash/steps.rs"]
mod steps;
#[path = "crash/subjects.rs"]
mod subjects;
#[path = "crash/world.rs"]
mod world;

use cases::{Case, HEALTHY};
use check::Tally;
use disk::{Event, Fate, Fault};
use effort::Effort;
use lives::Life;
use rounds::{Rounds, chosen_families};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use steps::{Step, script};
use subjects::{FAMILIES, Family, Subject, detwo, sq_giving_back};
use traceless_block::plain::PlainScheme;
use traceless_block::registry::KINDS;
use traceless_core::rng::{Rng, SeededRng};
use traceless_volume::format::AREAS_AT;
use world::{Failure, How, World};

const THOROUGH: Effort = Effort {
    exhaustive_max: 8,
    subsets: 256,
    cuts: 4,
    torn: 16,
    again_every: 250,
    reopen_every: 2,
    continue_every: 4,
    images_max: u64::MAX,
};

const MODERATE: Effort = Effort {
    exhaustive_max: 6,
    subsets: 24,
    cuts: 2,
    torn: 4,
    again_every: 200,
    reopen_every: 2,
    continue_every: 6,
    images_max: u64::MAX,
};

#[test]
fn nothing_acknowledged_is_lost_at_any_crash() {
    for family in chosen_families().into_iter().filter(|family| family.name != "deniable") {
        let sum = crash_everywhere(family, (family.effort)(THOROUGH));
        println!("{}: {sum}", family.name);
        assert!(sum.points > 40 && sum.subsets > 2000 && sum.tears > 800, "{sum}");
        assert!(sum.again > 400, "{sum}");
        assert!(sum.redone > 1000 && sum.shorter > 1000, "the crashes took nothing: {sum}");
    }
}

/// Also hidden blocks are there, and recoveries write the same with 0, 1 and 3 hidden volumes. The
/// lane is long, so fewer images are tried; random rounds try more.
#[test]
fn nothing_hidden_is_lost_or_shown_at_any_crash() {
    let family = FAMILIES.iter().find(|family| family.name == "deniable").expect("listed");
    let sum = crash_everywhere(family, MODERATE);
    println!("{}: {sum}", family.name);
    assert!(sum.points > 40 && sum.subsets > 700 && sum.tears > 400, "{sum}");
    assert!(sum.again > 100, "{sum}");
    assert!(sum.redone > 100 && sum.shorter > 500, "the crashes took nothing: {sum}");
}

/// A volume of `plain` is torn by crashes, as `encryption_in_place_is_torn` shows.
#[test]
fn every_kind_but_plain_is_crashed() {
    let mut kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    let mut crashed: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
    crashed.push("plain");
    // Only deniable images hold it, so it is none of the registry's kinds.
    kinds.push("deniable");
    kinds.sort_unstable();
    crashed.sort_unstable();
    assert_eq!(kinds, crashed);
}

/// Checks all cases of a family, on two threads.
fn crash_everywhere(family: &Family, effort: Effort) -> Tally {
    let cases = Case::all(family);
    let (next, sum) = (AtomicUsize::new(0), Mutex::new(Tally::default()));
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            match case.check(effort) {
                Ok(tally) => *sum.lock().expect("nothing panics here") += tally,
                Err(what) => panic!("{case}:\n{what}"),
            }
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        work();
        other.join().expect("no violation");
    });
    sum.into_inner().expect("nothing panics here")
}

const QUICK: Effort = Effort {
    exhaustive_max: 4,
    subsets: 16,
    cuts: 1,
    torn: 8,
    again_every: 60,
    reopen_every: 1,
    continue_every: 1,
    images_max: u64::MAX,
};

/// Images without a violation, beyond the ones that the planted faults needed.
const SOUND_FOR: u64 = 100;

/// Flushes, syncs that writing itself makes, kills and closes, each with writes in flight.
fn steps_for_faults() -> Vec<Step> {
    use Step::{Close, Flush, Kill, Write};
    vec![
        Write(1),
        Write(1),
        Flush,
        Write(2),
        Flush,
        Write(1),
        Kill,
        Write(1),
        Flush,
        Write(9),
        Write(1),
        Flush,
        Write(1),
        Close,
        Write(1),
        Kill,
        Write(2),
        Flush,
        Write(1),
    ]
}

#[test]
fn every_planted_fault_is_found() {
    for family in chosen_families() {
        let effort = (family.effort)(QUICK);
        for (subject, before) in (family.faulty)() {
            let steps = subject.short_steps(steps_for_faults());
            let sound = Case { subject, unit: 512, before, steps, seed: 9, faults: HEALTHY };
            let mut images_max = 0;
            let mut find = |what: &str, case: Case| {
                let (found, images) = case.violation(effort).expect(what);
                let line = found.lines().next().unwrap_or_default();
                println!("{}, {what}, at image {images}: {line}", family.name);
                images_max = images_max.max(images);
                found
            };
            for &fault in family.faults {
                let case = Case { faults: [fault; 2], ..sound.clone() };
                let found = find(&format!("{fault:?}"), case);
                assert!(fault != Fault::SameDraws || found.contains("two contents"), "{found}");
            }
            let case = Case { faults: [Fault::None, Fault::RedoLost], ..sound.clone() };
            let found = find("other places", case);
            // Where an opening moves blocks, it reads what it wrote, and fails.
            let what = if sound.subject.hides_reads { "was changed" } else { "distinguished" };
            assert!(found.contains(what), "{found}");
            let subject = Subject { open: mutants::open_unsynced, ..sound.subject.clone() };
            find("no sync at all", Case { subject, ..sound.clone() });
            // Without a fault there is nothing to find, for longer than any fault needed.
            let effort = Effort { images_max: images_max + SOUND_FOR, ..effort };
            let tally = sound.check(effort).expect("a sound volume is found sound");
            println!("{}: sound through {} crash images", family.name, tally.images());
        }
    }
}

/// Dead runs are given back, and one that reaches into what is needed must be found.
#[test]
fn a_discard_of_what_is_needed_is_found() {
    let (subject, before) = sq_giving_back();
    let steps = steps_for_faults();
    let sound = Case { subject, unit: 512, before, steps, seed: 9, faults: HEALTHY };
    sound.check(QUICK).expect("a sound volume is found sound");
    let case = Case { faults: [Fault::DiscardTooLong; 2], ..sound };
    let found = case.check(QUICK).expect_err("a planted fault went unnoticed");
    println!("{:?}: {}", Fault::DiscardTooLong, found.lines().next().unwrap_or_default());
}

/// Blocks that keep older contents, which the duplicate rule of the paper's Algorithm 2 would cause
/// as it is printed.
#[test]
fn stale_contents_are_found() {
    for (subject, writes) in (FAMILIES[1].faulty)() {
        let subject = Subject {
            create: mutants::create_with_stale_rewrites,
            open: mutants::open_with_stale_rewrites,
            ..subject
        };
        let (seed, before) = (7, 0);
        let steps = script(seed, writes, subject.unsynced_max);
        let case = Case { subject, unit: 512, before, steps, seed, faults: HEALTHY };
        let found = case.check(QUICK).expect_err("stale blocks went unnoticed");
        assert!(found.contains("should hold number"), "{found}");
    }
}

/// Encryption in place has one copy of each block. Crashes that ORAM schemes survive must tear it.
#[test]
fn encryption_in_place_is_torn() {
    let plain = PlainScheme { blocks: 8, block_len: 4096 };
    let mut world = World::create(Subject::new(plain, 8, vec![0], 8), 512, 1);
    let mut rng = SeededRng::new(1);
    let mut open = world.open(How::default()).expect("it opens");
    let mut step = |world: &mut World, step| world.step(&mut open, step, &mut rng);
    step(&mut world, Step::Write(64)).expect("it works");
    step(&mut world, Step::Flush).expect("it works");
    world.disk.take_log();
    let synced = world.disk.mark();
    step(&mut world, Step::Write(1)).expect("it works");
    let log = world.disk.take_log();
    world.disk.roll_back(synced);
    let pieces: Vec<_> = log
        .iter()
        .filter_map(|event| if let Event::Write(pieces, _) = event { Some(pieces) } else { None })
        .flatten()
        .collect();
    let mut holds_a_prefix = |fate| {
        let crash = world.disk.mark();
        for piece in &pieces {
            world.disk.put(piece, fate);
        }
        let open = world.open(How::default()).expect("it opens");
        let held = [64, 65].map(|count| world.check(&open, &world.history[..count]).is_ok());
        world.disk.roll_back(crash);
        held
    };
    assert_eq!(holds_a_prefix(Fate::Lost), [true, false]);
    assert_eq!(holds_a_prefix(Fate::Kept), [false, true]);
    assert_eq!(holds_a_prefix(Fate::Tail(1)), [false, false], "a torn block went unnoticed");
}

/// An adversary that restores old superblocks makes the number of an opening recur. As each opening
/// draws a new id, no nonce seals two contents. Without new ids the record of the sealers must show
/// nonces used twice.
#[test]
fn a_repeated_opening_is_found_unless_it_draws_a_new_id() {
    for fault in [Fault::None, Fault::SameDraws] {
        let mut world = World::create(detwo(24, 512, "1", 0, 2), 512, 5);
        let mut rng = SeededRng::new(1);
        world.run(&script(1, 30, 2), 0, &mut rng).expect("sound");
        let superblocks = world.disk.snapshot()[..AREAS_AT as usize].to_vec();
        world.fault = fault;
        let mut noted = || {
            world.disk.put(&disk::Piece { at: 0, bytes: superblocks.clone() }, Fate::Kept);
            world.history.truncate(30);
            let mut open = world.open(How::default()).expect("it opens");
            world.step(&mut open, Step::Write(1), &mut rng).expect("it works");
            world.record().map_err(String::from)
        };
        assert_eq!(noted(), Ok(()));
        match fault {
            Fault::None => assert_eq!(noted(), Ok(())),
            _ => assert!(noted().unwrap_err().contains("one nonce, two contents")),
        }
    }
}

/// Random volumes: each lives through ten crashes at any request, also during recovery. Now and
/// then a run is crashed at every point instead.
#[test]
fn nothing_is_lost_in_random_rounds() {
    Rounds::from_env(24, QUICK, THOROUGH).run();
}

/// A thousand openings with one write each. After them openings make dummy writes, so that old
/// openings drop out of the state, with further power failures meanwhile.
#[test]
fn a_thousand_openings_die_out() {
    let world = World::create(detwo(1100, 512, "1", 0, 16), 512, 3);
    let mut life = Life::new(world, SeededRng::new(3));
    let mut openings_max = 0;
    for round in 0..1150 {
        let mut open = life.recover().unwrap_or_else(|e| panic!("round {round}: {e:?}"));
        // By docs/format.md, section 5, the state is a head followed by the openings.
        let openings = (open.state_len() - 16) / 32;
        openings_max = openings_max.max(openings);
        life.dummies = openings >= 999;
        for step in [Step::Write(1), Step::Flush] {
            life.world.step(&mut open, step, &mut life.rng).expect("it works");
        }
        life.world.record().expect("no nonce twice");
        drop(open);
        if round % 10 == 0 {
            life.crash();
        }
        // From here on the power also fails while dummies are written.
        if round > 1020 {
            life.crash();
            life.world.disk.set_fuse(Some(5 + life.rng.below(6)));
            assert!(matches!(life.recover(), Ok(_) | Err(Failure::Power)));
            life.crash();
        }
    }
    assert!((1000..1100).contains(&openings_max), "{openings_max} openings");
}
