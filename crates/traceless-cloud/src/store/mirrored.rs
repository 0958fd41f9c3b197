//! Two copies of a tree: every node is in a store, and in a second one.
//!
//! **The first store decides.** It has the number of the last commit, and all reads go to it. A
//! round is staged in both stores and committed to the first, then to the copy; so the copy is
//! never newer. If the copy fails, the store goes on without it, and a thread of its own brings the
//! copy up to date again (`copier`).
//!
//! **What the copy heals.** Only the enclave knows which bytes are damaged, and the host learns
//! what rounds and scrubs have found. Slots of nodes that the enclave found to be damaged are read
//! from the copy from then on ([`NodeStore::judge`]). A slot of a query is read once in the life of
//! a version, but for a query that is sent again: after damage, or after a lost session. So a slot
//! that is read again comes from the copy and the store in turn (`suspects`, `mend`).
//!
//! **Scrubs** read a node from both stores. If they differ where the enclave finds no damage, the
//! copy is damaged, and the node is copied anew.
//!
//! **A copy that does not answer** is behind after a deadline: an engine's requests have their own,
//! and a folder is a [`PatientStore`](super::PatientStore).
//!
//! **If the first store is lost**, the copy is opened as the store, if it was up to date: it has
//! the same commits. An older one is refused by the gateway, as an old store is.

mod copier;
mod kinship;
mod mend;
mod suspects;
#[cfg(test)]
mod tests;

use super::{BoxedStore, CopyableStore, NodeStore, NodeVersion, OpenStore, Opening, SlotRead};
use crate::enclave::DamagedSlots;
use crate::error::{Error, Result};
use crate::geometry::{Geometry, Node};
use copier::{CopierThread, report_away};
use futures_util::future::join;
use futures_util::lock::Mutex as AsyncMutex;
use kinship::is_mistake;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use suspects::{DamagedNodes, RecentReads};

/// A store, and a second copy of its tree.
pub struct MirroredStore<S: CopyableStore + 'static> {
    mirror: Arc<Mirror<S>>,
    _copier: CopierThread<S>,
}

/// What the calls of a host and the copier share.
struct Mirror<S> {
    geometry: Geometry,
    first: S,
    /// Opens the copy.
    opener: Arc<dyn OpenStore>,
    state: Mutex<CopyState>,
    /// Notified when the copy falls behind, and at the end.
    changed: Condvar,
    /// Held while a commit is made, or the copier makes the copy whole. Taken before `copy_writes`.
    commits: AsyncMutex<()>,
    /// Held while something is written to the copy.
    copy_writes: AsyncMutex<()>,
    recent_reads: Mutex<RecentReads>,
    damaged: Mutex<DamagedNodes>,
}

struct CopyState {
    /// The opening of the gateway's state that has the store.
    opening: Opening,
    /// The copy, once it was reached.
    copy: Option<Arc<BoxedStore>>,
    progress: CopyProgress,
    /// Whether the round that is in progress is staged in the copy, too.
    has_round: bool,
    /// Nodes that the copy has, but damaged.
    stale: BTreeSet<Node>,
    is_ending: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CopyProgress {
    /// The copy has the same versions as the store after the commit with this number.
    Whole(u64),
    /// The copy lacks versions and is being brought up to date.
    CatchingUp,
    /// The copy lacks versions, or was not reached.
    Behind,
}

impl<S: CopyableStore + 'static> MirroredStore<S> {
    /// A store with a copy that `opener` opens. A copy that cannot be reached within seconds is
    /// brought up to date later. Fails if the copy is of another shape, newer than the store, or in
    /// use.
    pub fn open(
        first: S,
        opener: Arc<dyn OpenStore>,
        geometry: Geometry,
        opening: Opening,
    ) -> Result<Self> {
        let state = CopyState {
            opening,
            copy: None,
            progress: CopyProgress::Behind,
            has_round: false,
            stale: BTreeSet::new(),
            is_ending: false,
        };
        let mirror = Arc::new(Mirror {
            geometry,
            first,
            opener,
            state: Mutex::new(state),
            changed: Condvar::new(),
            commits: AsyncMutex::new(()),
            copy_writes: AsyncMutex::new(()),
            recent_reads: Mutex::default(),
            damaged: Mutex::default(),
        });
        let (copier, connected) = CopierThread::start(mirror.clone())?;
        match connected {
            Some(Ok(())) => {}
            Some(Err(refused)) if is_mistake(&refused) => {
                tracing::error!(reason = %refused, "the second copy is not one of this store");
                return Err(refused);
            }
            Some(Err(failed)) => report_away(&failed),
            None => report_away(&"it does not answer"),
        }
        Ok(Self { mirror, _copier: copier })
    }

    /// Whether the copy has all versions that the store has.
    pub fn is_whole(&self) -> bool {
        matches!(self.mirror.state().progress, CopyProgress::Whole(_))
    }
}

impl<S: CopyableStore> NodeStore for MirroredStore<S> {
    async fn read_slots(&self, reads: &mut [SlotRead<'_>]) -> Result {
        let mirror = &*self.mirror;
        let again = mirror.recent_reads().note(reads);
        let copy = mirror.copy_to_read();
        let read = match (mirror.first.read_slots(reads).await, &copy) {
            (Err(Error::Io(_)), Some(copy)) => mirror.read_each(copy, reads).await,
            (read, _) => read,
        };
        match (&read, copy) {
            (Err(_), _) => mirror.recent_reads().take_back(reads),
            (Ok(()), Some(copy)) if !again.is_empty() => {
                mirror.read_again(&copy, reads, &again).await;
            }
            (Ok(()), _) => {}
        }
        read
    }

    async fn read_node(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        let read = self.mirror.first.read_node(version, into).await;
        self.mirror.mend_node(version, into, read).await
    }

    async fn read_node_to_verify(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        let mirror = &*self.mirror;
        let read = mirror.first.read_node_to_verify(version, into).await;
        let Some(copy) = mirror.copy_to_read() else { return read };
        match read {
            // The enclave is to find what cannot be read, so that the node is written anew.
            Err(Error::Io(_)) => _ = mirror.read_slot_by_slot(version, into).await?,
            other => other?,
        }
        mirror.replace_damaged(&copy, version, into).await;
        mirror.compare(&copy, version, into).await;
        Ok(())
    }

    async fn stage(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        let copied = self.mirror.write_round(async |copy| copy.stage(version, bytes).await);
        join(self.mirror.first.stage(version, bytes), copied).await.0
    }

    fn announce(&self, versions: &[NodeVersion]) {
        self.mirror.first.announce(versions);
    }

    async fn finish_stages(&self) -> Result {
        let copied = self.mirror.write_round(async |copy| copy.finish_stages().await);
        join(self.mirror.first.finish_stages(), copied).await.0
    }

    async fn abandon(&self) -> Result {
        self.mirror.first.abandon().await?;
        {
            let mut state = self.mirror.state();
            state.has_round = matches!(state.progress, CopyProgress::Whole(_));
        }
        self.mirror.write_round(async |copy| copy.abandon().await).await;
        Ok(())
    }

    async fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        let mirror = &*self.mirror;
        let _one = mirror.commits.lock().await;
        let committed = mirror.first.commit(sequence, versions).await;
        if let Err(failed) = &committed {
            // The commit may have been made.
            mirror.fall_behind(failed);
            return committed;
        }
        for version in versions {
            // A node that another host had is copied here again if it was damaged on the way.
            if mirror.damaged().forget(*version) {
                mirror.copy_again(version.node);
            }
        }
        let Some((copy, has_round)) = mirror.whole_copy() else { return Ok(()) };
        match mirror.commit_to_copy(&copy, has_round, sequence, versions).await {
            Ok(()) => mirror.advance(sequence),
            Err(failed) => mirror.fall_behind(&failed),
        }
        Ok(())
    }

    async fn sequence(&self) -> Result<u64> {
        let sequence = self.mirror.first.sequence().await?;
        self.mirror.expect(sequence);
        Ok(sequence)
    }

    fn judge(&self, version: NodeVersion, damaged: &DamagedSlots) {
        let is_copy_damaged = self.mirror.damaged().judge(version, damaged);
        if is_copy_damaged {
            self.mirror.copy_again(version.node);
        }
    }

    async fn remove(&self, nodes: &[Node]) -> Result {
        let mirror = &*self.mirror;
        let _one = mirror.commits.lock().await;
        mirror.first.remove(nodes).await?;
        let _writes = mirror.copy_writes.lock().await;
        if let Some(copy) = mirror.copy_to_read()
            && let Err(failed) = copy.remove(nodes).await
        {
            // They are removed at the next opening.
            report_away(&failed);
        }
        Ok(())
    }

    async fn admit(&self, opening: Opening) -> Result {
        self.mirror.first.admit(opening).await?;
        // A commit in doubt may have been made.
        self.mirror.begin_again(opening);
        Ok(())
    }
}

impl<S: CopyableStore> CopyableStore for MirroredStore<S> {
    fn current(&self) -> Result<Vec<NodeVersion>> {
        self.mirror.first.current()
    }

    async fn restore(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        let _one = self.mirror.commits.lock().await;
        self.mirror.first.restore(sequence, versions).await?;
        self.mirror.fall_behind(&"nodes of the store were restored");
        Ok(())
    }
}

impl<S: CopyableStore> Mirror<S> {
    fn state(&self) -> MutexGuard<'_, CopyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recent_reads(&self) -> MutexGuard<'_, RecentReads> {
        self.recent_reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn damaged(&self) -> MutexGuard<'_, DamagedNodes> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The copy, if it can be reached. It may lack versions.
    fn copy_to_read(&self) -> Option<Arc<BoxedStore>> {
        let state = self.state();
        state.copy.clone().filter(|_| state.progress != CopyProgress::Behind)
    }

    /// The copy, if it has all versions, and whether the round is staged in it.
    fn whole_copy(&self) -> Option<(Arc<BoxedStore>, bool)> {
        let state = self.state();
        let copy = state.copy.clone().filter(|_| matches!(state.progress, CopyProgress::Whole(_)));
        copy.map(|copy| (copy, state.has_round))
    }

    /// Writes something of a round to the copy, if the round is staged there, too.
    async fn write_round(&self, write: impl AsyncFnOnce(&BoxedStore) -> Result) {
        if !self.has_copied_round() {
            // The copier may have the copy for long.
            return;
        }
        let _writes = self.copy_writes.lock().await;
        let Some((copy, true)) = self.whole_copy() else { return };
        if let Err(failed) = write(&copy).await {
            self.fall_behind(&failed);
        }
    }

    /// Whether the round is staged in the copy, too.
    fn has_copied_round(&self) -> bool {
        matches!(self.whole_copy(), Some((_, true)))
    }

    async fn commit_to_copy(
        &self,
        copy: &BoxedStore,
        has_round: bool,
        sequence: u64,
        versions: &[NodeVersion],
    ) -> Result {
        let _writes = self.copy_writes.lock().await;
        if !has_round {
            // The copy became whole in the middle of the round.
            let mut bytes = Vec::new();
            for version in versions {
                self.stage_copy(copy, *version, &mut bytes).await?;
            }
        }
        copy.commit(sequence, versions).await
    }

    /// Stages a node of the store in the copy.
    async fn stage_copy(
        &self,
        copy: &BoxedStore,
        version: NodeVersion,
        bytes: &mut Vec<u8>,
    ) -> Result {
        bytes.resize(self.geometry.node_len(self.geometry.layer_of(version.node)), 0);
        match self.first.read_node(version, bytes).await {
            Err(Error::Io(_)) => {
                let unreadable = self.read_slot_by_slot(version, bytes).await?;
                self.damaged().add_unreadable(version, unreadable);
            }
            other => other?,
        }
        // The copy may be written anew because of other slots than the damaged ones of the store,
        // which must not replace good ones.
        if !self.replace_damaged(copy, version, bytes).await && copy.current()?.contains(&version) {
            return Err(Error::Engine("a damaged slot cannot be read from the copy".to_owned()));
        }
        copy.stage(version, bytes).await?;
        copy.finish_stages().await
    }

    /// Goes on without the copy until it is whole again.
    fn fall_behind(&self, reason: &dyn Display) {
        let mut state = self.state();
        if let CopyProgress::Whole(_) = state.progress {
            tracing::warn!(%reason, "the second copy is behind, and is brought up to date");
            self.leave(&mut state, CopyProgress::Behind);
        }
    }

    /// Has the copier copy a node that is damaged in the copy. Any other node can be read there.
    fn copy_again(&self, node: Node) {
        let mut state = self.state();
        state.stale.insert(node);
        if let CopyProgress::Whole(_) = state.progress {
            tracing::warn!(node = node.0, "a node of the second copy is damaged, and copied anew");
            self.leave(&mut state, CopyProgress::CatchingUp);
        }
    }

    /// Looks anew at what the copy lacks, for another opening.
    fn begin_again(&self, opening: Opening) {
        let mut state = self.state();
        state.opening = opening;
        let progress = match state.progress {
            CopyProgress::Behind => CopyProgress::Behind,
            CopyProgress::Whole(_) | CopyProgress::CatchingUp => CopyProgress::CatchingUp,
        };
        self.leave(&mut state, progress);
    }

    /// Leaves the state in which both stores are equal, for the copier.
    fn leave(&self, state: &mut CopyState, progress: CopyProgress) {
        (state.progress, state.has_round) = (progress, false);
        self.changed.notify_all();
    }

    /// Records that a commit is in both stores.
    fn advance(&self, sequence: u64) {
        let mut state = self.state();
        if let CopyProgress::Whole(number) = &mut state.progress {
            *number = sequence;
        }
    }

    /// Compares the number of the store's last commit with the copy's.
    fn expect(&self, sequence: u64) {
        let known = self.state().progress;
        if let CopyProgress::Whole(number) = known
            && number != sequence
        {
            self.fall_behind(&"the store has another commit");
        }
    }
}
