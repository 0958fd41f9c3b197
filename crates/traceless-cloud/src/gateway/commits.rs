//! Rounds and renewed nodes, from their beginning to their commit.

use super::Gateway;
use super::record::Record;
use super::rounds::Wait;
use super::sessions::SESSIONS_MAX;
use super::state::Running;
use crate::error::{Error, Result};
use crate::geometry::Node;
use crate::host::DamagedSlot;
use core::time::Duration;

impl Gateway {
    /// Settles a round that was in progress when the last process ended: the host has committed it
    /// or never will.
    pub(super) fn resolve(&mut self) -> Result {
        if let Some(record) = self.outcome()? {
            // Not written as a record: the next generation begins with the result.
            self.state.apply(record)?;
            if let Some(journal) = &mut self.journal {
                journal.renew(&self.state, &mut *self.rng)?;
            }
        }
        Ok(())
    }

    /// Begins a round, or the renewal of one node.
    pub(super) fn begin(&mut self, node: Option<Node>) -> Result {
        let mut seed = [0; 32];
        self.rng.fill(&mut seed);
        let node = node.map(|node| node.0);
        // The gateway and the enclave seal only data under this attempt that follows from the
        // current state. A copy of this process that continues from an earlier state draws another
        // attempt; one that continues from here seals the same data. Zero stands for a node that
        // was never written.
        let attempt = self.rng.salt().0.max(1);
        if let Some(job) = self.log_and_apply(Record::Begin { attempt, seed, node })? {
            self.staged = false;
            self.pacing.begin();
            // At a constant rate the job is sent at a later tick, after its record is written.
            if self.constant_rate.is_some() {
                self.worker.prepare(job);
            } else {
                self.worker.begin(job);
            }
        }
        Ok(())
    }

    /// Commits the running round, if it is ready, or becomes ready within `wait`.
    pub(super) fn finish(&mut self, wait: Wait) -> Result {
        if self.state.running.is_none() {
            return Ok(());
        }
        if !self.staged {
            // At a constant rate the caller waits for the end of the round, so it must be sent by
            // now.
            if self.constant_rate.is_some() {
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
                return self.begin_next_session();
            }
            match outcome.staged {
                Err(error) => {
                    self.log_deferred(Record::Fail)?;
                    return Err(error);
                }
                // A disk or a line may have failed for a moment, so the round is made again once.
                // The host can know that, too.
                Ok(damage) if !damage.is_empty() && !self.has_found_damage => {
                    self.has_found_damage = true;
                    return self.log_deferred(Record::Fail);
                }
                Ok(damage) => {
                    self.has_found_damage = false;
                    self.counts.damaged += damage.len() as u64;
                    self.log_damage(&damage)?;
                }
            }
            self.staged = true;
            if self.state.running.as_ref().is_some_and(Running::is_round) {
                self.pacing.took(outcome.took);
            }
        }
        match self.commit() {
            Err(Error::SessionLost) => self.begin_next_session(),
            other => other,
        }
    }

    /// The blocks of damaged slots are lost.
    pub(super) fn log_damage(&mut self, damage: &[DamagedSlot]) -> Result {
        for of_node in damage.chunk_by(|one, other| one.node == other.node) {
            let slots = of_node.iter().map(|damaged| damaged.slot).collect();
            self.log_deferred(Record::Damage { node: of_node[0].node.0, slots })?;
        }
        Ok(())
    }

    /// Commits what is staged. After a failed commit it is unknown whether it happened, so the
    /// gateway queries the host's sequence; the versions that the host then has prove the answer.
    fn commit(&mut self) -> Result {
        // Pending queries refer to old versions, which exist until the next commit.
        self.send_pending()?;
        // Makes sure that the journal has no query without a reply after the commit.
        self.flush()?;
        let Some(running) = &self.state.running else { return Ok(()) };
        let (at_host, own) = (self.host.sequence()?, self.state.sequence);
        if at_host == own {
            self.host.commit(own + 1, &running.versions())?;
        } else if at_host != own + 1 {
            return Err(Error::RolledBack { host: at_host, gateway: own });
        }
        let round = self.state.round;
        // Not flushed at once: after a reopening the host's sequence shows the commit.
        self.log_deferred(Record::Commit)?;
        if self.state.round > round {
            self.counts.rounds += 1;
        } else {
            self.counts.renewed += 1;
        }
        Ok(())
    }

    /// Renews a node that was read as often as it has dummies. The host knows how often that was,
    /// so the moment reveals nothing.
    pub(super) fn renew(&mut self, node: Node) -> Result {
        let layer = self.state.params.geometry.layer_of(node);
        // A session may end during the attempt.
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
