//! TLS to an engine: the PEM files that options of a URL name, and what TLS refuses.

use crate::address::Options;
use crate::engine::RequestError;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, Error};
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// Alerts of a server that refuses a client's certificate, or the lack of one.
const OF_CLIENTS: [AlertDescription; 8] = [
    AlertDescription::AccessDenied,
    AlertDescription::BadCertificate,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateRequired,
    AlertDescription::CertificateUnknown,
    AlertDescription::HandshakeFailure,
    AlertDescription::UnknownCA,
    AlertDescription::UnsupportedCertificate,
];

/// PEM files for TLS. They are read for each connection, so certificates may be replaced while a
/// store is open.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// Roots of servers' certificates; without it, the system's.
    pub roots: Option<PemFile>,
    /// This client's certificate, followed by intermediate ones, and its private key.
    pub identity: Option<[PemFile; 2]>,
}

/// A file that an option of a URL names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PemFile {
    /// The option.
    pub option: &'static str,
    /// The file.
    pub path: PathBuf,
}

/// The contents of [`TlsFiles`], as PEM.
pub struct TlsContents {
    /// The roots.
    pub roots: Option<Vec<u8>>,
    /// The client's certificates, and its key.
    pub identity: Option<(Vec<u8>, Zeroizing<Vec<u8>>)>,
}

impl TlsFiles {
    /// Takes the options for roots, certificate and key from a URL, and reads the files once.
    pub fn take(options: &mut Options, names: [&'static str; 3]) -> Result<Self, String> {
        let [roots, certificate, key] = names.map(|option| {
            options.get(option).map(|path| PemFile { option, path: PathBuf::from(path) })
        });
        let identity = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some([certificate, key]),
            _ => return Err(format!("{}= and {}= need each other: give both", names[1], names[2])),
        };
        let files = Self { roots, identity };
        files.read()?;
        Ok(files)
    }

    /// Whether no file is named.
    pub fn is_empty(&self) -> bool {
        self.roots.is_none() && self.identity.is_none()
    }

    /// Reads the files. The error names the option that is wrong.
    pub fn read(&self) -> Result<TlsContents, String> {
        let roots = self.roots.as_ref().map(PemFile::certificates).transpose()?;
        let identity = self.identity.as_ref().map(|[certificate, key]| {
            Ok::<_, String>((certificate.certificates()?, key.private_key()?))
        });
        Ok(TlsContents { roots, identity: identity.transpose()? })
    }

    /// The same for a connection: a file that is being replaced is soon whole.
    pub fn read_again(&self) -> Result<TlsContents, RequestError> {
        self.read().map_err(RequestError::passing)
    }
}

impl PemFile {
    fn certificates(&self) -> Result<Vec<u8>, String> {
        let pem = std::fs::read(&self.path).map_err(|e| self.wrong(e))?;
        let all = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
        if all.map_err(|e| self.wrong(e))?.is_empty() {
            return Err(self.wrong("there is no certificate in the file"));
        }
        Ok(pem)
    }

    fn private_key(&self) -> Result<Zeroizing<Vec<u8>>, String> {
        let pem = std::fs::read(&self.path).map(Zeroizing::new).map_err(|e| self.wrong(e))?;
        let key = PrivateKeyDer::from_pem_slice(&pem);
        key.map_err(|_| self.wrong("there is no private key, or an encrypted one, in the file"))?;
        Ok(pem)
    }

    fn wrong(&self, why: impl fmt::Display) -> String {
        format!("{}={}: {why}", self.option, self.path.display())
    }
}

/// The failure of TLS that caused an error, if it will be the same at each attempt.
pub fn refusal(error: &(dyn StdError + 'static)) -> Option<RequestError> {
    let failed = of_tls(error)?;
    let advice = match failed {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            ": none of the roots has signed it"
        }
        Error::InvalidMessage(_) => ": the server may speak no TLS at this port",
        Error::AlertReceived(alert) if OF_CLIENTS.contains(alert) => {
            ": the server wants another certificate of this client"
        }
        Error::InvalidCertificate(_) | Error::PeerIncompatible(_) => "",
        _ => return None,
    };
    Some(RequestError::lasting(format!("TLS: {failed}{advice}")))
}

/// The error of TLS behind an error. One of input and output hides what it was made from.
fn of_tls<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<Error>() {
            return Some(found);
        }
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner as &(dyn StdError + 'static)),
            None => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::InvalidMessage;

    #[test]
    fn refusals_are_found_behind_other_errors_and_last() {
        let wrapped = |error: Error| io::Error::other(io::Error::other(error));
        let unknown = wrapped(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        let refused = refusal(&unknown).unwrap();
        assert!(!refused.is_passing && refused.message.contains("UnknownIssuer"), "{refused:?}");
        let plain = refusal(&wrapped(Error::InvalidMessage(InvalidMessage::InvalidContentType)));
        assert!(plain.unwrap().message.contains("speak no TLS"));
        // It may be over at the next attempt.
        assert!(refusal(&wrapped(Error::DecryptError)).is_none());
        assert!(refusal(&io::Error::from(io::ErrorKind::ConnectionReset)).is_none());
    }
}
