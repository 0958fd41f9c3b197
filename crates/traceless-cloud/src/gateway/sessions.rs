//! The loss of a session, with its enclave or its host, and the start of the next.

use super::Gateway;
use super::record::Record;
use super::rounds::Wait;
use crate::channel::{Receiver, Sender};
use crate::error::{Error, Result};

/// How many sessions in a row one request may lose.
pub const SESSIONS_MAX: usize = 8;

impl Gateway {
    /// The result of the running round, once the worker has stopped; `None` if there is no round.
    /// The host reports its sequence, and the versions that it then has prove the answer.
    pub(super) fn outcome(&self) -> Result<Option<Record>> {
        let (host, gateway) = (self.host.sequence()?, self.state.sequence);
        match &self.state.running {
            Some(_) if host == gateway => Ok(Some(Record::Fail)),
            Some(_) if host == gateway + 1 => Ok(Some(Record::Commit)),
            None if host == gateway => Ok(None),
            _ => Err(Error::RolledBack { host, gateway }),
        }
    }

    /// Continues in a new session, after the last one was lost.
    pub(super) fn begin_next_session(&mut self) -> Result {
        if !self.lost && self.state.running.is_some() && !self.staged {
            // The job's orders are invalid in the next session, so its result does not matter.
            self.worker.send();
            if self.outcome.take().is_none() {
                let _ = self.worker.result(Wait::Long);
            }
        }
        (self.lost, self.staged) = (true, false);
        for _ in 0..SESSIONS_MAX {
            match self.begin_session() {
                Err(Error::SessionLost) => {}
                other => return other,
            }
        }
        Err(Error::SessionLost)
    }

    fn begin_session(&mut self) -> Result {
        let (gateway, enclave) = self.host.renew()?;
        let session = self.shared.session(&gateway, &enclave);
        self.sender = Sender::new(&session.query, self.rng.fork());
        self.receiver = Receiver::new(&session.reply);
        self.worker.renew(Sender::new(&session.evict, self.rng.fork()));
        if let Some(record) = self.outcome()? {
            self.log_and_apply(record)?;
        }
        self.lost = false;
        self.counts.sessions += 1;
        Ok(())
    }
}
