//! `traceless advise`

use super::common::parse_size;
use clap::{Args, ValueEnum};

#[derive(Args, Clone, Default, Debug)]
pub struct AdviseArgs {
    /// The adversary: what it observes
    #[arg(long, value_name = "NAME", value_enum)]
    pub watcher: Option<Watcher>,
    /// Whether reads must be hidden, too
    #[arg(long, value_name = "yes|no", value_enum, hide_possible_values = true)]
    pub hide_reads: Option<YesNo>,
    /// How much is to be protected: bytes of the disk, of all paged memory, or of all values
    /// together
    #[arg(long, value_parser = parse_size)]
    pub size: Option<u64>,
    /// Bytes of a block, with --watcher cloud [default: the smallest that fits --memory]. A volume
    /// and a paged program have blocks of 4096 bytes
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub block_len: Option<u64>,
    /// Memory that may be taken: by the map and buffers of a volume, by resident pages and the
    /// scheme of a paged program, or by the map and the waiting blocks of a gateway
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// Bytes of store for each byte of --size, at most, as 2.5. A scheme that writes less for more
    /// than about twice the space is chosen only if this allows it
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor)]
    pub space_factor: Option<f64>,
    /// Requests of a hundred that write, to a volume
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub writes: Option<u8>,
    /// Which blocks of a volume are written after each other
    #[arg(long, value_enum)]
    pub pattern: Option<WritePattern>,
    /// Blocks a second that clients need at most, with --watcher cloud: that many queries are then
    /// always sent, with and without requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: Option<u32>,
    /// Milliseconds that a request may wait for its query, if no other waits, with --watcher cloud:
    /// queries are then sent at a constant rate that is high enough
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..))]
    pub latency: Option<u32>,
    /// Dollars a month that hosts and gateway may cost, with --watcher cloud, at the prices of
    /// `traceless plan cloud`
    #[arg(long, value_name = "USD", value_parser = parse_dollars)]
    pub dollars: Option<f64>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// What an adversary observes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Watcher {
    /// Copies of the disk, taken at any time: snapshots, backups, a thief
    Copies,
    /// Every write to a block device, as its provider
    DeviceWrites,
    /// Every read and write of a block device, as its provider
    Device,
    /// The store that a program's pages go to, a swap file
    Swap,
    /// A store of values or objects, as its provider, but for the inside of its enclave
    Cloud,
    /// Every address on the memory bus of a processor
    Bus,
    /// All of this machine, as its kernel or its administrator
    Kernel,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum YesNo {
    /// It must
    Yes,
    /// It need not
    No,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum WritePattern {
    /// Neighbours, in long runs: files as a whole
    Runs,
    /// A few here and there: databases, files that are rewritten in places
    Scattered,
}

/// Reads a factor of at least 1.
pub fn parse_factor(text: &str) -> Result<f64, String> {
    let factor = text.trim().parse().ok().filter(|factor: &f64| factor.is_finite());
    factor.filter(|&factor| factor >= 1.0).ok_or_else(|| "a factor is 1 or more, as 2.5".to_owned())
}

/// Reads a sum of money.
pub fn parse_dollars(text: &str) -> Result<f64, String> {
    let dollars = text.trim().parse().ok().filter(|dollars: &f64| dollars.is_finite());
    dollars.filter(|&dollars| dollars > 0.0).ok_or_else(|| "dollars are more than 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_one_or_more_and_dollars_more_than_none() {
        assert_eq!(parse_factor("2.5"), Ok(2.5));
        for wrong in ["0.9", "-1", "nan", "inf", "x", ""] {
            assert!(parse_factor(wrong).unwrap_err().contains("as 2.5"), "{wrong}");
        }
        assert_eq!(parse_dollars("0.5"), Ok(0.5));
        assert!(
            ["0", "-1", "nan", "inf", "x", ""].iter().all(|wrong| parse_dollars(wrong).is_err())
        );
    }
}
