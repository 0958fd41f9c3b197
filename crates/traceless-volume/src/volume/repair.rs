//! Repairing a damaged volume. Only data that does not verify is changed, and everything that is
//! lost is reported.

use super::image::Image;
use super::{OpenOptions, Volume};
use crate::anchor_places::place_at;
use crate::error::{Error, Result};
use crate::format::{Anchor, Superblock, UserKey};
use std::path::Path;
use traceless_core::error::Place;
use traceless_core::store::Caching;

/// Blocks read at a time in the search for unreadable ones.
const BLOCKS_PER_READ: u64 = 256;

/// The outcome of a repair.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// Blocks that could not be read, and now hold zeros.
    pub zeroed: Vec<u64>,
    /// Places of writes that were given up. Which blocks they belonged to is unknown; these blocks
    /// may read as they were earlier.
    pub forgotten: Vec<Place>,
}

/// Repairs the volume at `path`: unreadable blocks become zeros, and a damaged superblock is
/// written anew from the other, as at every opening. A volume that damage keeps closed is opened
/// only with `accept_old_blocks`.
pub fn repair(
    path: &Path,
    key: &UserKey,
    options: &OpenOptions,
    accept_old_blocks: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RepairReport> {
    let options = OpenOptions { read_only: false, ..options.clone() };
    let mut done = RepairReport::default();
    let volume = match Volume::open(path, key, &options, progress) {
        Err(e) if accept_old_blocks && e.keeps_closed() => {
            let (volume, forgotten) = Volume::salvage(path, key, &options, progress)?;
            done.forgotten = forgotten;
            volume
        }
        other => other?,
    };
    // The search is repeated now that no other process can write. Blocks that verify are not
    // changed.
    done.zeroed = volume.unreadable(progress)?;
    let zeros = vec![0; volume.block_len];
    for &block in &done.zeroed {
        volume.write_blocks(block, &zeros)?;
    }
    volume.close()?;
    Ok(done)
}

/// Makes the anchor at `address`, a path or a URL, anew for an open volume that was checked. What
/// is there must be an anchor, of this volume or of another.
pub fn new_anchor(address: &Path, volume: &Volume) -> Result {
    let place = place_at(address, volume.image.path())?;
    Anchor::prepare(place, &volume.keys, &volume.state())?.replace()
}

/// The blocks, of `all`, that `read` finds damaged. It reads whole blocks from the given one on.
pub(super) fn unreadable(
    all: u64,
    block_len: usize,
    read: impl Fn(u64, &mut [u8]) -> Result,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<u64>> {
    let is_readable = |first, into: &mut [u8]| match read(first, into) {
        Err(Error::Scheme(traceless_core::Error::Tampered { .. })) => Ok(false),
        other => other.map(|()| true),
    };
    let mut bytes = vec![0; BLOCKS_PER_READ as usize * block_len];
    let mut found = vec![];
    for first in (0..all).step_by(BLOCKS_PER_READ as usize) {
        progress(first, all);
        let blocks = BLOCKS_PER_READ.min(all - first);
        let bytes = &mut bytes[..blocks as usize * block_len];
        if is_readable(first, bytes)? {
            continue;
        }
        for block in first..first + blocks {
            if !is_readable(block, &mut bytes[..block_len])? {
                found.push(block);
            }
        }
    }
    progress(all, all);
    Ok(found)
}

impl Volume {
    /// The superblocks that do not verify. With one of them damaged, the other keeps the volume
    /// usable.
    pub fn damaged_superblocks(&self) -> Result<Vec<&'static str>> {
        Superblock::damaged(&*self.store, &self.keys)
    }

    /// The blocks that are unreadable because of damage.
    pub(super) fn unreadable(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Vec<u64>> {
        let read = |first, into: &mut [u8]| self.read_blocks(first, into);
        unreadable(self.header.scheme.blocks(), self.block_len, read, progress)
    }

    /// Opens a volume that damage keeps closed. Returns the places that were lost, too.
    fn salvage(
        path: &Path,
        key: &UserKey,
        options: &OpenOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Self, Vec<Place>)> {
        let mut image = Image::open(path, false, Caching::Buffered)?;
        image.lock(false)?;
        let unlocked = image.unlock(key)?;
        let store = super::watched_store(&image, unlocked.header.image_len, options)?;
        let mut lost = vec![];
        let opened = Self::open_on(store, image, unlocked, options, |scheme, parts, state| {
            let (oram, places) = scheme.salvage(parts, state, progress)?;
            lost = places;
            Ok(oram)
        })?;
        Ok((opened, lost))
    }
}
