//! The keys of each opening; a write, flush, slot or refresh number selects the opening.
//!
//! A flush belongs to the opening that made the last write before it. So after a crash between the
//! two, the flush is repeated under the same keys with the same contents; only salts differ.

use super::geometry::SqGeometry;
use super::schedule::Schedule;
use crate::log::LogKeys;
use crate::refreshed::{self, RefreshKey};
use traceless_core::error::Result;
use traceless_core::scheme::openings::{self, Opening, Openings, SchemeState};
use traceless_core::seal::{Cipher, KeyDeriver, Secret};

/// Sealers of one opening.
pub(super) struct SqKeys {
    /// For level 0; the version is the number of the write.
    pub log: LogKeys,
    /// For the levels from 1 on; the version is [`level_version`]. Slots of different levels never
    /// share a salt, since they may share the half of a version that is in a short nonce.
    pub levels: LogKeys,
    /// For the last level; the version is the number of the refresh.
    pub main: RefreshKey,
}

/// Stands for the last level in the keys of lost slots; no other level has this number.
const LAST_LEVEL: u64 = u64::MAX;

/// The version of slot number `slot`, counted from creation on, of a level.
pub(super) fn level_version(level: usize, slot: u64) -> u64 {
    ((level as u64) << 56) + slot
}

/// The openings with their keys.
pub(super) struct SqKeyRing {
    key: Secret,
    cipher: Cipher,
    bucket: u64,
    openings: Openings<SqKeys>,
}

impl SqKeyRing {
    pub fn new(key: Secret, cipher: Cipher, geometry: &SqGeometry, state: &SchemeState) -> Self {
        let deriver = KeyDeriver::new(&key);
        let openings = Openings::new(state, |o| sq_keys(&deriver, cipher, o));
        Self { key, cipher, bucket: u64::from(geometry.bucket), openings }
    }

    /// Adds the newest opening.
    pub fn push(&mut self, opening: Opening) -> Result {
        self.openings.push(opening, sq_keys(&KeyDeriver::new(&self.key), self.cipher, &opening))
    }

    /// The opening that made write number `count`, and its keys.
    pub fn at_write(&self, count: u64) -> &(Opening, SqKeys) {
        self.openings.find(|o| o.start <= count)
    }

    /// The opening that made flush number `flush`, and its keys.
    pub fn at_flush(&self, flush: u64) -> &(Opening, SqKeys) {
        self.openings.find(|o| o.start / self.bucket <= flush)
    }

    /// The keys that slot `slot` of a level from 1 on was written under.
    pub fn at_slot(&self, schedule: &Schedule, level: usize, slot: u64) -> &(Opening, SqKeys) {
        let first = |o: &Opening| schedule.delivered(level, o.start / self.bucket);
        self.openings.find(|o| first(o) <= slot / self.bucket)
    }

    /// The keys that refresh `r` was made under.
    pub fn at_main(&self, schedule: &Schedule, r: u64) -> &(Opening, SqKeys) {
        self.openings.find(|o| schedule.refreshed(o.start / self.bucket) <= r)
    }

    /// Fills the body and its tag, in a slot of a level, for a lost block. `version` must be unique
    /// to this slot and level.
    pub fn fill_lost(
        &self,
        opening: &Opening,
        version: &[u64; 2],
        tag: &mut [u8],
        body: &mut [u8],
    ) {
        openings::fill_lost(&self.lost_key(opening, version), tag, body);
    }

    /// Fills the slot of refresh `r` for a lost block.
    pub fn fill_lost_refresh(&self, opening: &Opening, r: u64, slot: (&mut [u8], &mut [u8])) {
        refreshed::fill_lost(&self.lost_key(opening, &[LAST_LEVEL, r]), r, slot);
    }

    fn lost_key(&self, opening: &Opening, version: &[u64; 2]) -> Secret {
        let [place, version] = version.map(u64::to_le_bytes);
        self.key.derive(&[&opening.id, b"lost", &place, &version])
    }

    /// Forgets openings without slots in use once `count` writes are durable.
    pub fn prune(&mut self, schedule: &Schedule, count: u64, unsynced_max: u64) {
        let settled = count.saturating_sub(unsynced_max) / self.bucket;
        let lifetime = lifetime(schedule);
        self.openings.prune(|next| next / self.bucket + lifetime <= settled);
    }

    pub fn openings(&self) -> &Openings<SqKeys> {
        &self.openings
    }
}

/// Number of flushes after which no data of a flush is read any more: down all levels, then through
/// a pass of the last.
pub(super) fn lifetime(schedule: &Schedule) -> u64 {
    let last = schedule.last();
    schedule.start(last) + 4 * schedule.width(last)
}

fn sq_keys(deriver: &KeyDeriver, cipher: Cipher, opening: &Opening) -> SqKeys {
    let key = |purpose: &[u8]| deriver.derive(&[&opening.id, purpose]);
    SqKeys {
        log: LogKeys::new(cipher, &key(b"log address"), &key(b"log")),
        levels: LogKeys::new(cipher, &key(b"level address"), &key(b"level")),
        main: RefreshKey::new(cipher, &key(b"last level")),
    }
}
