//! The position map lookaside buffer (PLB): blocks of a position map in trusted memory.

use crate::tree::Header;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::types::{Addr, Leaf};

/// A cache of map blocks with their labels, in numbered ways. A cached block is not in the tree.
/// Set-associative, with least-recently-used replacement in each set.
pub struct Plb {
    /// Whole labels, so that a block can leave without an access to the map.
    headers: Vec<Header>,
    used: Vec<u64>,
    bodies: Vec<u8>,
    body_len: usize,
    ways: usize,
    now: u64,
    /// Planted by the tests of the detectors.
    #[cfg(test)]
    pub(crate) fault: PlbFault,
}

/// A planted fault of a PLB.
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum PlbFault {
    /// Sound.
    #[default]
    None,
    /// A block leaves under a wrong label.
    WrongLabelAtEviction,
    /// A relabelled block keeps its old label.
    NoRelabel,
}

impl Plb {
    /// Room for `blocks` blocks in sets of `ways`.
    pub fn new(blocks: usize, ways: usize, body_len: usize) -> Result<Self> {
        if ways == 0 || blocks == 0 || !blocks.is_multiple_of(ways) {
            return Err(Error::Geometry("a PLB has one or more whole sets of blocks"));
        }
        Ok(Self {
            headers: vec![Header::EMPTY; blocks],
            used: vec![0; blocks],
            bodies: vec![0; blocks * body_len],
            body_len,
            ways,
            now: 0,
            #[cfg(test)]
            fault: PlbFault::None,
        })
    }

    /// Address and label of the block in a way.
    pub fn header(&self, way: usize) -> Header {
        self.headers[way]
    }

    /// The way that holds `addr`.
    pub fn find(&self, addr: Addr) -> Option<usize> {
        let set = self.set(addr);
        let nth = self.headers[set..set + self.ways].iter().position(|h| h.is_of(addr));
        nth.map(|nth| set + nth)
    }

    /// Marks a way as just used.
    pub fn touch(&mut self, way: usize) {
        self.now += 1;
        self.used[way] = self.now;
    }

    /// Puts the block in a way onto another path.
    pub fn relabel(&mut self, way: usize, leaf: Leaf) {
        #[cfg(test)]
        if self.fault == PlbFault::NoRelabel {
            return;
        }
        self.headers[way] = Header::new(self.headers[way].addr(), leaf);
    }

    /// Chooses a way for `addr`, which is not cached, and returns the header of the block that has
    /// to leave it, if there is one. The body stays in the way until it is overwritten.
    pub fn evict(&mut self, addr: Addr) -> (usize, Header) {
        let set = self.set(addr);
        let oldest = (set..set + self.ways).min_by_key(|&way| self.used[way]);
        let way = oldest.expect("a set has a way");
        let victim = core::mem::take(&mut self.headers[way]);
        #[cfg(test)]
        if self.fault == PlbFault::WrongLabelAtEviction && !victim.is_empty() {
            return (way, Header::new(victim.addr(), Leaf(0)));
        }
        (way, victim)
    }

    /// Sets the header of the block that was brought into a way.
    pub fn fill(&mut self, way: usize, header: Header) {
        self.headers[way] = header;
        self.touch(way);
    }

    /// The body in a way.
    pub fn body(&self, way: usize) -> &[u8] {
        &self.bodies[way * self.body_len..][..self.body_len]
    }

    /// The body in a way, to be changed.
    pub fn body_mut(&mut self, way: usize) -> &mut [u8] {
        &mut self.bodies[way * self.body_len..][..self.body_len]
    }

    /// The first way of the set of `addr`.
    fn set(&self, addr: Addr) -> usize {
        let sets = (self.headers.len() / self.ways) as u64;
        (addr.0 % sets) as usize * self.ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bring(plb: &mut Plb, addr: u64) -> Option<u64> {
        let (way, victim) = plb.evict(Addr(addr));
        plb.fill(way, Header::new(Addr(addr), Leaf(addr)));
        (!victim.is_empty()).then(|| victim.addr().0)
    }

    #[test]
    fn the_least_recently_used_of_a_set_has_to_leave() {
        let mut plb = Plb::new(4, 2, 0).unwrap();
        assert_eq!((0..4).filter_map(|addr| bring(&mut plb, addr)).count(), 0);
        plb.touch(plb.find(Addr(0)).unwrap());
        assert_eq!(bring(&mut plb, 4), Some(2));
        assert_eq!(bring(&mut plb, 5), Some(1));
        assert_eq!(bring(&mut plb, 6), Some(0));
        assert!(plb.find(Addr(0)).is_none() && plb.find(Addr(3)).is_some());
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(Plb::new(0, 1, 0).is_err());
        assert!(Plb::new(4, 0, 0).is_err());
        assert!(Plb::new(5, 2, 0).is_err());
    }
}
