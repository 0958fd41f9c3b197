//! The program's first stack, as the kernel would have made it: the arguments, the environment, and
//! the kernel's values for the program (the auxiliary vector). It is paged.

use super::image::Image;
use crate::mappings::mmap;
use core::ffi::{CStr, c_char, c_int, c_ulong};
use core::ptr::{copy_nonoverlapping, null_mut};
use std::io;
use traceless_pager::PAGE_LEN;

/// Bytes of the stack at most, and if there is no limit.
const LEN_MAX: usize = 1 << 30;

/// Inaccessible bytes below the stack.
const GUARD_LEN: usize = 1 << 20;

/// Makes the stack of a program with the `path` that is executed. Returns the stack pointer at its
/// first instruction.
///
/// # Safety
/// Lists of texts that end with null pointers.
pub unsafe fn build(
    image: &Image,
    path: &CStr,
    arguments: *const *mut c_char,
    environment: *const *mut c_char,
) -> io::Result<usize> {
    // SAFETY: the caller's promise.
    let (arguments, environment) = unsafe { (texts(arguments), texts(environment)) };
    let values = kernel_values()?;
    let mut stack = Stack::map(image.has_executable_stack)?;
    let path = stack.push(path.to_bytes_with_nul())?;
    let random = stack.push(&random_bytes()?)?;
    let mut words = vec![arguments.len()];
    for list in [arguments, environment] {
        for text in list {
            words.push(stack.push(text.to_bytes_with_nul())?);
        }
        words.push(0);
    }
    for (kind, value) in values {
        let value = match kind {
            libc::AT_PHDR => image.table,
            libc::AT_PHNUM => image.segments_count,
            libc::AT_BASE => 0,
            libc::AT_ENTRY => image.entry,
            libc::AT_EXECFN => path,
            libc::AT_RANDOM => random,
            // The rest are numbers, or texts that stay where the kernel has put them.
            _ => value,
        };
        words.extend([kind as usize, value]);
    }
    words.extend([libc::AT_NULL as usize, 0]);
    stack.push_words(&words)
}

/// The texts of a list.
///
/// # Safety
/// A list that ends with a null pointer, which stays.
unsafe fn texts(mut list: *const *mut c_char) -> Vec<&'static CStr> {
    let mut all = Vec::new();
    // SAFETY: the caller's promise.
    unsafe {
        while !(*list).is_null() {
            all.push(CStr::from_ptr(*list));
            list = list.add(1);
        }
    }
    all
}

/// The kinds and values that the kernel had for this process, without the last one.
fn kernel_values() -> io::Result<Vec<(c_ulong, usize)>> {
    let bytes = std::fs::read("/proc/self/auxv")?;
    let word = |bytes: &[u8]| usize::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let pairs = bytes.chunks_exact(16).map(|pair| (word(&pair[..8]) as c_ulong, word(&pair[8..])));
    Ok(pairs.take_while(|pair| pair.0 != libc::AT_NULL).collect())
}

fn random_bytes() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    // SAFETY: room for that number of bytes.
    match unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } {
        16 => Ok(bytes),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Memory that is filled from its end.
struct Stack {
    start: usize,
    next: usize,
}

impl Stack {
    /// A stack as long as the limit allows (`ulimit -s`).
    fn map(is_executable: bool) -> io::Result<Self> {
        let len = limit().clamp(PAGE_LEN, LEN_MAX).next_multiple_of(PAGE_LEN);
        let extra = if is_executable { libc::PROT_EXEC } else { 0 };
        let protection = libc::PROT_READ | libc::PROT_WRITE | extra;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE;
        let map = |address, len, protection, flags: c_int| {
            // SAFETY: fresh memory, or the guard's part of it.
            let mapped = unsafe { mmap(address, len, protection, flags, -1, 0) };
            let is_mapped = mapped != libc::MAP_FAILED;
            is_mapped.then_some(mapped).ok_or_else(io::Error::last_os_error)
        };
        let start = map(null_mut(), GUARD_LEN + len, protection, flags)?;
        map(start, GUARD_LEN, libc::PROT_NONE, flags | libc::MAP_FIXED)?;
        let start = start as usize + GUARD_LEN;
        Ok(Self { start, next: start + len })
    }

    /// Puts bytes there. Returns their address.
    fn push(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let at = self.next.checked_sub(bytes.len()).filter(|&at| at >= self.start);
        let at = at.ok_or(io::ErrorKind::ArgumentListTooLong)?;
        // SAFETY: memory of this stack's that nothing uses yet.
        unsafe { copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
        self.next = at;
        Ok(at)
    }

    /// Puts words there, at a multiple of 16.
    fn push_words(&mut self, words: &[usize]) -> io::Result<usize> {
        let bytes: Vec<u8> = words.iter().flat_map(|&word| (word as u64).to_le_bytes()).collect();
        self.next = self.next.saturating_sub(bytes.len()) / 16 * 16 + bytes.len();
        self.push(&bytes)
    }
}

/// The limit of the stack's length.
fn limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a record of ours.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } == 0;
    let is_limited = known && limit.rlim_cur != libc::RLIM_INFINITY;
    if is_limited { usize::try_from(limit.rlim_cur).unwrap_or(LEN_MAX) } else { LEN_MAX }
}
