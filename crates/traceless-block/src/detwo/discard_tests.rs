//! Tests of discards: what reads as zeros, after crashes too, and what the writes reveal.

use super::*;
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::scheme::contract::BlockScheme;
use traceless_core::store::WatchedStore;
use traceless_core::suite::rig::{self, wipe};
use traceless_core::trace::{Event, Op, Recorder};
use traceless_core::types::Addr;

traceless_core::local_rig!(Rig, DetWoGeometry);

const LEN: usize = 64;

impl Rig {
    fn new(blocks: u64, refresh: &str, map_tiers: u8) -> Self {
        let refresh = Refresh::parse(refresh).unwrap();
        let geometry = DetWoGeometry::new(blocks, LEN, refresh, map_tiers).unwrap();
        Self::of(geometry.with_discards().unwrap())
    }

    fn of(geometry: DetWoGeometry) -> Self {
        Self(rig::Rig::with_room(geometry, geometry.store_len()))
    }

    fn create(&mut self) -> DetWo {
        let context = self.0.context(self.0.store.clone(), false);
        DetWo::create(self.0.geometry, context).unwrap()
    }

    fn open_on(&mut self, store: Arc<dyn Store>, read_only: bool) -> Result<DetWo> {
        let (context, state) = (self.0.context(store, read_only), self.0.vault.kept());
        DetWo::open(self.0.geometry, context, &state, &mut |_, _| {})
    }

    fn open(&mut self) -> DetWo {
        self.open_on(self.0.store.clone(), false).unwrap()
    }
}

fn value_of(oram: &DetWo, addr: u64) -> u8 {
    let mut block = [0; LEN];
    oram.read_shared(&[Addr(addr)], &mut block).unwrap();
    assert!(block.iter().all(|&byte| byte == block[0]));
    block[0]
}

fn write(oram: &mut DetWo, addr: u64, value: u8) {
    oram.write(Addr(addr), &[value; LEN]).unwrap();
}

fn assert_values(oram: &DetWo, values: &[u8], when: &str) {
    for (addr, &value) in values.iter().enumerate() {
        let found = value_of(oram, addr as u64);
        assert_eq!(found, value, "block {addr} {when}: {:?}", oram.geometry());
    }
}

/// Long enough that openings forget the last writes of most blocks, with the map in memory.
#[test]
fn discards_and_writes_agree_with_an_array() {
    let shapes = [(40, "1", 0), (1100, "1", 0), (700, "3", 0), (24, "1/3", 0), (700, "1", 1)];
    for (seed, (blocks, refresh, map_tiers)) in shapes.into_iter().enumerate() {
        let mut rng = SeededRng::new(seed as u64);
        let mut rig = Rig::new(blocks, refresh, map_tiers);
        let mut oram = rig.create();
        let mut values = vec![0; blocks as usize];
        for round in 0..60 {
            let hot = 1 + rng.below(blocks);
            for _ in 0..=rng.below(blocks / 2) {
                if rng.below(10) == 0 {
                    let start = rng.below(blocks);
                    let end = start + rng.below(blocks - start + 1);
                    oram.discard(start..end).unwrap();
                    values[start as usize..end as usize].fill(0);
                } else {
                    let (addr, value) = (rng.below(hot), rng.below(250) as u8);
                    write(&mut oram, addr, value);
                    values[addr as usize] = value;
                }
            }
            assert_values(&oram, &values, "as written");
            match round % 3 {
                0 => drop(oram),
                1 => oram.close().unwrap(),
                _ => {
                    drop(oram);
                    let reading = rig.open_on(rig.store.clone(), true).unwrap();
                    assert_values(&reading, &values, "opened for reading");
                    drop(reading);
                }
            }
            oram = rig.open();
            assert_values(&oram, &values, "opened again");
            oram.verify(&mut |_, _| {}, &mut |place| panic!("{place}")).unwrap();
        }
    }
}

/// A block that was discarded and written again, both so long ago that no opening knows its last
/// write, keeps its contents; and one that was only discarded stays zeros.
#[test]
fn old_discards_and_old_writes_are_distinguished() {
    for map_tiers in [0, 1] {
        let mut rig = Rig::new(700, "1", map_tiers);
        let mut oram = rig.create();
        for addr in 0..700 {
            write(&mut oram, addr, 1);
        }
        oram.discard(0..700).unwrap();
        write(&mut oram, 5, 2);
        for _ in 0..5 {
            for addr in 600..700 {
                write(&mut oram, addr, 3);
            }
            oram = rig.open();
        }
        for _ in 0..3000 {
            write(&mut oram, 650, 3);
        }
        drop(oram);
        let oram = rig.open();
        assert_eq!([4, 5, 6, 600, 650].map(|addr| value_of(&oram, addr)), [0, 2, 0, 3, 3]);
    }
}

#[test]
fn a_range_beyond_the_end_is_refused_and_an_empty_one_writes_nothing() {
    for mut rig in [Rig::new(64, "1", 0), Rig::of(without_discards())] {
        let mut oram = rig.create();
        write(&mut oram, 63, 1);
        let before = oram.writes();
        for range in [0..65, 64..65, 3..u64::MAX] {
            assert!(matches!(oram.discard(range), Err(Error::OutOfRange { blocks: 64, .. })));
        }
        for at in [0, 9, 64] {
            oram.discard(at..at).unwrap();
        }
        assert_eq!((oram.writes(), value_of(&oram, 63)), (before, 1));
        oram.discard(63..64).unwrap();
        assert_eq!(value_of(&oram, 63), 0);
        oram.close().unwrap();
        assert!(oram.discard(0..1).is_err(), "it is closed");
    }
}

fn without_discards() -> DetWoGeometry {
    DetWoGeometry::new(64, LEN, Refresh::ONE, 0).unwrap()
}

/// What an adversary observes of a discard is what it observes of a write of as many blocks, also
/// if the blocks were discarded before.
#[test]
fn a_discard_looks_like_a_write_of_its_map_blocks() {
    for map_tiers in [0, 1] {
        let traces: Vec<Vec<Event>> = [0, 1, 2, 3]
            .map(|user| {
                let mut rig = Rig::new(1100, "1", map_tiers);
                drop(rig.create());
                let witness = Arc::new(Recorder::default());
                let watched = Arc::new(WatchedStore::new(rig.store.clone(), witness.clone()));
                let mut oram = rig.open_on(watched, false).unwrap();
                for round in 0..300 {
                    write(&mut oram, [7, round, 1099 - round, 512][user], 9);
                    for range in [3..900, 0..1100, 5..6, 500..520] {
                        let writes = oram.geometry().discard_writes(range.clone());
                        match user {
                            // Nothing is written by it that was not discarded before.
                            0 | 1 => oram.discard(range).unwrap(),
                            2 => {
                                let addrs = vec![Addr(8); writes as usize];
                                oram.write_many(&addrs, &vec![1; addrs.len() * LEN]).unwrap();
                            }
                            _ => {
                                let covers = oram.geometry().discard_covers();
                                let other = (range.start + covers) % 1100..range.end;
                                if oram.geometry().discard_writes(other.clone()) == writes {
                                    oram.discard(other).unwrap();
                                } else {
                                    oram.discard(range).unwrap();
                                }
                            }
                        }
                    }
                }
                oram.close().unwrap();
                witness.take().into_iter().filter(|e| e.op != Op::Read).collect()
            })
            .into();
        for trace in &traces[1..] {
            assert!(*trace == traces[0]);
        }
    }
}

#[test]
fn a_discard_writes_as_many_blocks_as_it_says() {
    let mut rig = Rig::new(2000, "1", 0);
    let mut oram = rig.create();
    // Of 64 bytes each map block covers 512 blocks.
    for (range, writes) in [(0..2000, 4), (0..1, 1), (511..513, 2), (512..1024, 1), (7..7, 0)] {
        assert_eq!(oram.geometry().discard_writes(range.clone()), writes);
        let map = oram.discards.as_ref().unwrap();
        let on_schedule = (oram.count..=oram.count + writes).filter_map(|c| map.due(c)).count();
        let before = oram.writes();
        oram.discard(range).unwrap();
        let made = oram.writes() - before;
        assert!(made == writes || made == writes + on_schedule as u64, "{made} {writes}");
    }
    assert_eq!(without_discards().discard_writes(3..9), 6, "zeros");
}

/// Damage in the map keeps the volume closed: nothing says which blocks were discarded. A salvage
/// gives up the map block, so that its blocks may read as they were earlier.
#[test]
fn a_damaged_map_block_is_refused_and_given_up_by_a_salvage() {
    for map_tiers in [0, 1] {
        let mut rig = Rig::new(700, "1", map_tiers);
        let mut oram = rig.create();
        for addr in [3, 600] {
            write(&mut oram, addr, 4);
        }
        oram.discard(0..700).unwrap();
        // Of the two map blocks the first.
        let (hold, slot) = (oram.tiers[0].hold.clone(), oram.tiers[0].hold_slot(oram.count - 2));
        // A gap in the last writes would pass for a crash.
        for _ in 0..2 * rig.geometry.unsynced_max {
            write(&mut oram, 650, 5);
        }
        let before = oram.writes();
        oram.close().unwrap();
        rig::damage(&*rig.store, &hold, slot);
        let refused = rig.open_on(rig.store.clone(), false);
        let Err(Error::Tampered { place }) = refused else { panic!("{:?}", refused.err()) };
        assert_eq!((place.area, place.slot, place.block), (hold.name(), slot.0, None));
        let (context, state) = (rig.0.context(rig.0.store.clone(), false), rig.0.vault.kept());
        let (oram, lost) = DetWo::salvage(rig.0.geometry, context, &state, &mut |_, _| {}).unwrap();
        assert_eq!((lost.len(), lost[0].slot), (1, slot.0));
        // The map block, perhaps one on schedule, and no pass of dummies: all entries are known.
        assert!((1..=2).contains(&(oram.writes() - before)), "{}", oram.writes() - before);
        assert_eq!([3, 600].map(|addr| value_of(&oram, addr)), [4, 0]);
        oram.verify(&mut |_, _| {}, &mut |place| panic!("{place}")).unwrap();
        drop(oram);
        assert_eq!([3, 600].map(|addr| value_of(&rig.open(), addr)), [4, 0]);
    }
}

/// A failed read leaves a discard undone or done in part, and it can be made again.
#[test]
fn a_discard_after_a_failure_of_the_map_on_the_store_can_be_repeated() {
    let mut rig = Rig::new(700, "1", 1);
    let mut oram = rig.create();
    for addr in 0..700 {
        write(&mut oram, addr, 1);
    }
    oram.discard(0..700).unwrap();
    write(&mut oram, 5, 2);
    drop(oram);
    let mut oram = rig.open();
    let (tier, sound) = (oram.tiers[1].main.clone(), rig.store.snapshot());
    for slot in 0..tier.slots() {
        wipe(&*rig.store, &tier, Slot(slot));
    }
    assert!(oram.discard(0..10).is_err(), "which bits have a meaning is not known");
    for slot in 0..tier.slots() {
        rig::put_back(&*rig.store, &sound, &tier, Slot(slot));
    }
    assert_eq!(value_of(&oram, 5), 2);
    oram.discard(0..10).unwrap();
    assert_eq!(value_of(&oram, 5), 0);
    drop(oram);
    assert_eq!(value_of(&rig.open(), 5), 0);
}
