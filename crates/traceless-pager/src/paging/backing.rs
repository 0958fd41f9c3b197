//! A file that pages go to. It is read and written by orders to the kernel, not mapped: what goes
//! wrong with it is an error then, where a mapping would end the process by a signal.

use super::error::{Error, Result};
use super::files::OwnFile;
use super::memory::lengthen;
use crate::Page;
use crate::scheme::PageScheme;
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, ftruncate};
use rustix::io::{Errno, pwrite};
use std::fs::File;
use std::path::{Path, PathBuf};
use traceless::Hides;
use traceless::store::{Caching, FileStore};

/// Zeros that are written at a time where space cannot be taken otherwise, in bytes.
const ZEROS_LEN: usize = 1 << 16;

/// `len` bytes of the file at `path`, made or overwritten. The space is taken at once, so that
/// there is some later; where the file system cannot do that, zeros are written. Tells its
/// number, too: that of a file which helpers need.
pub fn open(path: &Path, len: u64) -> Result<(FileStore, RawFd)> {
    let refused = |what, errno| Error::Backing { path: path.into(), what, errno };
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| refused("cannot be opened", errno))?;
    take_space(&file, len, |file| fallocate(file, FallocateFlags::empty(), 0, len)).map_err(
        |errno| {
            // What there was of it is of no use to anybody.
            let _ = ftruncate(&file, 0);
            refused(
                match errno {
                    Errno::FBIG => "is longer than files may be (ulimit -f), or than it can have",
                    _ => "has no room for all pages: make some, or take less --memory",
                },
                errno,
            )
        },
    )?;
    let file = OwnFile::out_of_the_way(file).for_good();
    let number = file.as_raw_fd();
    Ok((FileStore::new(File::from(file), len, Caching::Buffered), number))
}

/// Makes the file that long, and has the kernel `reserve` it.
fn take_space(
    file: &OwnedFd,
    len: u64,
    reserve: impl FnOnce(&OwnedFd) -> Result<(), Errno>,
) -> Result<(), Errno> {
    ftruncate(file, 0)?;
    lengthen(file, len)?;
    match reserve(file) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, len),
        reserved => reserved,
    }
}

fn write_zeros(file: &OwnedFd, len: u64) -> Result<(), Errno> {
    let zeros = vec![0; ZEROS_LEN];
    let mut at = 0;
    while at < len {
        let part = zeros.len().min(usize::try_from(len - at).unwrap_or(usize::MAX));
        at += match pwrite(file, &zeros[..part], at) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => written as u64,
            Err(Errno::INTR) => 0,
            Err(errno) => return Err(errno),
        };
    }
    Ok(())
}

/// A scheme over such a file, which says which one when it fails.
pub struct OfFile {
    /// It does all the work.
    pub scheme: Box<dyn PageScheme>,
    /// Its file.
    pub path: PathBuf,
}

impl OfFile {
    fn named(&self, error: traceless::Error) -> traceless::Error {
        let cause = match error {
            traceless::Error::Io(cause) => cause,
            // What is found changed there may have been cut before.
            changed @ traceless::Error::Tampered { .. } => std::io::Error::other(changed),
            other => return other,
        };
        let failed = Error::BackingFailed { path: self.path.clone(), cause };
        traceless::Error::Io(std::io::Error::other(failed))
    }
}

impl PageScheme for OfFile {
    fn pages(&self) -> u64 {
        self.scheme.pages()
    }

    fn swap(
        &mut self,
        out: Option<u64>,
        wanted: Option<u64>,
        frame: &mut Page,
    ) -> traceless::Result {
        self.scheme.swap(out, wanted, frame).map_err(|e| self.named(e))
    }

    fn settle(&mut self) -> traceless::Result {
        self.scheme.settle().map_err(|e| self.named(e))
    }

    fn look(&mut self, page: u64, into: &mut Page) -> traceless::Result {
        self.scheme.look(page, into).map_err(|e| self.named(e))
    }

    fn holds(&self, page: u64) -> bool {
        self.scheme.holds(page)
    }

    fn forget(&mut self, page: u64) {
        self.scheme.forget(page);
    }

    fn hides(&self) -> Hides {
        self.scheme.hides()
    }

    fn trusted_bytes(&self) -> usize {
        self.scheme.trusted_bytes()
    }

    fn keep_off(&self, cpu: Option<usize>) {
        self.scheme.keep_off(cpu);
    }

    fn helper_cpu_ns(&self) -> u64 {
        self.scheme.helper_cpu_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use traceless::store::Store;
    use traceless::types::Extent;

    #[test]
    fn its_space_is_taken_at_once_whatever_the_file_system_can_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pages");
        let len = 3 * ZEROS_LEN as u64 + 5;
        std::fs::write(&path, vec![7; 2 * len as usize]).unwrap();
        let (store, _) = open(&path, len).unwrap();
        store.write(&[Extent::new(len - 1, 1)], b"x").unwrap();
        assert!(store.read(&[Extent::new(len, 1)], &mut [0]).is_err());
        let taken = |path: &Path| {
            let file = std::fs::metadata(path).unwrap();
            file.len() == len && file.blocks() * 512 >= len
        };
        assert!(taken(&path));
        let file = OwnedFd::from(File::create(folder.path().join("zeros")).unwrap());
        take_space(&file, len, |_| Err(Errno::OPNOTSUPP)).unwrap();
        assert!(taken(&folder.path().join("zeros")));
        let full = take_space(&file, len, |_| Err(Errno::NOSPC));
        assert_eq!(full, Err(Errno::NOSPC));
    }

    #[test]
    fn a_file_that_was_cut_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pages");
        let (store, _) = open(&path, 8192).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        assert!(store.read(&[Extent::new(0, 8192)], &mut [0; 8192]).is_err());
        let nowhere = open(&folder.path().join("none/pages"), 8192).err().unwrap();
        assert!(nowhere.to_string().contains("none/pages: "), "{nowhere}");
    }
}
