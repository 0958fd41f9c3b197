//! The loss of a session, with its enclave or its host, and the start of the next.

use super::Gateway;
use super::partitions::Partition;
use super::record::Record;
use super::rounds::Wait;
use crate::error::{Error, Result};

/// How many sessions in a row one request may lose.
pub const SESSIONS_MAX: usize = 8;

impl Gateway {
    /// Whether the session with a host is lost, and the next one has not begun.
    pub(super) fn is_any_lost(&self) -> bool {
        self.links.iter().any(|link| link.is_lost)
    }

    /// The result of what is in progress in a partition, once its worker has stopped; `None` if
    /// nothing is. The host reports its sequence, and the versions that it then has prove the
    /// answer.
    pub(super) fn outcome(&self, partition: usize) -> Result<Option<Record>> {
        let Partition { sequence: gateway, running } = self.state.partitions.get(partition);
        let (host, gateway) = (self.links[partition].host.sequence()?, *gateway);
        let partition = partition as u32;
        match running {
            Some(_) if host == gateway => Ok(Some(Record::Fail { partition })),
            Some(_) if host == gateway + 1 => Ok(Some(Record::Commit { partition })),
            None if host == gateway => Ok(None),
            _ => Err(Error::RolledBack { host, gateway }),
        }
    }

    /// Takes note of the session that a call of a host has lost, if that is its error.
    pub(super) fn mark_if_lost(&mut self, partition: usize, error: Error) -> Error {
        if matches!(error, Error::SessionLost) {
            self.end_session(partition);
        }
        error
    }

    /// Begins a new session in the place of each lost one.
    pub(super) fn begin_next_session(&mut self) -> Result {
        for partition in 0..self.links.len() {
            if self.hosts.take_lost_session(partition) {
                self.end_session(partition);
            }
        }
        // If none is known to be lost, a host has left out replies.
        let are_all = !self.is_any_lost();
        for partition in 0..self.links.len() {
            if are_all || self.links[partition].is_lost {
                self.renew_session(partition)?;
            }
        }
        Ok(())
    }

    /// Takes note of a lost session. What is in progress there has no result.
    pub(super) fn end_session(&mut self, partition: usize) {
        let is_running = self.state.running(partition).is_some();
        let link = &mut self.links[partition];
        if !link.is_lost && is_running && !link.is_staged {
            // The job's orders are invalid in the next session, so its result does not matter.
            link.worker.send();
            if link.outcome.take().is_none() {
                let _ = link.worker.result(Wait::Long);
            }
        }
        (link.is_lost, link.is_staged) = (true, false);
    }

    /// Continues in a new session with a host, after the last one was lost.
    pub(super) fn renew_session(&mut self, partition: usize) -> Result {
        self.end_session(partition);
        for _ in 0..SESSIONS_MAX {
            match self.begin_session(partition) {
                Err(Error::SessionLost) => {}
                other => return other,
            }
        }
        Err(Error::SessionLost)
    }

    fn begin_session(&mut self, partition: usize) -> Result {
        let link = &mut self.links[partition];
        let (gateway, enclave) = link.host.renew()?;
        link.begin_session(&self.shared, (&gateway, &enclave), &mut *self.rng);
        if let Some(record) = self.outcome(partition)? {
            self.log_and_apply(record)?;
        }
        self.links[partition].is_lost = false;
        self.counts.sessions += 1;
        Ok(())
    }
}
