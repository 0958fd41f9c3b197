//! The properties of a volume, from its header and superblock. Works while it is in use.

use super::image::{Image, UnlockedHeader};
use crate::error::Result;
use crate::format::{Features, SlotKind, Superblock, UserKey};
use serde::Serialize;
use std::path::Path;
use traceless_core::store::{Caching, FileStore, Store};

/// The output of `traceless volume status`.
#[derive(Clone, Debug, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the JSON")]
pub struct Status {
    /// Version of this list: `traceless.volume.status.v1`.
    pub schema: &'static str,
    /// Name of the scheme.
    pub scheme: &'static str,
    /// Name of the cipher.
    pub cipher: &'static str,
    /// The volume's id.
    pub uuid: String,
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_len: usize,
    /// Bytes that the volume holds.
    pub size_bytes: u64,
    /// Main blocks, or slots of the last level, written per write; `None` for other schemes.
    pub refresh: Option<String>,
    /// Where the map lies: `memory`, `disk`, or `None` for other schemes.
    pub map: Option<&'static str>,
    /// What the map's entries are: `counts`, `pointers`, or `None` for other schemes.
    pub map_entries: Option<&'static str>,
    /// Bytes of memory that the map takes when the volume is open.
    pub map_bytes: u64,
    /// Bytes of memory that the scheme's buffers take, where they are large.
    pub buffer_bytes: u64,
    /// Levels of the scheme's hierarchy; `None` for other schemes.
    pub levels: Option<u64>,
    /// Flushes of the scheme's queue so far; `None` for other schemes.
    pub flushes: Option<u64>,
    /// Blocks of the scheme's queue or bucket; `None` for other schemes.
    pub bucket: Option<u64>,
    /// The ratio of the sizes of two successive levels; `None` for other schemes.
    pub fanout: Option<u64>,
    /// What decides when the scheme's queue is flushed; `None` for other schemes.
    pub cadence: Option<&'static str>,
    /// Whether the scheme keeps a map of discarded blocks.
    pub discards: bool,
    /// Generation of the newest superblock.
    pub generation: u64,
    /// Bytes of the image.
    pub image_bytes: u64,
    /// Image bytes per byte stored.
    pub space_factor: f64,
    /// Writes up to the newest superblock; more may have been made since.
    pub writes: u64,
    /// Whether the volume was closed cleanly.
    pub clean: bool,
    /// Whether the volume is open elsewhere now for writing, or exclusively.
    pub in_use: bool,
    /// Bytes written per byte of the client's, headers and maps included, in long writes.
    pub write_amplification: f64,
    /// What writes reveal to an adversary with many copies of the image: `nothing`, `nearness` (of
    /// the addresses of one flush) or `everything`.
    pub writes_reveal: &'static str,
    /// Whether the image was filled with ciphertext at creation.
    pub filled: bool,
    /// Key slots in use.
    pub key_slots: Vec<KeySlotStatus>,
}

/// One key slot in use.
#[derive(Clone, Debug, Serialize)]
pub struct KeySlotStatus {
    /// Number of the slot.
    pub slot: usize,
    /// `passphrase` or `key-file`; `sealed` in a deniable image, where a slot does not say.
    pub kind: &'static str,
    /// Memory of argon2id in KiB, for a passphrase.
    pub memory_kib: Option<u32>,
    /// Passes of argon2id, for a passphrase.
    pub time: Option<u32>,
    /// Lanes of argon2id, for a passphrase.
    pub lanes: Option<u32>,
}

/// Reads the status of the image at `path`, even while it is in use.
pub fn status(path: &Path, key: &UserKey) -> Result<Status> {
    let image = Image::open(path, true, Caching::Buffered)?;
    let in_use = image.is_locked();
    let unlocked = image.unlock(key)?;
    let header = &unlocked.header;
    image.check_len(header)?;
    let store = FileStore::new(image.try_clone()?, header.image_len, Caching::Buffered);
    status_of(&store, &unlocked, in_use, key_slots(&image)?)
}

/// The status of the volume in `store`.
pub(super) fn status_of(
    store: &dyn Store,
    unlocked: &UnlockedHeader,
    in_use: bool,
    key_slots: Vec<KeySlotStatus>,
) -> Result<Status> {
    let header = &unlocked.header;
    let superblock = Superblock::read(store, &unlocked.keys)?;
    let (writes, clean) = header.scheme.peek_state(&superblock.state)?;
    let scheme = &header.scheme;
    let (blocks, block_len) = (scheme.blocks(), scheme.block_len());
    let size_bytes = blocks * block_len as u64;
    let facts = scheme.facts(writes);
    Ok(Status {
        schema: "traceless.volume.status.v1",
        scheme: scheme.name(),
        cipher: header.cipher.name(),
        uuid: uuid_text(&header.uuid),
        blocks,
        block_len,
        size_bytes,
        refresh: facts.refresh,
        map: facts.map,
        map_entries: facts.map_entries,
        map_bytes: facts.map_bytes,
        buffer_bytes: facts.buffer_bytes,
        levels: facts.levels,
        flushes: facts.flushes,
        bucket: facts.bucket,
        fanout: facts.fanout,
        cadence: facts.cadence,
        discards: scheme.keeps_discards(),
        generation: superblock.generation,
        image_bytes: header.image_len,
        space_factor: header.image_len as f64 / size_bytes as f64,
        writes,
        clean,
        in_use,
        write_amplification: scheme.write_amplification(),
        writes_reveal: scheme.writes_reveal(),
        filled: header.features.incompatible & Features::UNFILLED == 0,
        key_slots,
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

/// A uuid in its usual notation.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(*uuid));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
