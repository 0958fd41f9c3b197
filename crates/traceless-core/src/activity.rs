//! What happens right now on both sides of a product: counts, samples and latencies that a live
//! page shows.
//!
//! An [`Activity`] holds atomic numbers alone, so threads and, in memory that they share, processes
//! record into it without locks. Zeros are an activity in which nothing has happened.
//!
//! ```
//! use traceless_core::activity::Activity;
//! use traceless_core::clock::MachineClock;
//! use traceless_core::trace::Op;
//!
//! let activity = Box::<Activity>::default();
//! activity.adversary.set_space(1 << 20);
//! activity.adversary.record(&MachineClock, Op::Write, 4096, 512);
//!
//! let reading = activity.adversary.read(&MachineClock, 0);
//! assert_eq!(reading.counts[Op::Write as usize], (1, 512));
//! assert_eq!(reading.samples[0].at, 4096);
//! ```

mod audit;
mod latency;
mod samples;
#[cfg(feature = "std")]
mod shared;
mod stream;

pub use audit::{AuditCounts, AuditReading, EventAudit};
pub use latency::LatencyHistogram;
pub use samples::{CAPACITY, Sample};
pub use stream::{EventStream, PLACES, SAMPLES_PER_SECOND, StreamReading};

use core::sync::atomic::AtomicU64;

#[cfg(feature = "std")]
pub use shared::{ActivityWitness, SharedActivity};

/// Both sides of a product: what the adversary observes, and what the user does.
#[derive(Default)]
#[repr(C)]
pub struct Activity {
    /// What the adversary observes.
    pub adversary: EventStream,
    /// What the user does.
    pub user: EventStream,
    /// How long the user's requests took, by operation.
    pub latencies: [LatencyHistogram; 3],
    /// Requests of the user that are being answered.
    pub in_flight: AtomicU64,
    /// What the audit of the adversary's side has found.
    pub audit: AuditCounts,
}
