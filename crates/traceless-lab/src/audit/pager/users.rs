//! Programs that page, whom whoever sees the store would like to tell apart.

use super::super::workload::mix;

/// Somebody whose pages come and go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PagerUser {
    InOrder,
    Backwards,
    Random,
    /// A few pages in turn, just too many to stay.
    Few,
    /// Mostly one of a few.
    FewHot,
    /// Any page, and changes none.
    Reads,
    /// Comes back only to pages that were there before it came to any other.
    Old,
    /// A loop that goes through a table of its own for each bit of a secret: ones, or zeros.
    SecretOnes,
    SecretZeros,
}

/// All of them.
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

/// Whom to tell apart.
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

    /// The page, of `n`, that is touched at fault number `i`, if it is not in a frame.
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

    /// Whether it changes the page.
    pub fn changes(self) -> bool {
        self != Self::Reads
    }
}
