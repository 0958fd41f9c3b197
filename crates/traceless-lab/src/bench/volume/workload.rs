//! Requests to a volume: the workloads of the `SqORAM` paper's evaluation.

use super::client::NbdCommand;
use traceless::rng::{Rng, SeededRng};

pub const LARGE: usize = 1 << 20;
pub const SMALL: usize = 4096;

/// The order of a workload's requests in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    Sequential,
    /// Uniformly random places.
    Random,
}

/// The number of a workload's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// As many bytes as the file has, times the first number, over the second.
    OfFile(u64, u64),
    /// The number from the command line, but no more requests than the file has places.
    Requests,
}

/// Requests of one size in one order, with a percentage of reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestPattern {
    pub name: &'static str,
    pub order: Order,
    pub request_len: usize,
    pub read_percent: u64,
    pub amount: Amount,
}

const fn large(name: &'static str, order: Order, read_percent: u64) -> RequestPattern {
    let amount = match order {
        Order::Sequential => Amount::OfFile(1, 1),
        Order::Random => Amount::OfFile(1, 4),
    };
    RequestPattern { name, order, request_len: LARGE, read_percent, amount }
}

const fn small(name: &'static str, order: Order, read_percent: u64) -> RequestPattern {
    RequestPattern { name, order, request_len: SMALL, read_percent, amount: Amount::Requests }
}

/// Writes the whole file in order. Also makes the file before a measurement.
pub const FILL: RequestPattern = large("seq-write-1m", Order::Sequential, 0);
/// Reads the whole file in order, just after it was written.
pub const READ_FRESH: RequestPattern = large("seq-read-1m", Order::Sequential, 100);
/// Rewrites a tenth of the blocks at random places.
pub const AGE: RequestPattern =
    RequestPattern { amount: Amount::OfFile(1, 10), ..small("aging-rewrite-4k", Order::Random, 0) };
/// Reads the whole file in order, after [`AGE`].
pub const READ_AGED: RequestPattern = large("aging-read-1m", Order::Sequential, 100);
/// Writes random blocks, twice as many as the file has.
pub const OVERWRITE: RequestPattern =
    RequestPattern { amount: Amount::OfFile(2, 1), ..small("overwrite-2n-4k", Order::Random, 0) };
pub const RANDOM_READ: RequestPattern = small("random-read-4k", Order::Random, 100);
/// The usual share of reads in the work of a file system.
pub const MIX: RequestPattern = small("mix-70-30-4k", Order::Random, 70);

/// A round of the suite: each workload finds the volume as the earlier ones leave it.
pub const SUITE: [RequestPattern; 18] = [
    FILL,
    READ_FRESH,
    AGE,
    READ_AGED,
    small("seq-read-4k", Order::Sequential, 100),
    RANDOM_READ,
    large("random-read-1m", Order::Random, 100),
    small("seq-write-4k", Order::Sequential, 0),
    small("random-write-4k", Order::Random, 0),
    large("random-write-1m", Order::Random, 0),
    small("mix-90-10-4k", Order::Random, 90),
    MIX,
    small("mix-50-50-4k", Order::Random, 50),
    small("mix-30-70-4k", Order::Random, 30),
    large("mix-90-10-1m", Order::Random, 90),
    large("mix-70-30-1m", Order::Random, 70),
    large("mix-50-50-1m", Order::Random, 50),
    large("mix-30-70-1m", Order::Random, 30),
];

impl RequestPattern {
    /// The pattern's requests on a file of `file_bytes` bytes; the same for the same `seed`.
    pub fn requests(
        &self,
        file_bytes: u64,
        requests_max: u64,
        seed: u64,
    ) -> Vec<(NbdCommand, u64)> {
        let len = self.request_len as u64;
        let places = file_bytes / len;
        let count = match self.amount {
            Amount::OfFile(times, over) => (places * times / over).max(1),
            Amount::Requests => requests_max.min(places),
        };
        let mut rng = SeededRng::new(seed);
        let request = |number: u64| {
            let place = match self.order {
                Order::Sequential => number,
                Order::Random => rng.below(places),
            };
            let is_read = rng.below(100) < self.read_percent;
            (if is_read { NbdCommand::Read } else { NbdCommand::Write }, place * len)
        };
        (0..count).map(request).collect()
    }

    /// Whether the pattern writes anything: then a run ends with a flush.
    pub fn writes(&self) -> bool {
        self.read_percent < 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u64 = 64 << 20;

    #[test]
    fn a_sequence_visits_the_whole_file_in_order() {
        let requests = FILL.requests(FILE, 0, 1);
        assert_eq!(requests.len(), 64);
        let follows = |pair: &[(NbdCommand, u64)]| pair[1].1 == pair[0].1 + LARGE as u64;
        assert!(requests.windows(2).all(follows));
        assert!(requests.iter().all(|(command, _)| *command == NbdCommand::Write));
        assert!(READ_FRESH.requests(FILE, 0, 1).iter().all(|r| r.0 == NbdCommand::Read));
    }

    #[test]
    fn a_mix_has_its_shares_and_repeats_with_its_seed() {
        let requests = MIX.requests(FILE, 10_000, 5);
        let reads = requests.iter().filter(|r| r.0 == NbdCommand::Read).count();
        assert!((6_700..7_300).contains(&reads), "{reads}");
        assert!(requests.iter().all(|r| r.1 < FILE && r.1.is_multiple_of(SMALL as u64)));
        assert_eq!(requests, MIX.requests(FILE, 10_000, 5));
        assert_ne!(requests, MIX.requests(FILE, 10_000, 6));
    }

    #[test]
    fn amounts_follow_the_file() {
        assert_eq!(AGE.requests(FILE, 3, 1).len(), 1638);
        assert_eq!(OVERWRITE.requests(FILE, 3, 1).len(), 2 * 16384);
        assert_eq!(RANDOM_READ.requests(FILE, 3, 1).len(), 3);
        assert_eq!(RANDOM_READ.requests(FILE, u64::MAX, 1).len(), 16384);
    }

    #[test]
    fn workload_names_differ() {
        for (i, workload) in SUITE.iter().enumerate() {
            assert!(SUITE[..i].iter().all(|other| other.name != workload.name));
        }
    }
}
