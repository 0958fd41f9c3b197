//! Work on secrets whose time, branches and addresses do not depend on them.
//!
//! A secret never decides a branch, an address or the end of a loop. What it decides instead are
//! masks: all ones or all zeros, hidden from the optimiser, so that it cannot find out that there
//! are only two of them and branch after all. That the compiler left it so is checked on the
//! finished program by memcheck, for which [`secret`] marks what is secret and what became public.

#![expect(clippy::inline_always, reason = "what is not inlined is compiled for the base level")]

mod cpu;
mod mask;
mod moves;
mod prefetch;
pub mod secret;
mod vector;

pub use cpu::{Kernel, Level, dispatch, level};
pub use mask::{Mask, hide, hide_all, raise};
pub use moves::{InMemory, InRegisters, MovingBlock, bytes_of, bytes_of_mut};
pub use prefetch::prefetch;
pub use vector::{Line, Vector};
