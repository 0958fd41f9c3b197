//! Writes all blocks in one pass: each bucket of the tree is written once.

use super::{Maps, Unified};
use crate::posmap::Labels;
use crate::tree::{Contents, Fill};
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::Result;
use traceless_core::store::Pages;

impl<T: Fill, L: Labels> Unified<T, L> {
    /// Fills a new ORAM with every block, map blocks included, each on the path that the map then
    /// gives. `contents` is called for each part of the user's blocks; the order of these calls
    /// reveals their paths, so it must be hidden from the adversary. The writes depend on the
    /// tree's shape alone.
    pub fn fill(&mut self, contents: Contents<'_>) -> Result {
        let mut entries = Pages::zeroed(self.maps.entries_len());
        let mut labels = vec![];
        for level in 0..self.maps.places.count.len() {
            self.maps.draw_level(level, &mut entries, &mut labels);
        }
        let Self { engine, maps, .. } = self;
        let (first, len) = (maps.places.map_first(), maps.groups.labels.entries_len());
        engine.fill_all(&labels, &mut |addr, body| match addr.0.checked_sub(first) {
            None => contents(addr, body),
            // In a simulation blocks have no body, and the entries stay beside the tree.
            Some(_) if body.is_empty() => {}
            Some(nth) => body[..len].copy_from_slice(&entries[nth as usize * len..][..len]),
        })?;
        if !maps.groups.beside.is_empty() {
            maps.groups.beside = entries;
        }
        Ok(())
    }
}

impl<L: Labels> Maps<L> {
    /// Bytes of the entries of all blocks of the map.
    fn entries_len(&self) -> usize {
        self.places.map_blocks() as usize * self.groups.labels.entries_len()
    }

    /// Gives each block of a level a label, in the entries of the level above, and appends the
    /// labels to `labels`, in the order of the tree's addresses.
    fn draw_level(&mut self, level: usize, entries: &mut [u8], labels: &mut Vec<u32>) {
        let Self { places, groups, draw, .. } = self;
        let is_top = level == places.levels();
        let kept = if is_top { &groups.top_labels } else { &groups.labels };
        let (all, first) = if is_top {
            (&mut groups.top[..], 0)
        } else {
            (entries, places.addr(level + 1, 0, 0).0 - places.map_first())
        };
        let (fanout, len) = (kept.fanout(), kept.entries_len());
        for block in 0..places.count[level] {
            let at = (first + block / fanout) as usize * len;
            let (group, nth) = (&mut all[at..at + len], (block % fanout) as usize);
            // Computed labels need no draw: counters of zero already give labels.
            if !kept.is_spent(group, nth) {
                kept.renew(group, nth, draw);
            }
            for part in 0..places.parts_on(level) {
                let leaf = kept.leaf(group, nth, places.labelled(level, block, part), draw);
                labels.push(u32::try_from(leaf.0).expect("below 2^32 leaves"));
            }
        }
    }
}

impl super::LevelPlaces {
    /// The address of the first block of the map.
    fn map_first(&self) -> u64 {
        self.count[0] * self.parts
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::super::tests::{key, rng, sizes};
    use super::*;
    use crate::controller::{Controller, SteppedOram};
    use crate::posmap::{CompressedLabels, PlainLabels, Plb};
    use crate::scheme::tree_rig::is_an_array;
    use crate::tree::{BareTree, BucketTree, GhostTree, Header, Shape};
    use traceless_core::oram::Oram;
    use traceless_core::types::{Addr, Leaf};

    const LEN: usize = 24;

    fn filled<L: Labels>(blocks: u64, parts: u64, labels: impl Fn() -> L) -> Unified<BareTree, L> {
        let tree = BareTree::new(Shape::uniform(6, 4).unwrap(), LEN);
        let plb = Plb::new(4, 2, LEN).unwrap();
        let sizes = sizes(blocks, 2, parts);
        let mut oram = Unified::new(sizes, tree, labels(), labels(), plb, rng()).unwrap();
        oram.fill(&mut |addr, body| body.fill(addr.0 as u8 + 1)).unwrap();
        oram
    }

    /// Each block is found on the path that the map gives, with its initial contents.
    fn finds_everything<L: Labels>(blocks: u64, parts: u64, labels: impl Fn() -> L) {
        let mut oram = SteppedOram::new(filled(blocks, parts, &labels));
        let mut body = vec![0; LEN * parts as usize];
        for addr in (0..blocks).rev() {
            oram.read(Addr(addr), &mut body).unwrap();
            let wants = (0..parts).map(|part| (addr * parts + part) as u8 + 1);
            assert!(body.chunks(LEN).zip(wants).all(|(part, want)| part == [want; LEN]), "{addr}");
        }
        (0..blocks).for_each(|addr| oram.write(Addr(addr), &vec![0; body.len()]).unwrap());
        is_an_array(&mut oram, 3000);
    }

    #[test]
    fn what_is_filled_is_found() {
        for blocks in [1, 61, 100] {
            finds_everything(blocks, 1, || PlainLabels::in_block(LEN).unwrap());
            finds_everything(blocks, 1, || CompressedLabels::new(&key(), 5, 3).unwrap());
            finds_everything(blocks, 1, || CompressedLabels::new(&key(), 5, 1).unwrap());
        }
        finds_everything(40, 3, || CompressedLabels::new(&key(), 5, 3).unwrap());
    }

    /// In a simulation the entries are beside the tree: an access that searches a block on a wrong
    /// path does not find it, and makes a second copy.
    #[test]
    fn a_simulated_tree_holds_each_block_once() {
        let shape = Shape::uniform(8, 4).unwrap();
        let tree = GhostTree::new(shape.clone(), 4096, ());
        let labels = || PlainLabels::new(5).unwrap();
        let plb = Plb::new(4, 2, 0).unwrap();
        let mut oram =
            Unified::new(sizes(400, 2, 1), tree, labels(), labels(), plb, rng()).unwrap();
        oram.fill(&mut |_, _| {}).unwrap();
        for turn in 0..4000 {
            oram.submit(0, Addr(turn * 7 % 400)).unwrap();
            while oram.step(&mut |_, _| {}).unwrap().finished.is_none() {}
        }
        // Blocks outside the PLB: 400 user blocks and 80 and 16 of the map, less the four ways.
        let mut held = alloc::collections::BTreeSet::new();
        let stash = oram.engine().stash().headers().to_vec();
        let mut headers = vec![Header::EMPTY; shape.path_slots()];
        let mut count = stash.len();
        held.extend(stash.iter().map(|header| header.addr()));
        for leaf in 0..shape.leaves() {
            let tree = oram.engine.tree_mut();
            tree.read_path(Leaf(leaf), &mut headers).unwrap();
            for level in 0..shape.levels() {
                let first = shape.bucket(Leaf(leaf), level);
                let is_first = leaf == 0 || shape.bucket(Leaf(leaf - 1), level) != first;
                let slots = shape.path_start(level)..shape.path_start(level + 1);
                for header in headers[slots].iter().filter(|h| is_first && !h.is_empty()) {
                    held.insert(header.addr());
                    count += 1;
                }
            }
        }
        assert_eq!((count, held.len()), (492, 492));
    }
}
