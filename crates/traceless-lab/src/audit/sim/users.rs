//! Programs that an adversary at the memory bus tries to distinguish.

use super::super::workload::mix;
use super::watch::WatchState;
use std::sync::Arc;
use traceless_sim::oram::Start;
use traceless_sim::workload::{LINE_LEN, Op, Program, Record, Workload};

/// A program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramUser {
    /// Uses only lines that the last cache holds.
    Computes,
    /// Writes a few lines that the last cache holds. They may be written back early, and are used
    /// again meanwhile.
    Dirties,
    /// Random lines, as fast as memory answers.
    Random,
    InOrder,
    /// A few lines that leave the cache before their next use.
    FewMissed,
    /// Mostly a few lines that the cache holds.
    FewHot,
    /// Consecutive lines have their labels in different blocks of the map.
    FarApart,
    Writes,
    /// Many lines for a while, then none for a while.
    Bursts,
    NowAndThen,
    /// Goes through a table for each bit of a secret, with more computation for a one; here all
    /// ones.
    SecretOnes,
    /// The same program with a secret of zeros, which uses another table.
    SecretZeros,
    FourCores,
    /// Random lines in trees that hold nothing at the beginning.
    Empty,
}

/// All programs.
pub const USERS: [ProgramUser; 14] = [
    ProgramUser::Computes,
    ProgramUser::Dirties,
    ProgramUser::Random,
    ProgramUser::InOrder,
    ProgramUser::FewMissed,
    ProgramUser::FewHot,
    ProgramUser::FarApart,
    ProgramUser::Writes,
    ProgramUser::Bursts,
    ProgramUser::NowAndThen,
    ProgramUser::SecretOnes,
    ProgramUser::SecretZeros,
    ProgramUser::FourCores,
    ProgramUser::Empty,
];

/// Pairs that the adversary tries to distinguish.
pub const PAIRS: [(ProgramUser, ProgramUser); 10] = [
    (ProgramUser::Dirties, ProgramUser::Computes),
    (ProgramUser::Random, ProgramUser::Computes),
    (ProgramUser::InOrder, ProgramUser::Random),
    (ProgramUser::InOrder, ProgramUser::Writes),
    (ProgramUser::FewHot, ProgramUser::FarApart),
    (ProgramUser::FewMissed, ProgramUser::Computes),
    (ProgramUser::Bursts, ProgramUser::NowAndThen),
    (ProgramUser::SecretOnes, ProgramUser::SecretZeros),
    (ProgramUser::FourCores, ProgramUser::Random),
    (ProgramUser::Empty, ProgramUser::Random),
];

/// Sets of the last cache: lines this far apart are in the same set.
pub const CACHE_SETS: u64 = 32;
/// Lines of a set of the last cache.
pub const CACHE_WAYS: u64 = 8;

impl ProgramUser {
    pub fn name(self) -> &'static str {
        match self {
            Self::Computes => "a program that computes",
            Self::Dirties => "a program that writes what is cached",
            Self::Random => "random lines",
            Self::InOrder => "lines in order",
            Self::FewMissed => "a few lines, always missed",
            Self::FewHot => "a few hot lines",
            Self::FarApart => "lines far apart",
            Self::Writes => "writes",
            Self::Bursts => "bursts",
            Self::NowAndThen => "a line now and then",
            Self::SecretOnes => "a secret of ones",
            Self::SecretZeros => "a secret of zeros",
            Self::FourCores => "four cores",
            Self::Empty => "an empty tree",
        }
    }

    /// What the trees hold at the beginning.
    pub fn start(self) -> Start {
        if self == Self::Empty { Start::Empty } else { Start::Full }
    }

    /// The program, in `lines` lines of memory. It ends when the watcher has enough steps, or when
    /// a core exceeds `most` instructions.
    pub fn program(self, lines: u64, seed: u64, most: u64, shared: &Arc<WatchState>) -> Program {
        let cores = if self == Self::FourCores { 4 } else { 1 };
        let core = |core: u64| -> Box<dyn Workload> {
            let shared = shared.clone();
            let mut instructions = 0;
            let records = (0..).map_while(move |i| {
                if shared.has_enough() || instructions > most {
                    return None;
                }
                let (before, op, line) = self.request_of(i, lines, mix(seed, core));
                instructions += before + 1;
                shared
                    .set_request((!matches!(self, Self::Computes | Self::Dirties)).then_some(line));
                Some(Record { before, op, addr: line * LINE_LEN })
            });
            Box::new(records)
        };
        Program { threads: (0..cores).map(core).collect() }
    }

    /// Memory operation number `i`: the instructions before it, its kind, and its line.
    fn request_of(self, i: u64, lines: u64, seed: u64) -> (u64, Op, u64) {
        let random = |salt: u64, below: u64| mix(seed ^ salt, i) % below.max(1);
        let write_of = |share: u64| if random(1, share) == 0 { Op::Write } else { Op::Read };
        match self {
            Self::Computes => (3000, write_of(2), i % 8),
            Self::Dirties => (1200, Op::Write, i % CACHE_WAYS * CACHE_SETS % lines),
            Self::Random | Self::FourCores | Self::Empty => (4, write_of(4), random(2, lines)),
            Self::InOrder => (4, Op::Read, i % lines),
            Self::FewMissed => (4, write_of(3), i % 12 * CACHE_SETS % lines),
            Self::FewHot if random(3, 10) > 0 => (20, write_of(3), random(4, 64)),
            Self::FewHot => (20, Op::Read, random(5, lines)),
            Self::FarApart => (4, Op::Read, i.wrapping_mul(97) % lines),
            Self::Writes => (4, Op::Write, random(6, lines)),
            Self::Bursts if i % 64 < 60 => (2, write_of(2), random(7, lines)),
            Self::Bursts => (20_000, Op::Read, random(8, lines)),
            Self::NowAndThen => (15_000, write_of(2), random(9, lines)),
            Self::SecretOnes => (600, Op::Read, (i % 600 + 600) % lines),
            Self::SecretZeros => (40, Op::Read, i % 600 % lines),
        }
    }
}
