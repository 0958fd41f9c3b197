//! Copies of memory that bypass the caches if they are long.

/// A copy of this length is no longer in a cache when it is read again.
#[cfg(target_arch = "x86_64")]
const STREAM_LEN: usize = 64 << 10;

/// Copies `len` bytes. A long copy bypasses the caches: a line that is written as a whole need not
/// be read before, and the caches keep their contents.
///
/// # Safety
/// Both are `len` bytes, which do not overlap, and no code has a reference to `into`.
pub unsafe fn copy(from: *const u8, into: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= STREAM_LEN {
        // SAFETY: the caller's promise.
        unsafe { stream(from, into, len) };
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(from, into, len) };
}

#[cfg(target_arch = "x86_64")]
unsafe fn stream(from: *const u8, into: *mut u8, len: usize) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const LINE: usize = 64;
    const PART: usize = size_of::<__m128i>();
    let head = into.align_offset(LINE).min(len);
    let rest = len - (len - head) % LINE;
    // SAFETY: the caller's promise, for all three parts; what is streamed is whole lines. The fence
    // orders it before all later writes of this thread.
    unsafe {
        core::ptr::copy_nonoverlapping(from, into, head);
        for at in (head..rest).step_by(PART) {
            _mm_stream_si128(into.add(at).cast(), _mm_loadu_si128(from.add(at).cast()));
        }
        _mm_sfence();
        core::ptr::copy_nonoverlapping(from.add(rest), into.add(rest), len - rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_writes_every_byte_and_no_byte_outside() {
        let from: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8 + 1).collect();
        for len in [0, 1, 63, 4112, 65_535, 65_536, 65_537, 65_599, 131_071] {
            for (start, to) in [(0, 0), (1, 0), (0, 1), (7, 63), (64, 16)] {
                let mut into = vec![0; 200_000];
                // SAFETY: so many bytes of two vectors.
                unsafe { copy(from[start..].as_ptr(), into[to..].as_mut_ptr(), len) };
                assert_eq!(into[to..to + len], from[start..start + len], "{len} {start} {to}");
                let rest = into[..to].iter().chain(&into[to + len..]);
                assert!(rest.into_iter().all(|&byte| byte == 0), "{len} {start} {to}");
            }
        }
    }
}
