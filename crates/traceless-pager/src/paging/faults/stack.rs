//! The stack of a thread of the program, which may be paged: while the thread keeps faults from
//! being answered, it must not need a page of its stack that is not there.
#![expect(clippy::inline_always, reason = "a call would need the stack")]

use super::frames::Frames;
use super::page_numbers::PageNumbers;
use crate::PAGE_LEN;

/// Pages that the stack may use in calls from here, below the current one; and one of the caller's.
const BELOW: usize = 3;
const COUNT: usize = BELOW + 2;

/// What is known of a page of the stack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Nothing.
    Unknown,
    /// It was touched: if it is paged it has a number.
    Touched,
    /// It cannot be touched: the stack ends before it.
    None,
}

/// The pages of the stack around the current place.
pub struct StackPages {
    /// Address of the lowest one.
    first: usize,
    reach: [Reach; COUNT],
}

impl StackPages {
    /// The pages around the caller's place.
    pub fn here() -> Self {
        let mut here = 0_u8;
        // A page that is paged has a number only once it is touched.
        // SAFETY: a variable of this function.
        unsafe { (&raw mut here).write_volatile(1) };
        let page = (&raw const here).addr() / PAGE_LEN;
        Self { first: page.saturating_sub(BELOW) * PAGE_LEN, reach: [Reach::Unknown; COUNT] }
    }

    #[inline(always)]
    fn address(&self, nth: usize) -> usize {
        self.first + nth * PAGE_LEN
    }

    /// Whether all pages are there, as they are where no stack is paged.
    #[inline(always)]
    pub fn are_resident(&self, numbers: &PageNumbers, frames: &Frames) -> bool {
        if numbers.find(self.address(BELOW)).is_none() {
            return true;
        }
        for nth in 0..COUNT {
            let is_there = match (self.reach[nth], numbers.find(self.address(nth))) {
                (Reach::None, _) | (Reach::Touched, None) => true,
                (Reach::Unknown, None) => false,
                (_, Some(page)) => frames.is_resident(page),
            };
            if !is_there {
                return false;
            }
        }
        true
    }

    /// Touches the stack that its caller uses until it knows which pages are there.
    #[inline(never)]
    pub fn use_nearest(&self) {
        let mut below = [0_u8; PAGE_LEN / 2];
        // SAFETY: a variable of this function.
        unsafe { below.as_mut_ptr().write_volatile(1) };
        core::hint::black_box((self, &below));
    }

    /// Waits until each page was there.
    pub fn touch(&mut self) {
        for nth in 0..COUNT {
            let is_there = touch(self.address(nth));
            self.reach[nth] = if is_there { Reach::Touched } else { Reach::None };
        }
    }
}

/// Has the kernel read a byte, which waits for its page where this thread may read it. Returns
/// whether it may.
fn touch(address: usize) -> bool {
    let mut byte = 0_u8;
    let into = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let from = libc::iovec { iov_base: address as *mut _, iov_len: 1 };
    // SAFETY: the kernel reads a byte, if it can, into one of ours.
    let read = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const into, 1, &raw const from, 1, 0)
    };
    read == 1
}
