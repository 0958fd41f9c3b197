//! TLS for clients on the premises: a certificate and its key in PEM files.
//!
//! A connection through TLS, here over a pair of sockets:
//!
//! ```
//! use std::io::{Read, Write};
//! use std::os::unix::net::UnixStream;
//! use traceless_cloud::tls::Tls;
//! # use rustls::pki_types::{CertificateDer, pem::PemObject};
//! # use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream, crypto::aws_lc_rs};
//! # use std::sync::Arc;
//! # use traceless_cloud::remote::Identity;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let Identity { certificate, key } = Identity::own(folder.path())?;
//! let tls = Tls::read(&certificate, &key)?;
//! let (client, server) = UnixStream::pair()?;
//! let serving = std::thread::spawn(move || tls.accept(server)?.write_all(b"hello"));
//! # let mut roots = RootCertStore::empty();
//! # roots.add(CertificateDer::from_pem_file(&certificate)?)?;
//! # let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
//! #     .with_safe_default_protocol_versions()?
//! #     .with_root_certificates(roots)
//! #     .with_no_client_auth();
//! # let mut connection = ClientConnection::new(Arc::new(config), "localhost".try_into()?)?;
//! # let mut socket = client;
//! # let mut client = Stream::new(&mut connection, &mut socket);
//! let mut received = [0; 5];
//! client.read_exact(&mut received)?; // `client` is wrapped in a client's side of TLS.
//! serving.join().expect("no panic")?;
//! assert_eq!(&received, b"hello");
//! # Ok(())
//! # }
//! ```

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The configuration of a TLS server.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

impl Tls {
    /// Reads a chain of certificates, the server's first, and its private key. An error names the
    /// file that caused it.
    pub fn read(certificates: &Path, key: &Path) -> io::Result<Self> {
        let wrong = |path: &Path, what: &dyn core::fmt::Display| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {what}", path.display()))
        };
        let chain = CertificateDer::pem_file_iter(certificates)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|e| wrong(certificates, &e))?;
        let own = PrivateKeyDer::from_pem_file(key).map_err(|e| wrong(key, &e))?;
        Self::new(chain, own).map_err(|e| wrong(certificates, &e))
    }

    /// A new key, and a certificate for these names with evidence of this machine: the program
    /// `traceless-attest` makes them. `evidence` is the folder that gives the evidence out, if it
    /// is not a usual one.
    pub fn with_evidence(
        program: &Path,
        names: &[String],
        evidence: Option<&Path>,
    ) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.arg("certify").args(names).args(["--cert", "-", "--key", "-"]);
        if let Some(folder) = evidence {
            command.arg("--evidence").arg(folder);
        }
        let failed =
            |reason: &str| io::Error::other(format!("{}: {}", program.display(), reason.trim()));
        let output = command.output().map_err(|error| failed(&error.to_string()))?;
        let text = Zeroizing::new(output.stdout);
        if !output.status.success() {
            return Err(failed(&String::from_utf8_lossy(&output.stderr)));
        }
        let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| failed(&error.to_string()))?;
        let own = PrivateKeyDer::from_pem_slice(&text);
        let own = own.map_err(|error| failed(&error.to_string()))?;
        Self::new(chain, own).map_err(|error| failed(&error.to_string()))
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, rustls::Error> {
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key))?;
        Ok(Self(Arc::new(config)))
    }

    /// Starts TLS on a connection. The first read performs the handshake.
    pub fn accept<S: Read + Write>(
        &self,
        stream: S,
    ) -> io::Result<StreamOwned<ServerConnection, S>> {
        let connection = ServerConnection::new(self.0.clone()).map_err(io::Error::other)?;
        Ok(StreamOwned::new(connection, stream))
    }

    /// The configuration, for servers with other streams.
    #[cfg(feature = "http")]
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.0.clone()
    }
}
