//! Volumes on the disk, compared with raw access to the same number of bytes.

use super::caches::drop_file_cache;
use super::client::{NbdClient, NbdCommand};
use super::server::{VolumeServer, create};
use super::{Effort, Places, Row, failed, row, seconds};
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use traceless::clock::{Clock, Monotonic};
use traceless_cli::failure::Failure;

const LARGE: usize = 1 << 20;
const LARGE_DEPTH: usize = 4;

/// A volume's sequential writes, compared with raw writes and reads of the same bytes.
pub fn measure_writes(places: &Places, effort: Effort) -> Result<Vec<Row>, Failure> {
    let bytes = effort.volume_bytes / 2;
    let image = create(&places.disk, "detwo", bytes, &["--refresh", "1"])?;
    let ratios = writes_beside_raw(&image, bytes, (2 * bytes, bytes), effort.rounds)?;
    Ok(vec![row("nbd-seq-write-disk-vs-raw", "ratio", ratios)])
}

/// In each round, the time to write and read the given numbers of bytes raw, as a share of the time
/// to write the `bytes` bytes of the volume in `image` in order. Removes the image.
pub fn writes_beside_raw(
    image: &Path,
    bytes: u64,
    (raw_written, raw_read): (u64, u64),
    rounds: usize,
) -> Result<Vec<f64>, Failure> {
    let raw = image.with_file_name("raw");
    let offsets: Vec<u64> = (0..bytes).step_by(LARGE).collect();
    let of_disk = || {
        let most = raw_written.max(raw_read);
        let writing = write_raw(&raw, most)? * raw_written as f64 / most as f64;
        let reading = read_raw(&raw, raw_read)?;
        std::fs::remove_file(&raw).map_err(failed)?;
        Ok(writing + reading)
    };
    let of_volume = || {
        let server = VolumeServer::start(image)?;
        let mut client = NbdClient::connect(&server.socket)?;
        drop_file_cache(image)?;
        settle();
        let took = seconds(|| {
            client.run(NbdCommand::Write, &offsets, LARGE, LARGE_DEPTH)?;
            client.flush()
        })?;
        drop(client);
        server.stop()?;
        Ok(took)
    };
    // A first pass, so that every refresh has a block to read.
    of_volume()?;
    let ratios = between(rounds, of_disk, of_volume)?;
    std::fs::remove_file(image).map_err(failed)?;
    Ok(ratios)
}

/// Making a volume, compared with raw writes of as many bytes.
pub fn measure_creation(places: &Places, effort: Effort) -> Result<Vec<Row>, Failure> {
    let bytes = effort.volume_bytes / 2;
    let raw = places.disk.join("raw");
    let of_volume = |image_bytes: &mut u64| {
        settle();
        let clock = Monotonic::start();
        let image = create(&places.disk, "detwo", bytes, &["--refresh", "1"])?;
        let took = clock.now() as f64 / 1e9;
        *image_bytes = std::fs::metadata(&image).map_err(failed)?.len();
        std::fs::remove_file(image).map_err(failed)?;
        Ok(took)
    };
    let mut image_bytes = 0;
    of_volume(&mut image_bytes)?;
    let of_disk = || {
        let took = write_raw(&raw, image_bytes)?;
        std::fs::remove_file(&raw).map_err(failed)?;
        Ok(took)
    };
    let ratios = between(effort.rounds, of_disk, || of_volume(&mut 0))?;
    Ok(vec![row("create-vs-raw-write", "ratio", ratios)])
}

/// In each round, the seconds of `control` as a share of the seconds of `work`. They take turns,
/// and each `work` is compared with the mean of the controls before and after it, because a disk's
/// speed drifts.
fn between(
    rounds: usize,
    mut control: impl FnMut() -> Result<f64, Failure>,
    mut work: impl FnMut() -> Result<f64, Failure>,
) -> Result<Vec<f64>, Failure> {
    let mut before = control()?;
    let round = |_| {
        let took = work()?;
        let after = control()?;
        let mean = f64::midpoint(before, after);
        before = after;
        Ok(mean / took)
    };
    (0..rounds).map(round).collect()
}

/// Waits until the disk has finished earlier writes.
fn settle() {
    rustix::fs::sync();
}

/// Seconds to write `bytes` bytes to a new file, durably. Its space is reserved first, as for an
/// image: without a reservation the writes take up to five times as long.
fn write_raw(path: &Path, bytes: u64) -> Result<f64, Failure> {
    settle();
    let chunk = vec![0x5a; LARGE];
    let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
    seconds(|| {
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(failed)?;
        for at in (0..bytes).step_by(LARGE) {
            let part = &chunk[..(bytes - at).min(LARGE as u64) as usize];
            file.write_all_at(part, at).map_err(failed)?;
        }
        file.sync_all().map_err(failed)
    })
}

/// Seconds to read the first `bytes` bytes of a file that the page cache does not hold.
fn read_raw(path: &Path, bytes: u64) -> Result<f64, Failure> {
    drop_file_cache(path)?;
    let file = File::open(path).map_err(failed)?;
    let mut chunk = vec![0; LARGE];
    seconds(|| {
        for at in (0..bytes).step_by(LARGE) {
            file.read_exact_at(&mut chunk, at).map_err(failed)?;
        }
        Ok(())
    })
}
