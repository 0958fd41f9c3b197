//! TLS with X.509 certificates: for the server and, if wanted, for clients.

use std::io::{self, BufReader, IoSlice, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use super::error::{Error, Result};

/// Bytes of a system call's read. The TLS library reads only 4 KiB at a time.
const CIPHERTEXT_LEN: usize = 128 << 10;
/// Most ciphertext that may wait to be sent.
const PENDING_LEN_MAX: usize = 512 << 10;

/// The PEM files of a server with TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, followed by the intermediate ones.
    pub certificates: PathBuf,
    /// The private key of the first certificate.
    pub key: PathBuf,
    /// Certificates that sign the clients' certificates. If given, the server turns away other
    /// clients.
    pub client_ca: Option<PathBuf>,
}

/// A stream inside TLS.
pub(super) type TlsStream<S> = StreamOwned<ServerConnection, BatchedStream<S>>;

/// Reads and checks the TLS files.
pub(super) fn configure(files: &TlsFiles) -> Result<Arc<ServerConfig>> {
    let chain = certificates(&files.certificates)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| Error::TlsFile {
        path: files.key.clone(),
        reason: error.to_string(),
        wanted: "a private key",
    })?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(unfit)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(unfit)?;
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(unfit)?)
        }
    };
    Ok(Arc::new(builder.with_single_cert(chain, key).map_err(unfit)?))
}

/// Wraps a stream in TLS. The first read does the handshake.
pub(super) fn accept<S: Read + Write>(
    stream: S,
    config: &Arc<ServerConfig>,
) -> io::Result<TlsStream<S>> {
    let mut connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    connection.set_buffer_limit(Some(PENDING_LEN_MAX));
    Ok(StreamOwned::new(
        connection,
        BatchedStream(BufReader::with_capacity(CIPHERTEXT_LEN, stream)),
    ))
}

/// Sends `close_notify`, so that the client can distinguish the end from a cut connection.
pub(super) fn say_goodbye<S: Read + Write>(stream: &mut TlsStream<S>) -> io::Result<()> {
    stream.conn.send_close_notify();
    stream.flush()
}

/// Reads ahead in large pieces; writes are not buffered.
pub(super) struct BatchedStream<S>(BufReader<S>);

impl<S: Read> Read for BatchedStream<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl<S: Write> Write for BatchedStream<S> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.0.get_mut().write(from)
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.get_mut().write_vectored(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let fail = |reason: String| Error::TlsFile {
        path: path.to_owned(),
        reason,
        wanted: "one certificate or several",
    };
    let all = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
        .map_err(|error| fail(error.to_string()))?;
    if all.is_empty() { Err(fail("there is no certificate in it".to_owned())) } else { Ok(all) }
}

fn unfit(error: impl std::fmt::Display) -> Error {
    Error::Tls { reason: error.to_string() }
}
