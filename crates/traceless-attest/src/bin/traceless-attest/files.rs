//! Reads and writes the files of the commands, each whole or not at all.

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::fs::{self, Permissions};
use std::io::{Read, Write, stdin, stdout};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::NamedTempFile;
use traceless_attest::{CERTIFICATE_LEN_MAX, Error, Result};

/// Reads evidence, or a certificate with evidence; `-` is the standard input.
pub fn read_evidence(file: &Path) -> Result<Vec<u8>> {
    let mut evidence = Vec::new();
    // One byte more shows that there is too much.
    let most = CERTIFICATE_LEN_MAX as u64 + 1;
    let read = if file == Path::new("-") {
        stdin().take(most).read_to_end(&mut evidence)
    } else {
        fs::File::open(file).and_then(|file| file.take(most).read_to_end(&mut evidence))
    };
    read.map_err(|error| Error::file(file, error))?;
    Ok(evidence)
}

pub fn read_text(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(|error| Error::file(file, error))
}

/// The certificates of a file in PEM, at least one.
pub fn read_certificates(file: &Path) -> Result<Vec<Vec<u8>>> {
    let read = CertificateDer::pem_file_iter(file).map_err(|error| Error::file(file, error))?;
    let read = read.map(|each| each.map(|certificate| certificate.to_vec()));
    let certificates: std::result::Result<Vec<_>, _> = read.collect();
    match certificates {
        Ok(none) if none.is_empty() => {
            Err(Error::file(file, "there is no certificate in PEM in it"))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(Error::file(file, error)),
    }
}

/// A new file that its owner alone reads, or the standard output.
pub struct Output<'a>(Option<&'a Path>);

impl<'a> Output<'a> {
    /// Fails if the file exists. `-` is the standard output.
    pub fn new(path: &'a Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self(None));
        }
        if path.symlink_metadata().is_ok() {
            return Err(Error::file(path, "it exists already; remove it, or name another file"));
        }
        Ok(Self(Some(path)))
    }

    /// Writes the whole, or nothing.
    pub fn write(&self, bytes: &[u8]) -> Result {
        let written = match self.0 {
            None => stdout().write_all(bytes).and_then(|()| stdout().flush()),
            Some(path) => written_beside(path, bytes)
                .and_then(|file| Ok(file.persist_noclobber(path)?))
                .map(|_| ()),
        };
        written.map_err(|error| Error::file(self.0.unwrap_or(Path::new("-")), error))
    }

    /// Removes the file.
    pub fn undo(&self) {
        if let Some(path) = self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

/// Writes a file that all users may read, or replaces it, whole or not at all.
pub fn replace_public(path: &Path, bytes: &[u8]) -> Result {
    let written = written_beside(path, bytes).and_then(|file| {
        file.as_file().set_permissions(Permissions::from_mode(0o644))?;
        Ok(file.persist(path)?)
    });
    written.map(|_| ()).map_err(|error| Error::file(path, error))
}

fn written_beside(path: &Path, bytes: &[u8]) -> std::io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let mut file = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    Ok(file)
}
