//! Newtypes for addresses, places and stretches of a store.
//!
//! Extents that touch become one, so that a store gets as few requests as possible:
//!
//! ```
//! use traceless_core::types::{Extent, push_extent, total_len};
//!
//! let mut extents = vec![];
//! for at in [0, 512, 4096] {
//!     push_extent(&mut extents, Extent::new(at, 512));
//! }
//! assert_eq!(extents, [Extent::new(0, 1024), Extent::new(4096, 512)]);
//! assert_eq!(total_len(&extents), 1536);
//! ```

/// Logical block number, as the client counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Addr(pub u64);

/// Physical slot number in an area.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Slot(pub u64);

/// A leaf label: it names one path of a tree, from the root to a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Leaf(pub u64);

/// A stretch of a store, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Extent {
    /// First byte.
    pub at: u64,
    /// Length in bytes.
    pub len: usize,
}

impl Extent {
    /// The stretch of `len` bytes that begins at byte `at`.
    pub const fn new(at: u64, len: usize) -> Self {
        Self { at, len }
    }

    /// First byte after the stretch.
    pub const fn end(self) -> u64 {
        self.at + self.len as u64
    }
}

/// Total length of a list of extents, in bytes.
pub fn total_len(extents: &[Extent]) -> usize {
    extents.iter().map(|e| e.len).sum()
}

/// Appends `next`, or grows the last extent if the two touch.
pub fn push_extent(extents: &mut alloc::vec::Vec<Extent>, next: Extent) {
    match extents.last_mut() {
        Some(last) if last.end() == next.at => last.len += next.len,
        _ => extents.push(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn touching_extents_become_one() {
        let mut list = vec![];
        push_extent(&mut list, Extent::new(0, 4));
        push_extent(&mut list, Extent::new(4, 4));
        push_extent(&mut list, Extent::new(9, 1));
        assert_eq!(list, [Extent::new(0, 8), Extent::new(9, 1)]);
        assert_eq!(total_len(&list), 9);
    }
}
