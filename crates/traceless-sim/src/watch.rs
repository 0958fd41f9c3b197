//! Observers of a run: of the memory bus, and of the requests to the memory.

use crate::backend::{Answer, Backend, LineGroup};
use crate::error::Result;
use crate::workload::Op;
use std::sync::Arc;
use traceless::store::DrawnPlaces;
use traceless::trace::{Witness, WitnessPair};

/// A callback for each requested line, with its first byte.
pub type RequestHook = Arc<dyn Fn(Op, u64) + Send + Sync>;

/// An observer of any number of runs, for a live page.
pub trait LiveObserver: Send + Sync {
    /// A run begins, on a memory of `bus` bytes.
    fn begin(&self, bus: u64) -> Arc<dyn LiveRun>;
}

/// An observer of one run: a witness of each line on the memory bus, or, of a memory without a bus,
/// of each line that the scheme requests.
pub trait LiveRun: Witness {
    /// Programs have `bytes` bytes of the memory. Paths show their leaves, if the scheme draws any.
    fn begin_requests(&self, bytes: u64, leaves: Option<Box<dyn DrawnPlaces>>);
    /// A line is requested, as for a [`RequestHook`].
    fn record_request(&self, op: Op, addr: u64);
}

/// The observers of a run, all optional.
///
/// The witness on the bus records each line that a memory without an ORAM reads:
///
/// ```
/// use std::sync::Arc;
/// use traceless::trace::Recorder;
/// use traceless_sim::Watch;
/// use traceless_sim::machine::Machine;
/// use traceless_sim::workload::programs;
///
/// # fn main() -> traceless_sim::Result {
/// let bus = Arc::new(Recorder::default());
/// let watch = Watch { bus: Some(bus.clone()), ..Watch::default() };
/// let mut programs = programs("sequential?write_share=0", 100, 1)?;
/// Machine::FOUR_CHANNELS.run_watched(0, &mut programs, &watch)?;
/// let mut places: Vec<u64> = bus.take().iter().map(|event| event.at).collect();
/// places.sort_unstable();
/// assert!(places.windows(2).all(|two| two[1] - two[0] == 64));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Watch {
    /// Records every line that is read or written on the memory bus, with its cycle.
    pub bus: Option<Arc<dyn Witness>>,
    /// Records each line that the scheme requests from its memory, with the time of the request:
    /// the same lines as on the bus, before the memory reorders them. Works for a memory without a
    /// bus, too.
    pub lines: Option<Arc<dyn Witness>>,
    /// Whether the commands on the bus are kept, too.
    pub commands: bool,
    /// Called for each read or write behind the last cache, or behind the processor if there is
    /// none: the secret that the bus must not reveal.
    pub on_request: Option<RequestHook>,
    /// Follows the runs of all machines.
    pub live: Option<Arc<dyn LiveObserver>>,
}

impl Watch {
    /// The observers of one run, on a memory of `bus` bytes.
    pub(crate) fn begin(&self, bus: u64) -> RunWatch<'_> {
        RunWatch { watch: self, live: self.live.as_ref().map(|live| live.begin(bus)) }
    }
}

/// The observers of one run.
pub(crate) struct RunWatch<'a> {
    watch: &'a Watch,
    live: Option<Arc<dyn LiveRun>>,
}

impl RunWatch<'_> {
    /// The observers of a bus.
    pub fn bus(&self) -> Option<Arc<dyn Witness>> {
        WitnessPair::of(self.watch.bus.clone(), self.live_witness())
    }

    /// The observers of the lines that a scheme requests, on a memory with a bus or without.
    pub fn lines(&self, has_bus: bool) -> Option<Arc<dyn Witness>> {
        let live = if has_bus { None } else { self.live_witness() };
        WitnessPair::of(self.watch.lines.clone(), live)
    }

    fn live_witness(&self) -> Option<Arc<dyn Witness>> {
        self.live.clone().map(|live| live as Arc<dyn Witness>)
    }

    /// The memory, with the observers of its requests; `leaves` are what its paths show.
    pub fn observe<B: Backend>(
        &self,
        memory: B,
        leaves: Option<Box<dyn DrawnPlaces>>,
    ) -> ObservedMemory<B> {
        if let Some(live) = &self.live {
            live.begin_requests(memory.capacity(), leaves);
        }
        let on_request = self.watch.on_request.clone();
        ObservedMemory { memory, on_request, live: self.live.clone() }
    }
}

/// A memory, and callbacks for its reads and writes.
pub(crate) struct ObservedMemory<B> {
    pub memory: B,
    on_request: Option<RequestHook>,
    live: Option<Arc<dyn LiveRun>>,
}

impl<B> ObservedMemory<B> {
    #[inline]
    fn record_request(&self, op: Op, addr: u64) {
        if let Some(on_request) = &self.on_request {
            on_request(op, addr);
        }
        if let Some(live) = &self.live {
            live.record_request(op, addr);
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl<B: Backend> Backend for ObservedMemory<B> {
    fn capacity(&self) -> u64 {
        self.memory.capacity()
    }
    #[inline]
    fn read(&mut self, now: u64, addr: u64, ticket: u64) -> Result<Answer> {
        self.record_request(Op::Read, addr);
        self.memory.read(now, addr, ticket)
    }
    #[inline]
    fn write(&mut self, now: u64, addr: u64) -> Result {
        self.record_request(Op::Write, addr);
        self.memory.write(now, addr)
    }
    #[inline]
    fn takes_writes(&self) -> bool {
        self.memory.takes_writes()
    }
    fn is_written(&self) -> bool {
        self.memory.is_written()
    }
    fn warm(&mut self, op: Op, addr: u64) -> Result {
        self.memory.warm(op, addr)
    }
    fn warm_drop(&mut self, addr: u64) -> Result {
        self.memory.warm_drop(addr)
    }
    #[inline]
    fn wake(&self) -> u64 {
        self.memory.wake()
    }
    fn drop_clean(&mut self, now: u64, addr: u64) -> Result {
        self.memory.drop_clean(now, addr)
    }
    fn wants_offer(&self) -> bool {
        self.memory.wants_offer()
    }
    fn offer(&mut self, addr: u64) -> Result {
        self.memory.offer(addr)
    }
    fn take_prefetched(&mut self, lines: &mut Vec<LineGroup>) {
        self.memory.take_prefetched(lines);
    }
    fn withdraw(&mut self) {
        self.memory.withdraw();
    }
    #[inline]
    fn note_operation(&mut self) {
        self.memory.note_operation();
    }
    #[inline]
    fn tick(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) -> Result {
        self.memory.tick(now, done)
    }
}
