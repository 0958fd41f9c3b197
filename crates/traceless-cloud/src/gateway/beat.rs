//! A constant rate: one query each period, independent of requests.
//!
//! A *tick* (`slot` in names of this module) is a moment at which one query is sent: for a block
//! that a caller waits for, else a dummy query. The use of a tick is decided and written to the
//! journal before the tick is due; the query is sent when it is due. A round begins, goes to the
//! host and is committed after fixed numbers of ticks. So the host observes the same messages at
//! the same times for all requests.
//!
//! A tick for which gateway or host were too slow is late. No tick is left out. If a tick is late
//! by a period or more, all later ones shift by that delay.

use super::queries::Want;
use super::rounds::Wait;
use super::{Gateway, Journal};
use crate::error::{Error, Result};
use crate::params::Params;
use std::sync::Arc;
use traceless_core::clock::Timer;

/// Ticks a second at most.
pub const SLOTS_PER_SECOND_MAX: u32 = 100_000;
const NS_PER_SECOND: u64 = 1_000_000_000;
/// A tick's use is decided at most one `LEAD`th of a period before it is due.
const LEAD: u64 = 2;
/// Bytes of records that a used tick writes besides its block.
const RECORDS_LEN: usize = 128;

/// When the next tick is due.
pub struct Beat {
    timer: Arc<dyn Timer>,
    period: u64,
    next: u64,
    /// The round in which the whole state was last saved.
    kept: u64,
}

impl Beat {
    pub(super) fn new(per_second: u32, timer: Arc<dyn Timer>, rounds: u64) -> Self {
        let period = NS_PER_SECOND / u64::from(per_second);
        let next = timer.now() + period;
        Self { timer, period, next, kept: rounds }
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
    /// The caller must fill the ticks that no request uses ([`Gateway::fill_slot`]). Written blocks
    /// become durable with the next tick ([`Gateway::promised`]).
    pub fn keep_beat(&mut self, per_second: u32, timer: Arc<dyn Timer>) -> Result {
        if !(1..=SLOTS_PER_SECOND_MAX).contains(&per_second) {
            return Err(Error::Parameters("there are 1 to 100000 slots a second"));
        }
        self.send_pending()?;
        self.finish(Wait::Long)?;
        self.beat = Some(Beat::new(per_second, timer, self.state.round));
        Ok(())
    }

    /// When the next tick is to be filled with a dummy query unless a request has used it, in the
    /// timer's nanoseconds; `None` without a constant rate.
    pub fn next_slot(&self) -> Option<u64> {
        self.beat.as_ref().map(|beat| beat.next.saturating_sub(beat.period / LEAD))
    }

    /// Whether the next tick is due.
    pub fn is_slot_due(&self) -> bool {
        self.beat.as_ref().is_some_and(|beat| beat.next <= beat.timer.now())
    }

    /// Uses the next tick for a dummy query. The tick is over even if the query fails.
    pub fn fill_slot(&mut self) -> Result {
        let slot = self.next_slot();
        let filled = self.use_slot(&Want::Nothing);
        if filled.is_err() && self.next_slot() == slot {
            self.pass_slot();
        }
        filled.map(drop)
    }

    /// The number of the last record that an answer depends on and that is not written yet: it is
    /// written with the next tick. `None` without a constant rate.
    pub fn promised(&self) -> Option<u64> {
        self.journal.as_ref().and_then(Journal::promised)
    }

    /// Whether a record that was [`promised`](Self::promised) is written, or failed to be.
    pub fn is_settled(&self, record: u64) -> bool {
        self.journal.as_ref().is_none_or(|journal| journal.is_settled(record))
    }

    /// Fails unless a record that was [`promised`](Self::promised) is written, or can be now.
    pub fn settle_promise(&mut self, record: u64) -> Result {
        let is_written = self.journal.as_ref().is_none_or(|journal| journal.is_written(record));
        if is_written { Ok(()) } else { self.flush() }
    }

    /// Serves all wants and returns what was read, in order. A want takes one tick, unless its
    /// block is at the gateway. A want without a block takes none, as no caller can notice.
    pub(super) fn access_in_slots(&mut self, wants: &[Want]) -> Result<Vec<Vec<u8>>> {
        let mut read = Vec::new();
        for want in wants.iter().filter(|want| want.id().is_some()) {
            loop {
                if self.serve_at_hand(want, &mut read)? {
                    self.counts.hits += 1;
                    break;
                }
                self.answers.clear();
                if self.use_slot(want)? {
                    read.append(&mut self.answers);
                    break;
                }
            }
        }
        Ok(read)
    }

    /// Uses the next tick. Returns whether it served `want`: a query that has no reply yet is sent
    /// first.
    fn use_slot(&mut self, want: &Want) -> Result<bool> {
        self.host.check()?;
        if self.lost {
            self.wait_for_slot();
            self.begin_again()?;
        }
        self.check_waiting()?;
        let is_own = self.state.pending.is_empty();
        if is_own {
            if self.state.queries >= self.state.params.round_blocks {
                if self.state.running.is_some() {
                    self.wait_for_slot();
                    self.finish(Wait::Long)?;
                }
                self.begin(None)?;
            }
            self.ask(want)?;
        }
        self.flush()?;
        self.pass_slot();
        let is_used = is_own && want.id().is_some();
        self.counts.slots_used += u64::from(is_used);
        self.counts.slots_unused += u64::from(!is_used);
        self.send_pending()?;
        self.go_on_with_round()?;
        Ok(is_own)
    }

    /// Waits until the next tick is due. Messages other than queries wait for it, too.
    pub(super) fn wait_for_slot(&self) {
        if let Some(beat) = &self.beat {
            beat.wait();
        }
    }

    fn pass_slot(&mut self) {
        let Some(beat) = &mut self.beat else { return };
        let late = beat.wait();
        beat.pass(late);
        self.counts.slots_late += u64::from(late >= beat.period);
        self.counts.slot_delay_max_ns = self.counts.slot_delay_max_ns.max(late);
    }

    /// Called after a tick: sends the running round to the host or commits it, if this tick is set
    /// for that.
    fn go_on_with_round(&mut self) -> Result {
        let (queries, params) = (self.state.queries, self.state.params);
        if self.state.running.is_none() {
            return Ok(());
        }
        if queries >= params.commit_after() {
            self.finish(Wait::Long)?;
            self.keep_state()?;
        } else if queries >= params.stage_after() {
            self.worker.send();
        }
        Ok(())
    }

    /// Saves the whole state after a number of rounds that follows from the tree's shape. It is
    /// saved earlier only if the log grew far longer than ticks alone make it.
    fn keep_state(&mut self) -> Result {
        let (Some(journal), Some(beat)) = (&mut self.journal, &mut self.beat) else {
            return Ok(());
        };
        let rounds = state_rounds(&self.state.params, self.state.index.bytes());
        let is_time = self.state.round - beat.kept >= rounds;
        if self.state.running.is_none() && (is_time || journal.is_overlong()) {
            journal.renew(&self.state, &mut *self.rng)?;
            beat.kept = self.state.round;
        }
        Ok(())
    }
}

/// Rounds after which the whole state is saved: their records then reach the maximum length that is
/// allowed beside a map of this size.
pub(super) fn state_rounds(params: &Params, index_bytes: usize) -> u64 {
    let round = params.round_blocks * (params.geometry.block_len + RECORDS_LEN);
    (Journal::records_len_max(index_bytes as u64) / round as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit is 64 MiB plus four times the map; each block has 128 bytes of records.
    #[test]
    fn the_state_is_kept_when_records_may_be_as_long_as_beside_its_map() {
        let rounds = |round_blocks, index_bytes| {
            let params = Params { round_blocks, ..Params::new(300, 1024, 2).unwrap() };
            state_rounds(&params, index_bytes)
        };
        assert_eq!(rounds(100, 0), (64 << 20) / (100 * 1152));
        assert_eq!(rounds(100, 1_000_000), ((64 << 20) + 4_000_000) / (100 * 1152));
        assert_eq!(rounds(100_000, 0), 1, "never before a round is over");
    }
}
