//! A constant rate: the store is accessed once each period, needed or not.
//!
//! A *tick* is a moment at which the scheme makes one access: for a fault that waits, or a dummy.
//! The use of a tick is decided, and the page that leaves is taken out of the program, before the
//! tick is due; the access begins when it is due. Faults wait for ticks, never ticks for faults.
//!
//! A tick for which the pager was too slow is late. No tick is left out. If a tick is late by a
//! period or more, all later ones shift by that delay.

use core::fmt;

/// Ticks a second at most.
pub const TICKS_PER_SECOND_MAX: u32 = 100_000;
const NS_PER_SECOND: u64 = 1_000_000_000;
/// How long before it is due the use of a tick is decided, in nanoseconds: for taking a page out of
/// the program, and for a thread that wakes up late. With short periods it is half of one.
const LEAD_NS: u64 = 200_000;

/// How often the store is accessed, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Ticks a second, from 1 to [`TICKS_PER_SECOND_MAX`].
    pub per_second: u32,
    /// When the program has ended, ticks go on until their number is a multiple of this.
    pub length: u64,
}

impl Pace {
    /// Reads `fixed=N/s` or `fixed=N/s,length=M`.
    pub fn parse(text: &str) -> Option<Self> {
        let (rate, length) = match text.split_once(',') {
            Some((rate, length)) => (rate, length.strip_prefix("length=")?.parse().ok()?),
            None => (text, 1),
        };
        let per_second = rate.strip_prefix("fixed=")?.strip_suffix("/s")?.parse().ok()?;
        let is_valid = (1..=TICKS_PER_SECOND_MAX).contains(&per_second) && length > 0;
        is_valid.then_some(Self { per_second, length })
    }

    /// Whether ticks go on after the program has ended.
    pub fn outlives_program(self) -> bool {
        self.length > 1
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "fixed={}/s,length={}", self.per_second, self.length)
    }
}

/// When the next tick is due, in nanoseconds of the caller's clock.
#[derive(Clone, Debug)]
pub struct Ticks {
    period: u64,
    due: u64,
    length: u64,
    passed: u64,
}

impl Ticks {
    /// Ticks from now on; the first one is due after a period.
    pub fn start(pace: Pace, now: u64) -> Self {
        let period = NS_PER_SECOND / u64::from(pace.per_second);
        Self { period, due: now + period, length: pace.length, passed: 0 }
    }

    /// When the next tick is due.
    pub fn due(&self) -> u64 {
        self.due
    }

    /// When the use of the next tick is decided.
    pub fn decided_at(&self) -> u64 {
        self.due - LEAD_NS.min(self.period / 2)
    }

    /// Notes that the access of the next tick begins. Returns by how many nanoseconds the tick is
    /// late, and whether that is a period or more.
    pub fn pass(&mut self, now: u64) -> (u64, bool) {
        let delay = now.saturating_sub(self.due);
        let is_late = delay >= self.period;
        self.due += self.period + if is_late { delay } else { 0 };
        self.passed += 1;
        (delay, is_late)
    }

    /// Whether no tick has to follow when the program has ended.
    pub fn may_end(&self) -> bool {
        self.passed.is_multiple_of(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paces_are_understood() {
        let pace = |per_second, length| Some(Pace { per_second, length });
        assert_eq!(Pace::parse("fixed=250/s"), pace(250, 1));
        assert_eq!(Pace::parse("fixed=1/s,length=77"), pace(1, 77));
        for wrong in [
            "",
            "250/s",
            "fixed=250",
            "fixed=0/s",
            "fixed=100001/s",
            "fixed=-1/s",
            "fixed=9/s,",
            "fixed=9/s,length=",
            "fixed=9/s,length=0",
            "fixed=9/s,length=-1",
            "fixed=9/s,length=5,length=6",
            "fixed=9/s,7",
        ] {
            assert_eq!(Pace::parse(wrong), None, "{wrong}");
        }
        let pace = Pace { per_second: 30, length: 900 };
        assert_eq!(Pace::parse(&pace.to_string()), Some(pace));
    }

    #[test]
    fn a_late_tick_shifts_later_ones_only_if_it_is_late_by_a_period() {
        let mut ticks = Ticks::start(Pace { per_second: 1000, length: 3 }, 5);
        assert_eq!((ticks.due(), ticks.decided_at()), (1_000_005, 800_005));
        assert_eq!(ticks.pass(1_000_005), (0, false));
        assert!(!ticks.may_end());
        assert_eq!(ticks.pass(2_999_000), (998_995, false));
        assert_eq!((ticks.due(), ticks.may_end()), (3_000_005, false));
        assert_eq!(ticks.pass(4_000_005), (1_000_000, true));
        assert_eq!((ticks.due(), ticks.may_end()), (5_000_005, true));
        let fast = Ticks::start(Pace { per_second: TICKS_PER_SECOND_MAX, length: 1 }, 0);
        assert_eq!((fast.due(), fast.decided_at()), (10_000, 5_000));
        assert!(fast.may_end());
    }
}
