//! The library alone: schemes on a store in memory, one thread, one block per call.

use super::{Effort, Places, Row, failed, seconds};
use crate::bench::controls::{Controls, Operations};
use crate::report::{Scale, TimePair, cpu_seconds, row_of_ratios};
use std::sync::Arc;
use traceless::durable::MemVault;
use traceless::oram::Oram;
use traceless::rng::{Rng, SeededRng, System};
use traceless::scheme::SchemeContext;
use traceless::scheme::contract::BlockScheme;
use traceless::seal::{Cipher, Secret};
use traceless::store::{MemStore, Store};
use traceless::types::Addr;
use traceless_block::detwo::{DetWoGeometry, Refresh};
use traceless_cli::failure::Failure;

/// Blocks of the measured schemes.
pub const BLOCKS: u64 = 1 << 16;
pub const BLOCK_LEN: usize = 4096;

pub fn measure(_: &Places, effort: Effort) -> Result<Vec<Row>, Failure> {
    let geometry = DetWoGeometry::new(BLOCKS, BLOCK_LEN, Refresh::ONE, 0).map_err(failed)?;
    let mut bed = TestBed::in_memory(Arc::new(geometry))?;
    let (writes, reads) = bed.rounds(effort.rounds, &DETWO_WRITE, &DETWO_READ)?;
    let scale = Scale::Rate("GB/s", BLOCK_LEN as f64);
    Ok(vec![
        row_of_ratios("library-detwo-writes", scale, &writes),
        row_of_ratios("library-detwo-reads", scale, &reads),
    ])
}

/// A write seals its block in the holding area; its refresh opens another block and seals it in the
/// main area.
const DETWO_WRITE: Operations =
    Operations { passes: 3.0, copies: 3.0, misses: 3.0, ..Operations::NONE };

const DETWO_READ: Operations =
    Operations { passes: 1.0, copies: 1.0, misses: 1.0, ..Operations::NONE };

/// A scheme with every block written once, so that each refresh has a block to open.
pub struct TestBed {
    scheme: Arc<dyn BlockScheme>,
    oram: Box<dyn Oram>,
    store: Arc<dyn Store>,
    vault: MemVault,
    key: Secret,
    rng: SeededRng,
    block: Vec<u8>,
}

impl TestBed {
    pub fn new(scheme: Arc<dyn BlockScheme>, store: Arc<dyn Store>) -> Result<Self, Failure> {
        let (vault, key) = (MemVault::default(), Secret::random(&mut System));
        let oram = scheme.create(context(store.clone(), &vault, &key)).map_err(failed)?;
        let (rng, block) = (SeededRng::new(1), vec![0; BLOCK_LEN]);
        let mut bed = Self { scheme, oram, store, vault, key, rng, block };
        for addr in 0..bed.scheme.blocks() {
            bed.rng.fill(&mut bed.block);
            bed.oram.write(Addr(addr), &bed.block).map_err(failed)?;
        }
        Ok(bed)
    }

    pub fn in_memory(scheme: Arc<dyn BlockScheme>) -> Result<Self, Failure> {
        let store = MemStore::new(scheme.store_len());
        Self::new(scheme, Arc::new(store))
    }

    /// Random addresses, as many as there are blocks.
    pub fn addresses(&mut self) -> Vec<Addr> {
        let blocks = self.scheme.blocks();
        (0..blocks).map(|_| Addr(self.rng.below(blocks))).collect()
    }

    /// Writes random contents to each of `addrs`, and returns the speed in GB/s.
    pub fn write(&mut self, addrs: &[Addr]) -> Result<f64, Failure> {
        self.rng.fill(&mut self.block);
        let (oram, block) = (&mut self.oram, &self.block);
        let start = cpu_seconds();
        addrs.iter().try_for_each(|&a| oram.write(a, block)).map_err(failed)?;
        Ok(gigabytes(addrs) / (cpu_seconds() - start))
    }

    /// Reads each of `addrs`, and returns the speed in GB/s.
    pub fn read(&mut self, addrs: &[Addr]) -> Result<f64, Failure> {
        let (oram, block) = (&mut self.oram, &mut self.block);
        let start = cpu_seconds();
        addrs.iter().try_for_each(|&a| oram.read(a, block)).map_err(failed)?;
        Ok(gigabytes(addrs) / (cpu_seconds() - start))
    }

    /// The times of a random write and a random read in each of `rounds` rounds, with the
    /// operations of each as controls.
    pub fn rounds(
        &mut self,
        rounds: usize,
        of_write: &Operations,
        of_read: &Operations,
    ) -> Result<(Vec<TimePair>, Vec<TimePair>), Failure> {
        let mut controls =
            Controls::of_memory().and_passes(|key| Cipher::default().sealer(key), BLOCK_LEN);
        let (mut writes, mut reads) = (vec![], vec![]);
        for _ in 0..rounds {
            let addrs = self.addresses();
            let blocks = addrs.len() as f64;
            writes.push(controls.time(of_write, || self.write(&addrs).map(|_| blocks))?);
            reads.push(controls.time(of_read, || self.read(&addrs).map(|_| blocks))?);
        }
        Ok((writes, reads))
    }

    /// Closes the scheme and opens it again. Returns the seconds that opening took.
    pub fn reopen(&mut self) -> Result<f64, Failure> {
        self.oram.close().map_err(failed)?;
        let (state, store) = (self.vault.kept(), self.store.clone());
        seconds(|| {
            let context = context(store, &self.vault, &self.key);
            self.oram = self.scheme.open(context, &state, &mut |_, _| {}).map_err(failed)?;
            Ok(())
        })
    }
}

/// The context to make or open a scheme in.
pub fn context(store: Arc<dyn Store>, vault: &MemVault, key: &Secret) -> SchemeContext {
    SchemeContext {
        key: key.clone(),
        vault: Box::new(vault.clone()),
        ..SchemeContext::over(store, Box::new(System))
    }
}

fn gigabytes(addrs: &[Addr]) -> f64 {
    (addrs.len() * BLOCK_LEN) as f64 / 1e9
}
