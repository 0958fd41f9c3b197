//! The layout of an image. docs/format.md is the specification; this module implements it.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 4096 | header: geometry, features, scheme; written once |
//! | 4096 | 8 × 4096 | key slots |
//! | 36864 | 7 × 4096 | spare; the record of a rebuild, while one is under way |
//! | 65536 | 65536 | superblock A |
//! | 131072 | 65536 | superblock B |
//! | 196608 | by scheme | the scheme's areas |
//!
//! A header says where each part of an image lies, without any key:
//!
//! ```
//! use std::sync::Arc;
//! use traceless_block::detwo::{DetWoGeometry, Refresh};
//! use traceless_core::{rng::System, seal::Cipher};
//! use traceless_volume::format::{AREAS_AT, Features, Header, Keys, MasterKey, parts};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let uuid = [1; 16];
//! let scheme = Arc::new(DetWoGeometry::new(64, 4096, Refresh::ONE, 0)?);
//! let header = Header::new(uuid, Features::default(), scheme, Cipher::default());
//! let keys = Keys::new(MasterKey::random(&mut System)?, uuid);
//! let mut bytes = header.encode(&keys);
//!
//! let decoded = Header::decode(&bytes)?;
//! let (_, at, len) = parts(&decoded).pop().expect("the scheme has areas");
//! assert!(at >= AREAS_AT && at + len <= decoded.image_len);
//! // With the key, each changed byte of the header is noticed.
//! Header::verify(&bytes, &keys)?;
//! bytes[20] ^= 1;
//! assert!(Header::verify(&bytes, &keys).is_err());
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;
use traceless_block::detwo::{DetWoGeometry, Refresh};
use traceless_core::seal::Cipher;

pub(crate) mod anchor;
mod deniable;
mod header;
mod keys;
mod keyslot;
mod rebuild;
mod superblock;
mod veil;

pub use anchor::{Anchor, AnchorState};
pub use deniable::{
    DENIABLE_SLOTS, DeniableSlots, HiddenRecord, ImageSalt, PublicPart, SlotState, SlotsInUse,
    UserSecrets,
};
pub use header::{Features, HEADER_LEN, Header};
pub use keys::{KEY_FILE_LEN_MAX, KEY_FILE_LEN_MIN, Keys, MasterKey, UserKey};
pub use keyslot::{KEY_SLOTS, Kdf, KeySlot, KeySlots, SlotKind};
pub use rebuild::{RebuildRecord, SPARE_AT, SPARE_LEN, SourceState};
pub use superblock::{Newest, Superblock, SuperblockVault};
pub use veil::VeiledStore;

/// First byte of superblock A; B follows it.
pub const SUPERBLOCKS_AT: u64 = 1 << 16;

/// Bytes of a superblock.
pub const SUPERBLOCK_LEN: usize = 1 << 16;

/// First byte of the scheme's areas.
pub const AREAS_AT: u64 = SUPERBLOCKS_AT + 2 * SUPERBLOCK_LEN as u64;

/// Name, first byte and length of every part of the image with this header, in order. All of it is
/// public, so an adversary knows it.
pub fn parts(header: &Header) -> Vec<(&'static str, u64, u64)> {
    let slots_at = HEADER_LEN as u64;
    let superblock = SUPERBLOCK_LEN as u64;
    let mut list = vec![
        ("header", 0, slots_at),
        ("key slots", slots_at, (KEY_SLOTS * HEADER_LEN) as u64),
        ("superblock A", SUPERBLOCKS_AT, superblock),
        ("superblock B", SUPERBLOCKS_AT + superblock, superblock),
    ];
    let areas = header.scheme.areas();
    list.extend(areas.into_iter().map(|(name, at, len)| (name, AREAS_AT + at, len)));
    list
}

/// Runs the parsers of all parts that are read before a key is verified, and of a superblock's
/// contents, on `bytes`. For fuzzing: must not panic.
#[doc(hidden)]
pub fn fuzz_superblock(bytes: &[u8]) {
    let keys = Keys::for_fuzzing();
    let _ = Header::decode(bytes);
    let _ = KeySlot::decode(bytes);
    // Most bytes fail as a header at once. Laid over a sound header they reach more code.
    let geometry = DetWoGeometry::new(1 << 18, 4096, Refresh::ONE, 0).expect("a sound geometry");
    let sound = Header::new([2; 16], Features::default(), Arc::new(geometry), Cipher::AesGcm);
    let mut forged = sound.encode(&keys);
    let len = bytes.len().min(64);
    forged[72..72 + len].copy_from_slice(&bytes[..len]);
    if let Ok(header) = Header::decode(&forged) {
        let _ = (parts(&header), header.scheme.write_amplification());
    }
    let _ = Superblock::open(&keys, bytes);
    let _ = Superblock::decode_contents(bytes);
    let _ = AnchorState::decode(&keys, bytes);
    let _ = sound.scheme.peek_state(bytes);
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
