//! Work on secrets in constant time: its branches and addresses do not depend on them.
//!
//! A secret never decides a branch, an address or the end of a loop. It becomes a mask of all ones
//! or all zeros, hidden from the optimiser, which could otherwise find out that there are only two
//! values and branch after all. Memcheck verifies this on the compiled program; for it [`secret`]
//! marks secret and public values.

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
