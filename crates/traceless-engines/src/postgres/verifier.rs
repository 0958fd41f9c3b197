//! Verifies the certificate of a server as far as `sslmode` says.

use crate::engine::RequestError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use std::sync::Arc;

/// What is verified of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verification {
    /// That it has the key of the certificate that it sends.
    Key,
    /// Also that a root has signed the certificate.
    Signature,
    /// Also that the certificate is for the server's name.
    Name,
}

/// Verifies certificates of servers.
#[derive(Debug)]
pub struct CertificateVerifier {
    verification: Verification,
    roots: Vec<CertificateDer<'static>>,
    anchors: RootCertStore,
    provider: Arc<CryptoProvider>,
}

impl CertificateVerifier {
    /// A verifier with these roots, of which at least one must be of use.
    pub fn new(
        verification: Verification,
        roots: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, RequestError> {
        let mut anchors = RootCertStore::empty();
        let (added, _) = anchors.add_parsable_certificates(roots.iter().cloned());
        if added == 0 && verification != Verification::Key {
            let message = "no root can verify the server: name a file of them by sslrootcert";
            return Err(RequestError::lasting(message));
        }
        Ok(Self { verification, roots, anchors, provider })
    }

    /// Verifies dates and signatures.
    fn verify_signature(
        &self,
        certificate: &CertificateDer<'_>,
        parsed: &ParsedCertificate<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let algorithms = self.provider.signature_verification_algorithms.all;
        let verified = verify_server_cert_signed_by_trust_anchor(
            parsed,
            &self.anchors,
            intermediates,
            now,
            algorithms,
        );
        match verified {
            // A certificate that a server made for itself is its own root. The library verifies its
            // dates before it finds that it could sign further certificates.
            Err(Error::InvalidCertificate(CertificateError::Other(other)))
                if is_of_root(&other) && self.roots.iter().any(|root| root == certificate) =>
            {
                Ok(())
            }
            other => other,
        }
    }
}

/// Whether an error is that a server's certificate could sign further ones.
fn is_of_root(OtherError(error): &OtherError) -> bool {
    error.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity)
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.verification == Verification::Key {
            return Ok(ServerCertVerified::assertion());
        }
        let parsed = ParsedCertificate::try_from(certificate)?;
        self.verify_signature(certificate, &parsed, intermediates, now)?;
        if self.verification == Verification::Name {
            verify_server_name(&parsed, server)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
