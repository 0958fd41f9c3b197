//! Rounds, renewed nodes and copies of nodes, from their beginning to their commit.

use super::Gateway;
use super::partitions::{Running, Work};
use super::record::Record;
use super::rounds::{Outcome, Wait};
use super::sessions::SESSIONS_MAX;
use super::state::State;
use crate::error::{Error, Result};
use crate::geometry::Node;
use crate::host::DamagedSlot;
use crate::store::NodeVersion;
use core::time::Duration;

impl Gateway {
    /// Settles rounds that were in progress when the last process ended: a host has committed its
    /// round or never will.
    pub(super) fn resolve(&mut self) -> Result {
        let outcome = |partition| {
            if partition < self.links.len() {
                return self.outcome(partition).transpose();
            }
            // A host without trees that is no longer named.
            self.state.running(partition).map(|_| Ok(fail(partition)))
        };
        let records: Vec<Record> =
            (0..self.state.partitions.count()).filter_map(outcome).collect::<Result<_>>()?;
        let is_resolved = !records.is_empty();
        for record in records {
            // Not written as a record: the next generation begins with the result.
            self.state.apply(record)?;
        }
        match &mut self.journal {
            Some(journal) if is_resolved => journal.renew(&self.state, &mut *self.rng),
            _ => Ok(()),
        }
    }

    /// Makes a partition for each host, and removes the partitions without trees of hosts that are
    /// no longer named. A tree that was never written to is divided among new hosts; otherwise
    /// trees move to them later ([`Self::move_step`]).
    pub(super) fn match_partitions_to_hosts(&mut self) -> Result {
        let hosts = self.links.len();
        let before = self.state.partitions.count();
        for link in self.links.iter().skip(before) {
            // A new host must not have the store of another tree.
            let host = link.host.sequence()?;
            if host != 0 {
                return Err(Error::RolledBack { host, gateway: 0 });
            }
        }
        if hosts != before {
            self.log_and_apply(self.state.partitions.divided_among(hosts))?;
        }
        self.hosts.divide(self.state.partitions.of_roots());
        Ok(())
    }

    /// Begins a round, or the renewal of one node. On demand it is also committed in its own
    /// thread, while queries go on: they read old versions until the gateway learns of the commit.
    /// Begins nothing if something is in progress in its partition.
    pub(super) fn begin(&mut self, node: Option<Node>) -> Result {
        let partition_of = |state: &State| {
            node.map_or_else(|| state.next_partition(), |node| state.partition_of_node(node))
        };
        if self.state.has_old_pending(partition_of(&self.state)) {
            // The next commit makes unreadable what they read.
            self.send_pending()?;
        }
        let partition = partition_of(&self.state);
        if self.state.running(partition).is_some() {
            return Ok(());
        }
        let mut seed = [0; 32];
        self.rng.fill(&mut seed);
        // The gateway and the enclave seal only data under this attempt that follows from the
        // current state. A copy of this process that continues from an earlier state draws another
        // attempt; one that continues from here seals the same data. Zero stands for a node that
        // was never written.
        let attempt = self.rng.salt().0.max(1);
        let zeroed = self.give_up_damage(node)?;
        let node = node.map(|node| node.0);
        if let Some(mut job) = self.log_and_apply(Record::Begin { attempt, seed, node })? {
            job.zeroed = zeroed;
            let link = &mut self.links[partition];
            link.is_staged = false;
            link.pacing.begin();
            // At a constant rate the job is sent at a later tick, after its record is written.
            if self.constant_rate.is_some() {
                link.worker.prepare(job);
            } else {
                link.worker.begin(job);
            }
        }
        Ok(())
    }

    /// Ends what is in progress in all partitions, as [`Self::finish`] does.
    pub(super) fn finish_all(&mut self, wait: Wait) -> Result {
        (0..self.links.len()).try_for_each(|partition| self.finish(partition, wait))
    }

    /// Ends what is in progress in a partition, if it is ready, or becomes ready within `wait`.
    pub(super) fn finish(&mut self, partition: usize, wait: Wait) -> Result {
        if self.state.running(partition).is_none() {
            return Ok(());
        }
        if self.links[partition].is_staged && self.is_copying(partition) {
            // Of a copy it is not insisted that its commit happens.
            return if matches!(wait, Wait::Long) { self.end_copy(partition) } else { Ok(()) };
        }
        if !self.links[partition].is_staged {
            let Some(outcome) = self.take_outcome(partition, wait)? else { return Ok(()) };
            if let Some(version) = self.state.running(partition).and_then(Running::copy) {
                return self.finish_copy(partition, version, outcome);
            }
            if let Err(Error::SessionLost) = outcome.staged {
                self.links[partition].is_lost = true;
                return self.begin_next_session();
            }
            match outcome.staged {
                Err(error) => {
                    self.log_deferred(fail(partition))?;
                    return Err(error);
                }
                // Nothing is staged, and the round is made again.
                Ok(damage) if !damage.is_empty() => {
                    let sent = self.state.running(partition).map_or_else(Vec::new, Running::nodes);
                    self.log_deferred(fail(partition))?;
                    return self.report_damage(&sent, &damage);
                }
                Ok(_) => {}
            }
            let is_round = self.state.running(partition).is_some_and(|one| one.round().is_some());
            let link = &mut self.links[partition];
            link.is_staged = true;
            if is_round {
                link.pacing.took(outcome.took);
            }
            match outcome.committed {
                Some(Ok(())) => return self.log_commit(partition),
                Some(Err(Error::SessionLost)) => return self.renew_session(partition),
                // It is unknown whether the commit happened. The next call finds out.
                Some(Err(error)) => return Err(error),
                None => {}
            }
        }
        match self.commit(partition) {
            Err(Error::SessionLost) => self.begin_next_session(),
            other => other,
        }
    }

    /// The worker's result, if it is ready, or becomes ready within `wait`.
    fn take_outcome(&mut self, partition: usize, wait: Wait) -> Result<Option<Outcome>> {
        // At a constant rate the caller waits for the end of the round, so it must be sent by now.
        if self.constant_rate.is_some() {
            self.flush()?;
            self.links[partition].worker.send();
        }
        let link = &mut self.links[partition];
        let ready = link.outcome.take();
        let ready = ready.or_else(|| link.worker.result(Wait::For(Duration::ZERO)));
        if ready.is_none() && matches!(wait, Wait::Long) {
            self.counts.waits += 1;
        }
        Ok(ready.or_else(|| link.worker.result(wait)))
    }

    /// Takes note of commits beside batches that are under way. What else becomes of a round waits
    /// until no batch is under way.
    pub(super) fn note_commits(&mut self) -> Result {
        (0..self.links.len()).try_for_each(|partition| self.note_commit(partition, Duration::ZERO))
    }

    /// The same for one partition, if its commit happens within `wait`.
    pub(super) fn note_commit(&mut self, partition: usize, wait: Duration) -> Result {
        let link = &mut self.links[partition];
        let is_known = link.is_staged || link.outcome.is_some();
        if self.state.running(partition).is_none() || is_known {
            return Ok(());
        }
        let Some(outcome) = link.worker.result(Wait::For(wait)) else { return Ok(()) };
        let is_committed = matches!(outcome.committed, Some(Ok(()))) && outcome.staged.is_ok();
        link.outcome = Some(outcome);
        // A commit that has happened needs no further message.
        if is_committed { self.finish(partition, Wait::For(Duration::ZERO)) } else { Ok(()) }
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
        let leaf = g.evicted(self.state.partitions.next_round());
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
    fn commit(&mut self, partition: usize) -> Result {
        // Pending queries refer to old versions, which exist until the next commit.
        self.send_pending()?;
        // Makes sure that the journal has no query without a reply after the commit.
        self.flush()?;
        let Some(running) = self.state.running(partition) else { return Ok(()) };
        let host = &self.links[partition].host;
        let (at_host, own) = match host.sequence() {
            Ok(at_host) => (at_host, self.state.partitions.get(partition).sequence),
            Err(error) => return Err(self.mark_if_lost(partition, error)),
        };
        if at_host == own {
            let committed = host.commit(own + 1, &running.versions());
            committed.map_err(|error| self.mark_if_lost(partition, error))?;
        } else if at_host != own + 1 {
            return Err(Error::RolledBack { host: at_host, gateway: own });
        }
        self.log_commit(partition)
    }

    pub(super) fn log_commit(&mut self, partition: usize) -> Result {
        self.links[partition].is_staged = false;
        let work = self.state.running(partition).map(|running| running.work);
        // Not flushed at once: after a reopening the host's sequence shows the commit.
        self.log_deferred(Record::Commit { partition: partition as u32 })?;
        match work {
            Some(Work::Round(_)) => self.counts.rounds += 1,
            Some(Work::Renewal) => self.counts.renewed += 1,
            Some(Work::Copy(_)) => self.counts.copied += 1,
            None => {}
        }
        Ok(())
    }

    /// Renews a node that was read as often as it has dummies. The host knows how often that was,
    /// so the moment reveals nothing.
    pub(super) fn renew(&mut self, node: Node) -> Result {
        let layer = self.state.params.geometry.layer_of(node);
        let partition = self.state.partition_of_node(node);
        // A session may end during the attempt.
        for _ in 0..SESSIONS_MAX {
            self.finish(partition, Wait::Long)?;
            if self.state.index.reads(node) < self.state.params.reads_max(layer) {
                return Ok(());
            }
            self.begin(Some(node))?;
            self.finish(partition, Wait::Long)?;
        }
        Err(Error::SessionLost)
    }
}

/// The record that gives up what is in progress in a partition.
pub(super) fn fail(partition: usize) -> Record {
    Record::Fail { partition: partition as u32 }
}
