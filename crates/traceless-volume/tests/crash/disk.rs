//! A disk with a volatile cache that logs every request, and the effects of a crash on it.

use crate::fills::mix;
use crate::hidden::HiddenBlocks;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use traceless_core::seal::record::{self, SealRecord};
use traceless_core::store::Store;
use traceless_core::types::Extent;
use traceless_core::{Error, Result};
use traceless_volume::format::{AREAS_AT, SUPERBLOCK_LEN, SUPERBLOCKS_AT};

/// The unit that a crash leaves whole: a torn write has some of its sectors.
pub const SECTOR: u64 = 512;

/// One extent of a write.
#[derive(Clone, PartialEq, Eq)]
pub struct Piece {
    pub at: u64,
    pub bytes: Vec<u8>,
}

impl Piece {
    pub fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    /// Number of sectors that the piece touches.
    pub fn sectors(&self) -> u64 {
        (self.end() - 1) / SECTOR - self.at / SECTOR + 1
    }
}

/// The requests to the disk, and promises to the client, in order.
#[derive(Clone)]
pub enum Event {
    /// A request, and what was sealed since the previous one.
    Write(Vec<Piece>, Vec<SealRecord>),
    /// Stretches that were given up. They read as zeros from now on.
    Discard(Vec<Piece>),
    Sync,
    /// From now on up to this many client writes may survive.
    Submitted(u64),
    /// This many client writes must survive.
    Promised(u64),
    /// From now on blocks of hidden volumes may hold this.
    Hidden(HiddenBlocks),
}

/// The part of the log that an adversary observes. Promises to the client are not part of it.
pub fn shape(log: &[Event]) -> Vec<Vec<(u64, usize)>> {
    log.iter()
        .filter_map(|event| match event {
            Event::Write(pieces, _) | Event::Discard(pieces) => {
                Some(pieces.iter().map(|p| (p.at, p.bytes.len())).collect())
            }
            Event::Sync => Some(vec![]),
            Event::Submitted(_) | Event::Promised(_) | Event::Hidden(_) => None,
        })
        .collect()
}

/// The fate of an unsynced piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Lost,
    Kept,
    /// Only this many first sectors arrived.
    Head(u64),
    /// All but this many first sectors arrived.
    Tail(u64),
    /// Each sector arrived or not, by a hash of this seed and the sector's number.
    Sectors(u64),
}

impl Fate {
    /// Whether the piece may have arrived in part.
    pub fn is_torn(self) -> bool {
        !matches!(self, Self::Lost | Self::Kept)
    }

    fn keeps(self, sector: u64, first: u64) -> bool {
        match self {
            Self::Lost => false,
            Self::Kept => true,
            Self::Head(cut) => sector - first < cut,
            Self::Tail(cut) => sector - first >= cut,
            Self::Sectors(seed) => mix(seed ^ mix(sector)) & 1 == 1,
        }
    }
}

/// What the disk is used for, so that a planted fault can choose its moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Opening,
    Writing,
    Flushing,
}

/// A disk. Reads return all written data, synced or not. All writes can be undone.
pub struct Disk {
    inner: Mutex<Inner>,
    unit: usize,
    takes_discards: bool,
}

struct Inner {
    bytes: Vec<u8>,
    undo: Vec<(usize, Vec<u8>)>,
    log: Vec<Event>,
    phase: Phase,
    flushes: u64,
    /// Whether this opening has written a superblock.
    kept: bool,
    /// Requests until the power fails; `None` if it does not.
    fuse: Option<u64>,
    /// Whether a sync makes earlier writes final.
    settling: bool,
}

impl Disk {
    pub fn new(bytes: Vec<u8>, unit: usize, takes_discards: bool) -> Self {
        let (undo, log, phase) = (vec![], vec![], Phase::Opening);
        let (flushes, kept, fuse, settling) = (0, false, None, false);
        let inner = Inner { bytes, undo, log, phase, flushes, kept, fuse, settling };
        Self { inner: Mutex::new(inner), unit, takes_discards }
    }

    /// Ignores poisoning: a panic is reported where it happens, and the bytes are rolled back
    /// anyway.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn snapshot(&self) -> Vec<u8> {
        self.lock().bytes.clone()
    }

    /// Replaces the contents by `image`, with nothing in flight.
    pub fn reset(&self, image: &[u8]) {
        let mut inner = self.lock();
        inner.bytes.copy_from_slice(image);
        inner.undo.clear();
        inner.log.clear();
        inner.fuse = None;
    }

    pub fn note(&self, mark: Event) {
        self.lock().log.push(mark);
    }

    /// Takes the log. Data that was sealed and not written is dropped, as no adversary
    /// can have observed it.
    pub fn take_log(&self) -> Vec<Event> {
        record::take();
        std::mem::take(&mut self.lock().log)
    }

    pub fn enter(&self, phase: Phase) {
        let mut inner = self.lock();
        (inner.phase, inner.kept) = (phase, false);
        inner.flushes += u64::from(phase == Phase::Flushing);
    }

    pub fn set_fuse(&self, fuse: Option<u64>) {
        self.lock().fuse = fuse;
    }

    pub fn is_dead(&self) -> bool {
        self.lock().fuse == Some(0)
    }

    /// A point to which the disk can be rolled back.
    pub fn mark(&self) -> usize {
        self.lock().undo.len()
    }

    pub fn roll_back(&self, mark: usize) {
        let mut inner = self.lock();
        while inner.undo.len() > mark {
            let (at, old) = inner.undo.pop().expect("there is more to undo");
            inner.bytes[at..at + old.len()].copy_from_slice(&old);
        }
    }

    /// Makes all writes so far final.
    pub fn settle(&self) {
        let mut inner = self.lock();
        inner.undo.clear();
        inner.flushes = 0;
    }

    /// From now on a sync makes earlier writes final, so that rolling back leaves durable data
    /// only.
    pub fn set_settling(&self) {
        self.lock().settling = true;
    }

    /// Writes the part of `piece` that `fate` keeps, without logging it.
    pub fn put(&self, piece: &Piece, fate: Fate) {
        let mut inner = self.lock();
        if fate == Fate::Kept {
            return inner.write(piece.at, &piece.bytes);
        }
        let (first, last) = (piece.at / SECTOR, (piece.end() - 1) / SECTOR);
        for sector in (first..=last).filter(|&s| fate.keeps(s, first)) {
            let from = (sector * SECTOR).max(piece.at);
            let to = ((sector + 1) * SECTOR).min(piece.end());
            inner.write(from, &piece.bytes[(from - piece.at) as usize..(to - piece.at) as usize]);
        }
    }
}

impl Inner {
    fn write(&mut self, at: u64, from: &[u8]) {
        let at = at as usize;
        let place = &mut self.bytes[at..at + from.len()];
        self.undo.push((at, place.to_vec()));
        place.copy_from_slice(from);
    }

    /// Counts a request down. Fails if the power is gone.
    fn burn(&mut self) -> Result {
        match &mut self.fuse {
            Some(0) => Err(Error::Store("the power went")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Disk {
    fn len(&self) -> u64 {
        self.lock().bytes.len() as u64
    }
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    fn unit(&self) -> usize {
        self.unit
    }
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        let inner = self.lock();
        let mut rest = into;
        for extent in extents {
            let (part, next) = rest.split_at_mut(extent.len);
            part.copy_from_slice(&inner.bytes[extent.at as usize..extent.end() as usize]);
            rest = next;
        }
        assert!(rest.is_empty(), "extents and buffer agree");
        Ok(())
    }
    // All data is in memory.
    fn prefetch(&self, _: &[Extent]) {}
    fn takes_discards(&self) -> bool {
        self.takes_discards
    }
    fn discard(&self, extents: &[Extent]) {
        let mut inner = self.lock();
        if inner.fuse == Some(0) {
            return;
        }
        let hole = |extent: &Extent| Piece { at: extent.at, bytes: vec![0; extent.len] };
        let pieces: Vec<Piece> = extents.iter().map(hole).collect();
        for piece in &pieces {
            inner.write(piece.at, &piece.bytes);
        }
        inner.log.push(Event::Discard(pieces));
        // If the power goes at a discard, the next request fails.
        let _ = inner.burn();
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        let mut inner = self.lock();
        let mut rest = from;
        let mut pieces = vec![];
        for extent in extents {
            let (part, next) = rest.split_at(extent.len);
            inner.write(extent.at, part);
            inner.kept |= extent.at < AREAS_AT;
            pieces.push(Piece { at: extent.at, bytes: part.to_vec() });
            rest = next;
        }
        assert!(rest.is_empty(), "extents and buffer agree");
        // The write during which the power fails is in flight: any part of it may arrive.
        inner.log.push(Event::Write(pieces, record::take()));
        inner.burn()
    }
    fn sync(&self) -> Result {
        let mut inner = self.lock();
        inner.burn()?;
        inner.log.push(Event::Sync);
        if inner.settling {
            inner.undo.clear();
        }
        Ok(())
    }
}

/// A planted fault. The checker must find each of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    None,
    /// The sync of flush number `.0` does not reach the disk.
    FlushLost(u64),
    /// Syncs that writing itself makes are lost, so more data is unsynced than the slack allows.
    RoomLost,
    /// The first sync of an opening is lost: the data that it found may still be in the cache only.
    RecoveryLost,
    /// The syncs of the superblocks are lost.
    SuperblocksLost,
    /// The writes that recovery repeats are lost.
    RedoLost,
    /// Both superblocks are written to the same place.
    OneSuperblock,
    /// A new opening is not recorded.
    OpeningLost,
    /// Every opening draws the same random bytes: ids recur, and keys with them.
    SameDraws,
    /// Writes to the lane of hidden volumes are lost.
    LaneLost,
    /// A hidden flush returns before its sync.
    HiddenFlushEarly,
    /// A hidden request makes a write of its own.
    HiddenWrites,
    /// A discard reaches as far again beyond its end, around the area.
    DiscardTooLong,
}

impl Fault {
    /// All faults, with the first few numbers of lost flushes.
    pub const ALL: [Self; 11] = [
        Self::FlushLost(1),
        Self::FlushLost(2),
        Self::FlushLost(3),
        Self::FlushLost(4),
        Self::RoomLost,
        Self::RecoveryLost,
        Self::SuperblocksLost,
        Self::RedoLost,
        Self::OneSuperblock,
        Self::OpeningLost,
        Self::SameDraws,
    ];

    /// The faults that only hidden volumes have.
    pub const HIDDEN: [Self; 3] = [Self::LaneLost, Self::HiddenFlushEarly, Self::HiddenWrites];
}

/// A store with a fault.
pub struct Bent {
    pub disk: Arc<Disk>,
    pub fault: Fault,
    /// Where the lane of hidden volumes lies.
    pub lane: Range<u64>,
    /// Where the scheme's areas lie.
    pub areas: Vec<Range<u64>>,
}

impl Bent {
    fn loses_sync(&self) -> bool {
        let inner = self.disk.lock();
        match self.fault {
            Fault::FlushLost(n) => inner.phase == Phase::Flushing && inner.flushes == n,
            Fault::RoomLost => inner.phase == Phase::Writing,
            Fault::RecoveryLost => inner.phase == Phase::Opening && !inner.kept,
            Fault::SuperblocksLost => inner.phase == Phase::Opening && inner.kept,
            _ => false,
        }
    }

    fn loses_write(&self, extents: &[Extent]) -> bool {
        let at = extents[0].at;
        match self.fault {
            Fault::RedoLost => self.disk.lock().phase == Phase::Opening && at >= AREAS_AT,
            Fault::LaneLost => self.lane.contains(&at),
            _ => false,
        }
    }

    /// The stretch behind `extent`, as long as it, or the first of the area.
    fn next_in_area(&self, extent: &Extent) -> Option<Extent> {
        let area = self.areas.iter().find(|area| area.contains(&extent.at))?;
        let at = if extent.end() < area.end { extent.end() } else { area.start };
        Some(Extent::new(at, extent.len.min((area.end - at) as usize)))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Bent {
    fn len(&self) -> u64 {
        self.disk.len()
    }
    fn is_empty(&self) -> bool {
        self.disk.is_empty()
    }
    fn unit(&self) -> usize {
        self.disk.unit()
    }
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        self.disk.read(extents, into)
    }
    fn prefetch(&self, extents: &[Extent]) {
        self.disk.prefetch(extents);
    }
    fn takes_discards(&self) -> bool {
        self.disk.takes_discards()
    }
    fn discard(&self, extents: &[Extent]) {
        self.disk.discard(extents);
        if self.fault == Fault::DiscardTooLong {
            let more: Vec<Extent> =
                extents.iter().filter_map(|extent| self.next_in_area(extent)).collect();
            self.disk.discard(&more);
        }
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        if self.loses_write(extents) {
            return Ok(());
        }
        let second = Extent::new(SUPERBLOCKS_AT + SUPERBLOCK_LEN as u64, SUPERBLOCK_LEN);
        if self.fault == Fault::OneSuperblock && extents == [second] {
            return self.disk.write(&[Extent::new(SUPERBLOCKS_AT, SUPERBLOCK_LEN)], from);
        }
        self.disk.write(extents, from)
    }
    fn sync(&self) -> Result {
        if self.loses_sync() { Ok(()) } else { self.disk.sync() }
    }
}
