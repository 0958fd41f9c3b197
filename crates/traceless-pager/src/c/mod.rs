//! The interface for C, `include/traceless_pager.h`: for runtimes that handle their own faults.
//!
//! All memory is the caller's: a pager lives in the memory that [`traceless_pager_init`] gets, and
//! nothing is allocated anywhere else. The store is a table of the caller's functions. What is
//! unsafe here is what C cannot promise by itself: that pointers lead where the header says.
//!
//! A page leaves its frame and comes back, by the functions as C calls them. The store is an array:
//!
//! ```
//! use core::ffi::{c_int, c_void};
//! use traceless_pager::c::*;
//!
//! # use traceless::rng::{Rng, System};
//! unsafe extern "C" fn read(store: *mut c_void, at: u64, into: *mut u8, len: usize) -> c_int {
//!     unsafe { store.cast::<u8>().add(at as usize).copy_to(into, len) };
//!     0
//! }
//! unsafe extern "C" fn write(store: *mut c_void, at: u64, from: *const u8, len: usize) -> c_int {
//!     unsafe { store.cast::<u8>().add(at as usize).copy_from(from, len) };
//!     0
//! }
//! unsafe extern "C" fn random(_: *mut c_void, into: *mut u8, len: usize) -> c_int {
//!     System.fill(unsafe { core::slice::from_raw_parts_mut(into, len) });
//!     0
//! }
//!
//! // TRACELESS_PAGER_DETWO and TRACELESS_PAGER_AEGIS.
//! let (scheme, cipher) = (1, 0);
//! let config =
//!     Config { pages: 64, scheme, cipher, refresh: 3, helpers: 0, cached: 0, reserved: 0 };
//! let (mut state_size, mut store_size) = (0, 0);
//! unsafe {
//!     assert_eq!(traceless_pager_state_size(&config, &mut state_size), 0);
//!     assert_eq!(traceless_pager_store_size(&config, &mut store_size), 0);
//! }
//! // The memory is aligned to 16 bytes.
//! let mut memory = vec![0_u128; state_size.div_ceil(16)];
//! let mut store = vec![0_u8; store_size as usize];
//! let table = StoreTable {
//!     context: store.as_mut_ptr().cast(),
//!     read: Some(read),
//!     write: Some(write),
//!     random: Some(random),
//!     halt: None,
//! };
//! let (pager, mut frame) = (memory.as_mut_ptr().cast(), [7; 4096]);
//! unsafe {
//!     assert_eq!(traceless_pager_init(pager, state_size, &config, &table), 0);
//!     assert_eq!(traceless_pager_swap(pager, 3, 5, frame.as_mut_ptr()), 0);
//!     assert_eq!(frame, [0; 4096]);
//!     assert_eq!(traceless_pager_swap(pager, 5, 3, frame.as_mut_ptr()), 0);
//!     assert_eq!(traceless_pager_destroy(pager), 0);
//! }
//! assert_eq!(frame, [7; 4096]);
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `plan` | a configuration, checked, and how much memory and store it takes |
//! | `store` | the caller's functions as a store |
//! | `heap` | allocating in the caller's memory |
//! | `pager` | one pager, and which calls may run at the same time |
//! | `runtime` | what stands in for `std` where there is none |

mod heap;
mod pager;
mod plan;
#[cfg(not(any(feature = "std", test)))]
mod runtime;
mod store;
#[cfg(all(test, feature = "std"))]
mod tests;

use crate::Page;
use core::ffi::{c_char, c_int, c_void};
use pager::Head;
use plan::Plan;

/// The call succeeded.
const OK: c_int = 0;

/// Why a call failed. The header says what to do about each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
enum Refusal {
    Invalid = -1,
    TooSmall = -2,
    Tampered = -3,
    Store = -4,
    Failed = -5,
    Busy = -6,
    Misplaced = -7,
    StashFull = -8,
    Random = -9,
}

/// The configuration of a pager. See the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of pages.
    pub pages: u64,
    /// `TRACELESS_PAGER_PLAIN` or another scheme of the header.
    pub scheme: u32,
    /// `TRACELESS_PAGER_AEGIS` or another cipher of the header.
    pub cipher: u32,
    /// Pages refreshed for each that leaves.
    pub refresh: u32,
    /// Threads that may refresh at the same time.
    pub helpers: u32,
    /// Uppermost levels of a tree that are kept in trusted memory.
    pub cached: u32,
    /// Must be zero.
    pub reserved: u32,
}

/// The untrusted side and a source of randomness, as functions. See the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct StoreTable {
    /// Passed to each function of the table.
    pub context: *mut c_void,
    /// Fills `into` with `len` bytes from byte `at` on; 0 if it went well.
    pub read: Option<unsafe extern "C" fn(*mut c_void, u64, *mut u8, usize) -> c_int>,
    /// Writes `len` bytes of `from` to byte `at` on; 0 if it went well.
    pub write: Option<unsafe extern "C" fn(*mut c_void, u64, *const u8, usize) -> c_int>,
    /// Fills `into` with `len` random bytes; 0 if it went well.
    pub random: Option<unsafe extern "C" fn(*mut c_void, *mut u8, usize) -> c_int>,
    /// Gets a message when a bug of this library is found; it should not return. May be missing.
    pub halt: Option<unsafe extern "C" fn(*mut c_void, *const c_char)>,
}

/// Calculates how many bytes of memory a pager takes.
///
/// # Safety
///
/// The pointers are null, or lead to a configuration and to a place for a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn traceless_pager_state_size(
    config: *const Config,
    size: *mut usize,
) -> c_int {
    // SAFETY: as the caller promises.
    let (config, size) = unsafe { (config.as_ref(), size.as_mut()) };
    write_size(config, size, Head::len_for)
}

/// Calculates how many bytes of store a pager takes.
///
/// # Safety
///
/// The pointers are null, or lead to a configuration and to a place for a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn traceless_pager_store_size(
    config: *const Config,
    size: *mut u64,
) -> c_int {
    // SAFETY: as the caller promises.
    let (config, size) = unsafe { (config.as_ref(), size.as_mut()) };
    write_size(config, size, |plan| plan.store_size)
}

fn write_size<T>(
    config: Option<&Config>,
    size: Option<&mut T>,
    of: impl FnOnce(&Plan) -> T,
) -> c_int {
    let (Some(config), Some(size)) = (config, size) else { return Refusal::Invalid as c_int };
    code(Plan::of(config).map(|plan| {
        *size = of(&plan);
        OK
    }))
}

/// Makes a pager of zeros in the memory.
///
/// # Safety
///
/// The pointers are null, or lead to `len` bytes of memory that no other code uses, to a
/// configuration, and to a table of functions that do what the header says, on any thread that
/// calls functions of this library, until the pager is destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn traceless_pager_init(
    memory: *mut c_void,
    len: usize,
    config: *const Config,
    store: *const StoreTable,
) -> c_int {
    // SAFETY: as the caller promises.
    let (Some(config), Some(store)) = (unsafe { config.as_ref() }, unsafe { store.as_ref() })
    else {
        return Refusal::Invalid as c_int;
    };
    code(Plan::of(config).and_then(|plan| {
        // SAFETY: as the caller promises.
        unsafe { Head::place(memory, len, &plan, store) }?;
        Ok(OK)
    }))
}

/// Puts the page `out` from `frame` into the store, and the page `wanted` into `frame`.
///
/// # Safety
///
/// `memory` is null or holds a pager; `frame` is null or leads to a page that no other code uses
/// meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn traceless_pager_swap(
    memory: *mut c_void,
    out: u64,
    wanted: u64,
    frame: *mut u8,
) -> c_int {
    // SAFETY: as the caller promises.
    let (head, frame) = unsafe { (Head::at(memory), frame.cast::<Page>().as_mut()) };
    let Some(frame) = frame else { return Refusal::Invalid as c_int };
    let named = |page| (page != u64::MAX).then_some(page);
    code(head.and_then(|head| head.swap(named(out), named(wanted), frame)).map(|()| OK))
}

/// Forgets a page: its contents do not matter any more.
///
/// # Safety
///
/// `memory` is null or holds a pager.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn traceless_pager_forget(memory: *mut c_void, page: u64) -> c_int {
    // SAFETY: as the caller promises.
    code(unsafe { Head::at(memory) }.and_then(|head| head.forget(page)).map(|()| OK))
}

/// Does up to `at_most` of the postponed refreshes, and returns how many it did.
///
/// # Safety
///
/// `memory` is null or holds a pager.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn traceless_pager_eager_step(memory: *mut c_void, at_most: u32) -> c_int {
    // SAFETY: as the caller promises.
    code(unsafe { Head::at(memory) }.and_then(|head| head.eager_step(at_most)))
}

/// Does one postponed refresh, as one of several threads: 1 if there was one, 0 if there was none.
///
/// # Safety
///
/// `memory` is null or holds a pager.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn traceless_pager_refresh_one(memory: *mut c_void, helper: u32) -> c_int {
    // SAFETY: as the caller promises.
    code(unsafe { Head::at(memory) }.and_then(|head| head.refresh_one(helper)))
}

/// Ends a pager: its keys and all else in its memory become zeros.
///
/// # Safety
///
/// `memory` is null or holds a pager that no other code uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn traceless_pager_destroy(memory: *mut c_void) -> c_int {
    // SAFETY: as the caller promises.
    code(unsafe { Head::destroy(memory) }.map(|()| OK))
}

/// The most bytes of its memory that a pager has used so far.
///
/// # Safety
///
/// `memory` is null or holds a pager.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn traceless_pager_state_used(memory: *mut c_void) -> usize {
    // SAFETY: as the caller promises.
    unsafe { Head::at(memory) }.map_or(0, Head::used)
}

fn code(outcome: Result<c_int, Refusal>) -> c_int {
    outcome.unwrap_or_else(|refusal| refusal as c_int)
}
