//! The certificate of a server, before anything is known about it.

use crate::error::{Error, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// How long a server may take for each step.
const STEP_TIME: Duration = Duration::from_secs(20);

/// The certificate of the server at `HOST:PORT`, in DER. The server has proved in TLS that it has
/// the key; nothing else is known.
pub fn server_certificate(server: &str) -> Result<Vec<u8>> {
    let failed = |reason: String| Error::unreachable(server, reason);
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host).map_err(|_| failed("it is not HOST:PORT".into()))?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    let mut session =
        ClientConnection::new(Arc::new(config), name).map_err(|error| failed(error.to_string()))?;
    let mut stream = connect(server).map_err(|error| failed(error.to_string()))?;
    while session.is_handshaking() {
        session.complete_io(&mut stream).map_err(|error| failed(error.to_string()))?;
    }
    let first = session.peer_certificates().and_then(|chain| chain.first());
    let first = first.ok_or_else(|| failed("it sends no certificate".into()))?;
    Ok(first.to_vec())
}

fn connect(server: &str) -> std::io::Result<TcpStream> {
    let mut error = std::io::Error::other("the name has no address");
    for address in server.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, STEP_TIME) {
            Ok(stream) => {
                stream.set_read_timeout(Some(STEP_TIME))?;
                stream.set_write_timeout(Some(STEP_TIME))?;
                return Ok(stream);
            }
            Err(another) => error = another,
        }
    }
    Err(error)
}

/// Accepts any certificate, if the server has its key: its evidence is judged later.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
