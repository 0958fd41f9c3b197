//! Where a scheme's trusted state is kept between openings.
//!
//! The value of a counter is saved, kept in a vault, and loaded again:
//!
//! ```
//! use traceless_core::durable::{Durable, MemVault, Vault, load_words, save_words};
//!
//! # fn main() -> traceless_core::Result {
//! struct Counter(u64);
//!
//! impl Durable for Counter {
//!     fn save(&self, out: &mut Vec<u8>) {
//!         save_words(&[self.0], out);
//!     }
//!
//!     fn load(&mut self, from: &mut &[u8]) -> traceless_core::Result {
//!         load_words(core::slice::from_mut(&mut self.0), from)
//!     }
//! }
//!
//! let (mut vault, mut saved) = (MemVault::default(), vec![]);
//! Counter(42).save(&mut saved);
//! vault.keep(&saved)?;
//!
//! let mut counter = Counter(0);
//! counter.load(&mut &vault.kept()[..])?;
//! assert_eq!(counter.0, 42);
//! # Ok(())
//! # }
//! ```

use crate::error::{Error, Result};
use alloc::vec::Vec;

/// A place for a scheme's trusted state. The product seals and stores it.
///
/// State holds counters and opening ids, never the state of a random generator: replayed randomness
/// would be a leak.
pub trait Vault: Send + Sync {
    /// Replaces the kept state by `state`. It is durable when this returns: after a crash either
    /// the old state is there or the new one, whole.
    fn keep(&mut self, state: &[u8]) -> Result;
}

/// Trusted state that can be saved and loaded. The caller seals the saved bytes before it stores
/// them.
///
/// The saved length depends on the geometry alone: parts that vary are padded to their limit.
pub trait Durable {
    /// Appends all that [`load`](Self::load) needs.
    fn save(&self, out: &mut Vec<u8>);

    /// Restores the saved state, and consumes its bytes from the front of `from`.
    fn load(&mut self, from: &mut &[u8]) -> Result;
}

/// Consumes `len` saved bytes.
pub fn take_saved<'a>(from: &mut &'a [u8], len: usize) -> Result<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(len).ok_or(Error::State("it is too short"))?;
    *from = rest;
    Ok(taken)
}

/// Appends numbers.
pub fn save_words(words: &[u64], out: &mut Vec<u8>) {
    out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

/// Loads as many numbers as `words` holds.
pub fn load_words(words: &mut [u64], from: &mut &[u8]) -> Result {
    let saved = take_saved(from, size_of_val(words))?;
    for (word, bytes) in words.iter_mut().zip(saved.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    }
    Ok(())
}

/// A vault that keeps nothing: for schemes that are never opened again.
impl Vault for () {
    fn keep(&mut self, _: &[u8]) -> Result {
        Ok(())
    }
}

/// A vault in memory, for tests and for short-lived schemes.
#[cfg(feature = "std")]
#[derive(Clone, Default)]
pub struct MemVault(alloc::sync::Arc<std::sync::Mutex<alloc::vec::Vec<u8>>>);

#[cfg(feature = "std")]
impl MemVault {
    /// The state that was kept last.
    pub fn kept(&self) -> alloc::vec::Vec<u8> {
        self.0.lock().expect("no vault panics").clone()
    }
}

#[cfg(feature = "std")]
impl Vault for MemVault {
    fn keep(&mut self, state: &[u8]) -> Result {
        *self.0.lock().expect("no vault panics") = state.to_vec();
        Ok(())
    }
}
