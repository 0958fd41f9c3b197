//! Time, passed in by the caller: cycles in a simulation, nanoseconds in the real world.
//!
//! A simulated clock moves only when it is moved, so what depends on time can be tested:
//!
//! ```
//! use traceless_core::clock::{Clock, SimulatedClock, Timer};
//!
//! let clock = SimulatedClock::default();
//! clock.advance(10);
//! clock.wait_until(50);
//! // This time is past: the wait returns at once.
//! clock.wait_until(20);
//! assert_eq!(clock.now(), 50);
//! ```

/// Measures time, in units that its owner chooses.
pub trait Clock: Send + Sync {
    /// Time since this clock began.
    fn now(&self) -> u64;
}

impl<C: Clock + ?Sized> Clock for alloc::sync::Arc<C> {
    fn now(&self) -> u64 {
        (**self).now()
    }
}

/// A clock that can be waited for.
pub trait Timer: Clock {
    /// Returns at the time `at`, or at once if that is past.
    fn wait_until(&self, at: u64);
}

impl<T: Timer + ?Sized> Timer for alloc::sync::Arc<T> {
    fn wait_until(&self, at: u64) {
        (**self).wait_until(at);
    }
}

/// A clock that moves only by [`advance`](Self::advance) and [`Timer::wait_until`].
#[derive(Default)]
pub struct SimulatedClock(core::sync::atomic::AtomicU64);

impl SimulatedClock {
    /// Lets time pass.
    pub fn advance(&self, by: u64) {
        self.0.fetch_add(by, core::sync::atomic::Ordering::Relaxed);
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> u64 {
        self.0.load(core::sync::atomic::Ordering::Relaxed)
    }
}

impl Timer for SimulatedClock {
    fn wait_until(&self, at: u64) {
        self.0.fetch_max(at, core::sync::atomic::Ordering::Relaxed);
    }
}

/// No time: every event carries zero.
impl Clock for () {
    fn now(&self) -> u64 {
        0
    }
}

/// The machine's monotonic clock, in nanoseconds: the same for all its processes.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Default, Debug)]
pub struct MachineClock;

#[cfg(feature = "std")]
impl Clock for MachineClock {
    fn now(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
    }
}

/// Monotonic nanoseconds since the clock was started.
#[cfg(feature = "std")]
pub struct Monotonic(std::time::Instant);

#[cfg(feature = "std")]
impl Monotonic {
    /// A clock that begins now.
    #[expect(clippy::disallowed_methods, reason = "the one place that provides real time")]
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }
}

#[cfg(feature = "std")]
impl Clock for Monotonic {
    fn now(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// The last nanoseconds of a wait, which are spent polling the clock: a sleep ends late.
#[cfg(feature = "std")]
const AWAKE_NS: u64 = 100_000;

#[cfg(feature = "std")]
impl Timer for Monotonic {
    fn wait_until(&self, at: u64) {
        let asleep = at.saturating_sub(self.now()).saturating_sub(AWAKE_NS);
        if asleep > 0 {
            std::thread::sleep(std::time::Duration::from_nanos(asleep));
        }
        while self.now() < at {
            core::hint::spin_loop();
        }
    }
}
