//! A gateway's state in a storage engine, under a lease that one of several gateways has.
//!
//! | in the log | what |
//! |---|---|
//! | a checkpoint | the head of a generation, and the lengths of the pieces of its state |
//! | entries of that generation | records, as in a file, with zeros up to whole pages |
//! | entries of the lease | without content, between any two entries |
//!
//! A generation becomes the newest with its checkpoint, which includes all entries of the previous
//! one. A gateway that lost the lease may still store a checkpoint: it includes no entry that it
//! does not know, so it changes nothing about the state.

use super::saved_state::SavedState;
use super::state_store::{OpenState, OpenedState, StateStore};
use crate::durable::Durability;
use crate::error::{Error, Result};
use crate::gateway::lease::{
    Checkpoint, GenerationAbout, HEAD_MAGIC, ReadLog, SharedLease, StateLease, generation_key,
};
use crate::log::{Damage, EntryDraft, EntrySealer, Head, Position, SealProof, read_stored};
use crate::state_log::PieceName;
use crate::wire::fence::Opening;
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use traceless_core::rng::Rng;
use traceless_core::seal::Secret;

/// Entries have a multiple of so many bytes.
const ENTRY_UNIT: usize = 4096;
/// Entries of the log after which a checkpoint is due: a gateway that takes over reads them all. A
/// state with more pieces takes longer to save.
const ENTRIES_MIN: u64 = 2048;
const ENTRIES_PER_PIECE: u64 = 256;
const ENTRIES_MAX: u64 = 16_384;
/// Entries of the log between two checkpoints of a state with so many pieces.
pub(crate) fn entries_per_save(pieces: u64) -> u64 {
    (ENTRIES_MIN + pieces * ENTRIES_PER_PIECE).min(ENTRIES_MAX)
}

/// Pieces that are written or read at once.
const PIECES_AT_ONCE: usize = 8;
/// How often the state is read again because another gateway has saved it meanwhile.
const READS_MAX: usize = 8;
/// Names the state in errors about its content.
const CONTENT: &str = "the gateway's state in the storage engine";
/// Advice for the operator when the state is damaged.
const ADVICE: &str = "restore a copy of the store";

impl OpenState for Arc<StateLease> {
    fn open(&self, key: &Secret) -> Result<OpenedState> {
        let (lease, key) = (self.clone(), key.clone());
        let saved = read_newest(lease.shared(), &key)?;
        let anchor = lease.anchor().cloned();
        let store =
            LeasedState { lease, key, newest: None, next: None, old: Vec::new(), included: 0 };
        // What the engine acknowledges is durable.
        Ok(OpenedState { store: Box::new(store), saved, durability: Durability::Power, anchor })
    }
}

/// The store of a state under a lease.
struct LeasedState {
    lease: Arc<StateLease>,
    key: Secret,
    /// The newest generation, once this process has begun it.
    newest: Option<Generation>,
    /// A generation that is not the newest yet.
    next: Option<Generation>,
    /// Pieces of generations before the newest.
    old: Vec<PieceName>,
    /// The position of the log's last checkpoint.
    included: u64,
}

/// A generation that this process has written.
struct Generation {
    sealer: EntrySealer<SealProof>,
    checkpoint: Checkpoint,
    pieces: Vec<PieceName>,
}

impl StateStore for LeasedState {
    fn prepare(
        &mut self,
        parent: Position,
        entries: &mut dyn Iterator<Item = EntryDraft>,
        rng: &mut dyn Rng,
    ) -> Result<Position> {
        let shared = self.lease.shared();
        // No checkpoint has the next position yet; and without the lease pieces would be of no use.
        shared.extend()?;
        let (opening, period_ms, save) = (shared.opening(), shared.period_ms(), rng.next_u64());
        let about = GenerationAbout { parent, opening, period_ms, save }.encode();
        let head = Head::draw(HEAD_MAGIC, parent.generation + 1, about, rng);
        let (mut sealer, head) = EntrySealer::new(&head, &generation_key(&self.key), rng.fork());
        let (mut lens, mut pieces, mut batch) = (Vec::new(), Vec::new(), Vec::new());
        for mut draft in entries {
            let piece = Bytes::from(sealer.finish(&mut draft, 1));
            let name = PieceName { save, piece: pieces.len() as u32 };
            lens.push(piece.len() as u32);
            pieces.push(name);
            batch.push((name, piece));
            if batch.len() == PIECES_AT_ONCE {
                shared.log().write_pieces(core::mem::take(&mut batch))?;
            }
        }
        shared.log().write_pieces(batch)?;
        let position = sealer.position();
        let checkpoint = Checkpoint { tree: *shared.tree(), head, lens };
        if let Some(unused) = self.next.replace(Generation { sealer, checkpoint, pieces }) {
            self.old.extend(unused.pieces);
        }
        Ok(position)
    }

    fn switch(&mut self) -> Result {
        let shared = self.lease.shared();
        let next = self.next.take().expect("the next generation is prepared");
        let position = shared.last();
        shared.log().checkpoint(position, next.checkpoint.encode(position, shared.key()))?;
        // No other gateway had taken the lease when it was stored.
        shared.extend()?;
        self.included = position;
        match self.newest.replace(next) {
            Some(replaced) => self.old.extend(replaced.pieces),
            None => self.find_old(),
        }
        Ok(())
    }

    fn remove_old(&mut self) -> Result {
        // What cannot be removed now is tried again after the next generation began.
        if !self.old.is_empty() && self.lease.shared().log().remove_pieces(&self.old).is_ok() {
            self.old.clear();
        }
        Ok(())
    }

    fn write(&mut self, entry: &mut EntryDraft) -> Result<Position> {
        let newest = self.newest.as_mut().expect("records happen after the first generation began");
        let sealed = newest.sealer.finish(entry, ENTRY_UNIT);
        self.lease.shared().write(&sealed.into())?;
        Ok(newest.sealer.position())
    }

    fn is_long(&self) -> bool {
        // Entries of the lease count, too.
        let pieces = self.newest.as_ref().map_or(0, |newest| newest.pieces.len() as u64);
        self.lease.shared().last() - self.included > entries_per_save(pieces)
    }

    fn check(&self) -> Result {
        self.lease.shared().check()
    }

    fn give_up(&self, error: &Error) {
        self.lease.shared().give_up(error);
    }

    fn release(&mut self) -> Result {
        self.lease.shared().release()
    }
}

impl LeasedState {
    /// Finds the pieces of states that other gateways have saved, or begun to.
    fn find_old(&mut self) {
        let (shared, newest) = (self.lease.shared(), self.newest.as_ref());
        let Ok(mut found) = shared.log().list_pieces() else { return };
        // A later gateway may have written pieces that were listed, too. If this entry is in the
        // log, there was no later gateway when they were listed.
        if shared.extend().is_err() {
            return;
        }
        let newest = newest.map_or(&[][..], |newest| &newest.pieces);
        found.retain(|piece| !newest.contains(piece));
        self.old.extend(found);
    }
}

/// Reads the newest generation; `None` if no state was ever saved.
fn read_newest(shared: &SharedLease, key: &Secret) -> Result<Option<SavedState>> {
    let damaged = |damage: Damage| damage.error(Path::new(CONTENT), ADVICE);
    let mut last_save = None;
    for _ in 0..READS_MAX {
        let found = ReadLog::read(shared.log())?;
        let Some(checkpoint) = found.checkpoint(shared.key())? else {
            // Records follow a saved state.
            return entries_of(shared, &found, None).map(|_| None);
        };
        let about = checkpoint.about(key).filter(|_| checkpoint.tree == *shared.tree());
        let about = about.ok_or_else(|| damaged(Damage::of_all(checkpoint.head.len())))?;
        let Some(mut all) = read_pieces(shared, &checkpoint.pieces(about.save))? else {
            // A gateway that has lost the lease may have replaced the state, which it knew.
            if last_save.replace(about.save) == Some(about.save) {
                return Err(damaged(Damage::of_all(0)));
            }
            continue;
        };
        all.extend(entries_of(shared, &found, Some(about.opening))?);
        let read = read_stored(&checkpoint.head, &all, HEAD_MAGIC, &generation_key(key));
        let found = read.map_err(damaged)?.undamaged(Path::new(CONTENT), ADVICE)?;
        return Ok(Some(SavedState { found }));
    }
    Err(Error::InUse("the gateway's state"))
}

/// The entries of the generation in a log, which the opening that saved the state has added while
/// it had the lease.
fn entries_of(shared: &SharedLease, found: &ReadLog, saved: Option<Opening>) -> Result<Vec<Bytes>> {
    let (mut entries, mut owner) = (Vec::new(), saved);
    for (position, entry) in found.numbered() {
        match shared.lease_entry(entry, position) {
            Some(lease) => owner = Some(lease.opening),
            None if saved.is_none() || owner != saved => return Err(Error::State(CONTENT)),
            None => entries.push(entry.clone()),
        }
    }
    // The last gateway that took the lease is this one.
    if owner.is_some_and(|owner| owner != shared.opening()) {
        return Err(Error::InUse("the gateway's state"));
    }
    Ok(entries)
}

/// Reads the pieces of a saved state; `None` if one is missing.
fn read_pieces(shared: &SharedLease, pieces: &[(PieceName, usize)]) -> Result<Option<Vec<Bytes>>> {
    let mut all = Vec::with_capacity(pieces.len());
    for batch in pieces.chunks(PIECES_AT_ONCE) {
        for piece in shared.log().read_pieces(batch)? {
            let Some(piece) = piece else { return Ok(None) };
            all.push(piece);
        }
    }
    Ok(Some(all))
}
