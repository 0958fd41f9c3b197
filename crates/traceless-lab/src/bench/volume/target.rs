//! Targets of requests: a volume over NBD, a file on a mounted ext4, or a volume in this process
//! with a recorded store.

use super::client::{NbdClient, NbdCommand};
use super::failed;
use super::mount::Mount;
use super::server::{VolumeServer, user_key};
use super::workload::{LARGE, SMALL};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
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
    // It is closed before the file system is unmounted.
    file: File,
    buffer: AlignedBuf,
    mount: Mount,
}

impl MountedTarget {
    /// Mounts `image`, which was never written to, at a folder beside it.
    pub fn open(image: &Path) -> Result<Self, Failure> {
        let mount = Mount::of_volume(image)?;
        let mut buffer = AlignedBuf::zeroed(LARGE);
        buffer.fill(0x5a);
        let direct = OFlags::DIRECT.bits().cast_signed();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).custom_flags(direct);
        let file = options.open(mount.folder().join("file")).map_err(failed)?;
        Ok(Self { file, buffer, mount })
    }
}

impl BenchTarget for MountedTarget {
    fn run(&mut self, requests: &[(NbdCommand, u64)], len: usize) -> Result<(), Failure> {
        for &(command, at) in requests {
            match command {
                NbdCommand::Read => self.file.read_exact_at(&mut self.buffer[..len], at),
                NbdCommand::Write => self.file.write_all_at(&self.buffer[..len], at),
                NbdCommand::Flush => self.file.sync_all(),
            }
            .map_err(failed)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.file.sync_all().map_err(failed)
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        let Self { file, mount, .. } = *self;
        drop(file);
        mount.unmount()
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
