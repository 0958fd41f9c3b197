//! An NBD server: any client of the network block device protocol can use a [`Device`].
//!
//! Fixed newstyle negotiation, one export with an empty name, structured replies, FLUSH and FUA,
//! several connections with one view, TLS by STARTTLS. TRIM is never offered, and `WRITE_ZEROES` is
//! an ordinary write: the layers below must not learn which blocks hold no data.
//!
//! Each connection has one blocking thread. `session` runs it, first through `handshake`, then
//! through `transmission`; both use a `wire`, which batches output. `gate` and `registry` ensure
//! that a broken connection has no effects later on; `server` and `listen` accept connections and,
//! at the end, close them.
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
