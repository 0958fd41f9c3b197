//! The image, byte by byte: docs/format.md is the contract, this is its code.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 4096 | header: geometry, features, scheme; written once |
//! | 4096 | 8 × 4096 | key slots |
//! | 65536 | 65536 | superblock A |
//! | 131072 | 65536 | superblock B |
//! | 196608 | by scheme | the scheme's areas |

mod anchor;
mod header;
mod keys;
mod keyslot;
mod superblock;

pub use anchor::{Anchor, AnchorState};
pub use header::{Features, HEADER_LEN, Header};
pub use keys::{KEY_FILE_LEN_MAX, KEY_FILE_LEN_MIN, Keys, MasterKey, UserKey};
pub use keyslot::{KEY_SLOTS, Kdf, KeySlot, KeySlots, SlotKind};
pub use superblock::{Newest, Superblock, SuperblockVault};

/// First byte of superblock A; B follows it.
pub const SUPERBLOCKS_AT: u64 = 1 << 16;

/// Bytes of a superblock.
pub const SUPERBLOCK_LEN: usize = 1 << 16;

/// First byte of the scheme's areas.
pub const AREAS_AT: u64 = SUPERBLOCKS_AT + 2 * SUPERBLOCK_LEN as u64;

/// Parses `bytes` as everything that is read before a key is known to be right, and as a sealed
/// superblock's contents. For fuzzing: whatever comes, it returns.
#[doc(hidden)]
pub fn fuzz_superblock(bytes: &[u8]) {
    let _ = Header::decode(bytes);
    let _ = KeySlot::decode(bytes);
    let keys = Keys::for_fuzzing();
    let _ = Superblock::open(&keys, bytes);
    let _ = Superblock::decode_contents(bytes);
    let _ = AnchorState::decode(&keys, bytes);
    if let Ok(header) = Header::decode(bytes) {
        let _ = header.scheme.peek_state(bytes);
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2 bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}
