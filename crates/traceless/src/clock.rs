//! Time, handed in: cycles in a simulation, nanoseconds in the real world.

/// Tells the time in units that its owner chooses.
pub trait Clock: Send + Sync {
    /// Time since this clock began.
    fn now(&self) -> u64;
}

/// No time at all: every event carries zero.
impl Clock for () {
    fn now(&self) -> u64 {
        0
    }
}

/// Monotonic nanoseconds since it was made.
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
