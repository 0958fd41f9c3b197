//! Is anything acknowledged ever lost? A volume in memory on a disk with a volatile cache is
//! crashed at every point, with what was not synced lost, kept or torn in every combination; also
//! while it recovers. Afterwards it must hold a prefix of the writes, at least as long as the last
//! flush; opening it must write the same places whatever the data; no nonce may cover two contents.
//!
//! `TRACELESS_CRASH_ROUNDS=n` lives n random lives instead of a few.

#[path = "crash/check.rs"]
mod check;
#[path = "crash/disk.rs"]
mod disk;
#[path = "crash/lives.rs"]
mod lives;
#[path = "crash/nonces.rs"]
mod nonces;
#[path = "crash/world.rs"]
mod world;

use check::{Checker, Effort, Tally};
use disk::{Fate, Fault};
use lives::Life;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use traceless::rng::{Rng, Seeded};
use traceless::scheme::detwo::{Geometry, MapEntries, Refresh};
use traceless_volume::format::AREAS_AT;
use world::{Failure, How, Step, World, script};

fn geometry(blocks: u64, block_len: usize, k: &str, map_tiers: u8, unsynced_max: u64) -> Geometry {
    let refresh = Refresh::parse(k).expect("a ratio");
    let map_entries = MapEntries::Counts;
    let geometry = Geometry { blocks, block_len, refresh, map_tiers, map_entries, unsynced_max };
    geometry.check().expect("a geometry that works");
    geometry
}

fn pointers(geometry: Geometry) -> Geometry {
    geometry.with_map_entries(MapEntries::Pointers).expect("pointers that fit")
}

/// A run to crash: where it begins in the life of the volume, and its steps.
#[derive(Clone)]
struct Case {
    geometry: Geometry,
    /// Bytes of the store's unit.
    unit: usize,
    /// Writes made before it.
    before: u64,
    steps: Vec<Step>,
    seed: u64,
    /// Of each of the two volumes.
    faults: [Fault; 2],
}

impl Case {
    /// Two volumes that have done the same steps, on different addresses and data.
    fn run(&self) -> Result<[World; 2], String> {
        let make = |salt, fault| -> Result<World, Failure> {
            let mut world = World::create(self.geometry, self.unit, salt);
            let mut rng = Seeded::new(self.seed + salt);
            let before = script(self.seed, self.before, self.geometry.unsynced_max);
            world.run(&before, &mut rng)?;
            world.fault = fault;
            world.run(&self.steps, &mut rng)?;
            Ok(world)
        };
        Ok([make(100, self.faults[0])?, make(101, self.faults[1])?])
    }

    fn check(&self, effort: Effort) -> Result<Tally, String> {
        let mut checker = Checker::new(self.run()?, effort, self.seed);
        checker.check()?;
        Ok(checker.tally)
    }
}

/// Cases that begin at the birth of a volume, and before each ring and stripe begins anew.
fn cases() -> Vec<Case> {
    let geometries = [
        (geometry(24, 512, "1", 0, 2), 10),
        (geometry(24, 512, "3", 0, 4), 9),
        (geometry(32, 512, "3.5", 0, 3), 8),
        (geometry(48, 512, "1/3", 0, 5), 14),
        (geometry(24, 4096, "1", 0, 3), 9),
        (geometry(64, 4096, "3", 0, 2), 8),
        (geometry(130, 512, "1", 1, 2), 7),
        (geometry(100, 512, "1/3", 1, 3), 9),
        (geometry(500, 512, "3.5", 1, 2), 5),
        (geometry(40, 64, "1", 0, 6), 9),
        (pointers(geometry(24, 512, "3", 0, 4)), 9),
        (pointers(geometry(100, 512, "1/3", 1, 3)), 9),
        (pointers(geometry(500, 512, "3.5", 1, 2)), 5),
    ];
    let mut list = vec![];
    for (i, (geometry, writes)) in geometries.into_iter().enumerate() {
        let [hold, main] = nonces::Areas::new(&geometry).slots();
        // Writes that bring the refreshes to the beginning of that main slot.
        let until = |slot: u64| geometry.refresh.writes_for(slot.saturating_sub(geometry.blocks));
        for (j, event) in [0, 64, hold, until(256), until(main)].into_iter().enumerate() {
            let before = event.saturating_sub(writes / 2);
            let (seed, unit) = (100 * i as u64 + 10 * j as u64, [512, 4096][(i + j) % 3 / 2]);
            let (steps, faults) = (script(seed + 1, writes, geometry.unsynced_max), HEALTHY);
            list.push(Case { geometry, unit, before, steps, seed, faults });
        }
    }
    list
}

const HEALTHY: [Fault; 2] = [Fault::None; 2];

const THOROUGH: Effort = Effort { exhaustive_max: 10, subsets: 80, torn: 16, again_every: 100 };

#[test]
fn nothing_acknowledged_is_lost_at_any_crash() {
    let cases = cases();
    let (next, sum) = (AtomicUsize::new(0), Mutex::new(Tally::default()));
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            match case.check(THOROUGH) {
                Ok(tally) => *sum.lock().expect("nothing panics here") += tally,
                Err(what) => panic!(
                    "{:?}, units of {}, {} writes before, seed {}, {:?}:\n{what}",
                    case.geometry, case.unit, case.before, case.seed, case.steps
                ),
            }
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        work();
        other.join().expect("no violation");
    });
    let sum = *sum.lock().expect("nothing panics here");
    println!(
        "{} crash images, {} of them during a recovery; {} recoveries redid refreshes",
        sum.images, sum.again, sum.redone
    );
    assert!(sum.images > 10_000 && sum.again > 1000, "{sum:?}");
    assert!(sum.redone > 1000 && sum.shorter > 1000, "the crashes took nothing: {sum:?}");
}

const QUICK: Effort = Effort { exhaustive_max: 6, subsets: 60, torn: 20, again_every: 60 };

#[test]
fn every_planted_fault_is_found() {
    use Step::{Close, Flush, Kill, Write};
    let steps = vec![
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
    ];
    for geometry in [geometry(24, 512, "1", 0, 2), geometry(130, 512, "1", 1, 2)] {
        let case = |faults| {
            let (unit, before, seed, steps) = (512, 80, 9, steps.clone());
            Case { geometry, unit, before, steps, seed, faults }.check(QUICK)
        };
        let tally = case(HEALTHY).expect("a sound volume is found sound");
        println!("sound through {} crash images", tally.images);
        let faults = [
            Fault::FlushLost(1),
            Fault::FlushLost(2),
            Fault::FlushLost(3),
            Fault::FlushLost(4),
            Fault::RoomLost,
            Fault::RecoveryLost,
            Fault::SuperblocksLost,
            Fault::RedoLost,
            Fault::OneSuperblock,
            Fault::OpeningLost,
        ];
        for fault in faults {
            let found = case([fault; 2]).expect_err("a planted fault went unnoticed");
            println!("{fault:?}: {}", found.lines().next().unwrap_or_default());
        }
        let found = case([Fault::None, Fault::RedoLost]).expect_err("the places went unnoticed");
        assert!(found.contains("told apart"), "{found}");
    }
}

/// Whoever puts old superblocks back makes an opening's number come twice. Its id differs, so the
/// volume is right; but the test must see that one number has two contents.
#[test]
fn a_number_that_comes_twice_is_seen() {
    let mut world = World::create(geometry(24, 512, "1", 0, 2), 512, 5);
    let mut rng = Seeded::new(1);
    world.run(&script(1, 30, 2), &mut rng).expect("sound");
    let superblocks = world.disk.snapshot()[..AREAS_AT as usize].to_vec();
    for expected in [true, false] {
        world.disk.put(&disk::Piece { at: 0, bytes: superblocks.clone() }, Fate::Kept);
        world.history.truncate(30);
        let mut open = world.open(How::default()).expect("it opens");
        world.step(&mut open, Step::Write(1), &mut rng).expect("it works");
        let noted = world.record(&open).map_err(String::from);
        assert_eq!(noted.is_ok(), expected, "{noted:?}");
        assert!(expected || noted.unwrap_err().contains("one nonce, two contents"));
    }
}

/// Lives of ten crashes each, at any request, also while recovering.
#[test]
fn nothing_is_lost_in_random_lives() {
    let rounds = std::env::var("TRACELESS_CRASH_ROUNDS").ok();
    let rounds = rounds.map_or(300, |n| n.parse().expect("a number of lives"));
    for seed in 0..rounds {
        let mut life = Life::random(seed);
        life.live(10).unwrap_or_else(|e| panic!("{:?}, seed {seed}: {e}", life.world.geometry));
    }
    println!("{} crashes in {rounds} lives", 10 * rounds);
}

/// A thousand openings of one write each; then they make dummies, so that old ones die out, while
/// the power goes again and again.
#[test]
fn a_thousand_openings_die_out() {
    let world = World::create(geometry(1100, 512, "1", 0, 16), 512, 3);
    let mut life = Life::new(world, Seeded::new(3));
    for round in 0..1150 {
        let mut open = life.recover().unwrap_or_else(|e| panic!("round {round}: {e:?}"));
        for step in [Step::Write(1), Step::Flush] {
            life.world.step(&mut open, step, &mut life.rng).expect("it works");
        }
        life.world.record(&open).expect("no nonce twice");
        drop(open);
        if round % 10 == 0 {
            life.crash();
        }
        // From here on it also goes while the dummies are written.
        if round > 1020 {
            life.crash();
            life.world.disk.set_fuse(Some(5 + life.rng.below(6)));
            assert!(matches!(life.recover(), Ok(_) | Err(Failure::Power)));
            life.crash();
        }
    }
    assert!((1000..1100).contains(&life.openings_max), "{} openings", life.openings_max);
}
