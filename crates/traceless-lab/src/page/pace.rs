//! How long parts take that are still to be made, from estimates and from parts that were made.

use super::job::Outcome;

/// Minutes of estimates below which this machine is not compared with them.
const KNOWN_MIN: f64 = 5.0;

/// Times of parts that were made, beside their estimates.
#[derive(Default)]
pub struct PartTimes {
    estimated: f64,
    taken: f64,
}

impl PartTimes {
    /// Adds a part of `minutes`, by its estimate.
    pub fn add(&mut self, minutes: f64, outcome: &Outcome) {
        self.estimated += minutes;
        self.taken += outcome.seconds / 60.0;
    }

    /// How long parts of `minutes` take on this machine, in words.
    pub fn words_for(&self, minutes: f64) -> String {
        let is_known = self.estimated >= KNOWN_MIN;
        let factor = if is_known { self.taken / self.estimated } else { 1.0 };
        in_words(minutes * factor)
    }
}

/// Minutes in words.
pub fn in_words(minutes: f64) -> String {
    let whole = minutes.ceil() as u64;
    match (whole / 60, whole % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_slow_machine_takes_longer_than_estimated() {
        let outcome = |seconds| Outcome { report: Value::Null, seconds, is_kept: false };
        let mut times = PartTimes::default();
        assert_eq!(times.words_for(90.2), "1 h 31 min");
        times.add(1.0, &outcome(600.0));
        assert_eq!(times.words_for(60.0), "1 h 0 min", "one minute says nothing");
        times.add(9.0, &outcome(600.0));
        assert_eq!(times.words_for(60.0), "2 h 0 min");
        assert_eq!(times.words_for(0.1), "1 min");
    }
}
