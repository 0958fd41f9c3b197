//! Reads of many blocks, cut into batches: one round trip each.

use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Place, Result};
use traceless_core::types::Addr;

/// Blocks fetched in one round trip, at most.
pub(super) const BLOCKS_PER_BATCH: usize = 256;

/// Cuts a request for blocks of `len` bytes into batches.
pub(super) fn batches<'a>(
    addrs: &'a [Addr],
    into: &'a mut [u8],
    len: usize,
) -> impl Iterator<Item = (&'a [Addr], &'a mut [u8])> {
    addrs.chunks(BLOCKS_PER_BATCH).zip(into.chunks_mut(BLOCKS_PER_BATCH * len))
}

/// Reads the first `blocks` blocks, of `len` bytes each, and calls `damaged` for each damaged
/// place. After each batch, `done` gets the number of blocks read so far.
pub(super) fn verify_all(
    blocks: u64,
    len: usize,
    read: impl Fn(&[Addr], &mut [u8]) -> Result,
    damaged: &mut dyn FnMut(Place),
    mut done: impl FnMut(u64),
) -> Result {
    let mut bytes = vec![0; BLOCKS_PER_BATCH * len];
    for start in (0..blocks).step_by(BLOCKS_PER_BATCH) {
        let end = (start + BLOCKS_PER_BATCH as u64).min(blocks);
        let addrs: Vec<_> = (start..end).map(Addr).collect();
        match read(&addrs, &mut bytes[..addrs.len() * len]) {
            // One of these blocks is damaged: reading them one by one finds which.
            Err(Error::Tampered { .. }) => {
                for addr in addrs {
                    match read(&[addr], &mut bytes[..len]) {
                        Err(Error::Tampered { place }) => damaged(place),
                        other => other?,
                    }
                }
            }
            other => other?,
        }
        done(end);
    }
    Ok(())
}
