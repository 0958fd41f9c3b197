//! The enclave of a host: a process of its own, or a part of the host's process.

use crate::channel::Nonce;
use crate::enclave::{DamagedSlots, NodeBytes};
use crate::error::Result;
use crate::geometry::Geometry;
use crate::host::{Enclave, Inside};
use crate::process::{EnclaveProcess, Program, Starting};
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
    pub fn provision(self, geometry: &Geometry, sealed: &[u8]) -> Result<HostedEnclave> {
        match self {
            Self::Process(starting) => {
                let process = starting.provision(geometry, sealed)?;
                Ok(HostedEnclave::Process(Box::new(process)))
            }
            Self::Inside(candidate) => {
                let (shared, session) = candidate.accept(sealed)?;
                let inside = Inside::new(&shared, &session, Box::new(System))?;
                Ok(HostedEnclave::Inside(Box::new(inside)))
            }
        }
    }
}

/// An enclave with its key.
pub enum HostedEnclave {
    /// In its own process.
    Process(Box<EnclaveProcess>),
    /// In the host's process.
    Inside(Box<Inside>),
}

impl HostedEnclave {
    /// Ends the enclave's process, and with it all calls that wait for it.
    pub fn end(&self) {
        if let Self::Process(process) = self {
            process.end();
        }
    }

    /// The number of the enclave's process.
    #[cfg(test)]
    pub fn process_id(&self) -> Option<u32> {
        match self {
            Self::Process(process) => Some(process.id()),
            Self::Inside(_) => None,
        }
    }
}

impl Enclave for HostedEnclave {
    fn query(&self, order: &[u8], slots: &[u8]) -> Result<Vec<u8>> {
        match self {
            Self::Process(enclave) => enclave.query(order, slots),
            Self::Inside(enclave) => enclave.query(order, slots),
        }
    }

    fn query_many(&self, orders: &[(&[u8], &[u8])]) -> Vec<Result<Vec<u8>>> {
        match self {
            Self::Process(enclave) => enclave.query_many(orders),
            Self::Inside(enclave) => enclave.query_many(orders),
        }
    }

    fn evict(&self, order: &[u8], bytes: NodeBytes<'_>) -> Result<DamagedSlots> {
        match self {
            Self::Process(enclave) => enclave.evict(order, bytes),
            Self::Inside(enclave) => enclave.evict(order, bytes),
        }
    }
}
