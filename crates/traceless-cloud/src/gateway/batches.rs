//! Batches of accesses, several of which may be under way.
//!
//! The queries of a batch are prepared, sent, and answered together. Batches end in the order of
//! their preparation, as answers change the state in the order of the queries. While a batch is
//! under way nothing but queries is sent: what needs more waits in [`Prepared::rest`] until all
//! older batches have ended. An access to a block with a query under way has none of its own.

use super::lost_block::BlockRead;
use super::queries::{Access, Answer, Preparation};
use super::record::Record;
use super::state::Pending;
use super::{Gateway, Journal};
use crate::error::{Error, Result};
use crate::geometry::Node;

/// A batch of accesses with prepared queries.
#[derive(Default)]
pub struct Prepared {
    /// The number of the batch.
    pub batch: u64,
    /// The session in which its queries are sent.
    session: u64,
    /// What was read, with room for answers.
    read: Vec<BlockRead>,
    /// How many accesses have a query, or wait for the reply to one.
    unfinished: usize,
    /// How many answers arrive later.
    missing: usize,
    /// Accesses that wait until no other batch is under way.
    pub rest: Vec<Access>,
    /// Whether the accesses were made already.
    pub is_made: bool,
}

impl Prepared {
    /// Accesses that were made already.
    pub fn made(read: Vec<BlockRead>) -> Self {
        Self { read, is_made: true, ..Self::default() }
    }

    /// Whether nothing has to arrive.
    pub fn is_complete(&self) -> bool {
        self.is_made || (self.unfinished == 0 && self.rest.is_empty())
    }

    /// Makes room for an answer, and returns its place.
    fn expect(&mut self) -> usize {
        self.missing += 1;
        self.read.push(Ok(Vec::new()));
        self.read.len() - 1
    }
}

/// An access to a block with a query that has no reply yet. It is made once the reply is there,
/// without a query of its own.
pub struct WaitingAccess {
    /// The block.
    pub id: u32,
    /// The batch that it belongs to.
    pub batch: u64,
    /// For a read: its place among the reads of the batch.
    place: usize,
    write: Option<Vec<u8>>,
}

impl Gateway {
    /// Prepares the queries of accesses, which are then sent together. No batch is under way.
    pub(super) fn prepare_together(&mut self, accesses: &[Access]) -> Result<Prepared> {
        self.finish_pending()?;
        self.prepare_batch(accesses)
    }

    /// The same while batches may be under way. What would have to send something waits in
    /// [`Prepared::rest`].
    pub(super) fn prepare_beside(&mut self, accesses: &[Access]) -> Result<Prepared> {
        self.hosts.check()?;
        self.note_commits()?;
        self.prepare_batch(accesses)
    }

    fn prepare_batch(&mut self, accesses: &[Access]) -> Result<Prepared> {
        self.batch += 1;
        let batch = self.batch;
        let prepared = self.prepare_each(batch, accesses);
        if prepared.is_err() {
            self.end_batch(batch);
        }
        // A session may have begun meanwhile. The queries are sealed in the current one.
        prepared.map(|prepared| Prepared { session: self.counts.sessions, ..prepared })
    }

    fn prepare_each(&mut self, batch: u64, accesses: &[Access]) -> Result<Prepared> {
        let mut prepared = Prepared { batch, ..Prepared::default() };
        for (nth, access) in accesses.iter().enumerate() {
            if let Some(id) = access.id().filter(|id| self.state.is_pending(*id)) {
                self.counts.hits += 1;
                self.wait_for_reply(id, access, &mut prepared);
            } else if self.serve_cached(access, &mut prepared.read)? {
                self.counts.hits += 1;
            } else if self.pace_query()? == Preparation::MustWait
                || self.prepare_query(access)? == Preparation::MustWait
            {
                prepared.rest = accesses[nth..].to_vec();
                break;
            } else {
                let place = match access {
                    Access::Read(_) => prepared.expect(),
                    Access::Write(..) | Access::Dummy => 0,
                };
                let pending = self.state.pending.back_mut().expect("its query");
                (pending.batch, pending.read) = (batch, place);
                prepared.unfinished += 1;
            }
        }
        Ok(prepared)
    }

    /// Lets an access wait for the reply to a query for its block.
    fn wait_for_reply(&mut self, id: u32, access: &Access, prepared: &mut Prepared) {
        let (place, write) = match access {
            Access::Write(_, bytes) => (0, Some(bytes.clone())),
            Access::Read(_) | Access::Dummy => (prepared.expect(), None),
        };
        prepared.unfinished += 1;
        self.waiting.push(WaitingAccess { id, batch: prepared.batch, place, write });
    }

    /// Takes the replies to the queries of a batch, and sends again what must be. All older batches
    /// have ended.
    pub(super) fn take_replies(
        &mut self,
        mut prepared: Prepared,
        replies: Vec<Result<Vec<u8>>>,
    ) -> Result<Vec<BlockRead>> {
        if prepared.is_complete() {
            return Ok(prepared.read);
        }
        let (batch, rest) = (prepared.batch, core::mem::take(&mut prepared.rest));
        self.take_each(&prepared, replies)?;
        self.send_up_to(batch)?;
        let mut read = self.take_answers(prepared);
        if !rest.is_empty() {
            self.end_batch(batch);
            read.extend(self.access_now(&rest)?);
        }
        Ok(read)
    }

    fn take_each(&mut self, prepared: &Prepared, replies: Vec<Result<Vec<u8>>>) -> Result {
        if self.is_any_lost() {
            return self.begin_next_session();
        }
        if prepared.session != self.counts.sessions {
            // The queries are sent again in the new session. What they have found lost was that of
            // the old one.
            for partition in 0..self.links.len() {
                self.hosts.take_lost_session(partition);
            }
            return Ok(());
        }
        // Queries of older batches have no reply if these batches have failed. They are answered
        // first, as answers change the state in the order of the queries.
        let is_older = |pending: &&Pending| pending.batch < prepared.batch;
        let older = self.state.pending.iter().take_while(is_older).count();
        let taken = if older == 0 {
            self.answer_each(replies)
        } else {
            self.open_each(older, replies.into_iter())
        };
        match taken {
            Err(Error::SessionLost) => self.begin_next_session(),
            other => other,
        }
    }

    /// What prepared accesses have read, once all their queries are answered.
    pub(super) fn take_answers(&mut self, mut prepared: Prepared) -> Vec<BlockRead> {
        let (own, others) = core::mem::take(&mut self.answers)
            .into_iter()
            .partition::<Vec<Answer>, _>(|answer| answer.batch == prepared.batch);
        assert!(own.len() == prepared.missing, "every query was answered");
        for Answer { place, read, .. } in own {
            prepared.read[place] = read;
        }
        // A batch that has failed takes no answers.
        let is_awaited = |answer: &Answer| self.under_way.contains(&answer.batch);
        self.answers = others.into_iter().filter(is_awaited).collect();
        prepared.read
    }

    /// Whether a batch was prepared before, and has not ended.
    pub(super) fn is_beside(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Whether steps may be planned while a batch is under way: nothing has to be sent first.
    pub(crate) fn may_plan_beside(&self) -> bool {
        !(self.constant_rate.is_some()
            || self
                .links
                .iter()
                .any(|link| link.is_lost || link.is_staged || link.outcome.is_some())
            || self.journal.as_ref().is_some_and(Journal::is_long)
            || self.check_stash().is_err())
    }

    /// Whether no batch of steps is under way.
    pub(crate) fn has_none_under_way(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether a round is in progress in a node's partition beside batches of steps.
    pub(crate) fn is_busy(&self, node: Node) -> bool {
        let partition = self.state.partition_of_node(node);
        !self.under_way.is_empty() && self.state.running(partition).is_some()
    }

    /// Whether all batches before this one have ended, so that it can end.
    pub(crate) fn may_end(&self, batch: u64) -> bool {
        self.under_way.front() == Some(&batch)
    }

    /// Removes a batch that has ended, or never will. Queries of it that have no reply are sent
    /// with the next request.
    pub(crate) fn end_batch(&mut self, batch: u64) {
        self.under_way.retain(|other| *other != batch);
        self.waiting.retain(|waiting| waiting.batch != batch);
    }

    /// Makes the accesses to a block that have waited for the reply to a query for it, in order.
    pub(super) fn make_waiting(&mut self, id: u32, mut read: BlockRead) -> Result {
        let (own, others) = core::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<WaitingAccess>, _>(|waiting| waiting.id == id);
        self.waiting = others;
        for WaitingAccess { batch, place, write, .. } in own {
            let Some(bytes) = write else {
                self.answers.push(Answer { batch, place, read: read.clone() });
                continue;
            };
            let leaf = self.draw_leaf();
            self.log_deferred(Record::Stash { id, leaf, bytes: bytes.clone() })?;
            // An answer may depend on it.
            self.is_answer_due = true;
            read = Ok(bytes);
        }
        Ok(())
    }
}
