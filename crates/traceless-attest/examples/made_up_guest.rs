//! A guest of SEV-SNP that does not exist, for tests: plays the kernel's part of configfs-tsm in a
//! folder, and signs reports with a key of its own root.
//!
//! `made_up_guest CERTIFICATES ENTRY` writes `root.pem` and `chain.pem` into the first folder, and
//! answers requests in the second until it is ended.

#[path = "../tests/made_up/mod.rs"]
mod made_up;

use made_up::{Chip, Fields};
use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [certificates, entry] = &folders[..] else {
        return Err("usage: made_up_guest CERTIFICATES ENTRY".into());
    };
    let chip = Chip::new();
    fs::create_dir_all(certificates)?;
    fs::write(certificates.join("root.pem"), chip.root_pem())?;
    fs::write(certificates.join("chain.pem"), chip.chain_pem())?;
    fs::create_dir_all(entry)?;
    fs::write(entry.join("generation"), "1\n")?;
    fs::write(entry.join("auxblob"), chip.table())?;
    let reports = entry.join("outblob");
    if !Command::new("mkfifo").arg(&reports).status()?.success() {
        return Err("mkfifo failed".into());
    }
    // The last attribute: when it is there, all are.
    fs::write(entry.join("provider"), "sev_guest\n")?;
    loop {
        // Waits for a reader, which has written what its report is bound to.
        let mut reader = OpenOptions::new().write(true).open(&reports)?;
        let report_data = fs::read(entry.join("inblob"))?;
        let report_data = report_data.try_into().map_err(|_| "inblob has 64 bytes")?;
        reader.write_all(&chip.report(&Fields { report_data, ..Fields::default() }))?;
        drop(reader);
        // The reader sees the end before the next report.
        std::thread::sleep(Duration::from_millis(20));
    }
}
