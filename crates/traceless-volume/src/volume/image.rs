//! The image file or device: opening, locking, and unlocking it with a key.

use crate::error::{Error, Result};
use crate::format::{DeniableSlots, HEADER_LEN, Header, ImageSalt, KeySlots, Keys, UserKey};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::{FileType, OFlags};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use traceless_core::store::Caching;

/// An open image. Its lock is held until it is dropped.
pub(super) struct Image {
    file: File,
    path: PathBuf,
    caching: Caching,
    read_only: bool,
    /// A second open file that holds the lock, if `file` is not open for writing.
    lock_file: Option<File>,
}

/// An image's header, and the keys derived for it.
pub struct UnlockedHeader {
    /// The header; its tag was verified.
    pub header: Header,
    /// The volume's keys.
    pub keys: Keys,
    /// The number of the key slot that was opened.
    pub slot: usize,
}

impl Image {
    /// Opens an existing image. If the file system has no direct I/O, buffered I/O is used. A block
    /// device that is opened for writing must not be in use: mounted, part of another device, or
    /// open as another volume.
    pub fn open(path: &Path, read_only: bool, caching: Caching) -> Result<Self> {
        // With O_EXCL the kernel refuses a block device in use; for a regular file the flag has no
        // effect.
        let found = std::fs::metadata(path).map_err(|e| failed("open", path, e))?;
        let claims = !read_only && found.file_type().is_block_device();
        let exclusive = if claims { OFlags::EXCL } else { OFlags::empty() };
        let open = |flags: OFlags| {
            OpenOptions::new()
                .read(true)
                .write(!read_only)
                .custom_flags((flags | exclusive).bits().cast_signed())
                .open(path)
        };
        let (file, caching) = match caching {
            Caching::Direct => match open(OFlags::DIRECT) {
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                    (open(OFlags::empty()), Caching::Buffered)
                }
                other => (other, Caching::Direct),
            },
            Caching::Buffered => (open(OFlags::empty()), Caching::Buffered),
        };
        let file = match file {
            Err(e) if claims && e.raw_os_error() == Some(libc::EBUSY) => {
                return Err(Error::Busy(path.into()));
            }
            other => other.map_err(|e| failed("open", path, e))?,
        };
        let opened = file.metadata().map_err(|e| failed("read", path, e))?;
        if opened.is_dir() {
            return Err(Error::NotAVolume(path.into()));
        }
        if !read_only && opened.file_type().is_block_device() != claims {
            // Another file has taken the path between `metadata` and `open`.
            return Err(Error::Busy(path.into()));
        }
        Ok(Self { file, path: path.into(), caching, read_only, lock_file: None })
    }

    /// Wraps a file that was just created.
    pub fn from_file(file: File, path: &Path) -> Self {
        let (path, caching) = (path.into(), Caching::Buffered);
        Self { file, path, caching, read_only: false, lock_file: None }
    }

    /// Locks the image against other openings until it is dropped; readers may share the lock. The
    /// lock belongs to the open file, not to the process, so closing another copy of the file keeps
    /// it.
    pub fn lock(&mut self, shared: bool) -> Result {
        // The kernel grants an exclusive lock only through a file that is open for writing.
        if !shared && self.read_only {
            self.lock_file = OpenOptions::new().read(true).write(true).open(&self.path).ok();
        }
        let shared = shared || (self.read_only && self.lock_file.is_none());
        let file = self.lock_file.as_ref().unwrap_or(&self.file);
        match fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(shared))) {
            Ok(_) => self.still_there(),
            Err(Errno::EAGAIN | Errno::EACCES) => Err(Error::Busy(self.path.clone())),
            Err(e) => Err(failed("lock", &self.path, e.into())),
        }
    }

    /// Fails if another file has taken the path between opening and locking.
    fn still_there(&self) -> Result {
        let metadata = |found: io::Result<Metadata>| {
            found.map_err(|e| failed("read", &self.path, e)).map(|m| (m.dev(), m.ino()))
        };
        let open = metadata(self.file.metadata())?;
        if metadata(std::fs::metadata(&self.path))? == open {
            return Ok(());
        }
        Err(Error::Busy(self.path.clone()))
    }

    /// Whether the image is open elsewhere for writing, or exclusively. The check takes no lock.
    pub fn is_locked(&self) -> bool {
        let mut found = whole_file(true);
        let looked = fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut found));
        looked.is_ok() && i32::from(found.l_type) != libc::F_UNLCK
    }

    /// The bytes at `at` where a header is expected. They may be anything.
    fn header_bytes(&self, at: u64) -> Result<Vec<u8>> {
        let mut bytes = traceless_core::store::AlignedBuf::zeroed(HEADER_LEN);
        match self.file.read_exact_at(&mut bytes, at) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                Err(Error::NotAVolume(self.path.clone()))
            }
            other => {
                other.map_err(|e| failed("read", &self.path, e))?;
                Ok(bytes.to_vec())
            }
        }
    }

    /// The header, not yet authenticated.
    pub fn header(&self) -> Result<Header> {
        self.header_at(0)
    }

    /// The header at `at`, not yet authenticated.
    pub fn header_at(&self, at: u64) -> Result<Header> {
        Header::decode(&self.header_bytes(at)?).map_err(|e| match e {
            Error::NotAVolume(_) => Error::NotAVolume(self.path.clone()),
            other => other,
        })
    }

    /// The key slots.
    pub fn key_slots(&self) -> Result<KeySlots> {
        // The slots are read through the page cache, even if the rest of the image bypasses it.
        match KeySlots::read(&self.buffered()?) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                Err(Error::Truncated { expected: self.header()?.image_len, found: self.len()? })
            }
            read => read.map_err(|e| failed("read", &self.path, e)),
        }
    }

    /// The salt of a deniable image.
    pub fn deniable_salt(&self) -> Result<ImageSalt> {
        ImageSalt::read(&self.buffered()?).map_err(|e| failed("read", &self.path, e))
    }

    /// The key slots of a deniable image.
    pub fn deniable_slots(&self) -> Result<DeniableSlots> {
        DeniableSlots::read(&self.buffered()?).map_err(|e| failed("read", &self.path, e))
    }

    /// Finds the slot that `key` opens, and verifies the header with it.
    pub fn unlock(&self, key: &UserKey) -> Result<UnlockedHeader> {
        self.unlock_at(0, key)
    }

    /// Finds the slot that `key` opens, and verifies the header at `at` with it.
    pub fn unlock_at(&self, at: u64, key: &UserKey) -> Result<UnlockedHeader> {
        let header = match self.header_at(at) {
            Err(e) if e.may_be_newer() => return Err(self.newer_or_damage(at, e, key)),
            header => header?,
        };
        let (master, slot) = self.key_slots()?.unlock(&header.uuid, key)?;
        let keys = header.keys(master);
        Header::verify(&self.header_bytes(at)?, &keys)?;
        Ok(UnlockedHeader { header, keys, slot })
    }

    /// Decides what is wrong with a header that names something unknown. If a newer program wrote
    /// it with the volume's key, its tag is valid; if it is damaged, the tag is not. If the key
    /// slots do not open, the two cases cannot be distinguished, and the header counts as newer.
    fn newer_or_damage(&self, at: u64, newer: Error, key: &UserKey) -> Error {
        let is_damaged = || -> Result<bool> {
            let bytes = self.header_bytes(at)?;
            let (master, _) = self.key_slots()?.unlock(&Header::uuid_in(&bytes), key)?;
            Ok(Header::verify(&bytes, &Header::keys_in(&bytes, master)).is_err())
        };
        if is_damaged().unwrap_or(false) { Error::HeaderDamaged } else { newer }
    }

    /// Fails if the image is shorter than its header says.
    pub fn check_len(&self, header: &Header) -> Result {
        let found = self.len()?;
        if found < header.image_len {
            return Err(Error::Truncated { expected: header.image_len, found });
        }
        Ok(())
    }

    /// Length of the file or device in bytes.
    pub fn len(&self) -> Result<u64> {
        let end = (&self.file).seek(SeekFrom::End(0));
        end.map_err(|e| failed("read", &self.path, e))
    }

    /// Whether it is a block device.
    pub fn is_device(&self) -> Result<bool> {
        let stat =
            rustix::fs::fstat(&self.file).map_err(|e| failed("read", &self.path, e.into()))?;
        Ok(FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice)
    }

    /// A duplicate of the open file: it shares the lock.
    pub fn try_clone(&self) -> Result<File> {
        self.file.try_clone().map_err(|e| failed("open", &self.path, e))
    }

    /// Whether I/O bypasses the page cache.
    pub fn caching(&self) -> Caching {
        self.caching
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The image's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An error that names the image.
    pub fn failed(&self, what: &'static str, source: io::Error) -> Error {
        failed(what, &self.path, source)
    }

    fn buffered(&self) -> Result<File> {
        match self.caching {
            Caching::Buffered => self.try_clone(),
            Caching::Direct => File::open(&self.path).map_err(|e| failed("open", &self.path, e)),
        }
    }
}

/// A lock on all bytes, including ones past the end.
fn whole_file(shared: bool) -> libc::flock {
    let kind = if shared { libc::F_RDLCK } else { libc::F_WRLCK };
    libc::flock {
        l_type: i16::try_from(kind).expect("a small constant"),
        l_whence: i16::try_from(libc::SEEK_SET).expect("a small constant"),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// The parts of the image at `path`, by its unauthenticated header; none if it cannot be read, or
/// is not a volume.
pub fn public_parts(path: &Path) -> Vec<(&'static str, u64, u64)> {
    let header = Image::open(path, true, Caching::Buffered).and_then(|image| image.header());
    header.map(|header| crate::format::parts(&header)).unwrap_or_default()
}

pub(super) fn failed(what: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Io { what, path: path.into(), source }
}
