//! Linux in a confidential virtual machine: configfs-tsm, from 6.7 on
//! (Documentation/ABI/testing/configfs-tsm-report).

use super::{EVIDENCE_LEN_MAX, Machine, MachineEvidence, ReportData, read_evidence};
use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Attempts, if another process writes to the same entry.
const ATTEMPTS: usize = 3;
/// The kernel's providers.
const PROVIDERS: [(&str, Machine); 2] = [("tdx_guest", Machine::Tdx), ("sev_guest", Machine::Snp)];

/// The folder of entries, each of which gives evidence.
#[derive(Debug)]
pub struct ConfigfsTsm {
    reports: PathBuf,
    /// One request at a time: all use one entry.
    turn: Mutex<()>,
}

impl ConfigfsTsm {
    /// The source in this folder: Linux has [`super::REPORTS`].
    pub fn new(reports: impl Into<PathBuf>) -> Self {
        Self { reports: reports.into(), turn: Mutex::default() }
    }

    fn with_entry<T>(&self, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = self.reports.join(format!("traceless-{}", std::process::id()));
        match fs::create_dir(&entry) {
            // An earlier process with this number was killed.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                let place = self.reports.display();
                return Err(Error::other(format!(
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

impl MachineEvidence for ConfigfsTsm {
    fn machine(&self) -> Result<Machine> {
        self.with_entry(machine)
    }

    fn evidence(&self, report_data: &ReportData) -> Result<Vec<u8>> {
        self.with_entry(|entry| {
            for _ in 0..ATTEMPTS {
                if let Some(evidence) = request(entry, report_data)? {
                    return Ok(evidence);
                }
            }
            Err(Error::other("another process keeps writing to the entry of configfs-tsm"))
        })
    }
}

/// One request. `None` if another process wrote to the entry meanwhile.
fn request(entry: &Path, report_data: &ReportData) -> Result<Option<Vec<u8>>> {
    fs::write(entry.join("inblob"), report_data)?;
    let generation = text(&entry.join("generation"))?;
    let mut evidence = read_evidence(&entry.join("outblob"))?;
    match machine(entry)? {
        // The host's certificate table.
        Machine::Snp => evidence.extend(read_evidence(&entry.join("auxblob"))?),
        Machine::Tdx | Machine::Sgx => {}
    }
    let undisturbed = text(&entry.join("generation"))? == generation;
    if evidence.len() > EVIDENCE_LEN_MAX {
        return Err(Error::other("the machine's evidence is too long"));
    }
    Ok(undisturbed.then_some(evidence))
}

fn machine(entry: &Path) -> Result<Machine> {
    let provider = text(&entry.join("provider"))?;
    let known = PROVIDERS.iter().find(|(name, _)| *name == provider);
    let unknown =
        || Error::other(format!("the machine's provider {provider} is of a kind not known here"));
    known.map(|(_, machine)| *machine).ok_or_else(unknown)
}

fn text(file: &Path) -> Result<String> {
    Ok(fs::read_to_string(file)?.trim().to_owned())
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
        for (provider, machine, evidence) in
            [("sev_guest", Machine::Snp, "reporttable"), ("tdx_guest", Machine::Tdx, "report")]
        {
            let entry = entry(folder.path(), provider);
            assert_eq!(source.evidence(&[7; 64]).unwrap(), evidence.as_bytes());
            assert_eq!(fs::read(entry.join("inblob")).unwrap(), [7; 64]);
            assert_eq!(source.machine().unwrap(), machine);
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
