//! Recording: the memory operations of an unmodified program become a packed workload.
//!
//! A program is recorded behind a first cache of 256 KiB, by Valgrind, and then read again:
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use traceless_sim::record::{Recorder, RecordingConfig, record};
//! use traceless_sim::workload::{Op, open};
//! use traceless_sim::{Error, cache};
//!
//! # fn main() -> traceless_sim::Result {
//! # let folder = tempfile::tempdir().unwrap();
//! # let out = folder.path().join("true.trace");
//! let config = RecordingConfig {
//!     program: vec!["true".into()],
//!     l1: cache::Config { bytes: 256 << 10, ways: 2 },
//!     skip: 0,
//!     misses: Some(100),
//!     out,
//! };
//! let recorded = record(&config, Recorder::Lackey, &mut |_| {}, &AtomicBool::new(false));
//! if let Err(Error::NotRecorded(why)) = recorded {
//!     println!("{why}"); // valgrind is not installed
//!     return Ok(());
//! }
//! assert_eq!(recorded?.reads, 100);
//! let first = open(&config.out, None)?.next()?.expect("100 misses");
//! assert_eq!(first.op, Op::Read);
//! # Ok(())
//! # }
//! ```

mod lackey;
mod qemu;

use crate::cache;
use crate::error::{Error, Result};
use crate::workload::{Filter, PackedWriter};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is recorded, and where.
#[derive(Clone, Debug)]
pub struct RecordingConfig {
    /// The program, and its arguments.
    pub program: Vec<OsString>,
    /// The first cache: its misses and write-backs are the records.
    pub l1: cache::Config,
    /// Misses that are left out at the beginning.
    pub skip: u64,
    /// Misses to record; then the program is ended. `None` records until it ends.
    pub misses: Option<u64>,
    /// The workload's file, which gets its name only once it is whole.
    pub out: PathBuf,
}

/// A tool that watches the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recorder {
    /// Valgrind's tool lackey.
    Lackey,
    /// A plugin of QEMU's user mode, some two hundred times faster. It needs a C compiler.
    Qemu,
}

/// What was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recording {
    /// Instructions executed during the recording.
    pub instructions: u64,
    /// Misses of the first cache.
    pub reads: u64,
    /// Lines that it wrote back.
    pub writes: u64,
    /// How the program ended; `None` if it was ended because enough was recorded.
    pub status: Option<ExitStatus>,
}

/// Runs the program to its end, or until enough is recorded. Its input and output are the ones of
/// this process. `progress` is called with the number of misses recorded so far, where the
/// recorder knows it. Once `interrupted` is set no file is kept.
///
/// # Errors
/// [`Error::NotRecorded`] if a tool is missing, the program cannot be run by it, or nothing came
/// of it, [`Error::Interrupted`], [`Error::Cache`], and [`Error::Io`].
pub fn record(
    config: &RecordingConfig,
    recorder: Recorder,
    progress: &mut dyn FnMut(u64),
    interrupted: &AtomicBool,
) -> Result<Recording> {
    let filter = Filter::new(&config.l1)?;
    let output = Output::create(&config.out)?;
    let writer = output.writer()?;
    let recording = match recorder {
        Recorder::Lackey => lackey::record(config, filter, writer, progress)?,
        Recorder::Qemu => qemu::record(config, &output, writer)?,
    };
    if interrupted.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    output.keep()?;
    Ok(recording)
}

type Writer = PackedWriter<BufWriter<File>>;

/// Makes the file whole and durable.
fn finish(writer: Writer) -> io::Result<()> {
    writer.finish()?.get_ref().sync_all()
}

/// An error of the operation on the file or program `name`.
fn failed(name: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { path: name.into(), source }
}

/// A file that gets its name only once it is whole.
struct Output<'a> {
    path: &'a Path,
    coming: PathBuf,
}

impl<'a> Output<'a> {
    fn create(path: &'a Path) -> Result<Self> {
        let mut coming = path.as_os_str().to_owned();
        coming.push(format!(".{}.part", std::process::id()));
        let output = Self { path, coming: coming.into() };
        File::create_new(&output.coming).map_err(failed(path))?;
        Ok(output)
    }

    fn writer(&self) -> Result<Writer> {
        let file = File::options().write(true).open(&self.coming);
        file.and_then(|file| PackedWriter::new(BufWriter::new(file))).map_err(failed(self.path))
    }

    fn keep(&self) -> Result {
        std::fs::rename(&self.coming, self.path).map_err(failed(self.path))
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        // After `keep` the file has moved, and there is nothing to remove.
        let _ = std::fs::remove_file(&self.coming);
    }
}
