//! The time of day.

use traceless_core::clock::Clock;

/// Milliseconds since 1970, by the machine's clock.
pub struct Wall;

impl Clock for Wall {
    #[expect(clippy::disallowed_methods, reason = "the one place that provides the time of day")]
    fn now(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_millis() as u64)
    }
}
