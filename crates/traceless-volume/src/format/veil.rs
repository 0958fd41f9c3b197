//! A store in which what has structure looks random without its key: superblocks, and the headers
//! of areas. Bodies are ciphertext already.

use super::{AREAS_AT, Keys, SUPERBLOCKS_AT};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use traceless_core::Result;
use traceless_core::seal::Veil;
use traceless_core::store::{AlignedBuf, SlotLayout, Store};
use traceless_core::types::{Extent, total_len};

/// The decorator. It makes the same requests as are made to it.
pub struct VeiledStore {
    inner: Arc<dyn Store>,
    veil: Veil,
    /// First byte and layout of each area with headers under the veil, in order.
    areas: Vec<(u64, SlotLayout)>,
    buffer: Mutex<AlignedBuf>,
}

impl VeiledStore {
    /// Covers the superblocks and the headers of `areas`, each with its first byte in the image.
    pub fn new(inner: Arc<dyn Store>, keys: &Keys, areas: Vec<(u64, SlotLayout)>) -> Self {
        let (veil, buffer) = (Veil::new(&keys.veil()), Mutex::new(AlignedBuf::zeroed(0)));
        Self { inner, veil, areas, buffer }
    }

    /// Calls `visit` with the place and the bytes of each part under the veil.
    fn visit(&self, extents: &[Extent], bytes: &mut [u8], visit: impl Fn(u64, &mut [u8])) {
        let mut rest = bytes;
        for extent in extents {
            let (part, next) = rest.split_at_mut(extent.len);
            let mut at = extent.at;
            while at < extent.end() {
                let veiled = self.next_veiled(at).filter(|veiled| veiled.start < extent.end());
                let Some(veiled) = veiled else { break };
                let (from, to) = (veiled.start.max(at), veiled.end.min(extent.end()));
                visit(from, &mut part[(from - extent.at) as usize..(to - extent.at) as usize]);
                at = to;
            }
            rest = next;
        }
    }

    /// The first stretch under the veil that ends behind `at`.
    fn next_veiled(&self, at: u64) -> Option<Range<u64>> {
        if at < AREAS_AT {
            return Some(SUPERBLOCKS_AT..AREAS_AT);
        }
        for (first, layout) in &self.areas {
            let (first, stripe) = (*first, layout.stripe_len());
            let nth = at.saturating_sub(first) / stripe;
            // The header of this stripe, or of the next one.
            for nth in [nth, nth + 1] {
                let begin = first + nth * stripe;
                let header = begin..begin + layout.header_len() as u64;
                if header.end > at && nth * layout.stripe_slots < layout.slots {
                    return Some(header);
                }
            }
        }
        None
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for VeiledStore {
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
        self.inner.read(extents, into)?;
        self.visit(extents, into, |at, bytes| self.veil.uncover(at, bytes));
        Ok(())
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
        let len = total_len(extents);
        let mut buffer = self.buffer.lock().expect("nothing panics under this lock");
        buffer.grow(len);
        buffer[..len].copy_from_slice(from);
        self.visit(extents, &mut buffer[..len], |at, bytes| self.veil.cover(at, bytes));
        self.inner.write(extents, &buffer[..len])
    }
    fn sync(&self) -> Result {
        self.inner.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::store::MemStore;

    #[test]
    fn headers_are_covered_and_bodies_are_not() {
        let layout = SlotLayout { slots: 100, body_len: 512, entry_len: 64, stripe_slots: 64 };
        let keys = Keys::for_fuzzing();
        let len = AREAS_AT + 2 * layout.len() + 4096;
        let inner = Arc::new(MemStore::new(len));
        let areas = vec![(AREAS_AT, layout), (AREAS_AT + layout.len(), layout)];
        let store = VeiledStore::new(inner.clone(), &keys, areas);
        let whole = [Extent::new(0, len as usize)];
        let plain = vec![7; len as usize];
        store.write(&whole, &plain).unwrap();
        let covered = |at: u64| inner.snapshot()[at as usize..][..64].iter().any(|&b| b != 7);
        let stripe = layout.stripe_len();
        assert!(!covered(0) && covered(SUPERBLOCKS_AT) && covered(AREAS_AT - 64));
        for first in [AREAS_AT, AREAS_AT + layout.len()] {
            for header in [first, first + stripe] {
                assert!(covered(header) && covered(header + 4096 - 64) && !covered(header + 4096));
            }
            assert!(!covered(first + stripe - 64) && !covered(first + layout.len() - 64));
        }
        assert!(!covered(len - 64));
        // Each part reads back alone.
        for (at, len) in [(AREAS_AT + 64, 64), (AREAS_AT - 4096, 8192), (len - 5000, 5000)] {
            let mut part = vec![0; len];
            store.read(&[Extent::new(at, len)], &mut part).unwrap();
            assert!(part.iter().all(|&b| b == 7), "{at}");
        }
        store.write(&[Extent::new(AREAS_AT + stripe, 512)], &[9; 512]).unwrap();
        let mut part = [0; 64];
        store.read(&[Extent::new(AREAS_AT + stripe + 448, 64)], &mut part).unwrap();
        assert_eq!(part, [9; 64]);
    }
}
