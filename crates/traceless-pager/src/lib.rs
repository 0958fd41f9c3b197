//! Oblivious demand paging: a program works on more memory than it has frames for, and whoever
//! holds the rest of its pages learns nothing from which of them are written.
//!
//! | module | what it holds |
//! |---|---|
//! | [`slots`] | pages in a store: sealed, each bound to its place and version |
//! | [`scheme`] | which slot a page goes to: plain (the control), `DetWoORAM`, trees, OPAM |
//! | `paging` | memory whose pages come and go, by userfaultfd (feature `std`) |
//!
//! The schemes need neither an operating system nor its memory: a runtime that handles its own
//! page faults uses them without the feature `std`. With it there is paging on Linux.
//!
//! **Write-only schemes hide writes. They need reads that nobody sees**, as in an enclave that
//! reads untrusted memory by itself. On Linux the kernel delivers each page fault and so knows its
//! address: there nothing is hidden from the kernel, only from whoever sees the backing store.
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(feature = "c")]
pub mod c;
#[cfg(all(feature = "std", target_os = "linux"))]
pub mod paging;
pub mod scheme;
pub mod slots;

/// Bytes of a page.
pub const PAGE_LEN: usize = 4096;

/// A page's contents.
pub type Page = [u8; PAGE_LEN];
