//! A read fails once in the store: afterwards nothing has changed, and the same read is repeated
//! before any other.

use super::{Subject, assert_holds, step};
use crate::error::{Error, Result};
use crate::oram::{Hides, Oram};
use crate::rng::{Rng, SeededRng};
use crate::scheme::contract::Scheme;
use crate::store::Store;
use crate::types::{Addr, Extent};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

/// Passes on all calls except one read.
pub struct FailingReads<S> {
    inner: Arc<S>,
    /// Number of reads until one fails; negative if none will.
    left: AtomicI64,
    seen: Mutex<Vec<Vec<Extent>>>,
}

impl<S: Store> FailingReads<S> {
    /// A wrapper of `inner`; no read fails yet.
    pub fn new(inner: Arc<S>) -> Self {
        Self { inner, left: AtomicI64::new(-1), seen: Mutex::default() }
    }

    /// Lets one read fail after `reads` successful ones.
    pub fn fail_after(&self, reads: u64) {
        self.left.store(reads.cast_signed(), Ordering::Relaxed);
    }

    /// Whether the planned failure has happened.
    pub fn has_failed(&self) -> bool {
        self.left.load(Ordering::Relaxed) < 0
    }

    /// Takes out the reads since the last call, failed ones included.
    pub fn take_reads(&self) -> Vec<Vec<Extent>> {
        core::mem::take(&mut *self.seen.lock().expect("no store panics"))
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for FailingReads<S> {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }
    fn unit(&self) -> usize {
        self.inner.unit()
    }
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        self.seen.lock().expect("no store panics").push(extents.to_vec());
        if !self.has_failed() && self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            return Err(Error::Store(PLANTED));
        }
        self.inner.read(extents, into)
    }
    fn prefetch(&self, extents: &[Extent]) {
        self.inner.prefetch(extents);
    }
    fn takes_discards(&self) -> bool {
        self.inner.takes_discards()
    }
    fn discard(&self, extents: &[Extent]) {
        self.inner.discard(extents);
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        self.inner.write(extents, from)
    }
    fn sync(&self) -> Result {
        self.inner.sync()
    }
}

const PLANTED: &str = "planted fault of a read";

/// Whether the reads after a failure begin with the reads of the access that failed.
pub fn is_read_again(before: &[Vec<Extent>], after: &[Vec<Extent>]) -> bool {
    let most = before.len().min(after.len());
    (1..=most).any(|n| before[before.len() - n..] == after[..n])
}

/// After each failed read all blocks are intact, and a sync and another opening work.
pub fn survives_failing_reads(scheme: &dyn Scheme) {
    let often = (20_000 / scheme.blocks()).clamp(5, 80);
    let mut fired = 0;
    for nth in 0..often {
        let mut subject = Subject { seed: nth * 100, ..Subject::new(scheme) };
        let inner = subject.store();
        let store = Arc::new(FailingReads::new(inner.clone()));
        let mut oram = subject.create(store.clone()).unwrap();
        let mut model = vec![0; scheme.blocks() as usize * scheme.block_len()];
        let mut rng = SeededRng::new(nth);
        (0..30).for_each(|_| step(&mut *oram, &mut model, &mut rng).unwrap());
        // Fail each of the first reads, then reads further apart.
        let reads = if nth < often / 2 { nth } else { nth * 7 };
        fired += u32::from(continues_after_failed_read(&mut *oram, &store, reads, &mut model));
        if nth % 2 == 0 { oram.close() } else { oram.sync() }.unwrap();
        drop(oram);
        assert_holds(&mut *subject.open(inner).unwrap(), &model);
    }
    // Schemes that hide only writes may serve all reads from memory.
    let is_enough = u64::from(fired) > often / 2 || scheme.hides() != Hides::ReadsAndWrites;
    assert!(is_enough, "only {fired} reads failed");
}

/// Operates until a read fails, then checks all blocks and goes on. Returns whether a read failed:
/// memory may have served all of them.
pub fn continues_after_failed_read<S: Store>(
    oram: &mut dyn Oram,
    store: &FailingReads<S>,
    reads: u64,
    model: &mut [u8],
) -> bool {
    let len = oram.block_len();
    let mut rng = SeededRng::new(reads + 1);
    store.fail_after(reads);
    let mut fired = false;
    for _ in 0..400 {
        store.take_reads();
        let Err((error, written)) = one_operation(oram, model, &mut rng) else { continue };
        assert!(matches!(error, Error::Store(PLANTED)), "{error}");
        let before = store.take_reads();
        let addr = rng.below(oram.blocks());
        oram.read(Addr(addr), &mut vec![0; len]).expect("the store fails once");
        let again = is_read_again(&before, &store.take_reads());
        assert!(oram.hides() != Hides::ReadsAndWrites || again, "another path was read");
        settle(oram, model, &written);
        fired = true;
        break;
    }
    store.fail_after(u64::MAX);
    assert_holds(oram, model);
    oram.sync().expect("a failed read is no failed write");
    (0..20).for_each(|_| step(oram, model, &mut rng).unwrap());
    assert_holds(oram, model);
    fired
}

/// Blocks of an interrupted write, in order.
type InterruptedWrite = Vec<(Addr, Vec<u8>)>;

/// Reads or writes a few blocks. An error comes with the blocks of the write that failed. Schemes
/// that hide only writes get reads only: their writes read as a part of the write.
fn one_operation(
    oram: &mut dyn Oram,
    model: &mut [u8],
    rng: &mut SeededRng,
) -> Result<(), (Error, InterruptedWrite)> {
    let (n, len) = (oram.blocks(), oram.block_len());
    let count = if rng.below(3) == 0 { 1 + rng.below(9) } else { 1 };
    let addrs: Vec<Addr> = (0..count).map(|_| Addr(rng.below(n))).collect();
    let mut data = vec![0; addrs.len() * len];
    if oram.hides() != Hides::ReadsAndWrites || rng.below(2) == 0 {
        oram.read_many(&addrs, &mut data).map_err(|error| (error, vec![]))?;
        for (addr, block) in addrs.iter().zip(data.chunks(len)) {
            let want = &model[addr.0 as usize * len..][..len];
            assert_eq!(want, block, "block {} is not what was written", addr.0);
        }
        return Ok(());
    }
    rng.fill(&mut data);
    let blocks = addrs.iter().copied().zip(data.chunks(len).map(<[u8]>::to_vec)).collect();
    if let Err(error) = oram.write_many(&addrs, &data) {
        return Err((error, blocks));
    }
    for (addr, block) in blocks {
        model[addr.0 as usize * len..][..len].copy_from_slice(&block);
    }
    Ok(())
}

/// A failed write leaves each block old or new: take the present contents for the truth.
fn settle(oram: &mut dyn Oram, model: &mut [u8], written: &[(Addr, Vec<u8>)]) {
    let mut found = vec![0; oram.block_len()];
    for (addr, _) in written {
        oram.read(*addr, &mut found).expect("the store fails once");
        let known = &mut model[addr.0 as usize * found.len()..][..found.len()];
        let is_new = written.iter().any(|(other, new)| other == addr && *new == found);
        assert!(is_new || *known == found[..], "block {} is neither old nor new", addr.0);
        known.copy_from_slice(&found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_path_is_noticed() {
        let [a, b, c] = [1, 2, 3].map(|at| vec![Extent::new(at, 1)]);
        assert!(is_read_again(&[a.clone(), b.clone()], &[b.clone(), c.clone()]));
        assert!(is_read_again(&[a.clone(), b.clone()], &[a.clone(), b.clone(), c.clone()]));
        assert!(!is_read_again(&[a, b.clone()], &[c, b]));
    }
}
