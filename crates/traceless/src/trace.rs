//! What the adversary sees: a flat stream of events, the same for disk, DRAM, pages and wire.

#[cfg(feature = "std")]
mod file;

#[cfg(feature = "std")]
pub use file::{FileWitness, TRACE_MAGIC, TraceError, TraceReader, TraceWriter};

/// Where an event is seen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Surface {
    /// A disk, an image file or an object store.
    Storage,
    /// The memory bus.
    Dram,
    /// Pages of an enclave.
    Page,
    /// Messages on a network.
    Wire,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Bytes were read.
    Read,
    /// Bytes were written.
    Write,
    /// What was written before became durable. Offset and length are zero.
    Sync,
}

/// One thing the adversary sees.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Event {
    /// When, in the units of the clock that was given; zero without one.
    pub time: u64,
    /// Where it is seen.
    pub surface: Surface,
    /// What happened.
    pub op: Op,
    /// First byte touched.
    pub at: u64,
    /// Bytes touched.
    pub len: u32,
}

/// Where events go. `&self`, so that several stores can share one witness.
pub trait Witness: Send + Sync {
    /// Takes note of one event.
    fn see(&self, event: Event);
}

/// Nobody watches.
impl Witness for () {
    #[inline]
    fn see(&self, _: Event) {}
}

impl<W: Witness + ?Sized> Witness for alloc::sync::Arc<W> {
    fn see(&self, event: Event) {
        (**self).see(event);
    }
}

/// Keeps every event in memory.
#[cfg(feature = "std")]
#[derive(Default)]
pub struct Recorder(std::sync::Mutex<alloc::vec::Vec<Event>>);

#[cfg(feature = "std")]
impl Recorder {
    /// Everything seen since the last call.
    pub fn take(&self) -> alloc::vec::Vec<Event> {
        core::mem::take(&mut self.0.lock().expect("no witness panics"))
    }
}

#[cfg(feature = "std")]
impl Witness for Recorder {
    fn see(&self, event: Event) {
        self.0.lock().expect("no witness panics").push(event);
    }
}
