//! What is required, and why it cannot be had.

use super::sizes::size_text;
use serde::Serialize;
use std::num::NonZeroU32;

/// Bytes of a block or page of every product but the gateway.
pub const BLOCK_LEN: u64 = 4096;
/// Bytes that can be protected, at most: so that no product's numbers overflow.
const SIZE_MAX: u64 = 1 << 60;

/// What an adversary observes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Watcher {
    /// Copies of the disk, taken at any time: snapshots, backups, a thief.
    Copies,
    /// Every write to a block device, as its provider.
    DeviceWrites,
    /// Every read and write of a block device, as its provider.
    Device,
    /// The store that a program's pages go to, a swap file.
    Swap,
    /// A store of values or objects, as its provider, but for the inside of its enclave.
    Cloud,
    /// Every address on the memory bus of a processor.
    Bus,
    /// All of this machine, as its kernel or its administrator.
    Kernel,
}

/// Which blocks of a volume are written after each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WritePattern {
    /// Neighbours, in long runs: files as a whole.
    Runs,
    /// A few here and there: databases, files that are rewritten in places.
    Scattered,
}

/// What a user requires of a product. What is `None` is not limited, or left to the advice.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Requirements {
    /// The adversary.
    pub watcher: Watcher,
    /// Whether reads must be hidden, too.
    pub hide_reads: bool,
    /// Bytes that are protected: at least 1 where a product protects.
    pub size: u64,
    /// Bytes of a block, with the watcher `Cloud`. Other products have blocks of 4096 bytes.
    pub block_len: Option<u64>,
    /// Bytes of memory that may be taken.
    pub memory: Option<u64>,
    /// Bytes of store for each byte that is protected, at most.
    pub space_factor: Option<f64>,
    /// Percent of requests that write, to a volume.
    pub writes: Option<u8>,
    /// How a volume is written.
    pub pattern: Option<WritePattern>,
    /// Blocks a second that clients need at most, with the watcher `Cloud`: that many queries are
    /// then always sent.
    pub rate: Option<NonZeroU32>,
    /// Milliseconds that a request may wait for its query, with the watcher `Cloud`: queries are
    /// then sent at a constant rate that is high enough.
    pub latency: Option<NonZeroU32>,
    /// Dollars a month that hosts and gateway may cost, with the watcher `Cloud`.
    pub dollars: Option<f64>,
}

/// Why there is no advice.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum AdviseError {
    /// The size is 0, and a product protects.
    #[error("--size 0: there is nothing to protect; give a size of one byte or more")]
    NoSize,
    /// The size is more than 1 EiB.
    #[error("--size: {} is the most; give less", size_text(SIZE_MAX))]
    TooLarge,
    /// A requirement that the product for this watcher does not know.
    #[error("{option} does not apply to this watcher: leave it out, or give --watcher {watchers}")]
    Inapplicable {
        /// The option of `traceless advise` that stands for it.
        option: &'static str,
        /// The watchers that it applies to.
        watchers: &'static str,
    },
    /// Another length of a block than a volume or a paged program has.
    #[error("--block-len {0}: blocks have 4096 bytes here; leave it out, or give 4096")]
    BlockLen(u64),
    /// No candidate has so little memory.
    #[error(
        "--memory {} is too little: it takes {} or more; give that, less --size, or a larger \
         --space-factor",
        size_text(*.given), size_text(*.least)
    )]
    Memory {
        /// Bytes that may be taken.
        given: u64,
        /// Bytes that are enough.
        least: u64,
    },
    /// No candidate has so little space.
    #[error("--space-factor {given} is too little: it takes {least:.2} or more; give that")]
    Space {
        /// Bytes of store for each byte that may be taken.
        given: f64,
        /// The same that are enough.
        least: f64,
    },
    /// No candidate costs so little.
    #[error(
        "--dollars {given} are too few: it costs {:.2} or more a month; give that, or less --size \
         or --rate",
        (least * 100.0).ceil() / 100.0
    )]
    Dollars {
        /// Dollars a month that may be paid.
        given: f64,
        /// Dollars a month that are enough.
        least: f64,
    },
    /// All pages of a program would be resident, in so many bytes.
    #[error(
        "--memory {} holds all of --size: no page would leave it, so there is nothing to hide; \
         give less --memory, or run the program without paging",
        size_text(*.0)
    )]
    NothingLeaves(u64),
    /// More queries than a gateway sends.
    #[error(
        "{rate} queries a second: {most} is the most; give a smaller --rate, or more --latency"
    )]
    Rate {
        /// Queries a second that are required.
        rate: u32,
        /// Queries a second that a gateway sends.
        most: u32,
    },
    /// The product refuses every choice of parameters.
    #[error("{0}; give another --size or --block-len")]
    Parameters(String),
    /// A product protects that this crate was built without.
    #[error(
        "{product} protects from this watcher, but this program was built without it (with: \
         {}); build it with --features {feature}",
        super::built_with().join(", ")
    )]
    NotBuilt {
        /// The product's command.
        product: &'static str,
        /// The feature that brings it.
        feature: &'static str,
    },
}

impl Watcher {
    /// Whether any product protects from it, where reads must be hidden or need not.
    pub fn has_protection(self, hide_reads: bool) -> bool {
        match self {
            Self::Copies | Self::Swap | Self::Cloud => true,
            Self::DeviceWrites => !hide_reads,
            Self::Device | Self::Bus | Self::Kernel => false,
        }
    }
}

impl Requirements {
    /// So many bytes are to be hidden from a watcher. Reads need not be hidden, and nothing is
    /// limited.
    pub fn new(watcher: Watcher, size: u64) -> Self {
        Self {
            watcher,
            hide_reads: false,
            size,
            block_len: None,
            memory: None,
            space_factor: None,
            writes: None,
            pattern: None,
            rate: None,
            latency: None,
            dollars: None,
        }
    }

    /// Whether any product protects from the watcher.
    pub fn is_protectable(&self) -> bool {
        self.watcher.has_protection(self.hide_reads)
    }

    /// Refuses a size that cannot be, and options that do not apply to the watcher.
    pub(super) fn check(&self) -> Result<(), AdviseError> {
        match self.size {
            0 => return Err(AdviseError::NoSize),
            size if size > SIZE_MAX => return Err(AdviseError::TooLarge),
            _ => {}
        }
        let is_cloud = self.watcher == Watcher::Cloud;
        let is_volume = matches!(self.watcher, Watcher::Copies | Watcher::DeviceWrites);
        let rules = [
            ("--rate", "cloud", self.rate.is_some() && !is_cloud),
            ("--latency", "cloud", self.latency.is_some() && !is_cloud),
            ("--dollars", "cloud", self.dollars.is_some() && !is_cloud),
            ("--writes", "copies or device-writes", self.writes.is_some() && !is_volume),
            ("--pattern", "copies or device-writes", self.pattern.is_some() && !is_volume),
        ];
        if let Some((option, watchers, _)) = rules.into_iter().find(|(.., applies)| *applies) {
            return Err(AdviseError::Inapplicable { option, watchers });
        }
        match self.block_len {
            Some(len) if !is_cloud && len != BLOCK_LEN => Err(AdviseError::BlockLen(len)),
            _ => Ok(()),
        }
    }

    /// Queries a second at a constant rate that are enough for `rate` and `latency`.
    pub fn queries_per_second(&self) -> Option<u32> {
        let of_latency = self.latency.map(|latency| 1000_u32.div_ceil(latency.get()));
        self.rate.map(NonZeroU32::get).max(of_latency)
    }

    /// Whether a factor of space is allowed.
    pub fn allows_space(&self, factor: f64) -> bool {
        self.space_factor.is_none_or(|most| factor <= most)
    }

    /// Whether so much memory is allowed.
    pub fn allows_memory(&self, bytes: u64) -> bool {
        self.memory.is_none_or(|most| bytes <= most)
    }

    /// The error for costs of which none is allowed: pairs of memory and space.
    pub fn refusal(&self, costs: &[(u64, f64)]) -> AdviseError {
        let spacious = costs.iter().filter(|(_, space)| self.allows_space(*space));
        let least_memory = spacious.map(|(memory, _)| *memory).min();
        match (self.memory, least_memory, self.space_factor) {
            (Some(given), Some(least), _) => {
                AdviseError::Memory { given, least: least.next_multiple_of(1024) }
            }
            (_, None, Some(given)) => {
                let least = costs.iter().map(|(_, space)| *space).fold(f64::INFINITY, f64::min);
                AdviseError::Space { given, least: (least * 100.0).ceil() / 100.0 }
            }
            _ => AdviseError::Parameters("no parameters fit".to_owned()),
        }
    }
}
