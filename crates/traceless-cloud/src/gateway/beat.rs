//! A constant beat: one query each period, whatever anybody asks for.
//!
//! A *slot* is a moment at which one query is sent: one for a block that somebody waits for, else
//! one for nothing. What a slot is used for is decided and written down before it is due, and sent
//! when it is. A round is begun, sent to the host and committed after slots that follow from their
//! number. So the host sees the same messages at the same times, whoever asks for what.
//!
//! A slot for which gateway or host were too slow is late. None is left out, and those that follow
//! one that was late by a period or more are as late as it was.

use super::queries::Want;
use super::rounds::Wait;
use super::{Gateway, Journal};
use crate::error::{Error, Result};
use crate::params::Params;
use std::sync::Arc;
use traceless::clock::Timer;

/// Slots a second at most.
pub const SLOTS_PER_SECOND_MAX: u32 = 100_000;
const NS_PER_SECOND: u64 = 1_000_000_000;
/// The part of a period before a slot is due at which it is decided that nobody uses it.
const LEAD: u64 = 2;
/// Records of a slot that was used, beside its block.
const RECORDS_LEN: usize = 128;

/// When slots are due, and what became of those that were.
pub struct Beat {
    timer: Arc<dyn Timer>,
    period: u64,
    next: u64,
    /// Rounds committed when the whole state was kept last.
    kept: u64,
}

impl Beat {
    pub(super) fn new(per_second: u32, timer: Arc<dyn Timer>, rounds: u64) -> Self {
        let period = NS_PER_SECOND / u64::from(per_second);
        let next = timer.now() + period;
        Self { timer, period, next, kept: rounds }
    }

    /// Waits until the next slot is due. Returns by how much it is late, in nanoseconds.
    fn wait(&self) -> u64 {
        self.timer.wait_until(self.next);
        self.timer.now().saturating_sub(self.next)
    }

    /// The slot is being sent, late by so much.
    fn pass(&mut self, late: u64) {
        self.next += self.period + if late < self.period { 0 } else { late };
    }
}

impl Gateway {
    /// Sends one query in each period from now on, as often as this a second, and nothing at any
    /// other time. Somebody has to fill the slots that nobody uses ([`Gateway::fill_slot`]). What
    /// is written is kept with the next slot ([`Gateway::promised`]).
    pub fn keep_beat(&mut self, per_second: u32, timer: Arc<dyn Timer>) -> Result {
        if !(1..=SLOTS_PER_SECOND_MAX).contains(&per_second) {
            return Err(Error::Parameters("there are 1 to 100000 slots a second"));
        }
        self.send_pending()?;
        self.finish(Wait::Long)?;
        self.beat = Some(Beat::new(per_second, timer, self.state.round));
        Ok(())
    }

    /// When the next slot is to be filled with a query for nothing if nobody has used it, in the
    /// timer's nanoseconds; nothing without a beat.
    pub fn next_slot(&self) -> Option<u64> {
        self.beat.as_ref().map(|beat| beat.next.saturating_sub(beat.period / LEAD))
    }

    /// Whether the next slot is due.
    pub fn is_slot_due(&self) -> bool {
        self.beat.as_ref().is_some_and(|beat| beat.next <= beat.timer.now())
    }

    /// Uses the next slot for nothing. If it fails, the slot is over all the same.
    pub fn fill_slot(&mut self) -> Result {
        let slot = self.next_slot();
        let filled = self.use_slot(&Want::Nothing);
        if filled.is_err() && self.next_slot() == slot {
            self.pass_slot();
        }
        filled.map(drop)
    }

    /// The number of the last record that an answer rests on and that is not written down yet: it
    /// is with the next slot. Without a beat there is none.
    pub fn promised(&self) -> Option<u64> {
        self.journal.as_ref().and_then(Journal::promised)
    }

    /// Whether it is known what became of a record that was [`promised`](Self::promised).
    pub fn is_settled(&self, record: u64) -> bool {
        self.journal.as_ref().is_none_or(|journal| journal.is_settled(record))
    }

    /// Fails unless a record that was [`promised`](Self::promised) is written down, or can be now.
    pub fn settle_promise(&mut self, record: u64) -> Result {
        let is_written = self.journal.as_ref().is_none_or(|journal| journal.is_written(record));
        if is_written { Ok(()) } else { self.flush() }
    }

    /// Does all that is wanted, each in a slot of its own but for what is at hand, and returns
    /// what was read, in order. What is wanted of no block takes no slot, as nobody could tell.
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

    /// Uses the next slot, and says whether it was for what is wanted: a query that has no reply
    /// yet comes before.
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

    /// Waits until the next slot is due. Whatever is sent besides queries waits for it, too.
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

    /// After a slot: sends the round that is on its way, or commits it, if its time has come.
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

    /// Keeps the whole state, after a number of rounds that follows from the tree's shape. Only a
    /// log that grew far longer than slots make it is ended before.
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

/// Rounds after which the state is kept as a whole: when their records are as long as they may
/// get beside such a map.
pub(super) fn state_rounds(params: &Params, index_bytes: usize) -> u64 {
    let round = params.round_blocks * (params.geometry.block_len + RECORDS_LEN);
    (Journal::records_len_max(index_bytes as u64) / round as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 MiB and four times the map, in rounds of so many blocks with 128 bytes of records each.
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
