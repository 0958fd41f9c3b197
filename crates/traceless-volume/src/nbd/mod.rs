//! An NBD server: any client of the network block device protocol can use a [`Device`].
//!
//! Fixed newstyle negotiation, one export with an empty name, structured replies, FLUSH and FUA,
//! several connections with one view, TLS by STARTTLS. TRIM is never offered, and `WRITE_ZEROES` is
//! an ordinary write: nothing below may learn which blocks hold no data.
//!
//! Each connection has one thread, which blocks: `session` runs it, first through `handshake`,
//! then through `transmission`; both talk over a `wire`, which batches. `gate` and `registry` see
//! to it that a connection which is gone has no effects later on; `server` and `listen` bring
//! connections in and, at the end, out.
//!
//! [`Device`]: crate::device::Device

mod error;
mod gate;
mod handshake;
mod listen;
mod memory;
mod protocol;
mod registry;
mod server;
mod session;
mod socket;
#[cfg(test)]
mod tests;
mod tls;
mod transmission;
mod wire;

pub use error::{Error, Result};
pub use listen::Endpoint;
#[doc(hidden)]
pub use memory::fuzz_session;
pub use registry::CONNECTIONS_MAX;
pub use server::{Handle, Options, Server};
pub use tls::TlsFiles;
