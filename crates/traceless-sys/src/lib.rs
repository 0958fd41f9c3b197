//! What speed and secrecy need of the system and safe Rust cannot say. Every unsafe block of the
//! library's side lives here.
//!
//! For now: memory for keys that is never swapped out and never dumped, and a process that leaves
//! no core behind; with the feature `ublk`, block devices of the kernel.
#![deny(unsafe_op_in_unsafe_fn)]

mod locked;
mod process;
#[cfg(feature = "ublk")]
pub mod ublk;

pub use locked::LockedBytes;
pub use process::{Hardening, harden_process, lock_all_memory};
