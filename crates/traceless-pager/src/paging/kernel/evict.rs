//! How pages are evicted from memory.

use super::uffd::{FEATURE_MOVE, FEATURE_THREAD_ID, FEATURE_WP, Uffd};
use crate::paging::error::{Error, Result};

/// How a page is evicted. To copy a page and then discard it, and no more, would lose writes in
/// between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvictMethod {
    /// The page itself is moved, from Linux 6.8 on. A page that is pinned stays.
    Move,
    /// No thread may write to the page while it is copied and discarded. **A page that is pinned,
    /// as by direct I/O, is lost without a sign.**
    Protect,
    /// A planted fault: other threads may write to the page while it is copied and discarded.
    #[cfg(test)]
    Unprotected,
}

impl EvictMethod {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Move, Self::Protect];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Move => "move",
            Self::Protect => "protect",
            #[cfg(test)]
            Self::Unprotected => "unprotected",
        }
    }

    /// The best method that this kernel has.
    pub fn probe() -> Result<Self> {
        match Uffd::features()? {
            features if features & FEATURE_MOVE != 0 => Ok(Self::Move),
            features if features & FEATURE_WP != 0 => Ok(Self::Protect),
            _ => Err(Error::OldKernel),
        }
    }

    /// The features of userfaultfd that it uses. Pages that cannot be moved are protected, where
    /// the kernel can do that.
    pub(crate) fn features(self) -> Result<u64> {
        Ok(match self {
            Self::Move => FEATURE_THREAD_ID | FEATURE_MOVE | (Uffd::features()? & FEATURE_WP),
            Self::Protect => FEATURE_THREAD_ID | FEATURE_WP,
            #[cfg(test)]
            Self::Unprotected => FEATURE_THREAD_ID,
        })
    }
}
