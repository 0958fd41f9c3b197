//! What the adversary observes: a flat stream of events, the same for disk, DRAM, pages and wire.
//!
//! A watched store reports its accesses. They are written to a trace file, and read from it:
//!
//! ```
//! use std::sync::Arc;
//! use traceless_core::Extent;
//! use traceless_core::store::{MemStore, Store, WatchedStore};
//! use traceless_core::trace::{FileWitness, Op, TraceReader};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let file = tempfile::NamedTempFile::new()?;
//! # let path = file.path();
//! let witness = Arc::new(FileWitness::new(std::fs::File::create(path)?)?);
//! let store = WatchedStore::new(MemStore::new(4096), witness.clone());
//! store.write(&[Extent::new(100, 3)], &[1, 2, 3])?;
//! store.sync()?;
//! witness.finish()?;
//!
//! let events = TraceReader::new(std::fs::File::open(path)?)?.collect::<Result<Vec<_>, _>>()?;
//! assert_eq!((events[0].op, events[0].at, events[0].len), (Op::Write, 100, 3));
//! assert_eq!((events.len(), events[1].op), (2, Op::Sync));
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "std")]
mod file;
#[cfg(feature = "std")]
mod frame;
#[cfg(feature = "std")]
mod witness;

#[cfg(feature = "std")]
pub use file::{SecretReader, SecretWriter, TRACE_MAGIC, TraceError, TraceReader, TraceWriter};
#[cfg(feature = "std")]
pub use witness::{FileWitness, WitnessPair};

/// Where the adversary observes an event.
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
    /// Every surface, by its number in trace files.
    pub const ALL: [Self; 4] = [Self::Storage, Self::Dram, Self::Page, Self::Wire];
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Bytes were read.
    Read,
    /// Bytes were written.
    Write,
    /// Earlier writes became durable. Offset and length are zero.
    Sync,
}

impl Op {
    /// Every operation, by its number in trace files.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Sync];
}

/// One event that the adversary observes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Event {
    /// Time of the event, in the units of the recorder's clock; zero without a clock.
    pub time: u64,
    /// Where the adversary observes it.
    pub surface: Surface,
    /// What happened.
    pub op: Op,
    /// First byte touched.
    pub at: u64,
    /// Bytes touched.
    pub len: u32,
}

/// A client's request: the secret that events must not reveal. It is never part of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// Number of events recorded before the request; the events that it caused come after them.
    pub events_before: u64,
    /// The requested operation; a sync says that no request follows until the next entry.
    pub op: Op,
    /// First byte of the request, in the client's address space.
    pub at: u64,
    /// Length of the request in bytes.
    pub len: u32,
}

/// Receives events. The method takes `&self`, so that several stores can share one witness.
pub trait Witness: Send + Sync {
    /// Records one event.
    fn record(&self, event: Event);
}

/// Discards every event: for stores that no adversary is assumed to watch.
impl Witness for () {
    #[inline]
    fn record(&self, _: Event) {}
}

impl<W: Witness + ?Sized> Witness for alloc::sync::Arc<W> {
    fn record(&self, event: Event) {
        (**self).record(event);
    }
}

/// Keeps every event in memory.
#[cfg(feature = "std")]
#[derive(Default)]
pub struct Recorder(std::sync::Mutex<alloc::vec::Vec<Event>>);

#[cfg(feature = "std")]
impl Recorder {
    /// Takes out the events recorded since the last call.
    pub fn take(&self) -> alloc::vec::Vec<Event> {
        core::mem::take(&mut self.0.lock().expect("no witness panics"))
    }
}

#[cfg(feature = "std")]
impl Witness for Recorder {
    fn record(&self, event: Event) {
        self.0.lock().expect("no witness panics").push(event);
    }
}
