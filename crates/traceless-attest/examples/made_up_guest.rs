//! A guest of SEV-SNP that does not exist, for tests: plays the kernel's part of configfs-tsm in a
//! folder, and signs reports with a key of its own root.
//!
//! `made_up_guest CERTIFICATES ENTRY` writes `root.pem` and `chain.pem` into the first folder, and
//! answers requests in the second until it is ended.

#[path = "../tests/made_up/mod.rs"]
mod made_up;

use made_up::Chip;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [certificates, entry] = &folders[..] else {
        return Err("usage: made_up_guest CERTIFICATES ENTRY".into());
    };
    let chip = Chip::new();
    fs::create_dir_all(certificates)?;
    fs::write(certificates.join("root.pem"), chip.root_pem())?;
    fs::write(certificates.join("chain.pem"), chip.chain_pem())?;
    Ok(chip.serve(entry)?)
}
