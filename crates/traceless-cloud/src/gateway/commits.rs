//! Rounds and renewed nodes, from their beginning to their commit.

use super::Gateway;
use super::record::Record;
use super::rounds::Wait;
use super::sessions::SESSIONS_MAX;
use super::state::Running;
use crate::error::{Error, Result};
use crate::geometry::Node;
use crate::host::DamagedSlot;
use crate::store::NodeVersion;
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

    /// Begins a round, or the renewal of one node. On demand it is also committed in its own
    /// thread, while queries go on: they read old versions until the gateway learns of the commit.
    pub(super) fn begin(&mut self, node: Option<Node>) -> Result {
        if self.state.has_old_pending() {
            // The next commit makes unreadable what they read.
            self.send_pending()?;
        }
        let mut seed = [0; 32];
        self.rng.fill(&mut seed);
        let node = node.map(|node| node.0);
        // The gateway and the enclave seal only data under this attempt that follows from the
        // current state. A copy of this process that continues from an earlier state draws another
        // attempt; one that continues from here seals the same data. Zero stands for a node that
        // was never written.
        let attempt = self.rng.salt().0.max(1);
        let zeroed = self.give_up_damage(node.map(Node))?;
        if let Some(mut job) = self.log_and_apply(Record::Begin { attempt, seed, node })? {
            job.zeroed = zeroed;
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

    /// Ends the running round, if it is ready, or becomes ready within `wait`.
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
            let ready = self.outcome.take();
            let ready = ready.or_else(|| self.worker.result(Wait::For(Duration::ZERO)));
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
                // Nothing is staged, and the round is made again.
                Ok(damage) if !damage.is_empty() => {
                    let sent = self.state.running.as_ref().map_or_else(Vec::new, Running::nodes);
                    self.log_deferred(Record::Fail)?;
                    return self.report_damage(&sent, &damage);
                }
                Ok(_) => {}
            }
            self.staged = true;
            if self.state.running.as_ref().is_some_and(Running::is_round) {
                self.pacing.took(outcome.took);
            }
            match outcome.committed {
                Some(Ok(())) => return self.log_commit(),
                Some(Err(Error::SessionLost)) => return self.begin_next_session(),
                // It is unknown whether the commit happened. The next call finds out.
                Some(Err(error)) => return Err(error),
                None => {}
            }
        }
        match self.commit() {
            Err(Error::SessionLost) => self.begin_next_session(),
            other => other,
        }
    }

    /// Takes note of a commit beside batches that are under way, if it happens within `wait`. What
    /// else becomes of the running round waits until no batch is under way.
    pub(super) fn note_commit(&mut self, wait: Duration) -> Result {
        if self.state.running.is_none() || self.staged || self.outcome.is_some() {
            return Ok(());
        }
        let Some(outcome) = self.worker.result(Wait::For(wait)) else { return Ok(()) };
        let is_committed = matches!(outcome.committed, Some(Ok(())));
        self.outcome = Some(outcome);
        // A commit that has happened needs no further message.
        if is_committed { self.finish(Wait::For(Duration::ZERO)) } else { Ok(()) }
    }

    /// Takes the host's report of damaged slots of current versions of nodes.
    pub(super) fn report_damage(&mut self, nodes: &[Node], damage: &[DamagedSlot]) -> Result {
        let version = |&node: &Node| NodeVersion { node, attempt: self.state.index.attempt(node) };
        let sent: Vec<NodeVersion> = nodes.iter().map(version).collect();
        self.found_damage.report(&self.state.params.geometry, &sent, damage)
    }

    /// The damaged slots of the nodes of a round, or of one node, which become zeros. The blocks in
    /// them are lost. Fails if they are a large share.
    fn give_up_damage(&mut self, node: Option<Node>) -> Result<Vec<DamagedSlot>> {
        let g = self.state.params.geometry;
        let leaf = g.evicted(self.state.round);
        let path = || (0..g.layers).map(|layer| g.node(layer, leaf)).collect();
        let nodes = node.map_or_else(path, |node| vec![node]);
        let mut confirmed: Vec<(Node, Vec<u32>)> = Vec::new();
        for node in nodes {
            let version = NodeVersion { node, attempt: self.state.index.attempt(node) };
            confirmed.push((node, self.found_damage.confirmed(&g, version)?));
        }
        let mut zeroed = Vec::new();
        for (node, slots) in confirmed.into_iter().filter(|(_, slots)| !slots.is_empty()) {
            zeroed.extend(slots.iter().map(|&slot| DamagedSlot { node, slot }));
            self.counts.damaged += slots.len() as u64;
            self.log_deferred(Record::Damage { node: node.0, slots })?;
        }
        Ok(zeroed)
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
        self.log_commit()
    }

    fn log_commit(&mut self) -> Result {
        self.staged = false;
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
