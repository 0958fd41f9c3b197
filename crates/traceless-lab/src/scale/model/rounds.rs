//! Rounds in each partition, and the pace that queries keep with them.

use super::state::{GatewayModel, Pace, Partition, Round, Work};

/// The margin of a round's expected time is a `SPARE`th of it.
const SPARE: f64 = 16.0;

impl GatewayModel<'_> {
    /// When the next query may be sent. Begins a round if one is due.
    pub fn pace(&mut self, is_beside: bool) -> Pace {
        let (due, partition) = (self.scenario.shape.round_blocks, self.next_partition());
        if self.queries >= due {
            let is_running = self.partitions[partition].running.is_some();
            if is_beside && (is_running || self.has_old_queries(partition)) {
                return Pace::Alone;
            }
            self.note_commit(partition);
            if self.partitions[partition].running.is_some() {
                return Pace::AfterRound(partition);
            }
            self.begin_round(partition);
            return Pace::Now;
        }
        self.note_commit(partition);
        let Partition { running: Some(round), times, .. } = &self.partitions[partition] else {
            return Pace::Now;
        };
        let since = (self.begun - round.begun) as usize;
        let share = (self.queries + since * due) as f64 / ((since + 1) * due) as f64;
        let at = round.began + times[0].max(times[1]) * (1.0 + 1.0 / SPARE) * share;
        if at <= self.now() { Pace::Now } else { Pace::At(at) }
    }

    pub fn has_old_queries(&self, partition: usize) -> bool {
        let commits = self.partitions[partition].commits;
        let is_old = |&(queries, before): &(usize, u64)| queries > 0 && before < commits;
        self.under_way.iter().any(|batch| is_old(&batch.queries[partition]))
    }

    pub fn next_partition(&self) -> usize {
        (self.begun % self.scenario.shape.roots as u64) as usize % self.partitions.len()
    }

    pub fn begin_round(&mut self, partition: usize) {
        self.begun += 1;
        self.queries = 0;
        let round = Round { began: self.now(), begun: self.begun, halves_missing: 2, took: None };
        self.partitions[partition].running = Some(round);
        let half = self.scenario.shape.round_slots as f64 * self.costs.make_slot / 2.0;
        for _ in 0..2 {
            self.work_at_gateway(half, Work::Make { partition });
        }
    }

    pub fn is_last_half(&mut self, partition: usize) -> bool {
        let round = self.round(partition);
        round.halves_missing -= 1;
        round.halves_missing == 0
    }

    pub fn take_outcome(&mut self, partition: usize) {
        let now = self.now();
        let round = self.round(partition);
        round.took = Some(now - round.began);
        if self.plan.as_ref().is_some_and(|plan| plan.waits_for == Some(partition)) {
            self.plan_on();
        }
    }

    /// Ends a partition's round if its commit has happened.
    pub fn note_commit(&mut self, partition: usize) {
        let partition = &mut self.partitions[partition];
        if let Some(took) = partition.running.as_ref().and_then(|round| round.took) {
            partition.running = None;
            partition.commits += 1;
            partition.times = [partition.times[1], took];
        }
    }
}
