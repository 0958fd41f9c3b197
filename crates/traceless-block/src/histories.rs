//! Complete histories of the block schemes, compared byte for byte.
//!
//! Each history has writes, reads, dummies, power cuts, damage and salvage. The contents of a store
//! are a format, and a redo after a power cut must repeat the same bytes, so the result of a
//! history must not change from one version to the next. Each part of a history has a digest of the
//! requests to the store, the data read, and the contents of the store and the vault at the end.

use crate::datalair::DataLairScheme;
use crate::detwo::{self, MapEntries, Refresh};
use crate::hive::HiveScheme;
use crate::{random, sq};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use traceless_core::error::{Error, Result};
use traceless_core::oram::BlockOram;
use traceless_core::rng::{Rng as _, SeededRng};
#[cfg(test)]
use traceless_core::scheme::contract::BlockScheme;
use traceless_core::store::{MemStore, Store, WatchedStore};
use traceless_core::suite::rig::{Forgetful, Rig};
use traceless_core::trace::Recorder;
use traceless_core::types::{Addr, Extent};

const BLOCK_LEN: usize = 128;
/// Number of places that are damaged before a salvage, and bytes of each.
const DAMAGED: (u64, usize) = (24, 96);

/// A scheme, its store, and the digest of the current part.
struct History<'a> {
    rig: Rig<&'a dyn BlockScheme>,
    rng: SeededRng,
    witness: Arc<Recorder>,
    digest: Sha256,
}

impl<'a> History<'a> {
    fn new(scheme: &'a dyn BlockScheme) -> Self {
        let rig = Rig::with_room(scheme, scheme.store_len());
        let (witness, digest) = (Arc::new(Recorder::default()), Sha256::new());
        Self { rig, rng: SeededRng::new(11), witness, digest }
    }

    /// Runs the history and returns the digest of each part.
    fn live(mut self) -> [u32; 4] {
        let store = self.rig.store.clone();
        let context = self.rig.context(self.watched(store), false);
        let mut oram = self.rig.geometry.create_block(context).unwrap();
        self.use_it(&mut *oram, 6 * self.rig.geometry.blocks()).unwrap();
        drop(oram);
        let used = self.end_part();
        for fuse in [3, 40, 170, 5, 400, 90, 1500] {
            self.live_until_the_power_goes(fuse);
        }
        let crashed = self.end_part();
        self.damage();
        let salvaged = self.end_part();
        self.end();
        [used, crashed, salvaged, self.end_part()]
    }

    fn watched(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(WatchedStore::new(store, self.witness.clone()))
    }

    fn open(&mut self, store: Arc<dyn Store>, read_only: bool) -> Result<Box<dyn BlockOram>> {
        let state = self.rig.vault.kept();
        let context = self.rig.context(self.watched(store), read_only);
        let digest = &mut self.digest;
        self.rig.geometry.open_block(context, &state, &mut |done, all| {
            digest.update(done.to_le_bytes());
            digest.update(all.to_le_bytes());
        })
    }

    /// Makes `requests` requests: of single blocks, of runs, and of runs with repeated blocks.
    fn use_it(&mut self, oram: &mut dyn BlockOram, requests: u64) -> Result {
        let blocks = oram.blocks();
        for _ in 0..requests {
            let (first, what) = (self.rng.below(blocks), self.rng.below(200));
            let len = if what % 10 == 0 { 1 + self.rng.below(40.min(blocks - first)) } else { 1 };
            let mut addrs: Vec<Addr> = (first..first + len).map(Addr).collect();
            if what.is_multiple_of(20) {
                addrs.push(Addr(self.rng.below(blocks)));
                addrs.push(addrs[0]);
            }
            let mut bytes = vec![0; addrs.len() * BLOCK_LEN];
            match what {
                0..120 => {
                    self.rng.fill(&mut bytes);
                    oram.write_many(&addrs, &bytes)?;
                }
                120..190 => {
                    oram.read_shared(&addrs, &mut bytes)?;
                    self.digest.update(&bytes);
                }
                190..196 => oram.write_dummy()?,
                196 => {
                    oram.write_out()?;
                    oram.sync_shared()?;
                }
                _ => oram.sync()?,
            }
            self.digest.update(oram.writes().to_le_bytes());
            self.look();
        }
        Ok(())
    }

    /// Adds the requests to the store to the digest.
    fn look(&mut self) {
        for event in self.witness.take() {
            self.digest.update([event.op as u8]);
            self.digest.update(event.at.to_le_bytes());
            self.digest.update(event.len.to_le_bytes());
        }
    }

    fn live_until_the_power_goes(&mut self, fuse: u64) {
        let disk = Arc::new(Forgetful::new(&self.rig.store.snapshot(), fuse));
        let lived: Result = self.open(disk.clone(), false).and_then(|mut oram| {
            self.look();
            loop {
                self.use_it(&mut *oram, 100)?;
            }
        });
        let Err(Error::Store(_)) = lived else { panic!("a power cut is no damage: {lived:?}") };
        self.look();
        self.rig.store = Arc::new(MemStore::from_bytes(&disk.crash(&mut self.rng)));
    }

    /// Damages places at random, opens the rest, normally or by salvage, and goes on with it.
    fn damage(&mut self) {
        let store = self.rig.store.clone();
        let before = store.snapshot();
        for _ in 0..DAMAGED.0 {
            let place = Extent::new(self.rng.below(store.len() - DAMAGED.1 as u64), DAMAGED.1);
            store.write(&[place], &[0; DAMAGED.1]).unwrap();
        }
        let opened = self.open(store.clone(), false);
        self.digest.update(opened.as_ref().map_or_else(ToString::to_string, |_| String::new()));
        drop(opened);
        let state = self.rig.vault.kept();
        let context = self.rig.context(self.watched(store), false);
        let salvaged = self.rig.geometry.salvage(context, &state, &mut |_, _| {});
        match salvaged {
            Ok((mut oram, lost)) => {
                self.digest.update(format!("{lost:?}"));
                self.read_all(&*oram);
                oram.sync().unwrap();
                // Lost blocks stay errors until they are written, lost parts of a map stay errors
                // for good.
                for addr in (0..oram.blocks()).map(Addr) {
                    let written = oram.write(addr, &[7; BLOCK_LEN]);
                    self.digest.update(format!("{written:?}"));
                }
                let used = self.use_it(&mut *oram, 1000);
                self.digest.update(format!("{used:?}"));
            }
            Err(Error::NotSalvageable(_)) => {
                self.rig.store = Arc::new(MemStore::from_bytes(&before));
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// Adds the contents of each block, and the damaged places, to the digest.
    fn read_all(&mut self, oram: &dyn BlockOram) {
        let mut block = [0; BLOCK_LEN];
        for addr in (0..oram.blocks()).map(Addr) {
            match oram.read_shared(&[addr], &mut block) {
                Ok(()) => self.digest.update(block),
                Err(error) => self.digest.update(error.to_string()),
            }
        }
        let digest = std::cell::RefCell::new(&mut self.digest);
        let tell = |words: [u64; 2]| {
            digest.borrow_mut().update(words.map(u64::to_le_bytes).concat());
        };
        oram.verify(&mut |done, all| tell([done, all]), &mut |place| {
            digest.borrow_mut().update(format!("{place:?}"));
        })
        .unwrap();
    }

    /// Closes the scheme, and opens it for reading.
    fn end(&mut self) {
        let mut oram = self.open(self.rig.store.clone(), false).unwrap();
        self.read_all(&*oram);
        oram.close().unwrap();
        drop(oram);
        self.look();
        let mut oram = self.open(self.rig.store.clone(), true).unwrap();
        self.read_all(&*oram);
        oram.write_out().unwrap();
        let config = &self.rig.geometry;
        self.digest.update(format!("{:?}", config.facts(oram.writes())));
        self.digest.update(format!("{:?} {:?}", config.areas(), config.write_amplification()));
    }

    /// The first bytes of the digest of the part that ends here.
    fn end_part(&mut self) -> u32 {
        self.look();
        let state = self.rig.vault.kept();
        self.digest.update(format!("{:?}", self.rig.geometry.peek_state(&state).unwrap()));
        self.digest.update(state);
        self.digest.update(self.rig.store.snapshot());
        let digest = self.digest.finalize_reset();
        u32::from_be_bytes(digest[..4].try_into().unwrap())
    }
}

/// Fails if the histories with these configurations have other digests than recorded.
fn assert_unchanged(histories: &[(&str, &dyn BlockScheme, [u32; 4])]) {
    let lived = histories.iter().map(|&(name, scheme, _)| (name, History::new(scheme).live()));
    let lived: Vec<_> = lived.collect();
    let expected = histories.iter().map(|&(name, _, digests)| (name, digests));
    let expected: Vec<_> = expected.collect();
    assert!(lived == expected, "the format or the order of requests changed: now {lived:#010x?}");
}

#[test]
fn a_history_of_sq_is_what_it_was() {
    let shape = |blocks, bucket, fanout, levels| {
        sq::SqGeometry::with_shape(blocks, BLOCK_LEN, bucket, fanout, levels).unwrap()
    };
    let small = sq::SqGeometry { unsynced_max: 16, ..shape(200, 4, 4, 2) };
    let wide = sq::SqGeometry { unsynced_max: 24, ..shape(1500, 6, 19, 1) };
    let deep = sq::SqGeometry { unsynced_max: 8, ..shape(900, 2, 3, 4) };
    let wide_deep = sq::SqGeometry { unsynced_max: 32, ..shape(2600, 2, 17, 2) };
    let on_disk = |geometry| sq::SqGeometry { map: sq::MapPlace::Disk, ..geometry };
    let amortized = |geometry| sq::SqGeometry { amortized: true, ..geometry };
    let paper = |geometry| sq::SqGeometry { cadence: sq::Cadence::Paper, ..geometry };
    let chosen = sq::SqGeometry::new(3000, BLOCK_LEN, sq::SqPreferences::default()).unwrap();
    assert_unchanged(&[
        ("small", &small, [0xb5cd_5379, 0xbbce_2d4e, 0x37de_e022, 0x2fd1_98ce]),
        ("wide", &wide, [0xfcb0_462f, 0xdd72_83c7, 0x1008_710f, 0xc2d9_1bfb]),
        ("deep", &deep, [0xf4fc_6edf, 0x7040_29fc, 0x523a_9c80, 0x4493_4194]),
        ("wide and deep", &wide_deep, [0x92ec_3ae0, 0x763c_dcab, 0x80d3_cffe, 0x0da3_a66d]),
        ("chosen", &chosen, [0xb45d_fe64, 0x8663_7e1b, 0x6d0e_860c, 0x69de_c6ff]),
        (
            "small, amortized",
            &amortized(small),
            [0x0ee1_dd0d, 0x3441_a7b0, 0xf96b_9971, 0xbd2a_dd0e],
        ),
        ("deep, amortized", &amortized(deep), [0xfa1e_7c51, 0x39be_3b13, 0xc7a0_c710, 0x3ec1_e0d1]),
        ("small, on disk", &on_disk(small), [0xd021_8751, 0xf454_2fb0, 0x4288_f8bd, 0x75c5_50e6]),
        ("wide, on disk", &on_disk(wide), [0x16ff_9446, 0x4022_b8ad, 0xedc7_4e31, 0x4ea9_6d27]),
        (
            "deep, on disk, as in the paper",
            &paper(on_disk(deep)),
            [0x5c1b_a401, 0x99ff_33ed, 0xf0a3_3b83, 0xc132_b4a6],
        ),
    ]);
}

#[test]
fn a_history_of_detwo_is_what_it_was() {
    let of = |blocks, refresh, map_tiers, entries| {
        let refresh = Refresh::parse(refresh).unwrap();
        let geometry = detwo::DetWoGeometry::new(blocks, BLOCK_LEN, refresh, map_tiers).unwrap();
        geometry.with_map_entries(entries).unwrap()
    };
    let (counts, pointers) = (MapEntries::Counts, MapEntries::Pointers);
    assert_unchanged(&[
        ("counts", &of(640, "1", 0, counts), [0x8a55_38c0, 0xaaf9_6093, 0x6a37_a2d9, 0x9e71_12c5]),
        (
            "counts, few refreshes",
            &of(500, "2/7", 0, counts),
            [0x1119_76b6, 0xcf8b_8345, 0xb55d_0b6b, 0xbdd6_9ce9],
        ),
        (
            "counts, many refreshes",
            &of(700, "5/2", 0, counts),
            [0x6614_0965, 0xc367_fa30, 0xfbb0_9299, 0x733b_d318],
        ),
        (
            "counts, on disk",
            &of(800, "1", 1, counts),
            [0xbc3e_4126, 0x72b3_4cc5, 0x5137_7ad4, 0x59bc_859c],
        ),
        (
            "counts, on disk twice",
            &of(9000, "3/2", 2, counts),
            [0xe94a_b55a, 0xfb0e_cc7d, 0x22bd_1e81, 0x3444_21f4],
        ),
        (
            "pointers",
            &of(640, "1", 0, pointers),
            [0xd2a5_61a0, 0xabe4_95e4, 0x9323_b373, 0xa5d0_b3f1],
        ),
        (
            "pointers, few refreshes, on disk",
            &of(3000, "1/3", 1, pointers),
            [0xf17b_3f43, 0x357d_b89e, 0xaf9d_1577, 0xf14d_077e],
        ),
        (
            "pointers, many refreshes, on disk",
            &of(900, "3", 1, pointers),
            [0x8a30_c9eb, 0xe4e0_0287, 0x5793_e121, 0x7df6_1526],
        ),
    ]);
}

#[test]
fn a_history_of_random_slots_is_what_it_was() {
    let of = |tiers| random::RandomGeometry::new(700, BLOCK_LEN, tiers).unwrap();
    assert_unchanged(&[
        ("hive", &HiveScheme::new(of(0)), [0x3ebe_0acf, 0x0b70_db58, 0xd7ce_ef0a, 0xe70b_7643]),
        (
            "hive, on disk",
            &HiveScheme::new(of(1)),
            [0xee5a_912f, 0xfc35_2742, 0x6028_899f, 0xd540_2f85],
        ),
        (
            "datalair",
            &DataLairScheme::new(of(0)),
            [0xa7fb_d872, 0x7025_5b4f, 0xd7ce_ef0a, 0xe70b_7643],
        ),
        (
            "datalair, on disk",
            &DataLairScheme::new(of(1)),
            [0x6777_193b, 0xd58f_ef1c, 0x6028_899f, 0xfa27_98be],
        ),
    ]);
}
