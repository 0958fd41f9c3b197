//! What the pager needs in its own process to take pages out of the program.

use super::memory::Mapping;
use super::own_files::OwnFile;
use super::uffd::Uffd;
use crate::paging::error::{Error, Result};
use crate::{PAGE_LEN, Page};
use core::sync::atomic::AtomicUsize;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, pread};
use std::sync::OnceLock;

/// The pager's mapping in this process, and where pages wait between two places.
pub struct OwnPages {
    /// Pages of the program, the staging page, the shutdown page, places of the standby list.
    pub mapping: Mapping,
    /// Address of the staging page.
    pub staging: usize,
    /// The staging page of pages that the program may execute and write: the kernel moves pages
    /// between memory of the same protection only.
    executable: OnceLock<Mapping>,
    /// The staging page that the page which left last was moved to; 0 if it was copied.
    pub staged: AtomicUsize,
    /// Whether pages can be protected, and so be copied while the program runs.
    pub protects: bool,
    /// The memory of this process as a file, which has pages without access, too.
    contents: OwnFile,
}

impl OwnPages {
    /// Uses a mapping with the staging page at an address.
    pub fn new(mapping: Mapping, staging: usize, protects: bool) -> Result<Self> {
        let file = open("/proc/self/mem", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let file = file.map_err(|e| Error::os("/proc/self/mem cannot be opened", e))?;
        Ok(Self {
            mapping,
            staging,
            executable: OnceLock::new(),
            staged: AtomicUsize::new(0),
            protects,
            contents: OwnFile::at_high_number(file),
        })
    }

    /// Maps the staging page of executable pages, like the mapping otherwise. Without it these
    /// pages are copied.
    pub fn map_executable_staging(&self, uffd: &Uffd) {
        if self.executable.get().is_some() {
            return;
        }
        let Ok(page) = Mapping::paged(PAGE_LEN, None) else { return };
        let is_alike = page.make_executable().is_ok()
            && (!self.mapping.is_locked() || page.lock().is_ok())
            && uffd.register(page.start(), PAGE_LEN, self.protects).is_ok();
        if is_alike {
            self.executable.get_or_init(|| page);
        }
    }

    /// Locks all of it.
    pub fn lock(&self) -> Result<(), Errno> {
        self.mapping.lock()?;
        self.executable.get().map_or(Ok(()), Mapping::lock)
    }

    /// The staging pages, the one of most pages first.
    pub fn staging_pages(&self) -> impl Iterator<Item = usize> + '_ {
        core::iter::once(self.staging).chain(self.executable.get().map(Mapping::start))
    }

    /// Copies a page that is present, also where the program may not read it.
    pub fn read(&self, address: usize, into: &mut Page) -> Result {
        match pread(&self.contents, &mut into[..], address as u64) {
            Ok(PAGE_LEN) => Ok(()),
            Ok(_) => Err(Error::os("a page cannot be read", Errno::FAULT)),
            Err(e) => Err(Error::os("a page cannot be read", e)),
        }
    }
}
