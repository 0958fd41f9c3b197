//! What happens at each event, and at the end of each job.

use super::state::{Event, GatewayModel, Work};
use super::{Machines, Prediction};
use crate::scale::processors::SharedProcessors;

impl GatewayModel<'_> {
    pub fn step(&mut self) {
        match self.events.next().expect("some client waits") {
            Event::JobEnd { machine, changes } => {
                if self.machines[machine].changes() == changes {
                    let now = self.now();
                    if let Some(work) = self.machines[machine].take_first(now) {
                        self.end_job(work);
                    }
                    self.watch(machine);
                }
            }
            Event::Query { batch, host, queries } => {
                let slots = (queries * self.scenario.shape.layers) as f64;
                let costs = self.costs;
                let relay = costs.relay_message + queries as f64 * costs.relay_query;
                let work = costs.serve_message + slots * costs.serve_slot + relay;
                self.work_at_host(host, work, Work::Serve { batch });
            }
            Event::Reply { batch } => self.take_reply(batch),
            Event::Stage { partition } => {
                self.round(partition).halves_missing = 2;
                let half = self.scenario.shape.round_slots as f64 * self.costs.evict_slot / 2.0;
                for _ in 0..2 {
                    self.work_at_host(partition, half, Work::Evict { partition });
                }
            }
            Event::Commit { partition } => {
                let work = self.costs.serve_message + self.costs.relay_message;
                self.work_at_host(partition, work, Work::Commit { partition });
            }
            Event::Outcome { partition } => self.take_outcome(partition),
            Event::PlanOn { wait } => {
                if self.plan.as_ref().is_some_and(|plan| plan.wait == wait) {
                    self.plan_on();
                }
            }
        }
        self.use_lock();
    }

    pub fn end_job(&mut self, work: Work) {
        match work {
            Work::Client(request) => {
                if self.latencies.len() == self.warm_up() {
                    self.counted_since = self.now();
                }
                self.latencies.push(self.now() - request.began);
                self.taking -= 1;
                self.take_answers();
                self.request(request.client);
            }
            Work::PlanOn => self.plan_on(),
            Work::Planned => self.end_plan(),
            Work::Send { batch, host, queries } => {
                let len = queries as f64 * self.scenario.shape.query_len / 2.0;
                let at = self.now() + self.draw_way() + len / self.scenario.bandwidth;
                self.events.add(at, Event::Query { batch, host, queries });
            }
            Work::Serve { batch } => {
                let at = self.now() + self.draw_way();
                self.events.add(at, Event::Reply { batch });
            }
            Work::End { batch } => self.end_batch(batch),
            Work::Make { partition } => {
                if self.is_last_half(partition) {
                    let sent = self.scenario.shape.round_len / self.scenario.bandwidth;
                    let at = self.now() + self.draw_way() + sent;
                    self.events.add(at, Event::Stage { partition });
                }
            }
            Work::Evict { partition } => {
                if self.is_last_half(partition) {
                    // The reply, and the commit.
                    let at = self.now() + self.draw_way() + self.draw_way();
                    self.events.add(at, Event::Commit { partition });
                }
            }
            Work::Commit { partition } => {
                let at = self.now() + self.draw_way();
                self.events.add(at, Event::Outcome { partition });
            }
        }
    }

    pub fn take_answers(&mut self) {
        let cores = match self.scenario.machines {
            Machines::One(cores) | Machines::Apart { gateway: cores, .. } => cores,
        };
        while (self.taking as f64) < cores {
            let Some(request) = self.answered.pop_front() else { return };
            self.taking += 1;
            self.work_at_gateway(self.costs.request, Work::Client(request));
        }
    }

    pub fn prediction(&self) -> Prediction {
        let mut counted = self.latencies[self.warm_up()..].to_vec();
        counted.sort_by(f64::total_cmp);
        let (now, count) = (self.now(), counted.len() as f64);
        let at = |share: f64| counted[((count - 1.0) * share) as usize] * 1e3;
        let busy = |machines: &[SharedProcessors<Work>], cores: f64| {
            let busy: f64 = machines.iter().map(SharedProcessors::busy).sum();
            busy / now / cores / machines.len() as f64
        };
        let (gateway_busy, host_busy) = match self.scenario.machines {
            Machines::One(cores) => [busy(&self.machines, cores); 2].into(),
            Machines::Apart { gateway, host } => {
                (busy(&self.machines[..1], gateway), busy(&self.machines[1..], host))
            }
        };
        Prediction {
            requests_per_second: count / (now - self.counted_since),
            mean_ms: counted.iter().sum::<f64>() / count * 1e3,
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            batch: self.batch_sum as f64 / self.batch_count.max(1) as f64,
            locked: self.locked / now,
            gateway_busy,
            host_busy,
        }
    }
}
