//! Work on secrets in constant time: its branches and addresses do not depend on them.
//!
//! A secret never decides a branch, an address or the end of a loop. It becomes a mask of all ones
//! or all zeros, hidden from the optimiser, which could otherwise find out that there are only two
//! values and branch after all. Memcheck verifies this on the compiled program; for it [`secret`]
//! marks secret and public values.
//!
//! The least of many secrets, and its position, found without a branch:
//!
//! ```
//! use traceless_sys::ct::Mask;
//!
//! let secrets = [40, 9, 23, 31];
//! let (mut least, mut at) = (secrets[0], 0);
//! for (nth, secret) in (0..).zip(secrets) {
//!     let is_less = Mask::below(secret, least);
//!     least = is_less.select(secret, least);
//!     at = is_less.select(nth, at);
//! }
//! assert_eq!((least, at), (9, 1));
//! ```
//!
//! A block is selected out of many with the best instructions of the processor. All blocks are
//! read, whichever one is selected:
//!
//! ```
//! use traceless_sys::ct::{InRegisters, Kernel, Mask, MovingBlock, Vector, dispatch};
//!
//! struct Select<'a> {
//!     blocks: &'a [[u64; 8]],
//!     secret: u32,
//! }
//!
//! impl Kernel for Select<'_> {
//!     type Output = [u64; 8];
//!
//!     #[inline(always)]
//!     fn run<V: Vector>(self, vector: V) -> [u64; 8] {
//!         let mut selected = InRegisters::<V, 1>::new(vector);
//!         for (nth, block) in (0..).zip(self.blocks) {
//!             selected.gather(block, Mask::equal(nth, self.secret).bits());
//!         }
//!         let mut out = [0; 8];
//!         selected.store(&mut out);
//!         out
//!     }
//! }
//!
//! let blocks = [[10; 8], [11; 8], [12; 8]];
//! assert_eq!(dispatch(Select { blocks: &blocks, secret: 2 }), [12; 8]);
//! ```

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
