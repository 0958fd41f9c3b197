//! Paged memory as a slice.

use super::config::Config;
use super::counters::Summary;
use super::error::Result;
use super::pager::Pager;
use crate::scheme::PageScheme;
use core::ops::{Deref, DerefMut};

/// A plain `&mut [u8]` that is larger than the memory for it.
///
/// 16 MiB of memory, of which 64 pages are resident at a time. The user must have the right to
/// handle page faults.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use traceless_pager::paging::{Config, PagedRegion, SharedMemory};
/// use traceless_pager::scheme::{Areas, DetWo};
/// use traceless_pager::slots::Cipher;
/// use traceless::{rng::System, seal::Secret};
/// use traceless_block::detwo::Refresh;
///
/// let (pages, refresh) = (4096, Refresh::new(3, 1)?);
/// let store = Arc::new(SharedMemory::unnamed(Areas::store_len(pages, refresh))?);
/// let key = Secret::random(&mut System);
/// let areas = Areas::new(store, pages, refresh, Cipher::default(), &key, Box::new(System))?;
/// let config = Config { frames: 64, ..Config::default() };
/// let region = PagedRegion::new(Box::new(DetWo::new(areas)), config);
/// # use traceless_pager::paging::Error;
/// # if let Err(Error::NotAllowed(_) | Error::OldKernel) = region { return Ok(()) }
/// let mut region = region?;
/// // More pages are written than are resident, so some leave and come back.
/// region.iter_mut().step_by(100 * 4096).for_each(|byte| *byte = 1);
/// region[..100 * 4096].fill(2);
/// assert_eq!((region[0], region[500 * 4096], region[500 * 4096 + 1]), (2, 1, 0));
/// assert!(region.stats().evictions > 0);
/// # Ok(())
/// # }
/// ```
pub struct PagedRegion(Pager);

impl PagedRegion {
    /// A region of as many pages of zeros as `scheme` has.
    pub fn new(scheme: Box<dyn PageScheme>, config: Config) -> Result<Self> {
        Pager::start(scheme, config).map(Self)
    }

    /// What was counted so far.
    pub fn stats(&self) -> Summary {
        self.0.stats()
    }

    /// The same as [`Pager::unpin_thread`].
    pub fn unpin_thread(&self, thread: u32, for_good: bool) {
        self.0.unpin_thread(thread, for_good);
    }

    /// Makes some pages zeros for their next access. Nothing is written to the store for that.
    pub fn discard(&mut self, first: usize, pages: usize) -> Result {
        assert!((first + pages) * crate::PAGE_LEN <= self.len(), "the pages exist");
        // SAFETY: `&mut self` means that no other code uses any of it.
        unsafe { self.0.discard(first, pages) }
    }
}

impl Deref for PagedRegion {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: memory of that length that lives as long as the pager. A page that is away comes
        // back with the contents it left with before any code reads it, or the process ends.
        unsafe { core::slice::from_raw_parts(self.0.start_of_memory(), self.0.len()) }
    }
}

impl DerefMut for PagedRegion {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes it the only reference.
        unsafe { core::slice::from_raw_parts_mut(self.0.start_of_memory(), self.0.len()) }
    }
}
