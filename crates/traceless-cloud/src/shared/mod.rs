//! What front ends share: one gateway, metrics, the time, and the request to stop.
//!
//! Two threads share a gateway, which serves one call at a time:
//!
//! ```
//! use std::sync::Arc;
//! use traceless_cloud::shared::{Metrics, SharedGateway, Wall};
//! # use traceless_cloud::kernel::Choice;
//! # use traceless_cloud::local_deployment::LocalDeployment;
//! # use traceless_cloud::params::Params;
//! # use traceless_cloud::store::Durability;
//! # use traceless_cloud::tee::Policy;
//!
//! # fn main() -> traceless_cloud::Result {
//! # let folder = tempfile::tempdir()?;
//! # let params = Params::new(500, 64, 4)?;
//! # let local =
//! #     LocalDeployment::new(folder.path(), None, None, Policy::Simulated);
//! # let gateway = local.open(params, Choice::Benes, Durability::Process)?.gateway;
//! let metrics = Arc::new(Metrics::default());
//! let front = SharedGateway::new(gateway, metrics.clone(), Arc::new(Wall));
//! std::thread::scope(|scope| {
//!     scope.spawn(|| front.run(|gateway| gateway.store(b"ann", b"blue", b"")));
//!     scope.spawn(|| front.run(|gateway| gateway.store(b"bob", b"green", b"")));
//! });
//! assert_eq!(front.run(|gateway| gateway.load(b"bob"))?.as_deref(), Some(&b"green"[..]));
//! assert_eq!(front.inspect(|gateway| gateway.blocks_used()), 2);
//! assert!(metrics.text().contains("traceless_blocks_used 2"));
//! front.close()?;
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "http")]
mod drafts;
mod metrics;
mod move_thread;
mod rate_thread;
mod save_thread;
mod scrub_thread;
mod step_queue;
mod stop;
mod tick_queue;
mod turns;
mod wall;

pub use metrics::{Health, Kind, Metrics, Protocol};
pub use move_thread::MoveThread;
pub use rate_thread::RateThread;
pub use save_thread::SaveThread;
pub use scrub_thread::{ScrubThread, time_of};
pub use stop::Stop;
pub use wall::Wall;

use crate::error::Result;
use crate::gateway::{Gateway, LoadStep};
use crate::host_group::HostGroup;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use step_queue::StepQueue;
use tick_queue::TickQueue;
use traceless_core::clock::Clock;
use turns::Turns;

/// How long an answer waits for its tick at most before its record is written without a tick.
const TICK_TIMEOUT: Duration = Duration::from_secs(20);

/// A gateway that several front ends share.
///
/// Steps that need no more than one batch of queries share their queries with the steps of other
/// clients, and several batches may be under way (`step_queue`). At a constant rate steps wait for
/// ticks beside each other (`tick_queue`). Everything else has the gateway for itself, one after
/// the other.
pub struct SharedGateway {
    gateway: Mutex<Gateway>,
    /// One thread at a time plans queries.
    turns: Turns,
    steps: StepQueue,
    /// What waits for the ticks of a constant rate.
    ticks: TickQueue,
    /// Whether the gateway keeps a constant rate.
    has_rate: AtomicBool,
    /// The gateway's hosts.
    hosts: Arc<HostGroup>,
    /// At a constant rate: how many records of the gateway are written; `None` if no more can be.
    written: Mutex<Option<u64>>,
    written_changed: Condvar,
    /// Notified when a batch of steps has ended.
    batch_ended: Condvar,
    metrics: Arc<Metrics>,
    wall: Arc<dyn Clock>,
    /// Bytes of a block.
    #[cfg(feature = "http")]
    block_len: usize,
}

impl SharedGateway {
    /// Shares a gateway, its metrics, and a clock of milliseconds since 1970.
    pub fn new(gateway: Gateway, metrics: Arc<Metrics>, wall: Arc<dyn Clock>) -> Self {
        metrics.observe(&gateway);
        let hosts = gateway.hosts().clone();
        let has_rate = AtomicBool::new(gateway.next_tick().is_some());
        #[cfg(feature = "http")]
        let block_len = gateway.params().geometry.block_len;
        Self {
            gateway: Mutex::new(gateway),
            turns: Turns::default(),
            steps: StepQueue::default(),
            ticks: TickQueue::default(),
            has_rate,
            hosts,
            written: Mutex::new(Some(0)),
            written_changed: Condvar::new(),
            batch_ended: Condvar::new(),
            metrics,
            wall,
            #[cfg(feature = "http")]
            block_len,
        }
    }

    /// Stops all waiting for hosts that are away, because the program ends.
    pub fn wait_no_more(&self) {
        self.hosts.wait_no_more();
    }

    /// Reads the gateway's own state, which sends nothing. Another gateway may have taken over the
    /// store meanwhile, so the result is not for answers to clients.
    pub fn inspect<T>(&self, read: impl FnOnce(&Gateway) -> T) -> T {
        read(&self.lock())
    }

    /// Reads the gateway's own state to answer a client, which sends nothing. Fails if another
    /// gateway has taken over the store: only that gateway knows the current state.
    pub fn read_state<T>(&self, read: impl FnOnce(&Gateway) -> T) -> Result<T> {
        let _request = self.metrics.waiting_request();
        // At a constant rate a turn lasts until a tick is over.
        let turn = (!self.has_constant_rate()).then(|| self.turns.wait());
        let locked = self.lock_to_answer();
        drop(turn);
        let result = locked.and_then(|gateway| {
            let result = read(&gateway);
            self.wait_for_ack(gateway).map(|()| result)
        });
        if let Err(error) = &result {
            self.metrics.failed(error);
        }
        result
    }

    /// Changes the gateway's own state, beside batches of steps under way. `change` must send
    /// nothing.
    pub fn update_state<T>(&self, change: impl FnOnce(&mut Gateway) -> Result<T>) -> Result<T> {
        let _request = self.metrics.waiting_request();
        let result = self.lock_to_answer().and_then(|mut gateway| {
            let queries = gateway.counts().queries;
            let changed = change(&mut gateway);
            assert_eq!(gateway.counts().queries, queries, "a change of state sends nothing");
            self.metrics.observe(&gateway);
            self.wait_for_ack(gateway).and(changed)
        });
        self.note(&result);
        result
    }

    /// Runs an operation of the gateway.
    pub fn run<T>(&self, work: impl FnOnce(&mut Gateway) -> Result<T>) -> Result<T> {
        let _request = self.metrics.waiting_request();
        let result = self.run_alone(work);
        self.note(&result);
        result
    }

    fn run_alone<T>(&self, work: impl FnOnce(&mut Gateway) -> Result<T>) -> Result<T> {
        let (turn, mut gateway) = self.lock_for_operation()?;
        let result = work(&mut gateway);
        self.has_rate.store(gateway.next_tick().is_some(), Ordering::Relaxed);
        if gateway.is_tick_due() {
            // The thread of the ticks may wait long for its turn, so a due tick is made here.
            let (kept, made) = self.make_tick(gateway, true);
            made.unwrap_or_else(|error| self.metrics.failed(&error));
            gateway = kept;
        }
        self.publish_written(&gateway);
        self.metrics.observe(&gateway);
        // The tick that an answer waits for may be another caller's turn.
        drop(turn);
        let acked = self.wait_for_ack(gateway);
        result.and_then(|result| acked.map(|()| result))
    }

    /// Counts the outcome of an operation.
    fn note<T>(&self, result: &Result<T>) {
        match result {
            Ok(_) => self.metrics.succeeded(),
            Err(error) => self.metrics.failed(error),
        }
    }

    /// Saves the gateway's state, once no client sends requests. The host may be gone already.
    pub fn close(&self) -> Result {
        let _turn = self.turns.wait();
        self.lock_alone().close()
    }

    /// Whether the gateway keeps a constant rate.
    pub(crate) fn has_constant_rate(&self) -> bool {
        self.has_rate.load(Ordering::Relaxed)
    }

    /// The values under names of `Namespace::Values`, as [`Gateway::load_many`] reads them.
    pub fn load_many(&self, names: Vec<Vec<u8>>) -> Result<Vec<Option<Result<Vec<u8>>>>> {
        self.run_step(LoadStep::new(names), |step| core::mem::take(&mut step.values))
    }

    /// Waits until every record that an answer depends on is written: with the next tick, if the
    /// gateway keeps a constant rate.
    fn wait_for_ack(&self, gateway: MutexGuard<'_, Gateway>) -> Result {
        let Some(record) = gateway.deferred_ack() else { return Ok(()) };
        drop(gateway);
        let is_early = |written: &mut Option<u64>| written.is_some_and(|last| last < record);
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.written_changed.wait_timeout_while(written, TICK_TIMEOUT, is_early);
        let written = *waited.unwrap_or_else(PoisonError::into_inner).0;
        match written {
            Some(last) if last >= record => Ok(()),
            _ => self.lock().ensure_written(record),
        }
    }

    /// Lets answers go that wait for records which are written now.
    fn publish_written(&self, gateway: &Gateway) {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = gateway.written_records();
        self.written_changed.notify_all();
    }

    /// The metrics of the gateway and its front ends.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.wall.now()
    }

    /// The gateway, once no batch of steps is under way. The caller has its turn, so no other batch
    /// begins.
    fn lock_alone(&self) -> MutexGuard<'_, Gateway> {
        self.lock_when(Gateway::has_none_under_way)
    }

    /// The gateway, once `is_ready` holds, which ends of batches of steps bring about.
    fn lock_when(&self, is_ready: impl Fn(&Gateway) -> bool) -> MutexGuard<'_, Gateway> {
        let waited = self.batch_ended.wait_while(self.lock(), |gateway| !is_ready(gateway));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Gateway> {
        self.gateway.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
