//! The trait of what stores a gateway's state.

use super::saved_state::SavedState;
use crate::durable::Durability;
use crate::error::{Error, Result};
use crate::log::{EntryDraft, Position};
use std::path::PathBuf;
use traceless_core::rng::Rng;
use traceless_core::seal::Secret;

/// Where the state of a gateway is, before it is opened.
pub trait OpenState {
    /// Opens the newest state under the state's key.
    fn open(&self, key: &Secret) -> Result<OpenedState>;
}

/// An open state.
pub struct OpenedState {
    /// Where it is stored.
    pub(super) store: Box<dyn StateStore>,
    /// The newest generation; `None` if there is no state yet.
    pub(super) saved: Option<SavedState>,
    /// What a record in the anchor survives.
    pub(super) durability: Durability,
    /// The anchor: a file elsewhere that records how far the state has come.
    pub(super) anchor: Option<PathBuf>,
}

/// Stores generations of a state. One process at a time has the newest one.
pub(super) trait StateStore: Send {
    /// Writes the next generation with these entries, durably. It is not the newest yet, and a
    /// failure changes nothing. Returns the position of its last entry.
    fn prepare(
        &mut self,
        parent: Position,
        entries: &mut dyn Iterator<Item = EntryDraft>,
        rng: &mut dyn Rng,
    ) -> Result<Position>;

    /// Makes the prepared generation the newest. After a failure it is unknown which one is.
    fn switch(&mut self) -> Result;

    /// Removes all generations but the newest.
    fn remove_old(&mut self) -> Result;

    /// Adds an entry to the newest generation, and empties the draft. Returns the entry's position,
    /// once it is as durable as the state must be. After a failure it is unknown whether it was
    /// added.
    fn write(&mut self, entry: &mut EntryDraft) -> Result<Position>;

    /// Whether the next generation is due because of how the state is stored.
    fn is_long(&self) -> bool {
        false
    }

    /// Fails if another process may have the state, so that this one must not answer.
    fn check(&self) -> Result {
        Ok(())
    }

    /// Takes note that nothing is written any more, because of an error.
    fn give_up(&self, _error: &Error) {}

    /// Gives the state up to another process. Nothing can be written any more.
    fn release(&mut self) -> Result {
        Ok(())
    }
}
