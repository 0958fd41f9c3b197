//! What the adversary sees: a flat stream of events, the same for disk, DRAM, pages and wire.

#[cfg(feature = "std")]
mod file;
#[cfg(feature = "std")]
mod frame;
#[cfg(feature = "std")]
mod witness;

#[cfg(feature = "std")]
pub use file::{SecretReader, SecretWriter, TRACE_MAGIC, TraceError, TraceReader, TraceWriter};
#[cfg(feature = "std")]
pub use witness::FileWitness;

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

impl Surface {
    /// All of them, by their numbers in files.
    pub const ALL: [Self; 4] = [Self::Storage, Self::Dram, Self::Page, Self::Wire];
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

impl Op {
    /// All of them, by their numbers in files.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Sync];
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

/// What a user asked for: the secret that events must not tell. It is never part of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// Events that were seen before: those that it caused come after them.
    pub seen: u64,
    /// What was asked for; a sync says that from here on nothing is.
    pub op: Op,
    /// First byte of it, as its user counts.
    pub at: u64,
    /// Bytes of it.
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
