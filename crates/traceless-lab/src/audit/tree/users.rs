//! Users that an adversary tries to distinguish. Steps come at a fixed rate, so the number of a
//! user's requests must stay hidden too.

use super::super::workload::mix;

/// A pattern of requests for blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeUser {
    OneBlock,
    Random,
    InOrder,
    FewHotBlocks,
    /// Consecutive blocks have their entries in different blocks of the map.
    FarApart,
    Idle,
    /// Requests a block in one step of three.
    Seldom,
    /// Requests the same block in one step of three.
    SeldomOne,
    /// Goes through one of two tables for each bit of a secret, here all ones.
    SecretOnes,
    /// Goes through one of two tables for each bit of a secret, here all zeros.
    SecretZeros,
    /// Goes through all blocks before it requests random ones.
    Full,
    /// Requests one block as often as there are blocks, and then random ones.
    Empty,
}

/// All users.
pub const USERS: [TreeUser; 12] = [
    TreeUser::OneBlock,
    TreeUser::Random,
    TreeUser::InOrder,
    TreeUser::FewHotBlocks,
    TreeUser::FarApart,
    TreeUser::Idle,
    TreeUser::Seldom,
    TreeUser::SeldomOne,
    TreeUser::SecretOnes,
    TreeUser::SecretZeros,
    TreeUser::Full,
    TreeUser::Empty,
];

/// Pairs that the adversary tries to distinguish.
pub const PAIRS: [(TreeUser, TreeUser); 9] = [
    (TreeUser::OneBlock, TreeUser::Random),
    (TreeUser::InOrder, TreeUser::Random),
    (TreeUser::FewHotBlocks, TreeUser::FarApart),
    (TreeUser::Idle, TreeUser::Random),
    (TreeUser::Idle, TreeUser::OneBlock),
    (TreeUser::Seldom, TreeUser::InOrder),
    (TreeUser::SeldomOne, TreeUser::Idle),
    (TreeUser::SecretOnes, TreeUser::SecretZeros),
    (TreeUser::Full, TreeUser::Empty),
];

impl TreeUser {
    pub fn name(self) -> &'static str {
        match self {
            Self::OneBlock => "one block",
            Self::Random => "random blocks",
            Self::InOrder => "blocks in order",
            Self::FewHotBlocks => "a few hot blocks",
            Self::FarApart => "blocks far apart",
            Self::Idle => "nothing",
            Self::Seldom => "a block now and then",
            Self::SeldomOne => "one block now and then",
            Self::SecretOnes => "a secret of ones",
            Self::SecretZeros => "a secret of zeros",
            Self::Full => "all, then random blocks",
            Self::Empty => "one, then random blocks",
        }
    }

    /// The block, of `n`, that the user requests at `step` as request number `i`, or none.
    pub fn request(self, step: u64, i: u64, n: u64, seed: u64) -> Option<u64> {
        let random = |salt: u64, below: u64| mix(seed ^ salt, i) % below.max(1);
        let table = |bit: u64| (i % 8 + 8 * bit) % n;
        Some(match self {
            Self::OneBlock => 7 % n,
            Self::Random => random(1, n),
            Self::InOrder => i % n,
            Self::FewHotBlocks if random(2, 10) > 0 => random(3, n / 64),
            Self::FewHotBlocks => random(4, n),
            Self::FarApart => i.wrapping_mul(97) % n,
            Self::Seldom if step.is_multiple_of(3) => random(5, n),
            Self::SeldomOne if step.is_multiple_of(3) => 7 % n,
            Self::Idle | Self::Seldom | Self::SeldomOne => return None,
            Self::SecretOnes => table(1),
            Self::SecretZeros => table(0),
            Self::Full | Self::Empty if i >= n => random(6, n),
            Self::Full => i,
            Self::Empty => 0,
        })
    }
}
