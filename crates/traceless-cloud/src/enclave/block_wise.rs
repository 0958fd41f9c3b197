//! Eviction by whole blocks, as a baseline for the paper's piece-wise eviction.
//!
//! The enclave holds two blocks. The node's rows lie in the host's memory, sealed under a key of
//! this eviction, and pass through the network there: for each exchange both rows are opened,
//! exchanged or not, and sealed again. So the enclave's memory is constant, however long a block
//! is, and each row is opened and sealed as often as the network is deep.

use super::job::{DamagedSlots, Job, NodeBytes};
use crate::enclave_orders::Eviction;
use crate::error::{Error, Result};
use crate::geometry::{Geometry, PART_LEN, TAG_LEN};
use crate::kernel::Network;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::seal::{Aead, Nonce, Sealer, Secret};
use traceless_sys::ct::hide;

const WORD: usize = size_of::<u64>();

/// Evicts by whole blocks.
pub struct BlockWise {
    key: Secret,
    networks: Vec<Network>,
    /// Sealed rows, in the host's memory.
    rows: Vec<u8>,
    /// How often each row was sealed, which the host can count.
    sealed: Vec<u32>,
    /// The blocks that the enclave holds, as whole words.
    buffers: [Vec<u8>; 2],
}

impl BlockWise {
    pub fn new(key: &Secret, geometry: &Geometry, counts: Vec<usize>) -> Self {
        let most = counts.iter().copied().max().unwrap_or_default();
        let len = geometry.sealed_len().next_multiple_of(WORD);
        Self {
            key: key.derive(&[b"block-wise"]),
            networks: counts.into_iter().map(Network::new).collect(),
            rows: vec![0; most * (len + TAG_LEN)],
            sealed: vec![0; most],
            buffers: [vec![0; len], vec![0; len]],
        }
    }

    /// Makes a new version of a node, or returns its damaged slots.
    pub fn evict(
        &mut self,
        job: &Job<'_>,
        order: &Eviction,
        bytes: NodeBytes<'_>,
    ) -> Result<DamagedSlots> {
        let control = &order.control;
        let Self { key, networks, rows, sealed, buffers } = self;
        let count = job.rows();
        let network = networks.iter().find(|network| network.rows() == count);
        let network = network.filter(|network| network.control_len() == control.len());
        let network = network.ok_or(Error::Malformed("not the bits of a network"))?;
        // A round makes one attempt for all of its nodes, so the key depends on the node, too.
        let eviction = [&order.node.0.to_le_bytes()[..], &order.attempt.to_le_bytes()];
        let aead = Aead::new(&key.derive(&eviction));
        sealed.fill(0);
        let mut outside = HostRows { aead, rows, sealed, len: buffers[0].len() };
        let [one, other] = buffers;
        let (g, slot_len) = (job.geometry, job.geometry.slot_len());
        let slots = bytes.node.chunks_exact(slot_len).chain(bytes.carried.chunks_exact(slot_len));
        let (mut damaged, mut done) = (DamagedSlots::new(), Ok(()));
        for (row, slot) in slots.enumerate() {
            if !take_in(job, row, slot, one) {
                done = done.and(job.report(row, &mut damaged));
                continue;
            }
            outside.put(row, one);
        }
        done?;
        if !damaged.is_empty() {
            return Ok(damaged);
        }
        for (nth, (above, below)) in network.pairs().enumerate() {
            outside.take(above, one)?;
            outside.take(below, other)?;
            exchange(u64::from(control[nth / 8] >> (nth % 8) & 1), one, other);
            outside.put(above, one);
            outside.put(below, other);
        }
        let NodeBytes { new_node, new_carried, .. } = bytes;
        let slots = new_node.chunks_exact_mut(slot_len);
        for (row, slot) in slots.chain(new_carried.chunks_exact_mut(slot_len)).enumerate() {
            outside.take(row, one)?;
            let (seal, number) = job.target(row).expect("a slot for what goes out");
            seal.seal_slot(g, number, &one[..g.sealed_len()], slot);
        }
        Ok(damaged)
    }
}

/// Rows in the host's memory.
struct HostRows<'a> {
    aead: Aead,
    rows: &'a mut [u8],
    sealed: &'a mut [u32],
    len: usize,
}

impl HostRows<'_> {
    fn put(&mut self, row: usize, plain: &[u8]) {
        self.sealed[row] += 1;
        let nonce = nonce(row, self.sealed[row]);
        let at = row * (self.len + TAG_LEN);
        let (body, tag) = self.rows[at..][..self.len + TAG_LEN].split_at_mut(self.len);
        self.aead.seal(nonce, &[], plain, body, tag);
    }

    fn take(&self, row: usize, plain: &mut [u8]) -> Result {
        let at = row * (self.len + TAG_LEN);
        let (body, tag) = self.rows[at..][..self.len + TAG_LEN].split_at(self.len);
        let opened = self.aead.open(nonce(row, self.sealed[row]), &[], body, tag, plain);
        opened.map_err(|_| Error::Unauthentic)
    }
}

/// Each row has its own nonces.
fn nonce(row: usize, sealed: u32) -> Nonce {
    Nonce::of_fresh_key((row as u64) << 32 | u64::from(sealed))
}

/// Opens a slot, and returns whether all of it is right. All of its parts are opened, even after
/// one fails.
fn take_in(job: &Job<'_>, row: usize, slot: &[u8], plain: &mut [u8]) -> bool {
    let Some((seal, number)) = job.source(row) else {
        plain.fill(0);
        return true;
    };
    let mut is_right = true;
    let plain = &mut plain[..job.geometry.sealed_len()];
    for (part, plain) in plain.chunks_mut(PART_LEN).enumerate() {
        let sealed = &slot[job.geometry.part_at(part)..job.geometry.part_end(part)];
        is_right &= seal.open((number, part), sealed, plain).is_ok();
    }
    is_right
}

/// Exchanges two blocks or not, with the same memory accesses in both cases.
fn exchange(bit: u64, one: &mut [u8], other: &mut [u8]) {
    let mask = 0_u64.wrapping_sub(hide(bit));
    let (words, other_words) = (one.as_chunks_mut::<WORD>().0, other.as_chunks_mut::<WORD>().0);
    for (one, other) in words.iter_mut().zip(other_words) {
        let (a, b) = (u64::from_le_bytes(*one), u64::from_le_bytes(*other));
        let change = (a ^ b) & mask;
        (*one, *other) = ((a ^ change).to_le_bytes(), (b ^ change).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_is_sealed_twice_under_one_nonce() {
        assert_eq!(nonce(3, 5).version, 3 << 32 | 5);
        let (aead, len) = (Aead::new(&Secret::from_bytes([1; 32])), 32);
        let (mut rows, mut sealed) = (vec![0; 2 * (len + TAG_LEN)], [0; 2]);
        let mut outside = HostRows { aead, rows: &mut rows, sealed: &mut sealed, len };
        let mut plain = vec![0; len];
        for (nth, row) in [0, 1, 1, 1].into_iter().enumerate() {
            outside.put(row, &vec![nth as u8; len]);
            outside.take(row, &mut plain).unwrap();
            assert_eq!(plain, vec![nth as u8; len]);
        }
        assert_eq!(outside.sealed, [1, 3]);
    }
}
