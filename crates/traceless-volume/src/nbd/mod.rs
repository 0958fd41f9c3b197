//! An NBD server: any client of the network block device protocol can use a [`Device`].
//!
//! Fixed newstyle negotiation, exports chosen by name, structured replies, FLUSH and FUA,
//! several connections with one view, TLS by STARTTLS. If the device keeps discards, TRIM is
//! offered, and both TRIM and `WRITE_ZEROES` are discards. Else `WRITE_ZEROES` is an ordinary
//! write: the layers below must not learn which blocks hold no data.
//!
//! A server on a unix socket, and the greeting that each client gets:
//!
//! ```
//! use std::io::Read;
//! use std::os::unix::net::UnixStream;
//! use std::sync::Arc;
//! use traceless_volume::device::Device;
//! use traceless_volume::nbd::{Endpoint, Options, Server};
//! # use traceless_block::detwo::{DetWoGeometry, Refresh};
//! # use traceless_core::seal::Cipher;
//! # use traceless_volume::format::{Kdf, UserKey};
//! # use traceless_volume::volume::{CreateOptions, OpenOptions, Volume, create};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let (path, socket) = (folder.path().join("image"), folder.path().join("socket"));
//! # let key = UserKey::from_file(vec![7; 32].into())?;
//! # let scheme = Arc::new(DetWoGeometry::new(64, 4096, Refresh::ONE, 0)?);
//! # let (cipher, kdf) = (Cipher::default(), Kdf::default());
//! # let options =
//! #     CreateOptions { scheme, cipher, kdf, force: false, unfilled: true, anchor: None };
//! # create(&path, &key, &options, &mut |_, _| true)?;
//! let volume = Volume::open(&path, &key, &OpenOptions::default(), &mut |_, _| {})?;
//! let device: Arc<dyn Device> = Arc::new(volume);
//! let server = Server::bind(Endpoint::Unix(socket.clone()), &Options::default())?;
//! let handle = server.handle();
//! let running = std::thread::spawn(move || server.run(&device));
//!
//! let mut greeting = [0; 8];
//! UnixStream::connect(&socket)?.read_exact(&mut greeting)?;
//! handle.shutdown();
//! running.join().expect("no panic")?;
//! assert_eq!(&greeting, b"NBDMAGIC");
//! # Ok(())
//! # }
//! ```
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
mod request_group;
mod server;
mod session;
mod socket;
#[cfg(test)]
mod tests;
mod tls;
mod transmission;
mod wire;

pub use error::{Error, Result};
pub use handshake::NamedDevice;
pub use listen::Endpoint;
#[doc(hidden)]
pub use memory::fuzz_session;
pub use registry::CONNECTIONS_MAX;
pub use server::{Handle, Options, Server};
pub use tls::TlsFiles;
