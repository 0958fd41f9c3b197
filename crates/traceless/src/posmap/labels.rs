//! What a block of a position map holds about each of its children.

use alloc::boxed::Box;
use traceless_core::error::{Error, Result};
use traceless_core::rng::Rng;
use traceless_core::seal::Secret;
use traceless_core::types::{Addr, Leaf};

/// Bytes of a label in a block of the position map: the leaf plus one, 0 for never accessed.
pub const LABEL_LEN: usize = 4;

/// Replaces a stored label by `new`, and returns the old one.
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

/// Draws uniform leaves of one tree.
pub struct LeafDraw {
    rng: Box<dyn Rng>,
    leaves: u64,
}

impl LeafDraw {
    /// Draws leaves below `leaves`.
    pub fn new(rng: Box<dyn Rng>, leaves: u64) -> Self {
        Self { rng, leaves }
    }

    /// Number of leaves.
    pub fn leaves(&self) -> u64 {
        self.leaves
    }

    /// A random leaf.
    pub fn leaf(&mut self) -> Leaf {
        Leaf(self.rng.below(self.leaves))
    }

    /// A random number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n)
    }

    /// A random key for computed labels.
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

    /// Refuses a tree of `leaves` leaves and children of `parts` parts if the labels cannot serve
    /// it.
    fn check(&self, leaves: u64, parts: u64) -> Result;

    /// The label of the part `addr` of child number `nth`. A child that was never accessed gets a
    /// leaf unknown to the adversary.
    fn leaf(&self, entries: &[u8], nth: usize, addr: Addr, draw: &mut LeafDraw) -> Leaf;

    /// The label of child number `nth` if it is stored, so that no draw or computation is needed.
    fn peek(&self, _entries: &[u8], _nth: usize) -> Option<Leaf> {
        None
    }

    /// Whether child number `nth` can get no other label until its whole group gets other labels.
    fn is_spent(&self, entries: &[u8], nth: usize) -> bool;

    /// Gives child number `nth`, which is not spent, another label.
    fn renew(&self, entries: &mut [u8], nth: usize, draw: &mut LeafDraw);

    /// Gives every child another label.
    fn renew_group(&self, entries: &mut [u8]) -> Result;

    /// These labels under another key, if they depend on one: zero entries then mean other labels.
    /// For a tree with spent labels.
    fn rekeyed(&self, _key: &Secret) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
}

/// Four bytes for each label; labels are drawn at random.
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

    /// Groups with as many children as a block of `block_len` bytes has room for.
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
        // Parts with one label would be on one path, and an observer of the repeated path would
        // learn that they belong together.
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
