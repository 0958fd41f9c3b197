//! The processors of a machine, which all running jobs share equally.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Jobs on a number of processors. None runs on two at a time.
pub struct SharedProcessors<T> {
    cores: f64,
    /// The work that each job since the beginning would have got.
    work: f64,
    at: f64,
    count: u64,
    running: BinaryHeap<Reverse<ProcessorJob<T>>>,
    busy: f64,
}

struct ProcessorJob<T> {
    /// The job ends when [`SharedProcessors::work`] has come to this.
    ends_at: f64,
    number: u64,
    token: T,
}

impl<T> SharedProcessors<T> {
    /// Idle processors.
    pub fn new(cores: f64) -> Self {
        Self { cores, work: 0.0, at: 0.0, count: 0, running: BinaryHeap::new(), busy: 0.0 }
    }

    /// Adds a job that takes so many seconds of a processor.
    pub fn add(&mut self, now: f64, seconds: f64, token: T) {
        self.advance(now);
        self.count += 1;
        let ends_at = self.work + seconds;
        self.running.push(Reverse(ProcessorJob { ends_at, number: self.count, token }));
    }

    /// When the next job ends, if none is added before.
    pub fn next_end(&self) -> Option<f64> {
        let Reverse(first) = self.running.peek()?;
        Some(self.at + (first.ends_at - self.work).max(0.0) / self.rate())
    }

    /// Removes the job that ends first; `now` is its end.
    pub fn take_first(&mut self, now: f64) -> Option<T> {
        self.advance(now);
        self.running.pop().map(|Reverse(job)| {
            self.work = self.work.max(job.ends_at);
            job.token
        })
    }

    /// How many jobs were added or have ended.
    pub fn changes(&self) -> u64 {
        2 * self.count - self.running.len() as u64
    }

    /// Seconds of processors used so far.
    pub fn busy(&self) -> f64 {
        self.busy
    }

    fn rate(&self) -> f64 {
        (self.cores / self.running.len() as f64).min(1.0)
    }

    fn advance(&mut self, now: f64) {
        if !self.running.is_empty() {
            let work = (now - self.at) * self.rate();
            self.work += work;
            self.busy += work * self.running.len() as f64;
        }
        self.at = now;
    }
}

impl<T> Ord for ProcessorJob<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.ends_at.total_cmp(&other.ends_at).then(self.number.cmp(&other.number))
    }
}

impl<T> PartialOrd for ProcessorJob<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for ProcessorJob<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for ProcessorJob<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless::rng::{Rng, SeededRng};

    #[test]
    fn jobs_share_processors_equally() {
        let mut two = SharedProcessors::new(2.0);
        two.add(0.0, 3.0, 'a');
        two.add(0.0, 1.0, 'b');
        // Each job has a processor of its own, until there are three.
        assert_eq!(two.next_end(), Some(1.0));
        two.add(0.5, 1.0, 'c');
        assert_eq!(two.next_end(), Some(1.25));
        assert_eq!(two.take_first(1.25), Some('b'));
        assert_eq!((two.next_end(), two.take_first(1.75)), (Some(1.75), Some('c')));
        assert_eq!((two.next_end(), two.take_first(3.25)), (Some(3.25), Some('a')));
        assert_eq!((two.next_end(), two.busy()), (None, 5.0));
    }

    /// In the mean a job of a second takes 1 / (1 - load) at one shared processor, for any
    /// lengths of jobs.
    #[test]
    fn a_shared_processor_at_random_times_takes_as_long_as_theory_has_it() {
        let (mut rng, load) = (SeededRng::new(7), 0.7);
        let mut random = || (rng.below(1 << 30) as f64 + 1.0) / f64::from(1 << 30);
        for is_even in [true, false] {
            let mut one = SharedProcessors::new(1.0);
            let (mut arrival, mut sum, mut count) = (0.0, 0.0, 0);
            while count < 200_000 {
                if one.next_end().is_some_and(|end| end <= arrival) {
                    let end = one.next_end().unwrap();
                    let began: f64 = one.take_first(end).unwrap();
                    (sum, count) = (sum + end - began, count + 1);
                } else {
                    let seconds = if is_even { 1.0 } else { -random().ln() };
                    one.add(arrival, seconds, arrival);
                    arrival -= random().ln() / load;
                }
            }
            let mean = sum / f64::from(count);
            assert!((mean * (1.0 - load) - 1.0).abs() < 0.05, "{mean}");
        }
    }
}
