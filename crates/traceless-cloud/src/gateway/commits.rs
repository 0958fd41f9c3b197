//! Rounds and nodes made anew, from their beginning to their commit.

use super::Gateway;
use super::record::Record;
use super::rounds::Wait;
use super::sessions::SESSIONS_MAX;
use super::state::Running;
use crate::error::{Error, Result};
use crate::geometry::Node;
use core::time::Duration;

impl Gateway {
    /// After an opening: a round that was on its way has either been committed by the host, or
    /// never will be.
    pub(super) fn resolve(&mut self) -> Result {
        if let Some(record) = self.outcome()? {
            // Not written down: the next generation begins with what comes of it.
            self.state.apply(record)?;
            if let Some(journal) = &mut self.journal {
                journal.renew(&self.state, &mut *self.rng)?;
            }
        }
        Ok(())
    }

    /// Begins a round, or to make a node anew.
    pub(super) fn begin(&mut self, node: Option<Node>) -> Result {
        let mut seed = [0; 32];
        self.rng.fill(&mut seed);
        let node = node.map(|node| node.0);
        // All that is sealed under it, by the gateway and by the enclave, follows from the state as
        // it is now: a copy of this process that goes on from before has another, and one that goes
        // on from here seals the same. Zero stands for a node that was never written.
        let attempt = self.rng.salt().0.max(1);
        if let Some(job) = self.happen(Record::Begun { attempt, seed, node })? {
            self.staged = false;
            self.pace.begin();
            // With a beat it is sent later, and written down before.
            if self.beat.is_some() { self.worker.prepare(job) } else { self.worker.begin(job) }
        }
        Ok(())
    }

    /// Commits the round on its way, if it is ready or gets so in time.
    pub(super) fn finish(&mut self, wait: Wait) -> Result {
        if self.state.running.is_none() {
            return Ok(());
        }
        if !self.staged {
            // With a beat whoever comes here waits for its end, so it has to be sent by now.
            if self.beat.is_some() {
                self.flush()?;
                self.worker.send();
            }
            let ready = self.worker.result(Wait::For(Duration::ZERO));
            if ready.is_none() && matches!(wait, Wait::Long) {
                self.counts.waits += 1;
            }
            let Some(outcome) = ready.or_else(|| self.worker.result(wait)) else { return Ok(()) };
            if let Err(Error::SessionLost) = outcome.staged {
                self.lost = true;
                return self.begin_again();
            }
            if let Err(error) = outcome.staged {
                self.happen_soon(Record::Failed)?;
                return Err(error);
            }
            self.staged = true;
            if self.state.running.as_ref().is_some_and(Running::is_round) {
                self.pace.took(outcome.took);
            }
        }
        match self.commit() {
            Err(Error::SessionLost) => self.begin_again(),
            other => other,
        }
    }

    /// Commits what is staged. Where a commit failed nobody knows whether it happened, so the host
    /// is asked, and its answer is proved by the versions that it then has.
    fn commit(&mut self) -> Result {
        // The versions that they ask for are there until the commit after this.
        self.send_pending()?;
        // So that no query without a reply is met again after it.
        self.flush()?;
        let Some(running) = &self.state.running else { return Ok(()) };
        let (at_host, own) = (self.host.sequence()?, self.state.sequence);
        if at_host == own {
            self.host.commit(own + 1, &running.versions())?;
        } else if at_host != own + 1 {
            return Err(Error::RolledBack { host: at_host, gateway: own });
        }
        let round = self.state.round;
        // Not at once: at an opening the host tells.
        self.happen_soon(Record::Committed)?;
        if self.state.round > round {
            self.counts.rounds += 1;
        } else {
            self.counts.renewed += 1;
        }
        Ok(())
    }

    /// Makes a node anew that was read as often as it has dummies. When that is follows from what
    /// the host has seen.
    pub(super) fn renew(&mut self, node: Node) -> Result {
        let layer = self.state.params.geometry.layer_of(node);
        // It may end with its session.
        for _ in 0..SESSIONS_MAX {
            self.finish(Wait::Long)?;
            if self.state.index.reads(node) < self.state.params.reads_max(layer) {
                return Ok(());
            }
            self.begin(Some(node))?;
            self.finish(Wait::Long)?;
        }
        Err(Error::SessionLost)
    }
}
