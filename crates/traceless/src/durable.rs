//! Where trusted state is kept between openings.

use crate::error::Result;

/// A home for a scheme's trusted state. The product seals it and places it.
///
/// State holds counters and opening ids, never the state of a random generator: replayed
/// randomness is a leak.
pub trait Vault: Send + Sync {
    /// Keeps `state` in place of what was kept before. When this returns, it is durable: after a
    /// crash either the old state is there or the new one, whole.
    fn keep(&mut self, state: &[u8]) -> Result;
}

/// A vault that forgets everything: for schemes that are never opened again.
impl Vault for () {
    fn keep(&mut self, _: &[u8]) -> Result {
        Ok(())
    }
}

/// A vault in memory that can be looked into: for tests and for short-lived schemes.
#[cfg(feature = "std")]
#[derive(Clone, Default)]
pub struct MemVault(alloc::sync::Arc<std::sync::Mutex<alloc::vec::Vec<u8>>>);

#[cfg(feature = "std")]
impl MemVault {
    /// What was kept last.
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
