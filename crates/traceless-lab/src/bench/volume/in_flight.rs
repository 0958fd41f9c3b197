//! Many requests in flight on one connection, of volumes that bypass the page cache: beside
//! one request in flight, and beside the raw file with as many.

use super::client::{NbdClient, NbdCommand};
use super::server::{VolumeServer, create};
use super::{Effort, Places, Row, failed, row, seconds};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use traceless::rng::{Rng, SeededRng};
use traceless::store::AlignedBuf;
use traceless_cli::failure::Failure;

pub const NAMES: [&str; 4] = [
    "nbd-in-flight-reads",
    "nbd-in-flight-writes",
    "nbd-in-flight-plain-vs-raw",
    "nbd-in-flight-detwo-vs-raw",
];

const BLOCK: usize = 4096;
const DEPTH: usize = 32;
/// Requests of a piece of work with many in flight, and with one.
const MANY: usize = 16_000;
const FEW: usize = 3000;

pub fn measure(places: &Places, effort: Effort) -> Result<Vec<Row>, Failure> {
    let bytes = effort.volume_bytes / 2;
    let mut detwo = OpenVolume::new(&places.disk, "detwo", bytes)?;
    let mut plain = OpenVolume::new(&places.disk, "plain", bytes)?;
    let raw = open_direct(&detwo.image)?;
    let mut rng = SeededRng::new(5);
    let mut draw = |count| -> Vec<u64> {
        (0..count).map(|_| rng.below(bytes / BLOCK as u64) * BLOCK as u64).collect()
    };
    let mut values: [Vec<f64>; 4] = Default::default();
    for _ in 0..effort.rounds {
        let (few, many) = (draw(FEW), draw(MANY));
        let of_file = rate(&many, |offsets| read_raw(&raw, offsets))?;
        let of_detwo = detwo.rate(NbdCommand::Read, &many, DEPTH)?;
        values[0].push(of_detwo / detwo.rate(NbdCommand::Read, &few, 1)?);
        let written = detwo.rate(NbdCommand::Write, &many, DEPTH)?;
        values[1].push(written / detwo.rate(NbdCommand::Write, &few, 1)?);
        values[2].push(plain.rate(NbdCommand::Read, &many, DEPTH)? / of_file);
        values[3].push(of_detwo / of_file);
    }
    detwo.close()?;
    plain.close()?;
    Ok(NAMES.into_iter().zip(values).map(|(name, values)| row(name, "ratio", values)).collect())
}

/// A volume that a server has open, and a connection to it.
struct OpenVolume {
    image: PathBuf,
    server: VolumeServer,
    client: NbdClient,
}

impl OpenVolume {
    /// Makes a volume, and writes each block once in order.
    fn new(folder: &Path, scheme: &str, bytes: u64) -> Result<Self, Failure> {
        const LARGE: usize = 1 << 20;
        let image = create(folder, scheme, bytes, &[])?;
        let server = VolumeServer::start_with(&image, &["--direct"])?;
        let mut client = NbdClient::connect(&server.socket)?;
        let offsets: Vec<u64> = (0..bytes).step_by(LARGE).collect();
        client.run(NbdCommand::Write, &offsets, LARGE, 4)?;
        client.flush()?;
        Ok(Self { image, server, client })
    }

    /// Requests a second. Writes are durable at the end.
    fn rate(
        &mut self,
        command: NbdCommand,
        offsets: &[u64],
        in_flight: usize,
    ) -> Result<f64, Failure> {
        rate(offsets, |offsets| {
            self.client.run(command, offsets, BLOCK, in_flight)?;
            self.client.flush()
        })
    }

    fn close(self) -> Result<(), Failure> {
        drop(self.client);
        self.server.stop()?;
        std::fs::remove_file(self.image).map_err(failed)
    }
}

fn rate(offsets: &[u64], work: impl FnOnce(&[u64]) -> Result<(), Failure>) -> Result<f64, Failure> {
    Ok(offsets.len() as f64 / seconds(|| work(offsets))?)
}

fn open_direct(path: &Path) -> Result<File, Failure> {
    let direct = OFlags::DIRECT.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(direct).open(path).map_err(failed)
}

/// Reads blocks of the file, each thread one at a time.
fn read_raw(file: &File, offsets: &[u64]) -> Result<(), Failure> {
    thread::scope(|scope| {
        let readers: Vec<_> = offsets
            .chunks(offsets.len().div_ceil(DEPTH))
            .map(|part| {
                scope.spawn(move || {
                    let mut block = AlignedBuf::zeroed(BLOCK);
                    part.iter().try_for_each(|&at| file.read_exact_at(&mut block, at))
                })
            })
            .collect();
        let mut outcomes = readers.into_iter().map(|reader| reader.join().expect("no panic"));
        outcomes.try_for_each(|outcome| outcome.map_err(failed))
    })
}
