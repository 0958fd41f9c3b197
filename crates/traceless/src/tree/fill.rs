//! Filling a tree in one pass: each bucket is written once, in a fixed order.

use super::{BucketTree, Engine, HEADER_LEN, Header};
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::types::{Addr, Leaf};

/// Fills in the body of a block.
pub type Contents<'a> = &'a mut dyn FnMut(Addr, &mut [u8]);

/// A tree that takes whole buckets while it is filled.
pub trait Fill: BucketTree {
    /// Writes bucket number `bucket` of a level with the given headers, and their bodies back to
    /// back. Every bucket of the tree is written once, also empty ones: the buckets below a bucket
    /// before it, the buckets of a level in order.
    fn fill_bucket(
        &mut self,
        level: usize,
        bucket: u64,
        headers: &[Header],
        bodies: &[u8],
    ) -> Result;
}

/// The bucket of a level that is being filled.
struct Filling {
    headers: Vec<Header>,
    bodies: Vec<u8>,
    blocks: usize,
}

impl<T: Fill> Engine<T> {
    /// Fills the tree with block `addr` under the label `labels[addr]`, for all labels. Each block
    /// goes as deep as there is room, or else into the stash. Earlier contents are lost.
    ///
    /// The written buckets and their order depend on the tree's shape alone. But `contents` is
    /// called in the order of the labels, which an adversary must not observe.
    pub fn fill_all(&mut self, labels: &[u32], contents: Contents<'_>) -> Result {
        self.stash_mut().clear();
        let leaves = self.shape().leaves();
        let (order, ends) = by_label(labels, leaves)?;
        let mut open: Vec<Filling> =
            (0..self.shape().levels()).map(|level| self.filling(level)).collect();
        let mut next = 0;
        for leaf in (0..leaves).map(Leaf) {
            let end = ends[leaf.0 as usize] as usize;
            for &addr in &order[next..end] {
                self.settle(&mut open, Header::new(Addr(addr.into()), leaf), contents)?;
            }
            next = end;
            for level in (0..open.len()).rev() {
                let bucket = self.shape().bucket(leaf, level);
                let is_over =
                    leaf.0 + 1 == leaves || self.shape().bucket(Leaf(leaf.0 + 1), level) > bucket;
                if !is_over {
                    break;
                }
                let filling = &mut open[level];
                if !filling.headers.is_empty() {
                    let Filling { headers, bodies, .. } = filling;
                    self.tree_mut().fill_bucket(level, bucket, headers, bodies)?;
                    filling.clear();
                }
            }
        }
        self.stash().check()
    }

    /// Puts a block into the deepest open bucket that has room, or else into the stash.
    fn settle(&mut self, open: &mut [Filling], header: Header, contents: Contents<'_>) -> Result {
        let mut deepest = open.iter_mut().rev();
        if let Some(filling) = deepest.find(|filling| filling.blocks < filling.headers.len()) {
            let (nth, len) = (filling.blocks, self.tree().body_len());
            filling.headers[nth] = header;
            contents(header.addr(), &mut filling.bodies[nth * len..][..len]);
            filling.blocks += 1;
            return Ok(());
        }
        let nth = self.stash_mut().push(header)?;
        contents(header.addr(), self.stash_mut().body_mut(nth));
        Ok(())
    }

    fn filling(&self, level: usize) -> Filling {
        let z = self.shape().z(level);
        Filling {
            headers: vec![Header::EMPTY; z],
            bodies: vec![0; z * self.tree().body_len()],
            blocks: 0,
        }
    }
}

impl Filling {
    fn clear(&mut self) {
        self.headers.fill(Header::EMPTY);
        self.bodies.fill(0);
        self.blocks = 0;
    }
}

/// Writes headers and bodies to the slots of a bucket.
pub(super) fn fill_slots(bytes: &mut [u8], headers: &[Header], bodies: &[u8]) {
    let (front, back) = bytes.split_at_mut(headers.len() * HEADER_LEN);
    Header::write_all(headers, front);
    back.copy_from_slice(bodies);
}

/// Most parts that blocks are sorted into before each part is sorted: as many streams of writes as
/// processors follow well, so that a part of a large tree fits into a cache.
const PARTS_MAX: u64 = 1 << 11;

/// The blocks in the order of their labels, and for each label the end of its blocks in this order.
fn by_label(labels: &[u32], leaves: u64) -> Result<(Vec<u32>, Vec<u32>)> {
    let leaves = usize::try_from(leaves).map_err(|_| Error::Geometry("too many leaves"))?;
    let shift = (leaves as u64).div_ceil(PARTS_MAX).next_power_of_two().ilog2();
    let mut starts = vec![0u32; leaves.div_ceil(1 << shift) + 1];
    for &label in labels {
        starts[(label >> shift) as usize + 1] += 1;
    }
    for part in 1..starts.len() {
        starts[part] += starts[part - 1];
    }
    let mut order = vec![0; labels.len()];
    let mut next = starts.clone();
    for (addr, &label) in (0u32..).zip(labels) {
        let place = &mut next[(label >> shift) as usize];
        order[*place as usize] = addr;
        *place += 1;
    }
    let (mut ends, mut part) = (vec![0u32; leaves], vec![]);
    for (range, ends) in starts.windows(2).zip(ends.chunks_mut(1 << shift)) {
        let mut place = range[0];
        let addrs = &order[place as usize..range[1] as usize];
        let within = |addr: u32| labels[addr as usize] as usize % (1 << shift);
        part.clear();
        part.extend(addrs.iter().map(|&addr| (addr, within(addr))));
        for &(_, label) in &part {
            ends[label] += 1;
        }
        for end in ends.iter_mut() {
            place += core::mem::replace(end, place);
        }
        // Now `ends[label]` is where the label's blocks begin; the loop moves it to their end.
        for &(addr, label) in &part {
            order[ends[label] as usize] = addr;
            ends[label] += 1;
        }
    }
    Ok((order, ends))
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::tree::{BareTree, GhostTree, SealedTree, Shape, Treetop};
    use alloc::sync::Arc;
    use traceless_core::rng::{Rng, SeededRng};
    use traceless_core::seal::{Aead, HashSeal, Sealer, Secret};
    use traceless_core::store::{MemStore, WatchedStore};
    use traceless_core::trace::{Event, Op, Recorder};

    const LEN: usize = 16;

    fn labels(blocks: usize, leaves: u64, seed: u64) -> Vec<u32> {
        let mut rng = SeededRng::new(seed);
        (0..blocks).map(|_| rng.below(leaves) as u32).collect()
    }

    fn body(addr: Addr) -> [u8; LEN] {
        [addr.0 as u8 + 1; LEN]
    }

    /// Fills a tree, and finds every block on the path of its label, or in the stash.
    fn fills<T: Fill>(tree: T) {
        let (shape, len) = (tree.shape().clone(), tree.body_len());
        let blocks = shape.slots() as usize * 5 / 8;
        let labels = labels(blocks, shape.leaves(), 3);
        let mut engine = Engine::new(tree, 20);
        engine
            .fill_all(&labels, &mut |addr, into| into.copy_from_slice(&body(addr)[..len]))
            .unwrap();
        for (addr, &label) in (0..).map(Addr).zip(&labels) {
            engine.fetch(Leaf(label.into())).unwrap();
            let nth = engine.relabel(addr, Leaf(label.into())).unwrap().expect("it is there");
            assert_eq!(engine.stash().body(nth), &body(addr)[..len]);
            engine.evict().unwrap();
        }
    }

    fn sealed<C: Sealer>(shape: Shape, cipher: C) -> SealedTree<C> {
        let store = Arc::new(MemStore::new(SealedTree::store_len(&shape, LEN, &cipher)));
        SealedTree::create(store, 0, "tree", shape, LEN, cipher, Box::new(SeededRng::new(2)))
            .unwrap()
    }

    fn key() -> Secret {
        Secret::from_bytes([7; 32])
    }

    #[test]
    fn blocks_are_sorted_by_their_labels() {
        for (blocks, leaves) in [(0, 1), (5, 1), (9, 2), (40, 27), (3000, 2048), (9000, 19683)] {
            let labels = labels(blocks, leaves, 4);
            let mut sorted: Vec<u32> = (0..blocks as u32).collect();
            sorted.sort_by_key(|&addr| labels[addr as usize]);
            let end = |leaf| sorted.partition_point(|&addr| labels[addr as usize] <= leaf) as u32;
            let ends: Vec<u32> = (0..leaves as u32).map(end).collect();
            assert_eq!(by_label(&labels, leaves).unwrap(), (sorted, ends), "{leaves} leaves");
        }
    }

    #[test]
    fn every_tree_can_be_filled() {
        for z in [vec![4; 1], vec![4; 6], vec![4, 2, 0, 3, 4]] {
            let shape = Shape::per_level(z).unwrap();
            fills(BareTree::new(shape.clone(), LEN));
            fills(GhostTree::new(shape.clone(), 64, ()));
            if (0..shape.levels()).all(|level| shape.z(level) > 0) {
                fills(sealed(shape.clone(), Aead::new(&key())));
                fills(sealed(shape.clone(), HashSeal::new(&key())));
                let cached = shape.levels() / 2;
                let below = sealed(shape.only(|l| l >= cached), Aead::new(&key()));
                fills(Treetop::new(shape, cached, below).unwrap());
            }
        }
        fills(sealed(Shape::new(vec![3; 4], 3).unwrap(), Aead::new(&key())));
    }

    /// The events of a fill do not depend on labels and contents.
    #[test]
    fn what_is_written_is_always_the_same() {
        let shape = Shape::uniform(5, 4).unwrap();
        let shown = |seed| {
            let cipher = Aead::new(&key());
            let len = SealedTree::store_len(&shape, LEN, &cipher);
            let witness = Arc::new(Recorder::default());
            let store = Arc::new(WatchedStore::new(MemStore::new(len), witness.clone()));
            let tree = SealedTree::create(
                store,
                0,
                "tree",
                shape.clone(),
                LEN,
                cipher,
                Box::new(SeededRng::new(2)),
            )
            .unwrap();
            let labels = labels(60, shape.leaves(), seed);
            let fill = &mut |_, body: &mut [u8]| body.fill(seed as u8);
            Engine::new(tree, 20).fill_all(&labels, fill).unwrap();
            let mut events: Vec<Event> = witness.take();
            assert!(events.iter().all(|e| e.op == Op::Write));
            assert_eq!(events.iter().map(|e| u64::from(e.len)).sum::<u64>(), len, "once each");
            for event in &mut events {
                event.time = 0;
            }
            events
        };
        assert_eq!(shown(1), shown(2));
    }

    #[test]
    fn what_finds_no_room_waits_or_is_an_error() {
        let full = |stash| {
            let tree = BareTree::new(Shape::uniform(3, 2).unwrap(), LEN);
            let mut engine = Engine::new(tree, stash);
            // All on one path, which has six slots.
            engine.fill_all(&[1; 9], &mut |_, _| {}).map(|()| engine.stash().len())
        };
        assert_eq!(full(3).unwrap(), 3);
        assert!(matches!(full(1), Err(Error::StashOverflow { .. })));
    }
}
