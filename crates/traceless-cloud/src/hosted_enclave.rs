//! The enclave of a host: a process of its own, or a part of the host's process.

use crate::channel::Nonce;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::host::{Enclave, Inside};
use crate::process::{Program, Starting};
use crate::tee::{Candidate, EnclavePlace};
use traceless_core::rng::System;

/// An enclave that waits for its key.
pub enum AwaitingEnclave {
    /// In its own process.
    Process(Starting),
    /// In the host's process.
    Inside(Candidate),
}

impl AwaitingEnclave {
    /// Starts an enclave for the gateway that sent `nonce`: with a program in a process of its own,
    /// without one in this process. Also returns its token.
    pub fn start(program: Option<&Program>, nonce: &Nonce) -> Result<(Self, Vec<u8>)> {
        if let Some(program) = program {
            let (starting, token) = Starting::start(program, nonce)?;
            return Ok((Self::Process(starting), token));
        }
        let candidate = Candidate::new(nonce)?;
        let token = candidate.evidence(EnclavePlace::Inside);
        Ok((Self::Inside(candidate), token))
    }

    /// Passes on the key that the gateway sealed for the enclave, and begins the session.
    pub fn provision(self, geometry: &Geometry, sealed: &[u8]) -> Result<Box<dyn Enclave>> {
        match self {
            Self::Process(starting) => Ok(Box::new(starting.provision(geometry, sealed)?)),
            Self::Inside(candidate) => {
                let (shared, session) = candidate.accept(sealed)?;
                Ok(Box::new(Inside::new(&shared, &session, Box::new(System))?))
            }
        }
    }
}
