use crate::error::{Error, Result};
use dcap_qvl::QuoteCollateralV3;
use der::Decode;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use std::fs;
use std::path::Path;
use webpki::BorrowedCertRevocationList;
use x509_cert::Certificate;

/// Bytes of a file of collateral, at most. Intel's has some 10 to 40 KiB.
const FILE_LEN_MAX: u64 = 4 << 20;
/// The version of Intel's statements about security versions.
const TCB_INFO_VERSION: u64 = 3;
/// Files of collateral, at most.
const FILES_MAX: usize = 10_000;

/// What makers of processors sign about them, as files. All of it is checked when it is used.
#[derive(Default)]
pub struct Collateral {
    /// Of Intel: one for each model of processors.
    pub(crate) intel: Vec<QuoteCollateralV3>,
    /// Of AMD, in DER: roots, intermediate certificates, and certificates of chips' keys.
    pub(crate) certificates: Vec<CertificateDer<'static>>,
    /// Revocation lists of AMD, in DER.
    pub(crate) revocations: Vec<CertificateRevocationListDer<'static>>,
    /// Number of files that were added.
    files: usize,
}

impl Collateral {
    /// Adds a file, or all files of a folder: JSON as PCCS clients write it (the fields of
    /// `sgx_ql_qve_collateral_t`), certificates and revocation lists in PEM or DER.
    pub fn add(&mut self, path: &Path) -> Result {
        let unusable = |reason: String| Error::file(path, reason);
        let unreadable = |error: std::io::Error| Error::file(path, error);
        if fs::metadata(path).map_err(unreadable)?.is_dir() {
            let mut inside = Vec::new();
            for entry in fs::read_dir(path).map_err(unreadable)? {
                let entry = entry.map_err(unreadable)?.path();
                if entry.is_file() {
                    inside.push(entry);
                }
            }
            inside.sort();
            return inside.iter().try_for_each(|file| self.add(file));
        }
        if fs::metadata(path).map_err(unreadable)?.len() > FILE_LEN_MAX {
            return Err(unusable(format!("a file of collateral has at most {FILE_LEN_MAX} bytes")));
        }
        self.files += 1;
        if self.files > FILES_MAX {
            return Err(unusable(format!("there are more than {FILES_MAX} files of collateral")));
        }
        self.add_bytes(&fs::read(path).map_err(unreadable)?).map_err(unusable)
    }

    /// Adds the contents of a file. Fails with the reason.
    pub fn add_bytes(&mut self, bytes: &[u8]) -> std::result::Result<(), String> {
        if bytes.trim_ascii_start().starts_with(b"{") {
            let parsed: QuoteCollateralV3 = serde_json::from_slice(bytes)
                .map_err(|error| format!("no collateral of Intel: {error}"))?;
            let about: serde_json::Value = serde_json::from_str(&parsed.tcb_info)
                .map_err(|error| format!("no statement about security versions: {error}"))?;
            if about["version"] != TCB_INFO_VERSION {
                return Err(format!(
                    "its statement about security versions (TCB info) has version {}, and version \
                     {TCB_INFO_VERSION} is needed: a PCCS has it under /v4/",
                    about["version"]
                ));
            }
            self.intel.push(parsed);
            return Ok(());
        }
        if bytes.starts_with(&[0x30]) {
            if Certificate::from_der(bytes).is_ok() {
                self.certificates.push(bytes.to_vec().into());
                return Ok(());
            }
            return self.add_revocations(vec![bytes.to_vec().into()]);
        }
        let damaged = |error| format!("damaged PEM: {error}");
        let certificates: std::result::Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(bytes).collect();
        let certificates = certificates.map_err(damaged)?;
        let revocations: std::result::Result<Vec<_>, _> =
            CertificateRevocationListDer::pem_slice_iter(bytes).collect();
        let revocations = revocations.map_err(damaged)?;
        if certificates.is_empty() && revocations.is_empty() {
            return Err("neither JSON of Intel nor a certificate or revocation list of AMD".into());
        }
        self.certificates.extend(certificates);
        self.add_revocations(revocations)
    }

    /// Adds revocation lists. One that cannot be read must not be left out: it may revoke.
    fn add_revocations(
        &mut self,
        lists: Vec<CertificateRevocationListDer<'static>>,
    ) -> std::result::Result<(), String> {
        for list in &lists {
            BorrowedCertRevocationList::from_der(list)
                .map_err(|error| format!("neither a certificate nor a revocation list: {error}"))?;
        }
        self.revocations.extend(lists);
        Ok(())
    }
}
