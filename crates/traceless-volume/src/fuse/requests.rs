//! Answers the kernel's requests by the rules of [`VolumeFile`].

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::FallocateFlags;

use super::export::FILE_NAME;
use super::volume_file::{FILE, VolumeFile};

/// Bytes of the largest request that the server wants. The kernel grants 256 pages by default.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Most asynchronous requests in flight, for example from a loop device.
const IN_FLIGHT_MAX: u16 = 128;
/// How long the kernel may cache attributes and names: about a day, as they never change.
const REMEMBER: Duration = Duration::from_secs(100_000);

const READING: FileHandle = FileHandle(0);
const WRITING: FileHandle = FileHandle(1);

thread_local! {
    // A fresh buffer of a megabyte for each read would cost more in page faults than the copy.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Filesystem for VolumeFile {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // On failure each setter returns the nearest value that it would accept.
        if let Err(nearest) = config.set_max_write(REQUEST_BYTES_MAX) {
            let _ = config.set_max_write(nearest);
        }
        let _ = config.set_max_background(IN_FLIGHT_MAX);
        // Optional. Without it the kernel sends a loop device's requests one by one.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent != INodeNo::ROOT || name != OsStr::new(FILE_NAME) {
            return reply.error(Errno::ENOENT);
        }
        match self.attributes(FILE) {
            Ok(attributes) => reply.entry(&REMEMBER, &attributes, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Ok(attributes) => reply.attr(&REMEMBER, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // Changes of times succeed without effect, as tools set them in passing.
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        match self.check_size(size, handle).and_then(|()| self.attributes(ino)) {
            Ok(attributes) => reply.attr(&REMEMBER, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    fn access(&self, _req: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        if ino == FILE && self.device.read_only() && mask.contains(AccessFlags::W_OK) {
            return reply.error(Errno::EROFS);
        }
        reply.ok();
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if ino != FILE {
            return reply.error(Errno::EISDIR);
        }
        // Direct I/O: the page cache never holds plaintext, and a flush covers all written data.
        let direct = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        if flags.acc_mode() == OpenAccMode::O_RDONLY {
            return reply.opened(READING, direct | FopenFlags::FOPEN_NOFLUSH);
        }
        if self.device.read_only() {
            return reply.error(Errno::EROFS);
        }
        reply.opened(WRITING, direct);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        at: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let count = self.inside(at, size as usize);
        if count == 0 {
            return reply.data(&[]);
        }
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < count {
                buffer.resize(count, 0);
            }
            let into = &mut buffer[..count];
            match self.device.call(|device| device.read(at, into)) {
                Ok(()) => reply.data(&buffer[..count]),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        at: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_at(at, data, flags) {
            Ok(count) => reply.written(count),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // A flush writes to the store, and closing a file that was only read must not write.
        if handle == READING {
            return reply.ok();
        }
        answer(reply, self.device.flush());
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        answer(reply, self.device.flush());
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        answer(reply, self.device.flush());
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        at: u64,
        count: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        answer(reply, self.allocate(at, count, mode));
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, FILE_NAME),
        ];
        for (next, (ino, kind, name)) in (1..).zip(entries) {
            if next > offset && reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let block_len = self.device.block_len();
        let blocks = self.device.len() / u64::from(block_len.max(1));
        reply.statfs(blocks, 0, 0, 1, 0, block_len, 255, block_len);
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EPERM);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }
}

fn answer(reply: ReplyEmpty, outcome: Result<(), Errno>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}
