//! What a volume is, told from its header and superblock, also while it is in use.

use super::image::Image;
use crate::error::Result;
use crate::format::{Features, SlotKind, Superblock, UserKey};
use serde::Serialize;
use std::path::Path;
use traceless::build::SchemeConfig;
use traceless::store::{Caching, FileStore};

/// Everything that `traceless volume status` tells.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Version of this list: `traceless.volume.status.v1`.
    pub schema: &'static str,
    /// Name of the scheme.
    pub scheme: &'static str,
    /// The volume's id.
    pub uuid: String,
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_len: usize,
    /// Bytes that it holds.
    pub size_bytes: u64,
    /// Main blocks refreshed per write, or nothing for other schemes.
    pub refresh: Option<String>,
    /// Where the map lies: `memory`, `disk`, or nothing for other schemes.
    pub map: Option<&'static str>,
    /// Bytes of memory that the map takes when the volume is open.
    pub map_bytes: u64,
    /// Generation of the newest superblock.
    pub generation: u64,
    /// Bytes of the image.
    pub image_bytes: u64,
    /// Image bytes per byte stored.
    pub space_factor: f64,
    /// Writes made when the superblock was written; more may have been made since.
    pub writes: u64,
    /// Whether it was closed with nothing under way.
    pub clean: bool,
    /// Whether somebody has it open for writing now.
    pub in_use: bool,
    /// Bytes written per byte of the user's, headers left out.
    pub write_amplification: f64,
    /// What writes tell an adversary with many copies of the image: `nothing` or `everything`.
    pub writes_reveal: &'static str,
    /// Whether it was filled with ciphertext at creation.
    pub filled: bool,
    /// Key slots in use.
    pub key_slots: Vec<KeySlotStatus>,
}

/// One key slot in use.
#[derive(Clone, Debug, Serialize)]
pub struct KeySlotStatus {
    /// Number of the slot.
    pub slot: usize,
    /// `passphrase` or `key-file`.
    pub kind: &'static str,
    /// Memory of argon2id in KiB, for a passphrase.
    pub memory_kib: Option<u32>,
    /// Passes of argon2id, for a passphrase.
    pub time: Option<u32>,
    /// Lanes of argon2id, for a passphrase.
    pub lanes: Option<u32>,
}

/// Reads the status of the image at `path`. Works while it is in use.
pub fn status(path: &Path, key: &UserKey) -> Result<Status> {
    let image = Image::open(path, true, Caching::Buffered)?;
    let in_use = image.is_locked();
    let unlocked = image.unlock(key)?;
    let header = unlocked.header;
    image.check_len(&header)?;
    let store = FileStore::new(image.try_clone()?, header.image_len, Caching::Buffered);
    let superblock = Superblock::read(&store, &unlocked.keys)?;
    let (writes, clean) = header.scheme.peek_state(&superblock.state)?;
    let scheme = header.scheme;
    let (blocks, block_len) = (scheme.blocks(), scheme.block_len());
    let size_bytes = blocks * block_len as u64;
    let detwo = match scheme {
        SchemeConfig::DetWo(geometry) => Some(geometry),
        _ => None,
    };
    Ok(Status {
        schema: "traceless.volume.status.v1",
        scheme: scheme.name(),
        uuid: uuid_text(&header.uuid),
        blocks,
        block_len,
        size_bytes,
        refresh: detwo.map(|g| g.refresh.to_string()),
        map: scheme.map().map(|(tiers, _)| if tiers == 0 { "memory" } else { "disk" }),
        map_bytes: scheme.map().map_or(0, |(_, bytes)| bytes),
        generation: superblock.generation,
        image_bytes: header.image_len,
        space_factor: header.image_len as f64 / size_bytes as f64,
        writes,
        clean,
        in_use,
        write_amplification: scheme.write_amplification(),
        writes_reveal: if scheme.name() == "plain" { "everything" } else { "nothing" },
        filled: header.features.incompatible & Features::UNFILLED == 0,
        key_slots: key_slots(&image)?,
    })
}

fn key_slots(image: &Image) -> Result<Vec<KeySlotStatus>> {
    let slots = image.key_slots()?;
    let used = slots.iter().enumerate().filter_map(|(slot, s)| Some((slot, s?.kind)));
    Ok(used
        .map(|(slot, kind)| match kind {
            SlotKind::Passphrase(kdf) => KeySlotStatus {
                slot,
                kind: "passphrase",
                memory_kib: Some(kdf.memory_kib),
                time: Some(kdf.time),
                lanes: Some(kdf.lanes),
            },
            SlotKind::KeyFile => {
                KeySlotStatus { slot, kind: "key-file", memory_kib: None, time: None, lanes: None }
            }
        })
        .collect())
}

/// A uuid as it is usually written.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(*uuid));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
