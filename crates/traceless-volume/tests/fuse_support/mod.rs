//! Shared by the FUSE tests: a device in memory, and a [`Place`] that leaves nothing mounted.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tempfile::TempDir;
use traceless_volume::device::Device;
use traceless_volume::fuse::export::{FILE_NAME, spawn};
use traceless_volume::fuse::{Export, ExportOptions, capabilities};

/// A device in memory that counts its flushes.
pub struct Memory {
    bytes: RwLock<Vec<u8>>,
    flushes: AtomicUsize,
    pub read_only: AtomicBool,
    pub keeps_discards: AtomicBool,
}

impl Memory {
    pub fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            bytes: RwLock::new(bytes),
            flushes: AtomicUsize::new(0),
            read_only: AtomicBool::new(false),
            keeps_discards: AtomicBool::new(false),
        })
    }

    pub fn contents(&self) -> Vec<u8> {
        self.bytes.read().expect("no test panics with the lock").clone()
    }

    pub fn flushes(&self) -> usize {
        self.flushes.load(Ordering::SeqCst)
    }
}

impl Device for Memory {
    fn len(&self) -> u64 {
        self.bytes.read().expect("no test panics with the lock").len() as u64
    }

    fn block_len(&self) -> u32 {
        4096
    }

    fn read_only(&self) -> bool {
        self.read_only.load(Ordering::SeqCst)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes.read().expect("no test panics with the lock");
        into.copy_from_slice(&bytes[at as usize..][..into.len()]);
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        assert!(!self.read_only(), "the export lets no write through");
        let mut bytes = self.bytes.write().expect("no test panics with the lock");
        bytes[at as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    }

    fn keeps_discards(&self) -> bool {
        self.keeps_discards.load(Ordering::SeqCst)
    }

    fn flush(&self) -> io::Result<()> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// Bytes without a period, so that a mix-up of offsets changes the contents.
pub fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..count).map(step).collect()
}

/// Whether files can be exported here; prints what is not tested if not.
pub fn can_export(test: &str) -> bool {
    let missing = capabilities().missing_for_export();
    report_missing(test, &missing)
}

/// Whether file systems can be mounted here; prints what is not tested if not.
pub fn can_mount(test: &str) -> bool {
    let missing = capabilities().missing_for_mount(true);
    report_missing(test, &missing)
}

fn report_missing(test: &str, missing: &[traceless_volume::fuse::Error]) -> bool {
    for error in missing {
        // `eprintln!` would not do, as the harness hides its output when a test passes.
        let _ = writeln!(io::stderr(), "NOT TESTED: {test}, because {error}");
    }
    missing.is_empty()
}

/// Lets one test run at a time: a command started by another test holds copies of our open files
/// for a moment, which keeps a file system busy, and flushes when they are closed.
static ALONE: Mutex<()> = Mutex::new(());

/// Folders for one test. Drop unmounts and detaches everything below them.
pub struct Place {
    folder: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Place {
    pub fn new() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let place = Self { folder: tempfile::tempdir().expect("a folder"), _alone: alone };
        for path in [place.runtime(), place.fuse_dir(), place.dir()] {
            fs::create_dir(path).expect("a folder");
        }
        place
    }

    pub fn runtime(&self) -> PathBuf {
        self.root().join("run")
    }

    pub fn fuse_dir(&self) -> PathBuf {
        self.root().join("fuse")
    }

    pub fn dir(&self) -> PathBuf {
        self.root().join("data")
    }

    pub fn file(&self) -> PathBuf {
        self.fuse_dir().join(FILE_NAME)
    }

    pub fn root(&self) -> PathBuf {
        self.folder.path().canonicalize().expect("it is there")
    }

    pub fn export(&self, device: &Arc<Memory>) -> Export {
        spawn(device.clone(), &self.fuse_dir(), ExportOptions::default()).expect("exported")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let root = self.root();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let below: Vec<(&str, &str)> = mounts
            .lines()
            .filter_map(|line| Some((line.split(' ').nth(4)?, line.rsplit(' ').nth(1)?)))
            .filter(|(dir, _)| Path::new(dir).starts_with(&root))
            .collect();
        for (dir, source) in below.iter().rev() {
            let _ = run("umount", ["--no-canonicalize", "--lazy", *dir]);
            if source.starts_with("/dev/loop") {
                let _ = run("losetup", ["--detach", *source]);
            }
        }
        detach_loops_below(&root);
    }
}

/// Detaches loop devices that a failed test left without a mount.
fn detach_loops_below(root: &Path) {
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(&file).starts_with(root) {
            let device = Path::new("/dev").join(entry.file_name());
            let _ = run("losetup", [OsStr::new("--detach"), device.as_os_str()]);
        }
    }
}

/// Runs a command to its end.
pub fn run<A: AsRef<OsStr>>(command: &str, arguments: impl IntoIterator<Item = A>) -> Output {
    Command::new(command)
        .args(arguments)
        .env("LC_ALL", "C")
        .output()
        .unwrap_or_else(|error| panic!("{command} cannot run: {error}"))
}

/// Runs a command that must succeed.
pub fn must<A: AsRef<OsStr>>(command: &str, arguments: impl IntoIterator<Item = A>) {
    let output = run(command, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command} failed: {said}");
}
