//! An engine in memory that loses or delays requests and answers, as a seed says.

use crate::engine::{Engine, RequestError, StripeName, StripeRange};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};
use traceless_cloud::gateway::{Appended, StoredLog};
use traceless_core::rng::{Rng as _, SeededRng};

/// The engine.
pub struct MemoryEngine {
    state: Mutex<State>,
    /// What happens while the names are listed next, before the answer arrives.
    at_list: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

struct State {
    stripes: HashMap<StripeName, Bytes>,
    log: BTreeMap<u64, Bytes>,
    checkpoint: Option<(u64, Bytes)>,
    /// Requests on the way, which had no answer.
    late: Vec<Change>,
    rng: SeededRng,
    /// Of 100 requests, how many fail.
    failures: u64,
    /// Requests to read stripes.
    reads: usize,
}

/// A request that changes the engine.
#[derive(Clone)]
enum Change {
    Write(StripeName, Bytes),
    Remove(Vec<StripeName>),
    Append(u64, Bytes),
    Checkpoint(u64, Bytes),
}

impl MemoryEngine {
    /// An empty engine without failures.
    pub fn new(seed: u64) -> Self {
        let state = State {
            stripes: HashMap::new(),
            log: BTreeMap::new(),
            checkpoint: None,
            late: Vec::new(),
            rng: SeededRng::new(seed),
            failures: 0,
            reads: 0,
        };
        Self { state: Mutex::new(state), at_list: Mutex::new(None) }
    }

    /// From now on so many of 100 requests fail.
    pub fn fail(&self, failures: u64) {
        self.state().failures = failures;
    }

    /// Does something when the names are listed next, before the list is made.
    pub fn at_next_list(&self, work: impl FnOnce() + Send + 'static) {
        *self.at_list.lock().unwrap() = Some(Box::new(work));
    }

    /// How many requests to read stripes there were.
    pub fn reads(&self) -> usize {
        self.state().reads
    }

    /// How many stripes there are.
    pub fn stripes(&self) -> usize {
        self.state().stripes.len()
    }

    /// How many entries the log has.
    pub fn entries(&self) -> usize {
        self.state().log.len()
    }

    /// Removes a stripe of some value, as damage.
    pub fn lose(&self, choose: impl Fn(&StripeName) -> bool) {
        self.state().stripes.retain(|name, _| !choose(name));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change(&self, change: &Change) -> Result<Appended, RequestError> {
        let mut state = self.state();
        state.deliver_late();
        let failed = RequestError::passing("planned");
        match state.fate() {
            Fate::Done => Ok(state.apply(change)),
            Fate::RequestLost => Err(failed),
            Fate::AnswerLost => {
                state.apply(change);
                Err(failed)
            }
            Fate::Late => {
                state.late.push(change.clone());
                Err(failed)
            }
        }
    }

    fn query<T>(&self, read: impl Fn(&State) -> T) -> Result<T, RequestError> {
        let mut state = self.state();
        state.deliver_late();
        match state.fate() {
            Fate::Done => Ok(read(&state)),
            _ => Err(RequestError::passing("planned")),
        }
    }
}

/// What happens to a request.
enum Fate {
    Done,
    RequestLost,
    AnswerLost,
    Late,
}

impl State {
    fn fate(&mut self) -> Fate {
        if self.rng.below(100) >= self.failures {
            return Fate::Done;
        }
        match self.rng.below(3) {
            0 => Fate::RequestLost,
            1 => Fate::AnswerLost,
            _ => Fate::Late,
        }
    }

    fn deliver_late(&mut self) {
        while !self.late.is_empty() && self.rng.below(4) == 0 {
            let at = self.rng.below(self.late.len() as u64) as usize;
            let change = self.late.swap_remove(at);
            self.apply(&change);
        }
    }

    /// The last position that the checkpoint includes.
    fn included(&self) -> u64 {
        self.checkpoint.as_ref().map_or(0, |(position, _)| *position)
    }

    fn apply(&mut self, change: &Change) -> Appended {
        match change {
            Change::Write(name, bytes) => _ = self.stripes.insert(*name, bytes.clone()),
            Change::Remove(names) => self.stripes.retain(|name, _| !names.contains(name)),
            Change::Append(position, entry) => {
                let last = self.log.keys().next_back().copied().unwrap_or(self.included());
                if *position != last + 1 {
                    return Appended::Taken(self.log.get(position).cloned());
                }
                self.log.insert(*position, entry.clone());
            }
            Change::Checkpoint(position, _) if self.included() >= *position => {}
            Change::Checkpoint(position, bytes) => {
                self.checkpoint = Some((*position, bytes.clone()));
                self.log.retain(|at, _| at > position);
            }
        }
        Appended::Done
    }
}

impl Engine for MemoryEngine {
    fn stripe_len_max(&self) -> usize {
        1000
    }

    async fn check(&self) -> Result<(), RequestError> {
        Ok(())
    }

    async fn read(&self, ranges: &[StripeRange]) -> Result<Vec<Option<Bytes>>, RequestError> {
        let part = |state: &State, range: &StripeRange| {
            let stripe = state.stripes.get(&range.name)?;
            let end = (range.at + range.len).min(stripe.len());
            Some(stripe.slice(range.at.min(end)..end))
        };
        self.state().reads += 1;
        self.query(|state| ranges.iter().map(|range| part(state, range)).collect())
    }

    async fn write(&self, name: StripeName, bytes: Bytes) -> Result<(), RequestError> {
        self.change(&Change::Write(name, bytes)).map(drop)
    }

    async fn remove(&self, names: &[StripeName]) -> Result<(), RequestError> {
        self.change(&Change::Remove(names.to_vec())).map(drop)
    }

    async fn list(&self) -> Result<Vec<StripeName>, RequestError> {
        let work = self.at_list.lock().unwrap().take();
        if let Some(work) = work {
            tokio::task::spawn_blocking(work).await.unwrap();
        }
        self.query(|state| state.stripes.keys().copied().collect())
    }

    async fn append(&self, position: u64, entry: Bytes) -> Result<Appended, RequestError> {
        self.change(&Change::Append(position, entry))
    }

    async fn entry(&self, position: u64) -> Result<Option<Bytes>, RequestError> {
        self.query(|state| state.log.get(&position).cloned())
    }

    async fn included(&self) -> Result<u64, RequestError> {
        self.query(State::included)
    }

    async fn load(&self) -> Result<StoredLog, RequestError> {
        self.query(|state| StoredLog {
            checkpoint: state.checkpoint.clone(),
            entries: state.log.iter().map(|(position, entry)| (*position, entry.clone())).collect(),
        })
    }

    async fn checkpoint(&self, position: u64, bytes: Bytes) -> Result<(), RequestError> {
        self.change(&Change::Checkpoint(position, bytes)).map(drop)
    }
}
