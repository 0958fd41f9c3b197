//! What is required, and why it cannot be had.

use crate::args::{AdviseArgs, Watcher, WritePattern, YesNo, size_text};

/// Bytes of a block or page of every product but the gateway.
const BLOCK_LEN: u64 = 4096;
/// Bytes that can be protected, at most: so that no product's numbers overflow.
const SIZE_MAX: u64 = 1 << 60;

/// What a user requires of a product.
#[derive(Clone, Debug)]
pub struct Requirements {
    pub watcher: Watcher,
    pub hide_reads: bool,
    /// Bytes that are protected, at least 1.
    pub size: u64,
    pub block_len: Option<u64>,
    pub memory: Option<u64>,
    pub space_factor: Option<f64>,
    /// Percent of requests that write.
    pub writes: Option<u8>,
    pub pattern: Option<WritePattern>,
    /// Queries a second at a constant rate.
    pub rate: Option<u32>,
}

/// Why there is no advice.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum AdviseError {
    #[error("{what} is missing: give {option}, or run `traceless advise` on a terminal")]
    Missing { what: &'static str, option: &'static str },
    #[error("--size 0: there is nothing to protect; give a size of one byte or more")]
    NoSize,
    #[error("--size: {} is the most; give less", size_text(SIZE_MAX))]
    TooLarge,
    #[error("{option} does not apply to this watcher: leave it out, or give --watcher {watchers}")]
    Inapplicable { option: &'static str, watchers: &'static str },
    #[error("--block-len {0}: blocks have 4096 bytes here; leave it out, or give 4096")]
    BlockLen(u64),
    #[error(
        "--memory {} is too little: it takes {} or more; give that, less --size, or a larger \
         --space-factor",
        size_text(*.given), size_text(*.least)
    )]
    Memory { given: u64, least: u64 },
    #[error("--space-factor {given} is too little: it takes {least:.2} or more; give that")]
    Space { given: f64, least: f64 },
    #[error(
        "--memory {} holds all of --size: no page would leave it, so there is nothing to hide; \
         give less --memory, or run the program without paging",
        size_text(*.0)
    )]
    NothingLeaves(u64),
    #[error(
        "{rate} queries a second: {most} is the most; give a smaller --rate, or more --latency"
    )]
    Rate { rate: u32, most: u32 },
    /// The command line cannot be read.
    #[error("{0}")]
    Options(String),
    #[error("{0}; give another --size or --block-len")]
    Parameters(String),
    #[error(
        "{product} protects from this watcher, but this program was built without it (with: \
         {}); build it with --features {feature}",
        super::built_with().join(", ")
    )]
    NotBuilt { product: &'static str, feature: &'static str },
}

impl Requirements {
    /// What the arguments require. `size` is checked where a product protects.
    pub fn new(args: &AdviseArgs) -> Result<Self, AdviseError> {
        let missing = AdviseError::Missing { what: "the adversary", option: "--watcher NAME" };
        let watcher = args.watcher.ok_or(missing)?;
        let required = Self {
            watcher,
            hide_reads: args.hide_reads == Some(YesNo::Yes),
            size: args.size.unwrap_or(0),
            block_len: args.block_len,
            memory: args.memory,
            space_factor: args.space_factor,
            writes: args.writes,
            pattern: args.pattern,
            rate: rate(args),
        };
        if !required.is_protectable() {
            return Ok(required);
        }
        match args.size {
            None => Err(AdviseError::Missing { what: "the size", option: "--size SIZE" }),
            Some(0) => Err(AdviseError::NoSize),
            Some(size) if size > SIZE_MAX => Err(AdviseError::TooLarge),
            Some(_) => required.check_options(args).map(|()| required),
        }
    }

    /// Whether any product protects from the watcher.
    pub fn is_protectable(&self) -> bool {
        protects_from(self.watcher, Some(if self.hide_reads { YesNo::Yes } else { YesNo::No }))
    }

    /// Refuses options that do not apply to the watcher.
    fn check_options(&self, args: &AdviseArgs) -> Result<(), AdviseError> {
        let is_cloud = self.watcher == Watcher::Cloud;
        let is_volume = matches!(self.watcher, Watcher::Copies | Watcher::DeviceWrites);
        let rules = [
            ("--rate", "cloud", args.rate.is_some() && !is_cloud),
            ("--latency", "cloud", args.latency.is_some() && !is_cloud),
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

/// Whether any product protects from a watcher, where reads must be hidden or need not.
pub fn protects_from(watcher: Watcher, hide_reads: Option<YesNo>) -> bool {
    match watcher {
        Watcher::Copies | Watcher::Swap | Watcher::Cloud => true,
        Watcher::DeviceWrites => hide_reads != Some(YesNo::Yes),
        Watcher::Device | Watcher::Bus | Watcher::Kernel => false,
    }
}

/// Queries a second that are enough for `--rate` and `--latency`.
fn rate(args: &AdviseArgs) -> Option<u32> {
    args.rate.max(args.latency.map(|latency| 1000_u32.div_ceil(latency)))
}
