//! Targets of requests: a volume over NBD, a file on a mounted ext4, or a volume in this process
//! with a recorded store.

use super::client::{NbdClient, NbdCommand};
use super::failed;
use super::server::{VolumeServer, key_beside, user_key};
use super::workload::{LARGE, SMALL};
use crate::program;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use traceless::store::AlignedBuf;
use traceless::trace::{Event, Recorder};
use traceless_cli::failure::Failure;
use traceless_volume::device::Device;
use traceless_volume::volume::{self, Volume};

/// Requests that a client over NBD keeps in flight.
const LARGE_DEPTH: usize = 4;
const SMALL_DEPTH: usize = 32;

/// A target of reads and writes, with requests of one length at a time.
pub trait BenchTarget {
    fn run(&mut self, requests: &[(NbdCommand, u64)], len: usize) -> Result<(), Failure>;

    fn flush(&mut self) -> Result<(), Failure>;

    /// Closes the volume.
    fn close(self: Box<Self>) -> Result<(), Failure>;
}

/// A volume that another process serves over NBD.
pub struct Raw {
    client: NbdClient,
    server: VolumeServer,
}

impl Raw {
    pub fn open(image: &Path) -> Result<Self, Failure> {
        let server = VolumeServer::start(image)?;
        Ok(Self { client: NbdClient::connect(&server.socket)?, server })
    }
}

impl BenchTarget for Raw {
    fn run(&mut self, requests: &[(NbdCommand, u64)], len: usize) -> Result<(), Failure> {
        let depth = if len > SMALL { LARGE_DEPTH } else { SMALL_DEPTH };
        self.client.run_mixed(requests, len, depth)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.client.flush()
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        let Self { client, server } = *self;
        drop(client);
        server.stop()
    }
}

/// A file on a volume that `volume mount` has mounted. It bypasses the page cache of its file
/// system, with one request at a time.
pub struct MountedTarget {
    // `None` once it is closed, which comes before unmounting.
    file: Option<File>,
    needs_unmount: bool,
    buffer: AlignedBuf,
    dir: PathBuf,
}

const OPEN: &str = "the file is open until it is unmounted";

impl MountedTarget {
    /// Mounts `image`, which was never written to, at a folder beside it.
    pub fn open(image: &Path) -> Result<Self, Failure> {
        let dir = image.with_extension("mounted");
        std::fs::create_dir(&dir).map_err(failed)?;
        // A file and not a pipe: the process that serves the mount keeps it open, so a pipe would
        // not end.
        let log = image.with_extension("log");
        let status = program::traceless()
            .args(["volume", "mount"])
            .arg(image)
            .arg(&dir)
            .arg("--key-file")
            .arg(key_beside(image))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).map_err(failed)?)
            .status()
            .map_err(failed)?;
        if !status.success() {
            let log_text = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(failed(format!("cannot mount {}: {}", image.display(), log_text.trim())));
        }
        let buffer = AlignedBuf::zeroed(LARGE);
        let mut mounted = Self { file: None, needs_unmount: true, buffer, dir };
        mounted.buffer.fill(0x5a);
        let direct = OFlags::DIRECT.bits().cast_signed();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .custom_flags(direct)
            .open(mounted.dir.join("file"))
            .map_err(failed)?;
        mounted.file = Some(file);
        Ok(mounted)
    }

    fn unmount(&mut self) -> Result<(), Failure> {
        self.file = None;
        self.needs_unmount = false;
        let output = program::traceless()
            .args(["volume", "unmount"])
            .arg(&self.dir)
            .output()
            .map_err(failed)?;
        if output.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&output.stderr);
        Err(failed(format!("cannot unmount {}: {}", self.dir.display(), why.trim())))
    }
}

impl BenchTarget for MountedTarget {
    fn run(&mut self, requests: &[(NbdCommand, u64)], len: usize) -> Result<(), Failure> {
        for &(command, at) in requests {
            let file = self.file.as_ref().expect(OPEN);
            match command {
                NbdCommand::Read => file.read_exact_at(&mut self.buffer[..len], at),
                NbdCommand::Write => file.write_all_at(&self.buffer[..len], at),
                NbdCommand::Flush => file.sync_all(),
            }
            .map_err(failed)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.file.as_ref().expect(OPEN).sync_all().map_err(failed)
    }

    fn close(mut self: Box<Self>) -> Result<(), Failure> {
        self.unmount()
    }
}

impl Drop for MountedTarget {
    fn drop(&mut self) {
        if self.needs_unmount {
            let _ = self.unmount();
        }
    }
}

/// A volume that is open in this process, without a kernel or a connection in between. A recorder
/// observes the requests to its store.
pub struct RecordedTarget {
    volume: Volume,
    recorder: Arc<Recorder>,
    buffer: Vec<u8>,
}

impl RecordedTarget {
    pub fn open(image: &Path) -> Result<Self, Failure> {
        let recorder = Arc::new(Recorder::default());
        let options = volume::OpenOptions { witness: Some(recorder.clone()), ..Default::default() };
        let volume = Volume::open(image, &user_key(), &options, &mut |_, _| {})?;
        Ok(Self { volume, recorder, buffer: vec![0x5a; LARGE] })
    }

    /// The requests to the store since the last call.
    pub fn take_events(&self) -> Vec<Event> {
        self.recorder.take()
    }
}

impl BenchTarget for RecordedTarget {
    fn run(&mut self, requests: &[(NbdCommand, u64)], len: usize) -> Result<(), Failure> {
        for &(command, at) in requests {
            match command {
                NbdCommand::Read => self.volume.read(at, &mut self.buffer[..len]),
                NbdCommand::Write => self.volume.write(at, &self.buffer[..len]),
                NbdCommand::Flush => self.volume.flush(),
            }
            .map_err(failed)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.volume.flush().map_err(failed)
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        Ok(self.volume.close()?)
    }
}
