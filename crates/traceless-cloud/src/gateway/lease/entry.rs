//! Entries of the log by which a gateway takes the lease, extends it, or gives it up.

use crate::codec::{Reader, Writer};
use crate::wire::fence::Opening;
use traceless_core::seal::{SECRET_LEN, Secret};

/// Bytes of the number of a tree.
pub const TREE_LEN: usize = 16;
/// The first bytes of each entry of a lease.
pub const MAGIC: &[u8; 8] = b"tllease1";

/// An entry of the lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseEntry {
    /// The opening of the gateway that has the lease.
    pub opening: Opening,
    /// The entry's position in the log.
    pub position: u64,
    /// How long the lease lasts, in milliseconds.
    pub period_ms: u64,
    /// A random number, which makes each entry unique.
    pub salt: u64,
    /// Whether the gateway gives the lease up.
    pub is_last: bool,
}

impl LeaseEntry {
    /// The entry as bytes, with the tree's number in front and a tag at the end.
    pub fn encode(&self, tree: &[u8; TREE_LEN], key: &Secret) -> Vec<u8> {
        let mut out = Writer::default();
        out.bytes(MAGIC).bytes(tree).bytes(&self.opening.encode());
        out.u64(self.position).u64(self.period_ms).u64(self.salt).u8(u8::from(self.is_last));
        let tag = key.mac(out.as_bytes());
        out.bytes(tag.bytes());
        out.into_bytes()
    }

    /// The entry in these bytes, if it is one of this tree at this position.
    pub fn decode(
        bytes: &[u8],
        position: u64,
        tree: &[u8; TREE_LEN],
        key: &Secret,
    ) -> Option<Self> {
        let (content, tag) = bytes.split_last_chunk::<SECRET_LEN>()?;
        let fields = content.strip_prefix(MAGIC)?.strip_prefix(tree)?;
        if !key.mac(content).fits(tag) {
            return None;
        }
        let mut from = Reader::new(fields);
        let opening = Opening::decode(&mut from).ok()?;
        let (position_found, period_ms, salt) =
            (from.u64().ok()?, from.u64().ok()?, from.u64().ok()?);
        let is_last = from.u8().ok()? != 0;
        let entry = Self { opening, position: position_found, period_ms, salt, is_last };
        (entry.position == position && from.end().is_ok()).then_some(entry)
    }

    /// The number of the tree in front of an entry, of any tree.
    pub fn tree_of(bytes: &[u8]) -> Option<[u8; TREE_LEN]> {
        bytes.strip_prefix(MAGIC)?.first_chunk().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_and_moved_entries_are_refused() {
        let (tree, key) = ([7; TREE_LEN], Secret::from_bytes([8; 32]));
        let opening = Opening { number: 3, instance: [9; 16] };
        for is_last in [false, true] {
            let entry = LeaseEntry { opening, position: 5, period_ms: 6, salt: 7, is_last };
            let bytes = entry.encode(&tree, &key);
            assert_eq!(LeaseEntry::tree_of(&bytes), Some(tree));
            assert_eq!(LeaseEntry::decode(&bytes, 5, &tree, &key), Some(entry));
            assert_eq!(LeaseEntry::decode(&bytes, 6, &tree, &key), None);
            assert_eq!(LeaseEntry::decode(&bytes, 5, &[8; TREE_LEN], &key), None);
            let other = Secret::from_bytes([9; 32]);
            assert_eq!(LeaseEntry::decode(&bytes, 5, &tree, &other), None);
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                assert_eq!(LeaseEntry::decode(&changed, 5, &tree, &key), None, "{at}");
                assert_eq!(LeaseEntry::decode(&bytes[..at], 5, &tree, &key), None, "{at}");
            }
        }
    }
}
