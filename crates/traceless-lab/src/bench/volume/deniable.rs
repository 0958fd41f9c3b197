//! Deniable images in memory: beside `detwo`, and hidden writes beside HIVE.

use super::library::{BLOCK_LEN, TestBed, context};
use super::{Effort, Places, Row, failed, row};
use crate::report::cpu_seconds;
use std::sync::Arc;
use traceless::durable::MemVault;
use traceless::oram::{BlockOram, Oram};
use traceless::rng::{Rng, SeededRng, System};
use traceless::seal::Secret;
use traceless::store::MemStore;
use traceless::types::Addr;
use traceless_block::deniable::{Deniable, DeniableGeometry, HiddenVolume};
use traceless_block::hive::HiveScheme;
use traceless_block::random::RandomGeometry;
use traceless_cli::failure::Failure;

pub const NAMES: [&str; 4] = [
    "deniable-writes-vs-detwo",
    "deniable-reads-vs-detwo",
    "deniable-hidden-writes-vs-hive",
    "deniable-space",
];

/// Blocks of the public volume, and of a volume of HIVE.
const BLOCKS: u64 = 1 << 15;

/// Hidden writes between which the public volume writes as much.
const TURN: usize = 64;

pub fn measure(_: &Places, effort: Effort) -> Result<Vec<Row>, Failure> {
    let geometry = DeniableGeometry::new(BLOCKS, BLOCK_LEN).map_err(failed)?;
    let [writes, reads] = beside_detwo(geometry, effort.rounds)?;
    let hidden = beside_hive(geometry, effort.rounds)?;
    let held = (geometry.public.blocks + geometry.hidden_blocks()) * BLOCK_LEN as u64;
    let space = vec![geometry.store_len() as f64 / held as f64];
    Ok(NAMES
        .into_iter()
        .zip([writes, reads, hidden, space])
        .map(|(name, values)| row(name, "ratio", values))
        .collect())
}

/// The speed of public writes and reads, of `detwo` with the same blocks.
fn beside_detwo(geometry: DeniableGeometry, rounds: usize) -> Result<[Vec<f64>; 2], Failure> {
    let mut detwo = TestBed::in_memory(Arc::new(geometry.public))?;
    let mut deniable = TestBed::in_memory(Arc::new(geometry))?;
    let mut ratios = [vec![], vec![]];
    for _ in 0..rounds {
        let addrs = detwo.addresses();
        let of_detwo = detwo.write(&addrs)?;
        ratios[0].push(deniable.write(&addrs)? / of_detwo);
        let of_detwo = detwo.read(&addrs)?;
        ratios[1].push(deniable.read(&addrs)? / of_detwo);
    }
    Ok(ratios)
}

/// The speed of hidden writes, each beside a public one, of the same writes to a volume of HIVE
/// that holds both. The hidden volume has all blocks that it can have, and each was written.
fn beside_hive(geometry: DeniableGeometry, rounds: usize) -> Result<Vec<f64>, Failure> {
    let blocks = RandomGeometry::new(BLOCKS, BLOCK_LEN, 0).map_err(failed)?;
    let mut hive = TestBed::in_memory(Arc::new(HiveScheme::new(blocks)))?;
    let mut pair = HiddenPair::new(geometry)?;
    let mut ratios = vec![];
    for _ in 0..rounds {
        // Half of them are hidden.
        let addrs = hive.addresses();
        let bytes = (addrs.len() * BLOCK_LEN) as f64;
        let of_hive = hive.write(&addrs)?;
        let start = cpu_seconds();
        pair.write(addrs.len() / 2)?;
        ratios.push(bytes / 1e9 / (cpu_seconds() - start) / of_hive);
    }
    Ok(ratios)
}

/// A public volume and a hidden one.
struct HiddenPair {
    public: Deniable,
    hidden: HiddenVolume,
    rng: SeededRng,
    block: Vec<u8>,
}

impl HiddenPair {
    fn new(geometry: DeniableGeometry) -> Result<Self, Failure> {
        let store = Arc::new(MemStore::new(geometry.store_len()));
        let (vault, key) = (MemVault::default(), Secret::random(&mut System));
        let public = Deniable::create(geometry, context(store, &vault, &key)).map_err(failed)?;
        let (lane, block) = (public.hidden(), vec![7; BLOCK_LEN]);
        let blocks = lane.room();
        let hidden = lane.add(&Secret::random(&mut System), blocks, &block).map_err(failed)?;
        let mut pair = Self { public, hidden, rng: SeededRng::new(3), block };
        pair.rng.fill(&mut pair.block);
        pair.write_hidden((0..blocks).map(Addr))?;
        Ok(pair)
    }

    /// Random hidden writes, and as many public ones.
    fn write(&mut self, writes: usize) -> Result<(), Failure> {
        let (blocks, mut rng) = (self.hidden.blocks(), SeededRng::new(self.rng.next_u64()));
        self.write_hidden((0..writes).map(|_| Addr(rng.below(blocks))))
    }

    fn write_hidden(&mut self, addrs: impl Iterator<Item = Addr>) -> Result<(), Failure> {
        for (nth, addr) in addrs.enumerate() {
            self.hidden.write(&[addr], &self.block).map_err(failed)?;
            let to = Addr(self.rng.below(BLOCKS));
            self.public.write(to, &self.block).map_err(failed)?;
            if nth % TURN == TURN - 1 {
                self.place_waiting()?;
            }
        }
        Ok(())
    }

    /// What the ring moves takes slots, too: further public writes place what still waits.
    fn place_waiting(&mut self) -> Result<(), Failure> {
        while self.public.hidden().has_waiting() {
            self.public.write_dummy().map_err(failed)?;
        }
        Ok(())
    }
}
