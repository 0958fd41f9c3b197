//! What a block of a position map holds about each of its children.

use crate::error::{Error, Result};
use crate::rng::Rng;
use crate::seal::Secret;
use crate::types::{Addr, Leaf};
use alloc::boxed::Box;

/// Bytes of a label in a block of the position map: the leaf plus one, 0 for never.
pub const LABEL_LEN: usize = 4;

/// Writes `new` where a label is, and tells what was there.
pub fn swap_label(bytes: &mut [u8], new: Leaf) -> Option<Leaf> {
    let old = label(bytes);
    let entry = u32::try_from(new.0 + 1).expect("below 2^32 - 1 leaves");
    bytes.copy_from_slice(&entry.to_le_bytes());
    old
}

fn label(bytes: &[u8]) -> Option<Leaf> {
    let entry = u32::from_le_bytes(bytes.try_into().expect("the bytes of a label"));
    entry.checked_sub(1).map(|leaf| Leaf(leaf.into()))
}

/// Uniform leaves of one tree.
pub struct LeafDraw {
    rng: Box<dyn Rng>,
    leaves: u64,
}

impl LeafDraw {
    /// Leaves below `leaves`.
    pub fn new(rng: Box<dyn Rng>, leaves: u64) -> Self {
        Self { rng, leaves }
    }

    /// How many there are.
    pub fn leaves(&self) -> u64 {
        self.leaves
    }

    /// One of them.
    pub fn leaf(&mut self) -> Leaf {
        Leaf(self.rng.below(self.leaves))
    }

    /// Any number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n)
    }

    /// A key for labels that are computed.
    pub fn key(&mut self) -> Secret {
        Secret::random(&mut *self.rng)
    }
}

/// How the labels of a group of blocks, the children of one block of a position map, are kept in
/// the bytes of that block: its *entries*. Zeros are the entries of a group that was never
/// accessed.
///
/// A child may consist of several parts, with addresses of their own, which share an entry.
pub trait Labels: Send {
    /// Children in a group.
    fn fanout(&self) -> u64;

    /// Bytes of a group's entries.
    fn entries_len(&self) -> usize;

    /// Refuses a tree with so many leaves, and children of so many parts.
    fn check(&self, leaves: u64, parts: u64) -> Result;

    /// The label of the part `addr` of child number `nth`. Of one that was never accessed it is a
    /// leaf that nobody has seen.
    fn leaf(&self, entries: &[u8], nth: usize, addr: Addr, draw: &mut LeafDraw) -> Leaf;

    /// The label of child number `nth` if it is there to be read, and nothing need be drawn or
    /// calculated.
    fn peek(&self, _entries: &[u8], _nth: usize) -> Option<Leaf> {
        None
    }

    /// Whether child number `nth` gets no other label before its whole group gets others.
    fn is_spent(&self, entries: &[u8], nth: usize) -> bool;

    /// Gives child number `nth`, which is not spent, another label.
    fn renew(&self, entries: &mut [u8], nth: usize, draw: &mut LeafDraw);

    /// Gives every child another label.
    fn renew_group(&self, entries: &mut [u8]) -> Result;

    /// The same under another key, if labels hang on one: entries of zeros then mean other labels
    /// than they did. For a tree whose labels are spent.
    fn rekeyed(&self, _key: &Secret) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
}

/// Four bytes for each label, which are drawn at random.
pub struct PlainLabels {
    fanout: u64,
}

impl PlainLabels {
    /// Groups of `fanout` children.
    pub fn new(fanout: u64) -> Result<Self> {
        match fanout {
            2..=FANOUT_MAX => Ok(Self { fanout }),
            _ => Err(BAD_FANOUT),
        }
    }

    /// As many children as a block of `block_len` bytes has room for.
    pub fn in_block(block_len: usize) -> Result<Self> {
        Self::new((block_len / LABEL_LEN) as u64)
    }
}

/// Children in a group, at most.
pub(super) const FANOUT_MAX: u64 = 1 << 20;

pub(super) const BAD_FANOUT: Error = Error::Geometry("a block of the map holds 2 to 2^20 labels");

impl Labels for PlainLabels {
    fn fanout(&self) -> u64 {
        self.fanout
    }

    fn entries_len(&self) -> usize {
        self.fanout as usize * LABEL_LEN
    }

    fn check(&self, leaves: u64, parts: u64) -> Result {
        if leaves >= u64::from(u32::MAX) {
            return Err(Error::Geometry("more leaves than a label can name"));
        }
        // On one label they would be on one path, and whoever sees it twice knows why.
        if parts != 1 {
            return Err(Error::Geometry("parts of a block can share a counter, but not a label"));
        }
        Ok(())
    }

    fn leaf(&self, entries: &[u8], nth: usize, _: Addr, draw: &mut LeafDraw) -> Leaf {
        self.peek(entries, nth).unwrap_or_else(|| draw.leaf())
    }

    fn peek(&self, entries: &[u8], nth: usize) -> Option<Leaf> {
        label(&entries[nth * LABEL_LEN..][..LABEL_LEN])
    }

    fn is_spent(&self, _: &[u8], _: usize) -> bool {
        false
    }

    fn renew(&self, entries: &mut [u8], nth: usize, draw: &mut LeafDraw) {
        swap_label(&mut entries[nth * LABEL_LEN..][..LABEL_LEN], draw.leaf());
    }

    fn renew_group(&self, _: &mut [u8]) -> Result {
        unreachable!("labels are never spent")
    }
}
