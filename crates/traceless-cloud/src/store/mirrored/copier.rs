//! Brings the copy up to date.
//!
//! The copier copies the nodes that the copy has in other versions, one by one, while rounds go on
//! in the first store alone. When few are left it keeps commits back, copies the rest, and gives
//! the copy the number of the store's last commit. Until then the copy has the number of its own
//! last commit, so that no gateway takes a part of a tree for a whole one.

use super::super::{BoxedStore, CopyableStore, NodeStore as _, NodeVersion, Opening};
use super::kinship::is_mistake;
use super::{CopyProgress, CopyState, Mirror};
use crate::block_on::block_on;
use crate::error::{Error, Result};
use std::collections::HashSet;
use std::fmt::Display;
use std::sync::{Arc, PoisonError, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use traceless_core::clock::{Clock as _, Monotonic};

/// Wait after a failure.
const RETRY_TIME: Duration = Duration::from_secs(2);
/// How often all nodes that differ are copied beside rounds. If rounds write faster, they wait in
/// between.
const PASSES_MAX: usize = 8;
/// Paths of nodes that are copied while commits wait, at the end.
const PATHS_FEW: usize = 2;
/// The same of each step, if rounds write faster than the copy takes nodes.
const SLICE_PATHS: usize = 8;
/// How long the opening waits for the copy.
const FIRST_TIME: Duration = Duration::from_secs(2);
/// How long the end waits for the copier, which may wait for an engine that is away.
const GRACE: Duration = Duration::from_secs(2);

/// Whether rounds may replace nodes while they are copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rounds {
    GoOn,
    Wait,
}

/// The copier. Dropping it ends it.
pub(super) struct CopierThread<S: CopyableStore + 'static> {
    mirror: Arc<Mirror<S>>,
    thread: Option<JoinHandle<()>>,
}

impl<S: CopyableStore + 'static> CopierThread<S> {
    /// Starts the copier. Also returns the outcome of the first connection to the copy, if it comes
    /// within seconds.
    pub(super) fn start(mirror: Arc<Mirror<S>>) -> Result<(Self, Option<Result>)> {
        let (of_thread, (connected, connection)) = (mirror.clone(), mpsc::channel());
        let named = Builder::new().name("second copy".to_owned());
        let thread = named.spawn(move || {
            let reached = block_on(of_thread.connect()).map(drop);
            // The opening reports that the copy is away. What it refuses is tried again, and
            // reported if the opening has not waited for it.
            let is_away = reached.as_ref().is_err_and(|failed| !is_mistake(failed));
            let _ = connected.send(reached);
            of_thread.keep_up(is_away);
        })?;
        let copier = Self { mirror, thread: Some(thread) };
        Ok((copier, connection.recv_timeout(FIRST_TIME).ok()))
    }
}

impl<S: CopyableStore + 'static> Drop for CopierThread<S> {
    fn drop(&mut self) {
        self.mirror.state().is_ending = true;
        self.mirror.changed.notify_all();
        let clock = Monotonic::start();
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            if clock.now() > GRACE.as_nanos() as u64 {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

pub(super) fn report_away(reason: &dyn Display) {
    tracing::warn!(%reason, "the second copy is away: the store goes on without it");
}

impl<S: CopyableStore> Mirror<S> {
    /// Brings the copy up to date whenever it is behind, until the end.
    fn keep_up(&self, mut is_away: bool) {
        while self.wait_until_behind() {
            match block_on(self.catch_up()) {
                Ok(nodes) => {
                    is_away = false;
                    tracing::info!(nodes, "the second copy is up to date");
                }
                Err(failed) => {
                    if self.state().is_ending {
                        return;
                    }
                    if !is_away {
                        report_away(&failed);
                    }
                    is_away = true;
                    self.give_up(&failed);
                }
            }
        }
    }

    /// Returns whether the copy is behind, and false at the end.
    fn wait_until_behind(&self) -> bool {
        let is_idle = |state: &mut CopyState| {
            !state.is_ending && matches!(state.progress, CopyProgress::Whole(_))
        };
        let waited = self.changed.wait_while(self.state(), is_idle);
        !waited.unwrap_or_else(PoisonError::into_inner).is_ending
    }

    /// Waits before the next attempt.
    fn give_up(&self, failed: &Error) {
        let mut state = self.state();
        state.progress = CopyProgress::Behind;
        if matches!(failed, Error::Io(_)) {
            // A disk that was away has other files when it is back.
            state.copy = None;
        }
        let is_going_on = |state: &mut CopyState| !state.is_ending;
        drop(self.changed.wait_timeout_while(state, RETRY_TIME, is_going_on));
    }

    /// Makes the copy whole. Returns how many nodes were copied.
    async fn catch_up(&self) -> Result<usize> {
        let copy = self.connect().await?;
        {
            let _writes = self.copy_writes.lock().await;
            copy.abandon().await?;
        }
        let number = copy.sequence().await?;
        let few = PATHS_FEW * self.geometry.layers;
        let (mut nodes, mut passes) = (0, 0);
        loop {
            let lacking = self.lacking(&copy)?;
            if lacking.len() <= few {
                break;
            }
            passes += 1;
            if passes <= PASSES_MAX {
                nodes += self.copy_nodes(&copy, number, &lacking, Rounds::GoOn).await?;
            } else {
                let _no_commit = self.commits.lock().await;
                let slice = &lacking[..lacking.len().min(SLICE_PATHS * self.geometry.layers)];
                nodes += self.copy_nodes(&copy, number, slice, Rounds::GoOn).await?;
            }
        }
        let _no_commit = self.commits.lock().await;
        // It decides about a commit in doubt, so that no version becomes current later.
        let sequence = self.first.sequence().await?;
        nodes += self.copy_nodes(&copy, number, &self.lacking(&copy)?, Rounds::Wait).await?;
        let _writes = self.copy_writes.lock().await;
        copy.restore(sequence, &[]).await?;
        let mut state = self.state();
        // A scrub or another session may have found a reason to begin again.
        if state.stale.is_empty() && state.progress == CopyProgress::CatchingUp {
            (state.progress, state.has_round) = (CopyProgress::Whole(sequence), false);
        }
        Ok(nodes)
    }

    /// The copy, open for the gateway that has the store.
    pub(super) async fn connect(&self) -> Result<Arc<BoxedStore>> {
        let (copy, opening) = {
            let state = self.state();
            (state.copy.clone(), state.opening)
        };
        let copy = match copy {
            Some(copy) => {
                copy.admit(opening).await?;
                copy
            }
            None => self.open_copy(opening).await?,
        };
        let mut state = self.state();
        state.copy = Some(copy.clone());
        if state.opening == opening {
            state.progress = CopyProgress::CatchingUp;
        }
        Ok(copy)
    }

    async fn open_copy(&self, opening: Opening) -> Result<Arc<BoxedStore>> {
        let copy = Arc::new(self.opener.open_as_copy(self.geometry, opening)?);
        self.check_kinship(&copy).await?;
        Ok(copy)
    }

    /// The store's current versions that the copy lacks, or has damaged.
    fn lacking(&self, copy: &BoxedStore) -> Result<Vec<NodeVersion>> {
        let copied: HashSet<NodeVersion> = copy.current()?.into_iter().collect();
        let stale = self.state().stale.clone();
        let is_lacking =
            |version: &NodeVersion| !copied.contains(version) || stale.contains(&version.node);
        Ok(self.first.current()?.into_iter().filter(is_lacking).collect())
    }

    /// Copies versions, as far as they are still current. Returns how many were copied.
    async fn copy_nodes(
        &self,
        copy: &BoxedStore,
        number: u64,
        versions: &[NodeVersion],
        rounds: Rounds,
    ) -> Result<usize> {
        let (mut nodes, mut bytes) = (0, Vec::new());
        for version in versions {
            if self.state().is_ending {
                return Err(Error::Engine("it is closed".to_owned()));
            }
            let _writes = self.copy_writes.lock().await;
            let was_stale = self.state().stale.remove(&version.node);
            let copied = match self.stage_copy(copy, *version, &mut bytes).await {
                // The version was replaced meanwhile.
                Err(Error::Store(_)) if rounds == Rounds::GoOn => continue,
                Ok(()) => copy.restore(number, &[*version]).await,
                failed => failed,
            };
            if copied.is_err() && was_stale {
                self.state().stale.insert(version.node);
            }
            copied?;
            nodes += 1;
        }
        Ok(nodes)
    }
}
