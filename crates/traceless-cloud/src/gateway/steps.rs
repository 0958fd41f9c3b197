//! Steps of requests that share one batch of queries.
//!
//! A step plans its accesses, and uses what was read. Steps of several clients are planned
//! together, and their queries are sent together, so that no client waits for the network of
//! another one. At its end a step must not rely on the state of its plan: other steps may have
//! ended since.

use super::Gateway;
use super::batches::Prepared;
use super::lost_block::BlockRead;
use super::queries::{Access, TOGETHER_MAX};
use super::record::Record;
use crate::error::Result;
use crate::host::QueryRequest;

/// A step of a request.
pub(crate) trait BatchStep: Send {
    /// About how many accesses the step makes: steps with many of them share a batch with few.
    fn weight(&self) -> usize {
        1
    }

    /// The accesses that the step makes. After an error nothing else is called.
    fn plan(&mut self, gateway: &mut Gateway) -> Result<Vec<Access>>;

    /// Uses the blocks that were read, in order of the reading accesses, or cleans up after an
    /// error. Records that the answer depends on are written when all steps have ended.
    fn finish(&mut self, gateway: &mut Gateway, read: Result<Vec<BlockRead>>) -> Result;

    /// Whether the answer depends on records that are not written yet, at a constant rate.
    fn waits_for_records(&self, gateway: &Gateway) -> bool {
        gateway.deferred_ack().is_some()
    }
}

/// Planned steps with queries that are on their way.
pub(crate) struct StepsUnderWay {
    /// For each step: how many of its accesses read, or why it could not be planned.
    plans: Vec<Result<usize>>,
    prepared: Result<Prepared>,
    /// The queries to be sent.
    pub requests: Vec<QueryRequest>,
}

impl StepsUnderWay {
    /// The number of the batch that is under way; `None` if the steps can end at once.
    pub fn batch(&self) -> Option<u64> {
        let prepared = self.prepared.as_ref().ok().filter(|prepared| !prepared.is_complete())?;
        Some(prepared.batch)
    }

    /// Whether some accesses wait until no other batch is under way.
    pub fn has_rest(&self) -> bool {
        self.prepared.as_ref().is_ok_and(|prepared| !prepared.rest.is_empty())
    }
}

impl Gateway {
    /// Carries out steps with queries that are sent together.
    pub(crate) fn run_steps(&mut self, steps: &mut [&mut dyn BatchStep]) -> Vec<Result> {
        let under_way = self.begin_steps(steps);
        let replies = match &under_way.requests[..] {
            [] => Vec::new(),
            requests => self.hosts.clone().query_many(requests),
        };
        let batch = under_way.batch();
        let outcomes = self.end_steps(steps, under_way, replies);
        if let Some(batch) = batch {
            self.end_batch(batch);
        }
        outcomes
    }

    /// Carries out one step.
    pub(crate) fn run_step(&mut self, step: &mut dyn BatchStep) -> Result {
        self.run_steps(&mut [step]).pop().expect("the outcome of one step")
    }

    /// Plans steps. Their queries are to be sent, and [`Self::end_steps`] is to be called with the
    /// replies before anything else is done that sends queries. In between, further steps can be
    /// planned if [`Self::may_plan_beside`] allows it, which end later.
    pub(crate) fn begin_steps(&mut self, steps: &mut [&mut dyn BatchStep]) -> StepsUnderWay {
        let mut accesses = Vec::new();
        let plans = steps.iter_mut().map(|step| {
            let planned = step.plan(self)?;
            let reads = planned.iter().filter(|access| matches!(access, Access::Read(_))).count();
            accesses.extend(planned);
            Ok(reads)
        });
        let plans = plans.collect();
        if accesses.is_empty() {
            return StepsUnderWay {
                plans,
                prepared: Ok(Prepared::made(Vec::new())),
                requests: Vec::new(),
            };
        }
        self.observe_accesses(&accesses);
        // At a constant rate each query has its own tick, and long batches are sent in parts.
        let is_long = accesses.len() > TOGETHER_MAX;
        let prepared = if !self.under_way.is_empty() {
            let (now, later) = accesses.split_at(accesses.len().min(TOGETHER_MAX));
            self.prepare_beside(now).map(|mut prepared| {
                prepared.rest.extend_from_slice(later);
                prepared
            })
        } else if self.constant_rate.is_some() || is_long {
            self.access_now(&accesses).map(Prepared::made)
        } else {
            self.prepare_together(&accesses)
        };
        // Accesses that were made may have left a query for the next tick.
        let requests = match &prepared {
            Ok(prepared) if !prepared.is_made => {
                let batch = prepared.batch;
                self.requests_to_send(|pending| pending.batch == batch)
            }
            _ => Ok(Vec::new()),
        };
        let (prepared, requests) = match requests {
            Ok(requests) => (prepared, requests),
            Err(error) => {
                self.end_batch(self.batch);
                (Err(error), Vec::new())
            }
        };
        if let Ok(prepared) = &prepared
            && !prepared.is_complete()
        {
            self.under_way.push_back(prepared.batch);
        }
        StepsUnderWay { plans, prepared, requests }
    }

    /// Takes the replies to the queries of steps, and ends the steps. All batches before them have
    /// ended.
    pub(crate) fn end_steps(
        &mut self,
        steps: &mut [&mut dyn BatchStep],
        under_way: StepsUnderWay,
        replies: Vec<Result<Vec<u8>>>,
    ) -> Vec<Result> {
        let StepsUnderWay { plans, prepared, .. } = under_way;
        let read = prepared.and_then(|prepared| self.take_replies(prepared, replies));
        let (mut read, failed) = match read {
            Ok(read) => (read.into_iter(), None),
            Err(error) => (Vec::new().into_iter(), Some(error)),
        };
        let mut outcomes: Vec<Result> = Vec::with_capacity(steps.len());
        for (step, plan) in steps.iter_mut().zip(plans) {
            let outcome = plan.and_then(|reads| {
                let own = match &failed {
                    None => Ok(read.by_ref().take(reads).collect()),
                    Some(error) => Err(error.clone()),
                };
                step.finish(self, own)
            });
            outcomes.push(outcome);
        }
        if let Err(error) = self.write_answers() {
            for outcome in &mut outcomes {
                if outcome.is_ok() {
                    *outcome = Err(error.clone());
                }
            }
        }
        outcomes
    }

    /// Applies a record that the answer of a step depends on. It is written when all steps have
    /// ended; at a constant rate with the next tick, so that the timing of disk writes is
    /// independent of requests.
    pub(super) fn log_for_answer(&mut self, record: Record) -> Result {
        if self.constant_rate.is_some() {
            return self.log_and_apply(record).map(drop);
        }
        self.is_answer_due = true;
        self.log_deferred(record)
    }

    /// Writes the records that answers depend on, unless the next tick does.
    pub(super) fn write_answers(&mut self) -> Result {
        if core::mem::take(&mut self.is_answer_due) { self.flush() } else { Ok(()) }
    }
}
