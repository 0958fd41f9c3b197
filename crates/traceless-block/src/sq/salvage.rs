//! Opening in spite of damage.
//!
//! If a live entry is lost, the address of its slot is lost: merges and reads skip the slot. A
//! flush that was interrupted needs more care. Merged again without that block, a bucket would have
//! other contents under the same keys, so the count goes back to before this flush, and later
//! writes belong to the next opening.

use super::{MapPlace, SchemeState, Sq};
use crate::log::DamagePolicy;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Place, Result};
use traceless_core::oram::BlockOram;
use traceless_core::scheme::SchemeContext;

/// The entries that were accepted as lost.
#[derive(Default)]
pub(super) struct LostEntries {
    /// In the log, by the numbers of their writes.
    pub writes: BTreeSet<u64>,
    /// Later log writes that were given up because of them.
    given_up: BTreeSet<u64>,
    /// In levels from 1 on, by level and number of the slot.
    slots: BTreeSet<(usize, u64)>,
}

impl Sq {
    /// Opens a scheme with damage that makes [`Sq::open`] fail: where live entries are lost, their
    /// addresses are lost too, and **the affected blocks may read as they were earlier**. Then
    /// writes dummies until no later opening needs these entries. Returns the lost places.
    pub fn salvage(
        geometry: super::SqGeometry,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Self, Vec<Place>)> {
        if context.read_only {
            return Err(Error::ReadOnly);
        }
        let mut state = SchemeState::decode(state)?;
        state.at_least = state.at_least.max(context.expect_writes * geometry.slots_per_write());
        let mut opened = Self::assemble(geometry, context, &state)?;
        let lost = opened.recover(&state, DamagePolicy::Accept, progress)?;
        // After the lost entries have expired, only this mark shows that leaves may still be
        // outdated.
        opened.half_salvaged = geometry.map == MapPlace::Disk;
        opened.begin_opening()?;
        opened.outlive(&lost, progress)?;
        opened.half_salvaged = false;
        opened.keep_state(false)?;
        let places = lost.places(&opened);
        Ok((opened, places))
    }

    /// Finds the damaged live entries, and reduces the count to before the first flush that cannot
    /// be repeated because of them.
    pub(super) fn accept_damage(&mut self) -> Result<LostEntries> {
        let mut given_up = BTreeSet::new();
        let lost = loop {
            let late = self.count.saturating_sub(self.geometry.unsynced_max) / self.bucket();
            let lost = self.find_lost(late)?;
            let mut short = None;
            for flush in late..self.count / self.bucket() {
                if self.is_cut_short_for_good(flush, &lost)? {
                    short = Some(flush);
                    break;
                }
            }
            let Some(flush) = short else { break LostEntries { given_up, ..lost } };
            // Without its last write the bucket is not full, so its flush has not happened yet.
            let count = (flush + 1) * self.bucket() - self.geometry.slots_per_write();
            if count < self.keys.openings().last().start {
                let place = self.log_place(count);
                return Err(Error::Tampered { place });
            }
            given_up.extend(count..self.count);
            self.count = count;
        };
        for &(level, slot) in &lost.slots {
            self.levels[level - 1].note_lost(slot);
        }
        Ok(lost)
    }

    /// Collects the damaged entries that are needed after `late` flushes.
    fn find_lost(&self, late: u64) -> Result<LostEntries> {
        let mut lost = LostEntries::default();
        let context = (&self.keys, &self.schedule);
        let mut found = Vec::new();
        for level in &self.levels {
            let width = self.schedule.width(level.number);
            let end = self.schedule.delivered(level.number, late) * self.bucket();
            let oldest = self.schedule.oldest(level.number, late) * width * self.bucket();
            for first in (oldest.min(end)..end).step_by(self.geometry.bucket as usize) {
                level.read_addresses(context, first, self.bucket(), &mut found)?;
                let damaged = (first..).zip(&found).filter(|(_, address)| address.is_none());
                lost.slots.extend(damaged.map(|(slot, _)| (level.number, slot)));
            }
        }
        let entry_len = self.log.layout().entry_len;
        let mut entries = vec![0; self.geometry.bucket as usize * entry_len];
        let mut first = self.schedule.oldest(0, late) * self.bucket();
        while first < self.count {
            let n = self.bucket().min(self.count - first);
            let entries = &mut entries[..n as usize * entry_len];
            self.log.read_entries(self.log_slot(first), n, entries)?;
            let damaged = (first..)
                .zip(entries.chunks_exact(entry_len))
                .filter(|(write, entry)| self.logged_address(*write, entry).is_none());
            lost.writes.extend(damaged.map(|(write, _)| write));
            first += n;
        }
        Ok(lost)
    }

    /// Whether a bucket of a flush is incomplete and cannot be repeated with the same contents.
    fn is_cut_short_for_good(&self, flush: u64, lost: &LostEntries) -> Result<bool> {
        for level in 1..=self.schedule.last() {
            for bucket in self.schedule.deliveries(level, flush) {
                if self.would_differ(level, bucket, lost)
                    && self.find_bucket(level, bucket)?.is_none()
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether an entry is lost in the sources of a bucket, or in its own generation.
    fn would_differ(&self, level: usize, bucket: u64, lost: &LostEntries) -> bool {
        let generation = bucket / self.schedule.width(level);
        let sources = self.schedule.sources(generation);
        lost.generations(self).any(|(damaged, nth)| {
            damaged + 1 == level && sources.contains(&nth) || damaged == level && nth == generation
        })
    }

    /// Writes dummies until the lost entries are not needed any more, even after a crash. With the
    /// map on the disk these writes carry its rebuilt leaves, since some leaves may be lost, too.
    fn outlive(&mut self, lost: &LostEntries, progress: &mut dyn FnMut(u64, u64)) -> Result {
        let last_use = |(level, generation)| self.schedule.last_use(level, generation);
        let flushes = lost.generations(self).map(last_use).max().unwrap_or(0);
        let end = flushes * self.bucket() + self.geometry.unsynced_max;
        let leaves = match self.geometry.map {
            MapPlace::Memory => 0,
            MapPlace::Disk => self.geometry.leaves(),
        };
        let start = self.count;
        let mut leaf = 0;
        while self.count < end || leaf < leaves {
            progress(self.count - start, end.max(self.count) - start);
            if leaf < leaves {
                self.write_leaf_anew(leaf)?;
                leaf += 1;
            } else {
                self.write_one_dummy()?;
            }
        }
        self.write_out()?;
        self.sync_shared()?;
        progress(1, 1);
        Ok(())
    }

    /// The place of a write in the log.
    pub(super) fn log_place(&self, write: u64) -> Place {
        Place { area: self.log.name(), slot: self.log_slot(write).0, block: None }
    }
}

impl LostEntries {
    /// Level and number of each generation, or bucket of the log, with a damaged entry.
    fn generations(&self, sq: &Sq) -> impl Iterator<Item = (usize, u64)> {
        let bucket = sq.bucket();
        let levels = self
            .slots
            .iter()
            .map(move |&(level, slot)| (level, slot / bucket / sq.schedule.width(level)));
        self.writes.iter().map(move |write| (0, write / bucket)).chain(levels)
    }

    fn places(&self, sq: &Sq) -> Vec<Place> {
        let writes = self.writes.union(&self.given_up).map(|&write| sq.log_place(write));
        let slots = self.slots.iter().map(|&(level, slot)| {
            let level = &sq.levels[level - 1];
            Place { area: level.area.name(), slot: level.slot(slot).0, block: None }
        });
        writes.chain(slots).collect()
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::super::{Cadence, SqGeometry};
    use super::*;
    use alloc::boxed::Box;
    use alloc::sync::Arc;
    use traceless_core::durable::{MemVault, Vault};
    use traceless_core::oram::Oram;
    use traceless_core::rng::SeededRng;
    use traceless_core::seal::{Cipher, Secret};
    use traceless_core::store::{Area, MemStore, Run};
    use traceless_core::types::{Addr, Slot};

    const BLOCKS: u64 = 200;

    struct Rig {
        geometry: SqGeometry,
        store: Arc<MemStore>,
        vault: MemVault,
        /// All values that each block held, oldest first.
        history: Vec<Vec<u8>>,
    }

    impl Rig {
        /// A scheme that is closed after `writes` writes.
        fn new(geometry: SqGeometry, writes: u64) -> Self {
            let store = Arc::new(MemStore::new(geometry.store_len()));
            let history = vec![vec![0]; geometry.blocks as usize];
            let mut rig = Self { geometry, store, vault: MemVault::default(), history };
            let mut oram: Sq = Sq::create(geometry, rig.context()).unwrap();
            rig.write(&mut oram, writes);
            oram.close().unwrap();
            rig
        }

        fn write(&mut self, oram: &mut Sq, writes: u64) {
            for i in 0..writes {
                let (addr, value) = (i * i * 7 % 199, i as u8);
                oram.write(Addr(addr), &vec![value; self.geometry.block_len]).unwrap();
                self.history[addr as usize].push(value);
            }
        }

        fn context(&self) -> SchemeContext {
            SchemeContext {
                store: self.store.clone(),
                first: 0,
                key: Secret::from_bytes([1; 32]),
                vault: Box::new(self.vault.clone()),
                rng: Box::new(SeededRng::new(
                    self.store.snapshot().iter().map(|&b| u64::from(b)).sum(),
                )),
                read_only: false,
                cipher: Cipher::default(),
                expect_writes: 0,
            }
        }

        fn open(&self) -> Result<Sq> {
            Sq::open(self.geometry, self.context(), &self.vault.kept(), &mut |_, _| {})
        }

        fn salvage(&self) -> Result<(Sq, Vec<Place>)> {
            Sq::salvage(self.geometry, self.context(), &self.vault.kept(), &mut |_, _| {})
        }

        fn flip(&self, area: &Area, slot: Slot) {
            let mut run = Run::default();
            run.add(area, slot, 1);
            run.read(&*self.store).unwrap();
            run.slot_mut(0).0[20] ^= 1;
            run.write(&*self.store).unwrap();
        }

        /// Blocks that cannot be read or do not hold their newest value. Fails if one holds a value
        /// that it never had.
        fn differ(&self, oram: &Sq) -> Vec<u64> {
            let mut block = vec![0; self.geometry.block_len];
            let differs = |addr: &u64| {
                let past = &self.history[*addr as usize];
                match oram.read_shared(&[Addr(*addr)], &mut block) {
                    Err(Error::Tampered { .. }) => true,
                    other => {
                        other.unwrap();
                        assert!(past.contains(&block[0]), "block {addr} holds what it never held");
                        Some(&block[0]) != past.last()
                    }
                }
            };
            (0..self.geometry.blocks).filter(differs).collect()
        }
    }

    fn geometries() -> Vec<SqGeometry> {
        let shape = SqGeometry::with_shape(BLOCKS, 128, 4, 3, 3).unwrap();
        let disk = SqGeometry { map: MapPlace::Disk, ..shape };
        let paper = SqGeometry { cadence: Cadence::Paper, ..disk };
        [shape, disk, paper, SqGeometry { amortized: true, ..shape }]
            .map(|geometry| SqGeometry { unsynced_max: 8, ..geometry })
            .to_vec()
    }

    #[test]
    fn an_entry_lost_in_any_level_costs_its_own_block_at_most() {
        for geometry in geometries() {
            for level in 0..3 {
                for nth in 0..9 {
                    let mut rig = Rig::new(geometry, 900 + 37 * nth);
                    let oram = rig.open().unwrap();
                    let late = (oram.count - geometry.unsynced_max) / oram.bucket();
                    let (area, slot) = if level == 0 {
                        let oldest = oram.schedule.oldest(0, late) * oram.bucket();
                        let write = oldest + (oram.count - oldest) * (nth + 1) / 11;
                        (oram.log.clone(), oram.log_slot(write))
                    } else {
                        let width = oram.schedule.width(level);
                        let oldest = oram.schedule.oldest(level, late) * width * oram.bucket();
                        let end = oram.schedule.delivered(level, late) * oram.bucket();
                        let slot = oldest + (end - oldest) * (nth + 1) / 11;
                        let level = &oram.levels[level - 1];
                        (level.area.clone(), level.slot(slot))
                    };
                    drop(oram);
                    rig.flip(&area, slot);
                    assert!(rig.open().is_err(), "level {level}");
                    let (mut oram, lost) = rig.salvage().unwrap();
                    let place = Place { area: area.name(), slot: slot.0, block: None };
                    assert_eq!(lost, [place], "{geometry:?}");
                    let differ = rig.differ(&oram);
                    assert!(differ.len() <= 1, "level {level}: {differ:?} {geometry:?}");
                    // The scheme works as before.
                    for &addr in &differ {
                        rig.history[addr as usize].push(77);
                        oram.write(Addr(addr), &[77; 128]).unwrap();
                    }
                    oram.sync().unwrap();
                    drop(oram);
                    let mut oram = rig.open().unwrap();
                    assert_eq!(rig.differ(&oram), []);
                    rig.write(&mut oram, 300);
                    oram.verify(&mut |_, _| {}, &mut |place| panic!("{place}")).unwrap();
                    assert_eq!(rig.differ(&oram), []);
                }
            }
        }
    }

    #[test]
    fn the_last_writes_of_a_closed_one_may_be_lost() {
        for geometry in geometries() {
            let rig = Rig::new(geometry, 700);
            let context = SchemeContext { read_only: true, ..rig.context() };
            let before: Sq =
                Sq::open(geometry, context, &rig.vault.kept(), &mut |_, _| {}).unwrap();
            let (area, newest) = (before.log.clone(), before.count - 1);
            let slot = before.log_slot(newest);
            drop(before);
            rig.flip(&area, slot);
            assert!(matches!(rig.open(), Err(Error::RolledBack { .. })), "{geometry:?}");
            let (oram, lost) = rig.salvage().unwrap();
            assert!(lost.contains(&Place { area: area.name(), slot: slot.0, block: None }));
            assert!(rig.differ(&oram).len() <= 1);
            drop(oram);
            rig.open().unwrap();
        }
    }

    #[test]
    fn a_flush_cut_short_is_not_made_again_from_less() {
        for geometry in geometries() {
            let mut rig = Rig::new(geometry, 800);
            let mut oram = rig.open().unwrap();
            // Recovery completes flushes, so the torn flush must be one of this opening.
            rig.write(&mut oram, 9);
            while !oram.count.is_multiple_of(oram.bucket()) {
                rig.write(&mut oram, 1);
            }
            oram.sync().unwrap();
            // The newest bucket of level 1 is torn, and an entry of its sources is lost.
            let flush = oram.flushes - 1;
            let due = oram.schedule.deliveries(1, flush);
            let Some(bucket) = due.clone().next_back() else { continue };
            let source = oram.schedule.sources(bucket / oram.schedule.width(1)).start;
            let places = [
                (oram.levels[0].area.clone(), oram.levels[0].slot(bucket * oram.bucket())),
                (oram.log.clone(), oram.log_slot(source * oram.bucket() + 1)),
            ];
            let count = oram.count;
            drop(oram);
            for (area, slot) in &places {
                rig.flip(area, *slot);
            }
            assert!(rig.open().is_err());
            let (oram, lost) = rig.salvage().unwrap();
            // The last write of the flush was given up, so the flush belongs to another opening.
            let given_up = Place { area: "level 0", slot: oram.log_slot(count - 1).0, block: None };
            assert!(lost.contains(&given_up), "{lost:?} {geometry:?}");
            assert!(oram.keys.openings().last().start < count);
            let most = lost.len();
            assert!(rig.differ(&oram).len() <= most, "{lost:?}");
            drop(oram);
            assert!(rig.differ(&rig.open().unwrap()).len() <= most);
        }
    }

    /// After the lost entries have expired, leaves may still be outdated.
    #[test]
    fn cut_short_it_must_be_done_again() {
        let shape = SqGeometry::with_shape(10 * BLOCKS, 64, 4, 3, 3).unwrap();
        let geometry = SqGeometry { map: MapPlace::Disk, unsynced_max: 8, ..shape };
        let rig = Rig::new(geometry, 900);
        let oram = rig.open().unwrap();
        let oldest = oram.schedule.oldest(0, oram.flushes) * oram.bucket();
        let (area, count) = (oram.log.clone(), oram.count);
        drop(oram);
        let leaves = (oldest..count).filter(|write| write % 2 == 1);
        leaves.for_each(|write| rig.flip(&area, Slot(write % area.slots())));
        let mut images = Vec::new();
        let mut keep = |_, _| images.push((rig.store.snapshot(), rig.vault.kept()));
        let (oram, _) =
            super::super::Sq::salvage(geometry, rig.context(), &rig.vault.kept(), &mut keep)
                .unwrap();
        assert_eq!(rig.differ(&oram), []);
        drop(oram);
        let mut half = 0;
        for (bytes, state) in images.into_iter().step_by(5) {
            let (mut vault, history) = (MemVault::default(), rig.history.clone());
            vault.keep(&state).unwrap();
            let rig =
                Rig { store: Arc::new(MemStore::from_bytes(&bytes)), vault, geometry, history };
            half += u32::from(matches!(rig.open(), Err(Error::HalfSaved)));
            if let Ok(oram) = rig.open() {
                assert_eq!(rig.differ(&oram), []);
                continue;
            }
            rig.salvage().unwrap();
            assert_eq!(rig.differ(&rig.open().unwrap()), []);
        }
        assert!(half > 20, "{half}");
    }

    /// Writes until a bucket of level 1 was delivered by the flush just done, which `is_right`;
    /// returns that bucket.
    fn write_until(rig: &mut Rig, oram: &mut Sq, is_right: fn(&Sq, u64) -> bool) -> u64 {
        loop {
            rig.write(oram, 1);
            if !oram.count.is_multiple_of(oram.bucket()) {
                continue;
            }
            let due = oram.schedule.deliveries(1, oram.flushes - 1);
            if let Some(bucket) = due.last().filter(|&bucket| is_right(oram, bucket)) {
                return bucket;
            }
        }
    }

    #[test]
    fn a_bucket_is_not_made_again_behind_a_lost_entry() {
        for geometry in geometries().into_iter().filter(|geometry| !geometry.amortized) {
            let mut rig = Rig::new(geometry, 800);
            let mut oram = rig.open().unwrap();
            rig.write(&mut oram, 40);
            let third = |oram: &Sq, bucket| bucket % oram.schedule.width(1) == 2;
            let bucket = write_until(&mut rig, &mut oram, third);
            oram.sync().unwrap();
            // It is torn, and of the first bucket of its generation an entry is lost.
            let level = &oram.levels[0];
            let slots = [bucket, bucket - 2].map(|bucket| level.slot(bucket * oram.bucket()));
            let (area, count) = (level.area.clone(), oram.count);
            drop(oram);
            for slot in slots {
                rig.flip(&area, slot);
            }
            let (oram, lost) = rig.salvage().unwrap();
            let given_up = Place { area: "level 0", slot: oram.log_slot(count - 1).0, block: None };
            assert!(lost.contains(&given_up), "{lost:?} {geometry:?}");
            assert!(rig.differ(&oram).len() <= lost.len(), "{lost:?}");
        }
    }

    #[test]
    fn nothing_is_given_up_where_what_is_lost_belongs_to_no_cut_flush() {
        for geometry in geometries().into_iter().filter(|geometry| !geometry.amortized) {
            for in_log in [false, true] {
                let mut rig = Rig::new(geometry, 800);
                let mut oram = rig.open().unwrap();
                rig.write(&mut oram, 40);
                let first = |oram: &Sq, bucket| bucket % oram.schedule.width(1) == 0;
                let bucket = write_until(&mut rig, &mut oram, first);
                oram.close().unwrap();
                // It is torn, and an entry is lost of the generation before it, or of the bucket
                // of the log that the same flush was for.
                let level = &oram.levels[0];
                let torn = (level.area.clone(), level.slot(bucket * oram.bucket()));
                let lost = if in_log {
                    (oram.log.clone(), oram.log_slot(oram.count - 3))
                } else {
                    (level.area.clone(), level.slot((bucket - 2) * oram.bucket()))
                };
                drop(oram);
                for (area, slot) in [&torn, &lost] {
                    rig.flip(area, *slot);
                }
                let (_, found) = rig.salvage().unwrap();
                let place = Place { area: lost.0.name(), slot: lost.1.0, block: None };
                assert_eq!(found, [place], "{geometry:?}");
            }
        }
    }

    /// Counts that an earlier opening used are not used again.
    #[test]
    fn what_an_earlier_opening_flushed_is_not_given_up() {
        for is_own in [true, false] {
            let geometry = geometries()[0];
            let mut rig = Rig::new(geometry, 800);
            let mut oram = rig.open().unwrap();
            // The last opening has the last write of a bucket, or begins behind it.
            rig.write(&mut oram, if is_own { 7 } else { 8 });
            oram.close().unwrap();
            drop(oram);
            let mut oram = rig.open().unwrap();
            rig.write(&mut oram, u64::from(is_own));
            oram.sync().unwrap();
            assert_eq!((oram.count, oram.flushes), (808, 202));
            let bucket = oram.schedule.deliveries(1, 201).last().unwrap();
            let source = oram.schedule.sources(bucket / oram.schedule.width(1)).start;
            let places = [
                (oram.levels[0].area.clone(), oram.levels[0].slot(bucket * oram.bucket())),
                (oram.log.clone(), oram.log_slot(source * oram.bucket() + 1)),
            ];
            let given_up = oram.log_place(807);
            drop(oram);
            for (area, slot) in &places {
                rig.flip(area, *slot);
            }
            match rig.salvage() {
                Ok((_, lost)) => assert!(is_own && lost.contains(&given_up), "{is_own} {lost:?}"),
                Err(Error::Tampered { place }) => assert_eq!((is_own, place), (false, given_up)),
                Err(other) => panic!("{other}"),
            }
        }
    }

    /// What a salvage says of its progress, and whether the vault knows then that leaves may be
    /// old, once its own opening has begun.
    fn progress(rig: &Rig) -> (Vec<(u64, u64)>, Vec<bool>) {
        let state = rig.vault.kept();
        let before = SchemeState::decode(&state).unwrap().openings.last().copied();
        let mut reported = Vec::new();
        let mut keep = |done, all| {
            let state = SchemeState::decode(&rig.vault.kept()).unwrap();
            if state.openings.last().copied() != before {
                reported.push(((done, all), state.half_salvaged));
            }
        };
        let context = rig.context();
        Sq::salvage(rig.geometry, context, &state, &mut keep).unwrap();
        assert!(!SchemeState::decode(&rig.vault.kept()).unwrap().half_salvaged);
        reported.into_iter().unzip()
    }

    #[test]
    fn every_leaf_is_written_anew_with_its_progress() {
        let shape = SqGeometry::with_shape(10 * BLOCKS, 64, 4, 3, 3).unwrap();
        let shape = SqGeometry { unsynced_max: 8, ..shape };
        let disk = SqGeometry { map: MapPlace::Disk, ..shape };
        // Nothing is lost: leaves alone are written, each with a dummy.
        let rig = Rig::new(disk, 900);
        let (reported, half_salvaged) = progress(&rig);
        let expected = (0..disk.leaves()).map(|leaf| (2 * leaf, 2 * leaf)).chain([(1, 1)]);
        assert_eq!(reported, expected.collect::<Vec<_>>());
        assert!(half_salvaged.iter().all(|&is_half| is_half));
        assert_eq!(rig.open().unwrap().writes(), 900 + disk.leaves());
        // A lost entry of the log is outlived by dummies.
        let rig = Rig::new(shape, 900);
        let oram = rig.open().unwrap();
        let (area, slot) = (oram.log.clone(), oram.log_slot(880));
        let end = oram.schedule.last_use(0, 220) * 4 + 8;
        drop(oram);
        rig.flip(&area, slot);
        let (reported, half_salvaged) = progress(&rig);
        let expected = (900..end).map(|count| (count - 900, end - 900)).chain([(1, 1)]);
        assert_eq!(reported, expected.collect::<Vec<_>>());
        assert!(half_salvaged.iter().all(|&is_half| !is_half));
    }
}
