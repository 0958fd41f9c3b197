//! `traceless gateway backup` and `restore`: all values and objects in one sealed file.

use super::scrub::LostNameReport;
use super::tree;
use crate::args::{GatewayBackupArgs, GatewayRestoreArgs};
use crate::cloud::failure;
use crate::failure::{DEVICE, FINDING, Failure};
use crate::output::{Meter, print_error, print_line};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use traceless_cloud::gateway::{BackupContents, Gateway};
use traceless_core::store::sync_folder_of;

pub fn back_up(args: &GatewayBackupArgs) -> Result<(), Failure> {
    if args.to.exists() {
        return Err(Failure::usage(format!("{}: it exists already", args.to.display())));
    }
    let new = PartialFile::create(&args.to)?;
    let mut gateway = tree::open_alone(&args.tree)?;
    if !gateway.lost_names().is_empty() {
        gateway.lost_names().iter().for_each(|lost| LostNameReport::of(lost).print());
        gateway.close().map_err(|e| failure(&e))?;
        let what = "values with lost blocks cannot be backed up: write them again, or remove them";
        return Err(Failure::new(FINDING, what));
    }
    let mut meter = Meter::new("backing up", args.progress.progress);
    let used = gateway.blocks_used() as u64 * gateway.params().geometry.block_len as u64;
    let out = BufWriter::new(&new.file);
    let written = gateway.back_up(out, |done| meter.update(done.bytes, used.max(done.bytes)));
    meter.finish();
    // What was found to be damaged is kept.
    let closed = gateway.close();
    let contents = written.and_then(|contents| closed.map(|()| contents));
    let contents = contents.map_err(|e| failure(&e))?;
    new.finish()?;
    print_line(&text("backed up", contents));
    print_error("it can be restored with the same master key only: keep that in another place");
    Ok(())
}

pub fn restore(args: &GatewayRestoreArgs) -> Result<(), Failure> {
    let mut file = File::open(&args.from).map_err(|e| failed(&args.from, &e))?;
    let mut gateway = tree::open_alone(&args.tree)?;
    let mut done = gateway.verify_backup(&file).map_err(|e| failure(&e));
    if !args.verify
        && let Ok(all) = done
    {
        let rewound = file.rewind().map_err(|e| failed(&args.from, &e));
        done = rewound.and_then(|()| write_all(&mut gateway, &file, args, all));
    }
    let closed = gateway.close().map_err(|e| failure(&e));
    let contents = done?;
    closed?;
    print_line(&text(if args.verify { "sound" } else { "restored" }, contents));
    Ok(())
}

fn write_all(
    gateway: &mut Gateway,
    file: &File,
    args: &GatewayRestoreArgs,
    all: BackupContents,
) -> Result<BackupContents, Failure> {
    let mut meter = Meter::new("restoring", args.progress.progress);
    let restored = gateway.restore(file, |done| meter.update(done.bytes, all.bytes));
    meter.finish();
    restored.map_err(|e| failure(&e))
}

fn text(what: &str, contents: BackupContents) -> String {
    format!("{what}: {} names, {} bytes", contents.names, contents.bytes)
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::new(DEVICE, format!("{}: {error}", path.display()))
}

/// A new file that gets its name once it is whole, and is removed if that never happens.
struct PartialFile {
    file: File,
    partial: PathBuf,
    path: PathBuf,
}

impl PartialFile {
    fn create(path: &Path) -> Result<Self, Failure> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&partial).map_err(|e| failed(&partial, &e))?;
        Ok(Self { file, partial, path: path.to_owned() })
    }

    fn finish(self) -> Result<(), Failure> {
        let written = self.file.sync_all();
        let named = written.and_then(|()| std::fs::rename(&self.partial, &self.path));
        let synced = named.and_then(|()| sync_folder_of(&self.path));
        synced.map_err(|e| failed(&self.path, &e))
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // There is none any more if the file is whole.
        let _ = std::fs::remove_file(&self.partial);
    }
}
