//! TLS 1.3 between gateway and host.
//!
//! The gateway has the host's certificate, or the one that signed it. The host may require one of
//! the gateway, too. Otherwise every party that can connect to the host can take the store over,
//! but without the key neither read nor forge its contents.

use crate::durable::write_private;
use crate::error::{Error, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme, version,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

/// The ALPN name of the protocol inside TLS.
const PROTOCOL: &[u8] = b"traceless-host";
/// Names in a certificate that a host creates for itself.
const OWN_NAMES: [&str; 2] = ["traceless-host", "localhost"];

/// PEM files of a certificate and its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The certificate, followed by the intermediate ones.
    pub certificate: PathBuf,
    /// The private key of the first certificate.
    pub key: PathBuf,
}

impl Identity {
    /// The self-signed identity in a folder, which is created if it is missing.
    pub fn own(folder: &Path) -> Result<Self> {
        let own = Self { certificate: folder.join("host.pem"), key: folder.join("host.key") };
        if !own.certificate.exists() {
            let names = OWN_NAMES.map(str::to_owned);
            let generated = rcgen::generate_simple_self_signed(names).map_err(unfit)?;
            let key = Zeroizing::new(generated.signing_key.serialize_der());
            write_private(&own.key, pem("PRIVATE KEY", &key).as_bytes())?;
            write_private(&own.certificate, pem("CERTIFICATE", generated.cert.der()).as_bytes())?;
        }
        Ok(own)
    }
}

/// The text form of `der` (RFC 7468).
fn pem(label: &str, der: &[u8]) -> Zeroizing<String> {
    const LINE_LEN: usize = 64;
    let encoded = Zeroizing::new(base64_simd::STANDARD.encode_to_string(der));
    // The string never grows, because a reallocation would leave a copy of a key behind.
    let len = encoded.len() + encoded.len() / LINE_LEN + 2 * label.len() + 64;
    let mut text = Zeroizing::new(String::with_capacity(len));
    text.push_str("-----BEGIN ");
    text.push_str(label);
    text.push_str("-----\n");
    let mut rest = &encoded[..];
    while !rest.is_empty() {
        let (line, next) = rest.split_at(rest.len().min(LINE_LEN));
        text.push_str(line);
        text.push('\n');
        rest = next;
    }
    text.push_str("-----END ");
    text.push_str(label);
    text.push_str("-----\n");
    debug_assert!(text.len() <= len);
    text
}

/// The host's configuration. With `clients`, a file of certificates, only gateways with a
/// certificate that one of these signs are admitted.
pub fn server(own: &Identity, clients: Option<&Path>) -> Result<Arc<ServerConfig>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&version::TLS13])
        .map_err(unfit)?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(roots(&certificates(path)?)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.map_err(unfit)?)
        }
    };
    let chain = certificates(&own.certificate)?;
    let mut config = builder.with_single_cert(chain, key(&own.key)?).map_err(unfit)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // Tickets are not needed: connections are rarely lost, and sessions continue without them.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The gateway's configuration: `host` is a file with the host's certificate, or its signers'.
pub fn client(host: &Path, own: Option<&Identity>) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(KnownCertificates::new(certificates(host)?, &provider)?);
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .map_err(unfit)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let chain = certificates(&own.certificate)?;
            builder.with_client_auth_cert(chain, key(&own.key)?).map_err(unfit)?
        }
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}

/// Accepts the listed certificates under any host name, and certificates that they sign, for the
/// host's name.
#[derive(Debug)]
struct KnownCertificates {
    certificates: Vec<CertificateDer<'static>>,
    signed: Arc<WebPkiServerVerifier>,
}

impl KnownCertificates {
    fn new(
        certificates: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self> {
        let roots = Arc::new(roots(&certificates)?);
        let signed = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
        Ok(Self { certificates, signed: signed.map_err(unfit)? })
    }
}

impl ServerCertVerifier for KnownCertificates {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.certificates.iter().any(|known| known == end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        self.signed.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unfit(format!("{}: {error}", path.display())))?;
    if all.is_empty() {
        return Err(unfit(format!("there is no certificate in {}", path.display())));
    }
    Ok(all)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let read = PrivateKeyDer::from_pem_file(path);
    read.map_err(|error| unfit(format!("{}: {error}", path.display())))
}

fn roots(certificates: &[CertificateDer<'static>]) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.clone()).map_err(unfit)?;
    }
    Ok(roots)
}

fn unfit(error: impl std::fmt::Display) -> Error {
    Error::Tls(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_text_of_any_length_round_trips() {
        for len in [0, 1, 47, 48, 49, 1200] {
            let der: Vec<u8> = (0..len).map(|nth| nth as u8).collect();
            let text = pem("CERTIFICATE", &der);
            assert!(text.lines().all(|line| line.len() <= 64), "{len}");
            let read = CertificateDer::from_pem_slice(text.as_bytes()).unwrap();
            assert_eq!(read.as_ref(), der, "{len}");
        }
    }

    #[test]
    fn a_self_signed_identity_is_created_once_and_matches_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let own = Identity::own(folder.path()).unwrap();
        server(&own, None).unwrap();
        let before = std::fs::read(&own.certificate).unwrap();
        Identity::own(folder.path()).unwrap();
        assert_eq!(std::fs::read(&own.certificate).unwrap(), before);
    }
}
