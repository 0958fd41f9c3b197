//! A file that pages go to. It is read and written by system calls, not mapped: then a failure of
//! the file is an error, where a mapping would end the process by a signal.
//!
//! Files that are not a pager's are not overwritten: a file that holds something must end with the
//! mark of this module. The mark is written first, past the pages, so that a pager which is killed
//! at any time leaves a file that is empty or has the mark. A lock keeps a second pager away.

use super::nbd_address::NbdAddress;
use crate::Page;
use crate::paging::error::{Error, Result};
use crate::paging::kernel::memory::check_len;
use crate::paging::kernel::own_files::OwnFile;
use crate::scheme::PageScheme;
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags, fallocate, fstat, ftruncate};
use rustix::io::{Errno, pread, pwrite};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;
use traceless::Hides;
use traceless::store::{Caching, FileStore};

/// Bytes of zeros that are written at a time where space cannot be reserved otherwise.
const ZEROS_LEN: usize = 1 << 16;

/// What the file of a pager ends with.
const MARK: &[u8; 32] = b"pages of traceless run, sealed\n\x01";

/// How often to try to lock a file, and how long to wait in between: helpers of a pager that was
/// killed have its file open for a second more, and longer where processors are busy.
const LOCK_TRIES: u32 = if cfg!(test) { 2 } else { 100 };
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// When a backing file takes its space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// At once, so that it does not run out later; where the file system cannot reserve it, zeros
    /// are written.
    Reserved,
    /// As pages are written: the file has holes.
    Sparse,
}

/// Opens `len` bytes of the file at `path`: creates it, or takes it over from a pager that has
/// ended. Also returns the file's descriptor, which helpers need.
pub fn open(path: &Path, len: u64, space: Space) -> Result<(FileStore, RawFd)> {
    let refused = |what, errno| Error::Backing { path: path.into(), what, errno };
    // `NONBLOCK`: opening a terminal or a pipe does not wait.
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| refused("cannot be opened", errno))?;
    check_kind(&file).map_err(|errno| refused("is no regular file: name one", errno))?;
    lock(&file).map_err(|errno| match errno {
        Errno::AGAIN | Errno::ACCESS => refused("is in use by another program: name one", errno),
        _ => refused("cannot be locked", errno),
    })?;
    check_mark(&file).map_err(|errno| match errno {
        Errno::EXIST => {
            refused("holds something that is no pager's: remove it, or name one", errno)
        }
        _ => refused("cannot be read", errno),
    })?;
    let reserve = |file: &OwnedFd| match space {
        Space::Reserved => fallocate(file, FallocateFlags::empty(), 0, len),
        Space::Sparse => Ok(()),
    };
    reserve_space(&file, len, reserve).map_err(|errno| {
        // The space that was reserved so far is of no use.
        let _ = ftruncate(&file, 0);
        refused(
            match errno {
                Errno::FBIG => "is longer than files may be (ulimit -f), or than it can have",
                _ => "has no room for all pages: make some, or take less --memory",
            },
            errno,
        )
    })?;
    let file = OwnFile::at_high_number(file).keep_open();
    let number = file.as_raw_fd();
    Ok((FileStore::new(File::from(file), len, Caching::Buffered), number))
}

/// Only a regular file has a length that can be set, and a lock.
fn check_kind(file: &OwnedFd) -> Result<(), Errno> {
    let kind = FileType::from_raw_mode(fstat(file)?.st_mode);
    if kind == FileType::RegularFile { Ok(()) } else { Err(Errno::INVAL) }
}

/// Locks the file for as long as it is open, here or in a helper.
fn lock(file: &OwnedFd) -> Result<(), Errno> {
    for _ in 1..LOCK_TRIES {
        match try_lock(file) {
            Err(Errno::AGAIN | Errno::ACCESS) => std::thread::sleep(LOCK_PAUSE),
            locked => return locked,
        }
    }
    try_lock(file)
}

fn try_lock(file: &OwnedFd) -> Result<(), Errno> {
    let whole = libc::flock {
        l_type: libc::F_WRLCK as _,
        l_whence: libc::SEEK_SET as _,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: a system call on a file of ours, with the argument that it takes.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const whole) } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}

/// Refuses a file that holds something and was not left by a pager.
fn check_mark(file: &OwnedFd) -> Result<(), Errno> {
    let len = fstat(file)?.st_size.cast_unsigned();
    if len == 0 {
        return Ok(());
    }
    let mut mark = [0; MARK.len()];
    let at = len.checked_sub(MARK.len() as u64).ok_or(Errno::EXIST)?;
    let read = pread(file, &mut mark[..], at)?;
    if read == MARK.len() && mark == *MARK { Ok(()) } else { Err(Errno::EXIST) }
}

/// Makes the file `len` bytes long, with the mark past them, and has the kernel `reserve` it.
fn reserve_space(
    file: &OwnedFd,
    len: u64,
    reserve: impl FnOnce(&OwnedFd) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let whole = len.checked_add(MARK.len() as u64).ok_or(Errno::FBIG)?;
    ftruncate(file, 0)?;
    check_len(whole)?;
    if pwrite(file, MARK, len)? != MARK.len() {
        return Err(Errno::NOSPC);
    }
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

/// A scheme over a backing file or an export; its errors name it.
pub struct BackedScheme {
    /// The scheme that does all the work.
    pub scheme: Box<dyn PageScheme>,
    /// The error after a failure.
    pub failure: Box<dyn Fn(std::io::Error) -> Error + Send>,
}

impl BackedScheme {
    /// A scheme with its pages in a file.
    pub fn in_file(scheme: Box<dyn PageScheme>, path: PathBuf) -> Self {
        let failure = move |cause| Error::BackingFailed { path: path.clone(), cause };
        Self { scheme, failure: Box::new(failure) }
    }

    /// A scheme with its pages in an export.
    pub fn in_export(scheme: Box<dyn PageScheme>, export: &NbdAddress) -> Self {
        let address = export.to_string();
        let failure = move |cause| Error::ExportFailed { address: address.clone(), cause };
        Self { scheme, failure: Box::new(failure) }
    }

    fn with_name(&self, error: traceless::Error) -> traceless::Error {
        let cause = match error {
            traceless::Error::Io(cause) => cause,
            // A file that was cut also shows up as changed pages.
            changed @ traceless::Error::Tampered { .. } => std::io::Error::other(changed),
            other => return other,
        };
        let failed = (self.failure)(cause);
        traceless::Error::Io(std::io::Error::other(failed))
    }
}

impl PageScheme for BackedScheme {
    fn pages(&self) -> u64 {
        self.scheme.pages()
    }

    fn swap(
        &mut self,
        out: Option<u64>,
        wanted: Option<u64>,
        frame: &mut Page,
    ) -> traceless::Result {
        self.scheme.swap(out, wanted, frame).map_err(|e| self.with_name(e))
    }

    fn swap_with_dummies(
        &mut self,
        out: Option<u64>,
        wanted: Option<u64>,
        frame: &mut Page,
    ) -> traceless::Result {
        self.scheme.swap_with_dummies(out, wanted, frame).map_err(|e| self.with_name(e))
    }

    fn settle(&mut self) -> traceless::Result {
        self.scheme.settle().map_err(|e| self.with_name(e))
    }

    fn look(&mut self, page: u64, into: &mut Page) -> traceless::Result {
        self.scheme.look(page, into).map_err(|e| self.with_name(e))
    }

    fn holds(&self, page: u64) -> bool {
        self.scheme.holds(page)
    }

    fn has_remains(&self, page: u64) -> bool {
        self.scheme.has_remains(page)
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
    fn space_is_reserved_at_once_on_every_file_system() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pages");
        let len = 3 * ZEROS_LEN as u64 + 5;
        let (store, _) = open(&path, len, Space::Reserved).unwrap();
        store.write(&[Extent::new(len - 1, 1)], b"x").unwrap();
        assert!(store.read(&[Extent::new(len + MARK.len() as u64, 1)], &mut [0]).is_err());
        let is_reserved = |path: &Path| {
            let file = std::fs::metadata(path).unwrap();
            file.len() == len + MARK.len() as u64 && file.blocks() * 512 >= len
        };
        assert!(is_reserved(&path));
        let file = OwnedFd::from(File::create(folder.path().join("zeros")).unwrap());
        reserve_space(&file, len, |_| Err(Errno::OPNOTSUPP)).unwrap();
        assert!(is_reserved(&folder.path().join("zeros")));
        let full = reserve_space(&file, len, |_| Err(Errno::NOSPC));
        assert_eq!(full, Err(Errno::NOSPC));
        drop(store);
        let (_store, _) = open(&path, len, Space::Sparse).unwrap();
        assert!(std::fs::metadata(&path).unwrap().blocks() * 512 < len, "the file has holes");
    }

    #[test]
    fn files_that_are_not_a_pagers_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pages");
        let error_of = |path: &Path| open(path, 8192, Space::Reserved).err().unwrap().to_string();
        // Files shorter than the mark, and files as long as a pager's.
        let foreign = [
            vec![7; 1],
            vec![7; 8192 + MARK.len()],
            [&MARK[..], &[0; 8192]].concat(),
            MARK[1..].into(),
        ];
        for contents in foreign {
            std::fs::write(&path, &contents).unwrap();
            assert!(error_of(&path).contains("no pager's"));
            assert_eq!(std::fs::read(&path).unwrap(), contents, "it is as it was");
        }
        assert!(error_of(Path::new("/dev/null")).contains("regular file"));
        std::fs::write(&path, "").unwrap();
        let opened = open(&path, 8192, Space::Reserved).unwrap();
        assert!(error_of(&path).contains("in use"));
        drop(opened);
        open(&path, 4096, Space::Reserved).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096 + MARK.len() as u64);
    }

    #[test]
    fn a_truncated_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pages");
        let (store, _) = open(&path, 8192, Space::Sparse).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        assert!(store.read(&[Extent::new(0, 8192)], &mut [0; 8192]).is_err());
        let nowhere = open(&folder.path().join("none/pages"), 8192, Space::Sparse).err().unwrap();
        assert!(nowhere.to_string().contains("none/pages: "), "{nowhere}");
    }
}
