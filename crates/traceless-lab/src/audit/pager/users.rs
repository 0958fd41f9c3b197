//! Programs that page, which an adversary at the store tries to distinguish.

use super::super::workload::mix;

/// A pattern of page faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PagerUser {
    InOrder,
    Backwards,
    Random,
    /// A few pages in turn, just too many for the frames.
    Few,
    /// Mostly one of a few pages.
    FewHot,
    /// Random pages, without a change.
    Reads,
    /// Returns only to its first pages.
    Old,
    /// Goes through one of two tables for each bit of a secret, here all ones.
    SecretOnes,
    /// Goes through one of two tables for each bit of a secret, here all zeros.
    SecretZeros,
}

/// All users.
pub const USERS: [PagerUser; 9] = [
    PagerUser::InOrder,
    PagerUser::Backwards,
    PagerUser::Random,
    PagerUser::Few,
    PagerUser::FewHot,
    PagerUser::Reads,
    PagerUser::Old,
    PagerUser::SecretOnes,
    PagerUser::SecretZeros,
];

/// Pairs that the adversary tries to distinguish.
pub const PAIRS: [(PagerUser, PagerUser); 6] = [
    (PagerUser::InOrder, PagerUser::Random),
    (PagerUser::Backwards, PagerUser::InOrder),
    (PagerUser::Few, PagerUser::Random),
    (PagerUser::FewHot, PagerUser::Reads),
    (PagerUser::Old, PagerUser::InOrder),
    (PagerUser::SecretOnes, PagerUser::SecretZeros),
];

impl PagerUser {
    pub fn name(self) -> &'static str {
        match self {
            Self::InOrder => "pages in order",
            Self::Backwards => "pages backwards",
            Self::Random => "random pages",
            Self::Few => "a few pages",
            Self::FewHot => "a few hot pages",
            Self::Reads => "pages that do not change",
            Self::Old => "pages that were there",
            Self::SecretOnes => "a secret of ones",
            Self::SecretZeros => "a secret of zeros",
        }
    }

    /// The page, of `n`, that fault number `i` brings in, if it is not in a frame.
    pub fn touches(self, i: u64, n: u64, seed: u64) -> u64 {
        let random = |salt: u64, below: u64| mix(seed ^ salt, i) % below;
        match self {
            Self::InOrder => i % n,
            Self::Backwards => n - 1 - i % n,
            Self::Random | Self::Reads => random(1, n),
            Self::Few => i % 6,
            Self::FewHot if random(2, 10) > 0 => random(3, n / 8),
            Self::FewHot => random(4, n),
            Self::Old => random(5, 16),
            Self::SecretOnes => n / 2 + i % 8,
            Self::SecretZeros => i % 8,
        }
    }

    /// Whether the user has a fault that waits for tick number `i`, at a constant rate.
    pub fn faults_at(self, i: u64, seed: u64) -> bool {
        match self {
            Self::InOrder | Self::Backwards | Self::Random | Self::SecretOnes => true,
            Self::Few | Self::FewHot | Self::Reads => mix(seed ^ 6, i).is_multiple_of(2),
            Self::Old => i.is_multiple_of(10),
            Self::SecretZeros => i.is_multiple_of(8),
        }
    }

    /// Whether the user frees a page before tick number `i`, for which no fault waits.
    pub fn frees_at(self, i: u64) -> bool {
        self == Self::Few && i.is_multiple_of(5)
    }

    /// Whether the user changes the page.
    pub fn changes(self) -> bool {
        self != Self::Reads
    }
}
