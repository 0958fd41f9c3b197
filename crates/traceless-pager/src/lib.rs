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
//!
//! File by file:
//!
//! * `slots`: pages in a store: sealed, each bound to its place and version
//! * `scheme`: what a scheme for pages is; `plain`, `detwo` (the arithmetic is the library's:
//!   `scheme/detwo/passes`), `deferred` (refreshes that wait, for several to do), `tree` (Path
//!   ORAM), `fused` (Path and Ring ORAM of one access a fault), `opam` (insecure, to compare with);
//!   the engines are the library's. No `std`
//! * `paging`: on Linux: `uffd` (the kernel's orders), `memory`, `files` (the pager's own), `lines`
//!   (copies that go past the caches), `shared` (a store that others see), `backing` (the same in a
//!   file), `ocalls` (one behind a host that copies, to compare with), `arena` (how a page leaves
//!   and comes back; `way`: by which orders), `frames` (who leaves next), `parked` (who is missed
//!   before), `locking` (what reaches no swap device and no core dump), `wrapper` (whether
//!   `traceless run` was killed), `helped`, `crew`, `helper` (refreshes that other processes do),
//!   `serving` (answering faults), `config`, `pager` (all of it in a thread of the program),
//!   `threads`, `holding` (the program's thread, kept where its faults are served), `region` (a
//!   slice), `heap` (who has which part), `settings` (as told to a program), `stats`, `error`
//! * `paging/process`: the same in another process: `link` (messages, and files with them),
//!   `client` (the program's side, and its forks), `space` (the pager's side, of one program),
//!   `house` (all of them), `server` (accepts programs), `supervisor` (who starts it)
//! * `c`: feature: the interface for C, `traceless_pager.h`: `plan` (what is asked for, and how
//!   much it takes), `store` (the caller's functions), `heap` (the caller's memory), `pager` (who
//!   may do what at once), `runtime` (without `std`: panics). No `std`
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
