//! Requests, and the batches that they share.

use super::state::{Batch, BatchPlan, Event, GatewayModel, Pace, Request, Work};
use std::collections::VecDeque;
use traceless_cloud::gateway::TOGETHER_MAX;

/// Most batches under way, as at a gateway.
const BATCHES_MAX: usize = 4;

impl GatewayModel<'_> {
    /// A client makes its next request.
    pub fn request(&mut self, client: usize) {
        let is_hit = self.random() < self.scenario.hits;
        self.waiting.push_back(Request { client, began: self.now(), is_hit });
        self.use_lock();
    }

    /// Gives the gateway's lock to the end of a batch, or to the plan of the next one.
    pub fn use_lock(&mut self) {
        if self.locked_since.is_some() {
            return;
        }
        let is_answered = |batch: &Batch| batch.is_sent && batch.replies_missing == 0;
        if let Some(batch) = self.under_way.front().filter(|batch| is_answered(batch)) {
            let (number, requests) = (batch.number, batch.requests.len());
            self.locked_since = Some(self.now());
            self.work_on_end(number, requests);
        } else if !self.is_turn_taken && self.is_batch_due() {
            self.locked_since = Some(self.now());
            self.begin_plan();
        }
    }

    pub fn take_reply(&mut self, number: u64) {
        let batch = self.batch(number);
        batch.replies_missing -= 1;
        // What was alone has kept the lock.
        if batch.had_rest && batch.rest.is_empty() && batch.replies_missing == 0 {
            let requests = batch.requests.len();
            self.work_on_end(number, requests);
        }
    }

    pub fn work_on_end(&mut self, batch: u64, requests: usize) {
        let half = f64::midpoint(self.costs.lock_batch, requests as f64 * self.costs.lock_query);
        self.work_at_gateway(half, Work::End { batch });
    }

    pub fn is_batch_due(&self) -> bool {
        let all = self.waiting.len() + self.requests_under_way;
        !self.waiting.is_empty()
            && (self.batches == 0
                || self.batches < BATCHES_MAX && self.waiting.len() * BATCHES_MAX >= all)
    }

    pub fn begin_plan(&mut self) {
        for partition in 0..self.partitions.len() {
            self.note_commit(partition);
        }
        let count = self.waiting.len().min(TOGETHER_MAX);
        let requests: Vec<Request> = self.waiting.drain(..count).collect();
        self.batches += 1;
        self.requests_under_way += count;
        self.numbers += 1;
        let to_plan = requests.iter().copied().collect();
        let batch = Batch {
            number: self.numbers,
            requests,
            rest: Vec::new(),
            had_rest: false,
            queries: vec![(0, 0); self.partitions.len()],
            replies_missing: 0,
            is_sent: false,
        };
        let is_beside = !self.under_way.is_empty();
        self.plan = Some(BatchPlan {
            batch,
            to_plan,
            work: self.costs.lock_batch / 2.0,
            is_beside,
            wait: 0,
            waits_for: None,
        });
        self.plan_on();
    }

    /// Plans queries until one has to wait.
    pub fn plan_on(&mut self) {
        let Some(mut plan) = self.plan.take() else { return };
        self.numbers += 1;
        (plan.wait, plan.waits_for) = (self.numbers, None);
        while let Some(request) = plan.to_plan.front() {
            let pace = if request.is_hit { Pace::Now } else { self.pace(plan.is_beside) };
            match pace {
                Pace::Now => {
                    if !request.is_hit {
                        self.plan_query(&mut plan.batch);
                    }
                    plan.work += self.costs.lock_query / 2.0;
                    plan.to_plan.pop_front();
                }
                Pace::Alone => {
                    plan.batch.rest = plan.to_plan.drain(..).collect();
                    plan.batch.had_rest = true;
                }
                Pace::At(_) | Pace::AfterRound(_) if plan.work > 0.0 => {
                    let work = std::mem::take(&mut plan.work);
                    self.plan = Some(plan);
                    return self.work_at_gateway(work, Work::PlanOn);
                }
                Pace::At(at) => {
                    self.events.add(at, Event::PlanOn { wait: plan.wait });
                    plan.waits_for = Some(self.next_partition());
                    return self.plan = Some(plan);
                }
                Pace::AfterRound(partition) => {
                    plan.waits_for = Some(partition);
                    return self.plan = Some(plan);
                }
            }
        }
        let work = plan.work;
        self.plan = Some(plan);
        self.work_at_gateway(work, Work::Planned);
    }

    pub fn plan_query(&mut self, batch: &mut Batch) {
        self.queries += 1;
        let root = (self.random() * self.scenario.shape.roots as f64) as usize;
        let host = root % self.partitions.len();
        batch.queries[host].0 += 1;
        batch.queries[host].1 = self.partitions[host].commits;
    }

    pub fn end_plan(&mut self) {
        let BatchPlan { batch, .. } = self.plan.take().expect("it was made");
        let number = batch.number;
        // What has waited for the end of all other batches keeps the lock until its end.
        let is_rest = batch.had_rest && batch.rest.is_empty();
        let queries: usize = batch.queries.iter().map(|(queries, _)| queries).sum();
        (self.batch_sum, self.batch_count) = (self.batch_sum + queries, self.batch_count + 1);
        if queries == 0 && batch.rest.is_empty() {
            self.under_way.push_front(batch);
            return self.finish_batch();
        }
        if is_rest {
            self.under_way.push_front(batch);
        } else {
            self.is_turn_taken = batch.had_rest;
            self.under_way.push_back(batch);
            self.unlock();
        }
        self.send(number);
    }

    /// Sends a batch's queries, a message to each host.
    pub fn send(&mut self, number: u64) {
        let each: Vec<usize> = self.batch(number).queries.iter().map(|(count, _)| *count).collect();
        let messages = each.iter().filter(|&&count| count > 0).count();
        let batch = self.batch(number);
        (batch.replies_missing, batch.is_sent) = (messages, true);
        let mut threads = messages.saturating_sub(1);
        for (host, queries) in each.into_iter().enumerate().filter(|&(_, count)| count > 0) {
            let thread = if threads > 0 { self.costs.thread } else { 0.0 };
            threads = threads.saturating_sub(1);
            let work = self.costs.send_message + thread;
            self.work_at_gateway(work, Work::Send { batch: number, host, queries });
        }
    }

    pub fn end_batch(&mut self, number: u64) {
        let front = self.under_way.front_mut().expect("it ends");
        assert_eq!(front.number, number, "batches end in order");
        if front.rest.is_empty() {
            return self.finish_batch();
        }
        let mut batch = self.under_way.pop_front().expect("it ends");
        let to_plan: VecDeque<Request> = std::mem::take(&mut batch.rest).into();
        batch.queries.fill((0, 0));
        batch.is_sent = false;
        let waits_for = None;
        self.plan =
            Some(BatchPlan { batch, to_plan, work: 0.0, is_beside: false, wait: 0, waits_for });
        self.plan_on();
    }

    /// The first batch's clients get their answers.
    pub fn finish_batch(&mut self) {
        let batch = self.under_way.pop_front().expect("it ends");
        self.batches -= 1;
        self.requests_under_way -= batch.requests.len();
        if batch.had_rest {
            self.is_turn_taken = false;
        }
        self.unlock();
        self.answered.extend(batch.requests);
        self.take_answers();
    }
}
