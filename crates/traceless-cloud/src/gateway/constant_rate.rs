//! A constant rate: one query each period, independent of requests.
//!
//! A *tick* is a moment at which one query is sent, or a fixed number of queries together: for
//! blocks that callers wait for, and dummy queries. The use of a tick is decided and written to the
//! journal before the tick is due; the queries are sent when it is due. A round begins, goes to the
//! host and is committed after fixed numbers of ticks. So the host observes the same messages at
//! the same times for all requests.
//!
//! A tick for which gateway or host were too slow is late. No tick is left out. If a tick is late
//! by a period or more, all later ones shift by that delay.

use super::lost_block::BlockRead;
use super::queries::{Access, Preparation, TOGETHER_MAX};
use super::rounds::Wait;
use super::{Gateway, Journal};
use crate::error::{Error, Result};
use crate::host::QueryRequest;
use crate::params::Params;
use std::sync::Arc;
use traceless_core::clock::Timer;

/// Queries a second at most.
pub const QUERIES_PER_SECOND_MAX: u32 = 100_000;
const NS_PER_SECOND: u64 = 1_000_000_000;
/// If no request has used a tick by a period divided by this before it is due, it gets a dummy
/// query.
const DECISION_SHARE: u64 = 2;
/// Bytes of records that a used tick writes besides its block.
const RECORDS_LEN: usize = 128;

/// When the next tick is due.
pub struct ConstantRate {
    timer: Arc<dyn Timer>,
    period: u64,
    next: u64,
    /// How many queries a tick has.
    together: usize,
    /// The round in which the whole state was last saved.
    saved_in_round: u64,
}

/// A tick with queries that are written down and not sent yet.
pub(crate) struct TickUnderWay {
    /// What is to be sent when the tick is due.
    pub requests: Vec<QueryRequest>,
    /// Whether its queries are new ones.
    is_own: bool,
    /// How many of its queries are for blocks, and how many it has.
    used: usize,
    count: usize,
    /// Whether messages of a round follow its replies: then the gateway must not be let go in
    /// between, as what clients do with it would delay them.
    pub sends_round: bool,
    timer: Arc<dyn Timer>,
    due: u64,
    /// By how much it is late, in nanoseconds.
    late: u64,
}

impl TickUnderWay {
    /// Waits until the tick is due.
    pub fn wait(&mut self) {
        self.timer.wait_until(self.due);
        self.late = self.timer.now().saturating_sub(self.due);
    }
}

impl ConstantRate {
    pub(super) fn new(
        per_second: u32,
        together: usize,
        timer: Arc<dyn Timer>,
        rounds: u64,
    ) -> Self {
        let period = NS_PER_SECOND * together as u64 / u64::from(per_second);
        let next = timer.now() + period;
        Self { timer, period, next, together, saved_in_round: rounds }
    }

    /// Waits until the next tick is due. Returns by how much it is late, in nanoseconds.
    fn wait(&self) -> u64 {
        self.timer.wait_until(self.next);
        self.timer.now().saturating_sub(self.next)
    }

    /// Moves on to the next tick, after one that was late by `late` nanoseconds.
    fn pass(&mut self, late: u64) {
        self.next += self.period + if late < self.period { 0 } else { late };
    }
}

impl Gateway {
    /// Sends one query in each period from now on, at `per_second`, and nothing at any other time.
    /// The caller must fill the ticks that no request uses ([`Gateway::fill_tick`]). Written blocks
    /// become durable with the next tick ([`Gateway::deferred_ack`]).
    pub fn start_constant_rate(&mut self, per_second: u32, timer: Arc<dyn Timer>) -> Result {
        self.start_constant_rate_together(per_second, 1, timer)
    }

    /// The same with ticks that have `together` queries each, and are as much rarer. A host that is
    /// far away, which answers one tick at a time, can have as many queries a second.
    pub fn start_constant_rate_together(
        &mut self,
        per_second: u32,
        together: usize,
        timer: Arc<dyn Timer>,
    ) -> Result {
        if !(1..=QUERIES_PER_SECOND_MAX).contains(&per_second) {
            return Err(Error::Parameters("there are 1 to 100000 slots a second"));
        }
        // Then each round begins with a tick.
        let is_part = self.state.params.round_blocks.checked_rem(together) == Some(0);
        if together > TOGETHER_MAX || !is_part {
            return Err(Error::Parameters(
                "the slots of a tick are a divisor of a round's (20 times lambda), and at most 64",
            ));
        }
        self.send_pending()?;
        self.settle()?;
        let rounds = self.state.partitions.begun();
        self.constant_rate = Some(ConstantRate::new(per_second, together, timer, rounds));
        Ok(())
    }

    /// When the next tick is to be filled with a dummy query unless a request has used it, in the
    /// timer's nanoseconds; `None` without a constant rate.
    pub fn next_tick(&self) -> Option<u64> {
        self.constant_rate
            .as_ref()
            .map(|rate| rate.next.saturating_sub(rate.period / DECISION_SHARE))
    }

    /// Whether the next tick is due.
    pub fn is_tick_due(&self) -> bool {
        self.constant_rate.as_ref().is_some_and(|rate| rate.next <= rate.timer.now())
    }

    /// Uses the next tick for dummy queries. The tick is over even if they fail.
    pub fn fill_tick(&mut self) -> Result {
        let tick = self.next_tick();
        let filled = self.use_tick(Vec::new());
        if filled.is_err() && self.next_tick() == tick {
            self.end_failed_tick();
        }
        filled.map(drop)
    }

    /// The number of the last record that an answer depends on and that is not written yet: it is
    /// written with the next tick. `None` without a constant rate.
    pub fn deferred_ack(&self) -> Option<u64> {
        self.journal.as_ref().and_then(Journal::deferred_ack)
    }

    /// Whether the next tick is to write a change of a name of
    /// [`Namespace::Values`](super::Namespace::Values).
    pub(crate) fn is_unwritten(&self, name: &[u8]) -> bool {
        self.deferred_ack().is_some() && self.unwritten_values.contains(name)
    }

    /// How many records are written; `None` if no more can be.
    pub(crate) fn written_records(&self) -> Option<u64> {
        self.journal.as_ref().map_or(Some(u64::MAX), Journal::written)
    }

    /// Fails unless the record of a [`deferred_ack`](Self::deferred_ack) is written, or can be now.
    pub fn ensure_written(&mut self, record: u64) -> Result {
        let is_written = self.journal.as_ref().is_none_or(|journal| journal.is_written(record));
        if is_written { Ok(()) } else { self.flush() }
    }

    /// Serves all accesses and returns what was read, in order. An access takes one tick, unless
    /// its block is at the gateway, and all queries of the tick but one are dummies then. A dummy
    /// access takes none, as no caller can notice.
    pub(super) fn access_in_ticks(&mut self, accesses: &[Access]) -> Result<Vec<BlockRead>> {
        let mut read = Vec::new();
        for access in accesses.iter().filter(|access| access.id().is_some()) {
            loop {
                if self.serve_at_hand(access, &mut read)? {
                    break;
                }
                if self.use_tick(vec![access.clone()])? {
                    read.extend(self.take_tick_answers());
                    break;
                }
            }
        }
        Ok(read)
    }

    /// Makes an access without a query if its block is at the gateway. Returns whether it is.
    pub(crate) fn serve_at_hand(
        &mut self,
        access: &Access,
        read: &mut Vec<BlockRead>,
    ) -> Result<bool> {
        let is_served = self.serve_cached(access, read)?;
        self.counts.hits += u64::from(is_served);
        Ok(is_served)
    }

    /// Uses the next tick. Returns whether it served `accesses`: queries that have no reply yet are
    /// sent first, and after a reply that reports damage queries are sent again with the next tick.
    fn use_tick(&mut self, accesses: Vec<Access>) -> Result<bool> {
        let mut tick = self.begin_tick(|_, _| accesses)?;
        tick.wait();
        let replies = self.hosts.clone().query_many(&tick.requests);
        self.end_tick(&tick, replies)
    }

    /// Writes the queries of the next tick down: for the accesses to different blocks that `choose`
    /// returns, up to the number that it is called with, and dummy queries for the rest. It is not
    /// called if a query has no reply yet, as it is sent again. When the tick is due,
    /// its requests are to be sent, and [`Self::end_tick`] is to be called with the replies. In
    /// between only accesses to blocks at the gateway can be made, and names changed.
    pub(crate) fn begin_tick(
        &mut self,
        choose: impl FnOnce(&mut Self, usize) -> Vec<Access>,
    ) -> Result<TickUnderWay> {
        if !self.hosts.check_quietly()? {
            self.wait_for_tick();
            self.hosts.check()?;
        }
        if self.is_any_lost() {
            self.wait_for_tick();
            self.begin_next_session()?;
        }
        self.check_stash()?;
        self.answers.clear();
        let together = self.constant_rate.as_ref().map_or(1, |rate| rate.together);
        let mut used = 0;
        let is_own = self.state.pending.is_empty();
        if is_own {
            if self.state.queries >= self.state.params.round_blocks {
                if self.state.is_any_running() {
                    self.wait_for_tick();
                    self.finish_all(Wait::Long)?;
                }
                self.begin(None)?;
            }
            let mut accesses = choose(self, together);
            used = accesses.len();
            accesses.resize(together, Access::Dummy);
            for access in &accesses {
                let prepared = self.prepare_query(access)?;
                assert!(prepared == Preparation::Done, "no batch is under way at a constant rate");
            }
        }
        let requests = self.requests_to_send(|_| true)?;
        let rate = self.constant_rate.as_ref().expect("there is a constant rate");
        let (timer, due) = (rate.timer.clone(), rate.next);
        let count = if is_own { together } else { requests.len() };
        let sends_round = self.sends_round();
        Ok(TickUnderWay { requests, is_own, used, count, sends_round, timer, due, late: 0 })
    }

    /// Takes the replies to the requests of a tick, after it has waited. Returns whether its own
    /// queries were answered.
    pub(crate) fn end_tick(
        &mut self,
        tick: &TickUnderWay,
        replies: Vec<Result<Vec<u8>>>,
    ) -> Result<bool> {
        self.count_tick(tick.late);
        self.counts.ticks_used += tick.used as u64;
        self.counts.ticks_unused += (tick.count - tick.used) as u64;
        match self.answer_each(replies) {
            Err(Error::SessionLost) => {
                self.begin_next_session()?;
                self.send_pending()?;
            }
            answered => answered?,
        }
        // A commit would send what waits for the next tick.
        if self.state.pending.is_empty() {
            self.advance_round()?;
        }
        Ok(tick.is_own && self.state.pending.is_empty())
    }

    /// Ends a tick that failed before its queries could be sent.
    pub(crate) fn end_failed_tick(&mut self) {
        let late = self.constant_rate.as_ref().map_or(0, ConstantRate::wait);
        self.count_tick(late);
    }

    /// What the queries of the last tick have read, in their order.
    pub(crate) fn take_tick_answers(&mut self) -> impl Iterator<Item = BlockRead> + use<> {
        core::mem::take(&mut self.answers).into_iter().map(|answer| answer.read)
    }

    /// Waits until the next tick is due. Messages other than queries wait for it, too.
    pub(super) fn wait_for_tick(&self) {
        if let Some(rate) = &self.constant_rate {
            rate.wait();
        }
    }

    /// Moves on to the next tick, after one that was late by `late` nanoseconds.
    fn count_tick(&mut self, late: u64) {
        let Some(rate) = &mut self.constant_rate else { return };
        rate.pass(late);
        self.counts.ticks_late += u64::from(late >= rate.period);
        self.counts.tick_delay_max_ns = self.counts.tick_delay_max_ns.max(late);
    }

    /// Whether the next call of [`Self::advance_round`] sends something.
    fn sends_round(&self) -> bool {
        let (queries, params) = (self.state.queries, self.state.params);
        let is_prepared = || self.links.iter().any(|link| link.worker.is_prepared());
        self.state.is_any_running()
            && (queries >= params.commit_after()
                || (queries >= params.stage_after() && is_prepared()))
    }

    /// Called after a tick: sends the running round to the host or commits it, if this tick is set
    /// for that.
    fn advance_round(&mut self) -> Result {
        let (queries, params) = (self.state.queries, self.state.params);
        if !self.state.is_any_running() {
            return Ok(());
        }
        if queries >= params.commit_after() {
            self.finish_all(Wait::Long)?;
            self.save_if_due()?;
        } else if queries >= params.stage_after() {
            self.links.iter_mut().for_each(|link| link.worker.send());
        }
        Ok(())
    }

    /// Saves the whole state after a number of rounds that follows from the tree's shape. It is
    /// saved earlier only if the log grew far longer than ticks alone make it.
    fn save_if_due(&mut self) -> Result {
        let (Some(journal), Some(rate)) = (&mut self.journal, &mut self.constant_rate) else {
            return Ok(());
        };
        let rounds = rounds_per_save(&self.state.params, self.state.index.bytes());
        let begun = self.state.partitions.begun();
        let is_time = begun - rate.saved_in_round >= rounds;
        if !self.state.is_any_running() && (is_time || journal.is_overlong()) {
            journal.renew(&self.state, &mut *self.rng)?;
            rate.saved_in_round = begun;
        }
        Ok(())
    }
}

/// Rounds after which the whole state is saved: their records then reach the maximum length that is
/// allowed beside a map of this size.
pub(super) fn rounds_per_save(params: &Params, index_bytes: usize) -> u64 {
    let round = params.round_blocks * (params.geometry.block_len + RECORDS_LEN);
    (Journal::records_len_max(index_bytes as u64) / round as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit is 64 MiB plus four times the map; each block has 128 bytes of records.
    #[test]
    fn the_state_is_saved_when_records_reach_their_length_limit() {
        let rounds = |round_blocks, index_bytes| {
            let params = Params { round_blocks, ..Params::new(300, 1024, 2).unwrap() };
            rounds_per_save(&params, index_bytes)
        };
        assert_eq!(rounds(100, 0), (64 << 20) / (100 * 1152));
        assert_eq!(rounds(100, 1_000_000), ((64 << 20) + 4_000_000) / (100 * 1152));
        assert_eq!(rounds(100_000, 0), 1, "never before a round is over");
    }
}
