//! Evidence of the confidential virtual machine that this program runs in, of TDX or SEV-SNP:
//! configfs-tsm of Linux 6.7 (Documentation/ABI/testing/configfs-tsm-report).

use crate::error::{Error, Result};
use crate::tee::EVIDENCE_LEN_MAX;
use crate::tee::verifier::ReportData;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Attempts, if another process writes to the same entry.
const ATTEMPTS: usize = 3;
/// The provider of TDX, and of SEV-SNP: its `auxblob` is a certificate table.
const TDX: &str = "tdx_guest";
const SNP: &str = "sev_guest";

/// A machine's source of evidence.
#[derive(Debug)]
pub struct ConfigfsTsm {
    reports: PathBuf,
    /// One request at a time: all use one entry.
    turn: Mutex<()>,
}

impl ConfigfsTsm {
    /// The source in this folder: Linux has `/sys/kernel/config/tsm/report`.
    pub fn new(reports: impl Into<PathBuf>) -> Self {
        Self { reports: reports.into(), turn: Mutex::default() }
    }

    /// The kind of the machine. Fails if it is no confidential virtual machine.
    pub fn provider(&self) -> Result<String> {
        self.with_entry(|entry| Ok(text(&entry.join("provider"))?))
    }

    /// Evidence that is bound to `report_data`, as `traceless-attest` takes it.
    pub fn evidence(&self, report_data: &ReportData) -> Result<Vec<u8>> {
        self.with_entry(|entry| {
            for _ in 0..ATTEMPTS {
                if let Some(evidence) = request(entry, report_data)? {
                    return Ok(evidence);
                }
            }
            Err(Error::Evidence("another process keeps writing to the entry of configfs-tsm"))
        })
    }

    fn with_entry<T>(&self, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = self.reports.join(format!("traceless-{}", std::process::id()));
        match fs::create_dir(&entry) {
            // An earlier process with this number was killed.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                let place = self.reports.display();
                return Err(Error::EvidenceRefused(format!(
                    "{place}: {error}: this machine is no confidential virtual machine, or \
                     Linux is older than 6.7, or this is not root"
                )));
            }
            Ok(()) => {}
        }
        let done = work(&entry);
        // The attributes of an entry go with it.
        let _ = fs::remove_dir(&entry);
        done
    }
}

/// One request. `None` if another process wrote to the entry meanwhile.
fn request(entry: &Path, report_data: &ReportData) -> Result<Option<Vec<u8>>> {
    fs::write(entry.join("inblob"), report_data)?;
    let generation = text(&entry.join("generation"))?;
    let mut evidence = bytes(&entry.join("outblob"))?;
    match &text(&entry.join("provider"))?[..] {
        TDX => {}
        SNP => evidence.extend(bytes(&entry.join("auxblob"))?),
        _ => return Err(Error::Evidence("the machine is of a kind that is not known here")),
    }
    let undisturbed = text(&entry.join("generation"))? == generation;
    if evidence.len() > EVIDENCE_LEN_MAX {
        return Err(Error::Evidence("it is too long"));
    }
    Ok(undisturbed.then_some(evidence))
}

fn text(file: &Path) -> std::io::Result<String> {
    Ok(fs::read_to_string(file)?.trim().to_owned())
}

fn bytes(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more shows that there is too much.
    File::open(file)?.take(EVIDENCE_LEN_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Makes up the entry that a kernel would make.
    fn entry(reports: &Path, provider: &str) -> PathBuf {
        let entry = reports.join(format!("traceless-{}", std::process::id()));
        fs::create_dir_all(&entry).unwrap();
        fs::write(entry.join("provider"), format!("{provider}\n")).unwrap();
        fs::write(entry.join("generation"), "1\n").unwrap();
        fs::write(entry.join("auxblob"), "table").unwrap();
        fs::write(entry.join("outblob"), "report").unwrap();
        entry
    }

    #[test]
    fn reports_are_requested_and_certificates_follow_them() {
        let folder = tempfile::tempdir().unwrap();
        let source = ConfigfsTsm::new(folder.path());
        for (provider, evidence) in [("sev_guest", "reporttable"), ("tdx_guest", "report")] {
            let entry = entry(folder.path(), provider);
            assert_eq!(source.evidence(&[7; 64]).unwrap(), evidence.as_bytes());
            assert_eq!(fs::read(entry.join("inblob")).unwrap(), [7; 64]);
            assert_eq!(source.provider().unwrap(), provider);
        }
        entry(folder.path(), "arm_cca_guest");
        assert!(source.evidence(&[7; 64]).unwrap_err().to_string().contains("not known"));
        let entry = entry(folder.path(), "tdx_guest");
        fs::write(entry.join("outblob"), vec![0; EVIDENCE_LEN_MAX + 1]).unwrap();
        assert!(source.evidence(&[7; 64]).unwrap_err().to_string().contains("too long"));
    }

    #[test]
    fn other_machines_are_refused() {
        let error = ConfigfsTsm::new("/nowhere").evidence(&[7; 64]).unwrap_err().to_string();
        assert!(error.contains("no confidential virtual machine"), "{error}");
    }

    /// Another process writes to the entry between the first and the second request.
    #[test]
    fn a_report_for_another_process_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let entry = entry(folder.path(), "tdx_guest");
        fs::remove_file(entry.join("outblob")).unwrap();
        let status = std::process::Command::new("mkfifo").arg(entry.join("outblob")).status();
        assert!(status.unwrap().success());
        let kernel = thread::spawn(move || {
            for (generation, report) in [("2", "another's"), ("2", "ours")] {
                let file = fs::OpenOptions::new().write(true).open(entry.join("outblob"));
                fs::write(entry.join("generation"), generation).unwrap();
                std::io::Write::write_all(&mut file.unwrap(), report.as_bytes()).unwrap();
                // The reader sees the end before the next report.
                thread::sleep(std::time::Duration::from_millis(50));
            }
        });
        assert_eq!(ConfigfsTsm::new(folder.path()).evidence(&[7; 64]).unwrap(), b"ours");
        kernel.join().unwrap();
    }
}
