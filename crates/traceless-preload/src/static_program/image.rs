//! The program's segments in memory. Static data is paged as all anonymous memory is; code is
//! mapped from the file.

use crate::mappings::mmap;
use core::ffi::{c_int, c_void};
use core::ops::Range;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::{ElfHeaders, Segment};

/// A program in memory.
pub struct Image {
    /// Where all of its segments are, whole pages.
    pub range: Range<usize>,
    /// Bytes behind them that are kept for its heap of old (`brk`).
    pub break_room: usize,
    /// Where its code is, whole pages.
    pub code: Range<usize>,
    /// Its first instruction.
    pub entry: usize,
    /// Its table of segments in memory, and their number.
    pub table: usize,
    pub segments_count: usize,
    /// Whether its stacks are executable.
    pub has_executable_stack: bool,
}

/// Why a program is not loaded.
#[derive(Debug)]
pub enum ImageError {
    /// The file's headers are damaged.
    Damaged,
    /// The kernel's refusal.
    Kernel(io::Error),
}

impl core::fmt::Display for ImageError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Damaged => f.write_str("the program's headers are damaged"),
            Self::Kernel(e) => write!(f, "the program cannot be loaded: {e}"),
        }
    }
}

impl From<io::Error> for ImageError {
    fn from(e: io::Error) -> Self {
        Self::Kernel(e)
    }
}

impl Image {
    /// Maps a program's file.
    pub fn load(file: &File) -> Result<Self, ImageError> {
        let headers = ElfHeaders::read(file).ok_or(ImageError::Damaged)?;
        let loaded: Vec<Part> = headers
            .segments
            .iter()
            .filter(|segment| segment.kind == Segment::LOADED && segment.len > 0)
            .map(|segment| Part::of(segment).ok_or(ImageError::Damaged))
            .collect::<Result<_, _>>()?;
        let (Some(start), Some(end)) = (
            loaded.iter().map(|part| part.pages().start).min(),
            loaded.iter().map(|part| part.pages().end).max(),
        ) else {
            return Err(ImageError::Damaged);
        };
        let (base, break_room) = match headers.kind {
            ElfHeaders::FIXED => {
                reserve_at(start, end - start)?;
                (0, reserve_some(|room| reserve_at(end, room))?.1)
            }
            ElfHeaders::ANYWHERE => {
                let (place, room) = reserve_some(|room| reserved(0, end - start + room, 0))?;
                (place.wrapping_sub(start), room)
            }
            _ => return Err(ImageError::Damaged),
        };
        let executed = loaded.iter().filter(|part| part.segment.flags & Segment::EXECUTED != 0);
        let executed: Vec<_> = executed.map(Part::pages).collect();
        let first = executed.iter().map(|pages| pages.start).min().ok_or(ImageError::Damaged)?;
        let last = executed.iter().map(|pages| pages.end).max().ok_or(ImageError::Damaged)?;
        let code = base.wrapping_add(first)..base.wrapping_add(last);
        for part in &loaded {
            part.map(file, base)?;
        }
        let table_at = |part: &&Part| part.file().contains(&headers.table);
        let table = loaded.iter().find(table_at).map_or(0, |part| {
            let behind = (headers.table - part.segment.offset) as usize;
            base.wrapping_add(part.segment.address as usize + behind)
        });
        let mut stacks = headers.segments.iter().filter(|one| one.kind == Segment::STACK);
        Ok(Self {
            range: base.wrapping_add(start)..base.wrapping_add(end),
            code,
            break_room,
            entry: base.wrapping_add(headers.entry as usize),
            table,
            segments_count: headers.segments.len(),
            has_executable_stack: stacks.any(|stack| stack.flags & Segment::EXECUTED != 0),
        })
    }
}

/// A segment that is loaded. Its ends do not overflow.
struct Part<'a> {
    segment: &'a Segment,
}

impl<'a> Part<'a> {
    fn of(segment: &'a Segment) -> Option<Self> {
        let page = PAGE_LEN as u64;
        let end = segment.address.checked_add(segment.len)?;
        segment.offset.checked_add(segment.file_len)?;
        let is_sound = segment.file_len <= segment.len
            && end < 1 << 47
            && segment.offset % page == segment.address % page;
        is_sound.then_some(Self { segment })
    }

    /// The pages that it touches, before the program's base is added.
    fn pages(&self) -> Range<usize> {
        let (start, len) = (self.segment.address as usize, self.segment.len as usize);
        start / PAGE_LEN * PAGE_LEN..(start + len).next_multiple_of(PAGE_LEN)
    }

    fn file(&self) -> Range<u64> {
        self.segment.offset..self.segment.offset + self.segment.file_len
    }

    fn protection(&self) -> c_int {
        let Segment { flags, .. } = *self.segment;
        let kinds = [
            (Segment::READ, libc::PROT_READ),
            (Segment::WRITTEN, libc::PROT_WRITE),
            (Segment::EXECUTED, libc::PROT_EXEC),
        ];
        let allowed = kinds.iter().filter(|kind| flags & kind.0 != 0);
        allowed.fold(libc::PROT_NONE, |all, kind| all | kind.1)
    }

    fn map(&self, file: &File, base: usize) -> io::Result<()> {
        let pages = self.pages();
        let start = base.wrapping_add(pages.start);
        let (protection, fixed) = (self.protection(), libc::MAP_PRIVATE | libc::MAP_FIXED);
        let before = self.segment.address as usize - pages.start;
        if protection & libc::PROT_WRITE == 0 && self.segment.file_len == self.segment.len {
            let offset = self.segment.offset as usize - before;
            return map_at(start, pages.len(), protection, fixed, (file.as_raw_fd(), offset));
        }
        // The kernel maps the file; a copy of it is paged, and no difference to the program.
        let anonymous = fixed | libc::MAP_ANONYMOUS;
        let protection = protection | libc::PROT_READ | libc::PROT_WRITE;
        map_at(start, pages.len(), protection, anonymous, (-1, 0))?;
        let (at, len) = (start + before, self.segment.file_len as usize);
        // SAFETY: memory that was just mapped, of at least that length.
        let into = unsafe { core::slice::from_raw_parts_mut(at as *mut u8, len) };
        file.read_exact_at(into, self.segment.offset)
    }
}

fn map_at(
    start: usize,
    len: usize,
    protection: c_int,
    flags: c_int,
    (file, offset): (c_int, usize),
) -> io::Result<()> {
    let offset = libc::off_t::try_from(offset).unwrap_or(libc::off_t::MAX);
    // SAFETY: memory of the program's, which it does not use yet.
    let mapped = unsafe { mmap(start as *mut c_void, len, protection, flags, file, offset) };
    mapped_or_error(mapped).map(drop)
}

/// Bytes that are kept behind a program, if there is room, and how much less is tried if not.
const BREAK_ROOM: usize = 1 << 34;
const BREAK_ROOM_MIN: usize = 1 << 20;

/// Calls `reserve` with bytes that are kept behind the program: with less until there is room.
/// Returns its result, and that number.
fn reserve_some<T>(reserve: impl Fn(usize) -> io::Result<T>) -> io::Result<(T, usize)> {
    let mut room = BREAK_ROOM;
    loop {
        match reserve(room) {
            Err(_) if room > BREAK_ROOM_MIN => room /= 4,
            done => return done.map(|done| (done, room)),
        }
    }
}

/// Keeps memory for the program at the addresses that it wants.
fn reserve_at(start: usize, len: usize) -> io::Result<()> {
    let mapped = reserved(start, len, libc::MAP_FIXED_NOREPLACE)?;
    // Kernels without that flag choose another address.
    if mapped == start { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EEXIST)) }
}

/// Keeps memory for the program, anywhere if `start` is 0.
fn reserved(start: usize, len: usize, flags: c_int) -> io::Result<usize> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let (address, none) = (start as *mut c_void, libc::PROT_NONE);
    // SAFETY: fresh memory that nothing may access, in no other memory's place.
    let mapped = unsafe { libc::syscall(libc::SYS_mmap, address, len, none, flags, -1, 0) };
    mapped_or_error(mapped as *mut c_void).map(|mapped| mapped as usize)
}

fn mapped_or_error(mapped: *mut c_void) -> io::Result<*mut c_void> {
    let failed = mapped == libc::MAP_FAILED || mapped.is_null();
    if failed { Err(io::Error::last_os_error()) } else { Ok(mapped) }
}
