//! The trusted state of a ring between openings.

use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::scheme::openings::SchemeState;

/// The state that a ring keeps in its vault.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct RingState {
    /// The openings; its `at_least` counts records.
    pub scheme: SchemeState,
    /// Accesses of the user.
    pub accesses: u64,
}

impl RingState {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::from(self.accesses.to_le_bytes());
        out.extend(self.scheme.encode());
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (accesses, scheme) =
            bytes.split_first_chunk().ok_or(Error::State("it is too short"))?;
        let scheme = SchemeState::decode(scheme)?;
        Ok(Self { scheme, accesses: u64::from_le_bytes(*accesses) })
    }
}
