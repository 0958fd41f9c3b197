//! The library alone: `DetWo` on a store in memory, one thread, one block a call.

use super::{Effort, Places, Row, failed, row, seconds};
use crate::failure::Failure;
use std::sync::Arc;
use traceless::oram::Oram;
use traceless::rng::{Rng, Seeded, System};
use traceless::scheme::Parts;
use traceless::scheme::detwo::{DetWo, Geometry, Refresh};
use traceless::seal::Secret;
use traceless::store::MemStore;
use traceless::types::Addr;

/// Blocks of the scheme that [`rates`] takes.
pub const BLOCKS: u64 = 1 << 16;
pub const BLOCK_LEN: usize = 4096;

pub fn measure(_: &Places, effort: Effort) -> Result<Vec<Row>, Failure> {
    let geometry = Geometry::new(BLOCKS, BLOCK_LEN, Refresh::ONE, 0).map_err(failed)?;
    let mut oram = DetWo::create(geometry, parts(geometry.store_len())).map_err(failed)?;
    let (writes, reads) = rates(&mut oram, effort.rounds)?;
    Ok(vec![row("library-detwo-writes", "GB/s", writes), row("library-detwo-reads", "GB/s", reads)])
}

/// What a scheme is made of that is gone when this ends.
pub fn parts(store_len: u64) -> Parts {
    Parts {
        store: Arc::new(MemStore::new(store_len)),
        first: 0,
        key: Secret::random(&mut System),
        vault: Box::new(()),
        rng: Box::new(System),
        read_only: false,
        expect_writes: 0,
    }
}

/// GB/s of random writes and of random reads, in each of `rounds` rounds.
pub fn rates(oram: &mut dyn Oram, rounds: usize) -> Result<(Vec<f64>, Vec<f64>), Failure> {
    let mut block = vec![0; BLOCK_LEN];
    let mut rng = Seeded::new(1);
    // A pass first: then every refresh has something to open.
    for addr in 0..BLOCKS {
        rng.fill(&mut block);
        oram.write(Addr(addr), &block).map_err(failed)?;
    }
    let (mut writes, mut reads) = (vec![], vec![]);
    let gigabytes = (BLOCKS * BLOCK_LEN as u64) as f64 / 1e9;
    for _ in 0..rounds {
        let addrs: Vec<Addr> = (0..BLOCKS).map(|_| Addr(rng.below(BLOCKS))).collect();
        let took =
            seconds(|| addrs.iter().try_for_each(|&a| oram.write(a, &block)).map_err(failed))?;
        writes.push(gigabytes / took);
        let took =
            seconds(|| addrs.iter().try_for_each(|&a| oram.read(a, &mut block)).map_err(failed))?;
        reads.push(gigabytes / took);
    }
    Ok((writes, reads))
}
