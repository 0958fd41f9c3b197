//! Oblivious demand paging: a program works on more memory than it has frames for, and an observer
//! of the store that holds its other pages does not learn which pages are written.
//!
//! In a runtime that handles its own faults, a page leaves its frame for the store, where it is
//! sealed, and comes back later:
//!
//! ```
//! use std::sync::Arc;
//! use traceless::{rng::System, seal::Secret, store::MemStore};
//! use traceless_block::detwo::Refresh;
//! use traceless_pager::PAGE_LEN;
//! use traceless_pager::scheme::{Areas, DetWo, PageScheme};
//! use traceless_pager::slots::Cipher;
//!
//! # fn main() -> traceless::Result {
//! let (pages, refresh) = (256, Refresh::new(3, 1)?);
//! let store = Arc::new(MemStore::new(Areas::store_len(pages, refresh)));
//! let key = Secret::random(&mut System);
//! let areas = Areas::new(store, pages, refresh, Cipher::default(), &key, Box::new(System))?;
//! let mut scheme = DetWo::new(areas);
//!
//! let mut frame = [7; PAGE_LEN];
//! // Page 3 leaves the frame, and page 200 comes, for the first time.
//! scheme.swap(Some(3), Some(200), &mut frame)?;
//! assert_eq!(frame, [0; PAGE_LEN]);
//! scheme.swap(Some(200), Some(3), &mut frame)?;
//! assert_eq!(frame, [7; PAGE_LEN]);
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`slots`] | pages in a store: sealed, each bound to its place and version |
//! | [`scheme`] | which slot a page goes to: plain (the control), `DetWoORAM`, trees, OPAM |
//! | `paging` | memory with pages that come and go, by userfaultfd (feature `std`) |
//!
//! The schemes need neither an operating system nor its memory: a runtime that handles its own
//! page faults uses them without the feature `std`. With it there is paging on Linux.
//!
//! **Write-only schemes hide writes only. They need reads that the adversary cannot observe**, as
//! in an enclave that reads untrusted memory by itself. On Linux the kernel delivers each page
//! fault and so knows its address: nothing is hidden from the kernel, only from an observer of the
//! backing store.
//!
//! File by file:
//!
//! * `slots`: pages in a store: sealed, each bound to its place and version
//! * `scheme`: the trait of schemes for pages; `plain`, `detwo` (the arithmetic is that of
//!   `traceless_block::detwo`), `refresh` and `deferred` (refreshes that are postponed, for several
//!   threads to do), `main_area` and `places` (how much of the store DetWoORAM uses, and which page
//!   is where in it), `tree` (Path ORAM), `fused` (Path and Ring ORAM with one access a fault),
//!   `opam` (insecure, to compare with); the engines are the library's. No `std`
//! * `paging/kernel`: on Linux: `uffd` (system calls of userfaultfd), `memory`, `own_files` (the
//!   pager's own), `arena` (how a page leaves and comes back; `evict`: by which system calls),
//!   `locking` (what reaches no swap device and no core dump), `threads`
//! * `paging/faults`: `service` (answering faults), `frames` (which page leaves next), `pace` (a
//!   constant rate), `standby` (the standby list), `affinity` (pins the program's thread to the
//!   processor that serves its faults)
//! * `paging/refresh`: refreshes that other processes do: `scheme`, `pool`, `helper`
//! * `paging/store`: `shared` (a store in shared memory), `streaming` (copies that bypass the
//!   caches), `backing` (a store in a file), `nbd` and `nbd_address` (a store on a network block
//!   device), `split` (pages in one of these, the rest in memory), `host_copies` (a store behind a
//!   host that copies, to compare with)
//! * `paging`: `config`, `pager` (paging by a thread of the program), `region` (paged memory as a
//!   slice), `heap` (which object has which part of the memory), `settings` (passed to a program by
//!   its environment), `construction` (the scheme and store that these describe), `wrapper`
//!   (whether `traceless run` was killed), `counters`, `number_file` (what processes count
//!   together), `error`
//! * `paging/process`: paging by another process: `link` (messages, and files with them), `client`
//!   (the program's side, and its forks), `session` (the pager's side, of one program), `server`
//!   (all programs that a pager serves), `accept` (accepts programs), `supervisor` (starts the
//!   pager's process)
//! * `c`: feature: the interface for C, `traceless_pager.h`: `plan` (a checked configuration and
//!   its sizes), `store` (the caller's functions), `heap` (the caller's memory), `pager` (which
//!   calls may run at the same time), `runtime` (without `std`: panics). No `std`
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
