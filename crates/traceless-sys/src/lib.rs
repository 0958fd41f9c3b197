//! Services of the processor and the system that speed and secrecy need but safe Rust cannot
//! express. Every unsafe block of the library's side is in this crate.
//!
//! Without the feature `std`: work on secrets without side channels ([`ct`]), large memory for
//! trees, and bits that the processor draws at random ([`hardware_random`]). With it: memory for
//! keys that is never swapped out and never dumped, a process without core dumps, which addresses
//! servers may listen on, passwords of their clients, and evidence of the machine
//! ([`machine_evidence`]). With the feature `ublk`: block devices of the kernel.
//!
//! A process without core dumps keeps a key in memory that is locked and wiped, and compares two
//! secrets:
//!
//! ```
//! use traceless_sys::ct::Mask;
//! use traceless_sys::{LockedBytes, harden_process};
//!
//! # fn main() -> std::io::Result<()> {
//! // Before any key is in memory.
//! assert!(harden_process().dumps_off);
//! # use std::io::ErrorKind::{OutOfMemory, PermissionDenied};
//! # // The limit of locked memory may be below a page.
//! # let is_limit = |e: &std::io::Error| [OutOfMemory, PermissionDenied].contains(&e.kind());
//! # if LockedBytes::zeroed(32).is_err_and(|e| is_limit(&e)) { return Ok(()) }
//! let mut key = LockedBytes::zeroed(32)?;
//! key.copy_from_slice(&[7; 32]);
//! assert_eq!(*key, [7; 32]);
//!
//! // The smaller one of two numbers, without a branch.
//! let (a, b) = (3, 5);
//! assert_eq!(Mask::below(a, b).select(a, b), 3);
//! # Ok(())
//! # }
//! ```
//!
//! File by file: `ct`: work on secrets without side channels (`mask`, `moves`, `vector`, `cpu`:
//! choice of the processor's level, `secret`: marks for memcheck); `random`: the processor's random
//! generator; `forked` (feature): a copy of the process, for tests; `memory`: large pages for
//! trees; `locked`: memory for keys; `memory_limit`: what a control group allows; `process`: no
//! core dumps, no swap; `listen`: which addresses servers may listen on, and where TCP sockets are
//! bound; `password`: passwords of clients; `machine_evidence`: evidence of the machine; `discard`:
//! space that is given back; `disk_queue` (feature): many requests to a file at once; `ublk`
//! (feature): commands to the kernel's block device driver, and its queues; `heap` (the same
//! feature): memory of a process that serves a swap.
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(not(all(feature = "std", target_os = "linux")))]
extern crate alloc;

pub mod ct;
#[cfg(all(feature = "std", target_os = "linux"))]
pub mod discard;
#[cfg(feature = "disk-queue")]
pub mod disk_queue;
#[cfg(feature = "suite")]
mod forked;
#[cfg(feature = "ublk")]
mod heap;
#[cfg(feature = "std")]
pub mod listen;
#[cfg(feature = "std")]
mod locked;
#[cfg(feature = "std")]
pub mod machine_evidence;
mod memory;
#[cfg(feature = "std")]
mod memory_limit;
#[cfg(feature = "std")]
pub mod password;
#[cfg(feature = "std")]
mod process;
mod random;
#[cfg(feature = "ublk")]
pub mod ublk;

#[cfg(feature = "suite")]
pub use forked::in_a_copy;
#[cfg(feature = "ublk")]
pub use heap::reserve_heap;
#[cfg(feature = "std")]
pub use locked::LockedBytes;
pub use memory::Words;
#[cfg(all(feature = "std", target_os = "linux"))]
pub use memory::{LargeMemoryHooks, set_large_memory_hooks};
#[cfg(feature = "std")]
pub use memory_limit::MemoryLimit;
#[cfg(feature = "std")]
pub use process::{Hardening, harden_process, lock_all_memory};
pub use random::{hardware_random, processor_ticks};
