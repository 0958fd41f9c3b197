//! Entries of slots, and the keys that seal them.
//!
//! An entry is the version in the clear, a salt, the tags of body and head, and the sealed head.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use traceless_core::error::Result;
use traceless_core::scheme::openings::{Opening, Openings, SchemeState};
use traceless_core::seal::{Cipher, KeyDeriver, Nonce, Prf, Salt, Sealer, Secret, TAG_LEN};

const SALT: Range<usize> = 8..16;
const BODY_TAG: Range<usize> = 16..16 + TAG_LEN;
const HEAD_TAG: Range<usize> = 32..32 + TAG_LEN;
const HEAD_AT: usize = HEAD_TAG.end;

const WORD: usize = size_of::<u64>();

/// Bytes of a head, which has three words.
const HEAD_LEN: usize = 3 * WORD;

/// Bytes of an entry, of the log or of a level.
pub(super) const ENTRY_LEN: usize = HEAD_AT + HEAD_LEN;

/// The block of a slot that holds none.
const NO_BLOCK: u64 = u64::MAX;

/// Marks the block of a slot with contents that were lost earlier.
const LOST: u64 = 1 << 62;

/// The block in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SlotBlock {
    pub block: u64,
    /// Whether the contents were lost to damage.
    pub is_lost: bool,
}

impl SlotBlock {
    fn word(held: Option<Self>) -> u64 {
        held.map_or(NO_BLOCK, |held| held.block | if held.is_lost { LOST } else { 0 })
    }

    fn of_word(word: u64) -> Option<Self> {
        let is_lost = word & LOST != 0;
        (word != NO_BLOCK).then_some(Self { block: word & !LOST, is_lost })
    }
}

/// The head of a record in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LogHead {
    /// The block that was accessed.
    pub held: Option<SlotBlock>,
    /// Accesses of the user, this one included.
    pub accesses: u64,
    /// Records that were durable when this one was made.
    pub synced: u64,
}

/// The head of a slot in a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LevelHead {
    pub held: Option<SlotBlock>,
    /// The number of the record that was the block's last.
    pub birth: u64,
    /// The block's leaf. The opening that drew it may be retired by now.
    pub leaf: u32,
}

impl LogHead {
    pub fn to_bytes(self) -> [u8; HEAD_LEN] {
        bytes_of([SlotBlock::word(self.held), self.accesses, self.synced])
    }

    fn from_bytes(bytes: [u8; HEAD_LEN]) -> Self {
        let [held, accesses, synced] = words_of(bytes);
        Self { held: SlotBlock::of_word(held), accesses, synced }
    }
}

impl LevelHead {
    /// The head of a slot that holds no block.
    pub const DUMMY: Self = Self { held: None, birth: 0, leaf: 0 };

    pub fn to_bytes(self) -> [u8; HEAD_LEN] {
        bytes_of([SlotBlock::word(self.held), self.birth, self.leaf.into()])
    }

    fn from_bytes(bytes: [u8; HEAD_LEN]) -> Self {
        let [held, birth, leaf] = words_of(bytes);
        Self { held: SlotBlock::of_word(held), birth, leaf: leaf as u32 }
    }
}

fn bytes_of(words: [u64; 3]) -> [u8; HEAD_LEN] {
    let mut bytes = [0; HEAD_LEN];
    for (bytes, word) in bytes.chunks_exact_mut(WORD).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn words_of(bytes: [u8; HEAD_LEN]) -> [u64; 3] {
    let mut words = bytes.chunks_exact(WORD);
    core::array::from_fn(|_| {
        let word = words.next().expect("as many words");
        u64::from_le_bytes(word.try_into().expect("8 bytes"))
    })
}

/// The version that an entry claims.
pub(super) fn entry_version(entry: &[u8]) -> u64 {
    u64::from_le_bytes(entry[..WORD].try_into().expect("8 bytes"))
}

/// The sealers of an area in one opening.
pub(super) struct SlotKeys {
    head: Box<dyn Sealer>,
    body: Box<dyn Sealer>,
}

impl SlotKeys {
    fn new(cipher: Cipher, key: &Secret) -> Self {
        let sealer = |purpose: &[u8]| cipher.sealer(&key.derive(&[purpose]));
        Self { head: sealer(b"head"), body: sealer(b"body") }
    }

    /// Seals a slot's head, and its body in place.
    pub fn seal(&self, nonce: Nonce, head: &[u8], (entry, body): (&mut [u8], &mut [u8])) {
        entry[..WORD].copy_from_slice(&nonce.version.to_le_bytes());
        let salt = nonce.salt.expect("slots are sealed with a salt");
        entry[SALT].copy_from_slice(&salt.to_bytes());
        self.body.seal_in_place(nonce, &[], body, &mut entry[BODY_TAG]);
        let (before, sealed) = entry.split_at_mut(HEAD_AT);
        self.head.seal(nonce, &[], head, sealed, &mut before[HEAD_TAG]);
    }

    /// The head of the record with this version, if it verifies.
    pub fn open_record(&self, version: u64, entry: &[u8]) -> Option<LogHead> {
        self.open_head(version, entry).map(LogHead::from_bytes)
    }

    /// The head of the slot of a level with this version, if it verifies.
    pub fn open_slot(&self, version: u64, entry: &[u8]) -> Option<LevelHead> {
        self.open_head(version, entry).map(LevelHead::from_bytes)
    }

    fn open_head(&self, version: u64, entry: &[u8]) -> Option<[u8; HEAD_LEN]> {
        let mut head = [0; HEAD_LEN];
        let (nonce, sealed) = (nonce_at(version, entry), &entry[HEAD_AT..]);
        let opened = self.head.open(nonce, &[], sealed, &entry[HEAD_TAG], &mut head);
        (opened.is_ok() && entry_version(entry) == version).then_some(head)
    }

    /// Opens a body in place; returns whether it verified.
    pub fn open_body(&self, version: u64, entry: &[u8], body: &mut [u8]) -> bool {
        let nonce = nonce_at(version, entry);
        self.body.open_in_place(nonce, &[], body, &entry[BODY_TAG]).is_ok()
    }
}

fn nonce_at(version: u64, entry: &[u8]) -> Nonce {
    Nonce::new(version, Salt::split(&entry[SALT]).0)
}

/// The keys of one opening.
pub(super) struct RingKeys {
    pub log: SlotKeys,
    pub levels: Vec<SlotKeys>,
    pub marks: Box<dyn Sealer>,
    labels: Prf,
}

impl RingKeys {
    /// The leaf that the block of record number `birth` belongs to.
    pub fn label(&self, birth: u64, leaves: u64) -> u32 {
        (self.labels.at(birth.into()) % u128::from(leaves)) as u32
    }
}

/// The openings with their keys. The number of a record selects its opening.
pub(super) struct RingKeyRing {
    key: Secret,
    cipher: Cipher,
    levels: usize,
    openings: Openings<RingKeys>,
}

impl RingKeyRing {
    pub fn new(key: Secret, cipher: Cipher, levels: usize, state: &SchemeState) -> Self {
        let deriver = KeyDeriver::new(&key);
        let openings = Openings::new(state, |o| ring_keys(&deriver, cipher, levels, o));
        Self { key, cipher, levels, openings }
    }

    /// Adds the newest opening.
    pub fn push(&mut self, opening: Opening) -> Result {
        let deriver = KeyDeriver::new(&self.key);
        let keys = ring_keys(&deriver, self.cipher, self.levels, &opening);
        self.openings.push(opening, keys)
    }

    /// The keys of the opening that made record number `record`.
    pub fn at(&self, record: u64) -> &RingKeys {
        &self.openings.find(|o| o.start <= record).1
    }

    /// The keys of the newest opening.
    pub fn newest(&self) -> &RingKeys {
        &self.openings.find(|_| true).1
    }

    pub fn openings(&self) -> &Openings<RingKeys> {
        &self.openings
    }

    pub fn openings_mut(&mut self) -> &mut Openings<RingKeys> {
        &mut self.openings
    }
}

fn ring_keys(deriver: &KeyDeriver, cipher: Cipher, levels: usize, opening: &Opening) -> RingKeys {
    let key = |purpose: &[u8], nth: usize| deriver.derive(&[&opening.id, purpose, &[nth as u8]]);
    RingKeys {
        log: SlotKeys::new(cipher, &key(b"log", 0)),
        levels: (0..levels).map(|nth| SlotKeys::new(cipher, &key(b"level", nth))).collect(),
        marks: cipher.sealer(&key(b"marks", 0)),
        labels: Prf::new(&key(b"labels", 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_opens_with_every_bit_and_its_version_alone() {
        let keys = SlotKeys::new(Cipher::default(), &Secret::from_bytes([7; 32]));
        let block = Some(SlotBlock { block: 9, is_lost: true });
        let head = LogHead { held: block, accesses: 5, synced: 3 };
        let (mut entry, mut body) = ([0; ENTRY_LEN], [4; 64]);
        keys.seal(Nonce::new(12, Salt(3)), &head.to_bytes(), (&mut entry, &mut body));
        assert_eq!(keys.open_record(12, &entry), Some(head));
        assert_eq!(keys.open_record(13, &entry), None);
        for bit in 0..ENTRY_LEN * 8 {
            entry[bit / 8] ^= 1 << (bit % 8);
            let is_known = keys.open_record(12, &entry).is_some();
            let is_whole = keys.open_body(12, &entry, &mut body.clone());
            assert!(!is_known || !is_whole, "bit {bit}");
            entry[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(!keys.open_body(13, &entry, &mut body.clone()));
        assert!(keys.open_body(12, &entry, &mut body) && body == [4; 64]);
        let slot = LevelHead { held: None, birth: 8, leaf: u32::MAX };
        assert_eq!(LevelHead::from_bytes(slot.to_bytes()), slot);
    }
}
