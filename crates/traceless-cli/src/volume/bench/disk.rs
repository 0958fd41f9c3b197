//! Volumes on the disk, beside what the disk does raw with the same number of bytes.

use super::client::{Client, Command};
use super::served::{Served, create};
use super::{Effort, Places, Row, failed, row, seconds};
use crate::failure::Failure;
use rustix::fs::Advice;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

const LARGE: usize = 1 << 20;
const LARGE_DEPTH: usize = 4;

pub fn measure(places: &Places, effort: Effort) -> Result<Vec<Row>, Failure> {
    let bytes = effort.volume_bytes / 2;
    let raw = places.disk.join("raw");
    let image = create(&places.disk, "detwo", bytes, &["--refresh", "1"])?;
    let image_bytes = std::fs::metadata(&image).map_err(failed)?.len();
    let offsets: Vec<u64> = (0..bytes).step_by(LARGE).collect();
    let (mut writes, mut creations) = (vec![], vec![]);
    for round in 0..=effort.rounds {
        let raw_write = write_raw(&raw, image_bytes)? / image_bytes as f64;
        let raw_read = read_raw(&raw, bytes)? / bytes as f64;
        let server = Served::start(&image)?;
        let mut client = Client::connect(&server.socket)?;
        if round == 0 {
            // A pass first, so that every refresh has something to read.
            client.run(Command::Write, &offsets, LARGE, LARGE_DEPTH)?;
        }
        client.flush()?;
        forget(&image)?;
        let took = seconds(|| {
            client.run(Command::Write, &offsets, LARGE, LARGE_DEPTH)?;
            client.flush()
        })?;
        drop(client);
        server.stop()?;
        let made = places.disk.join("made");
        std::fs::create_dir_all(&made).map_err(failed)?;
        let creation = seconds(|| create(&made, "detwo", bytes, &["--refresh", "1"]).map(drop))?;
        std::fs::remove_dir_all(&made).map_err(failed)?;
        if round > 0 {
            // Two writes and one read a block.
            writes.push((2.0 * raw_write + raw_read) * bytes as f64 / took);
            creations.push(raw_write * image_bytes as f64 / creation);
        }
    }
    std::fs::remove_file(raw).map_err(failed)?;
    std::fs::remove_file(image).map_err(failed)?;
    Ok(vec![
        row("nbd-seq-write-disk-vs-raw", "ratio", writes),
        row("create-vs-raw-write", "ratio", creations),
    ])
}

/// Seconds to write `bytes` bytes to a new file, durably.
fn write_raw(path: &Path, bytes: u64) -> Result<f64, Failure> {
    let chunk = vec![0x5a; LARGE];
    let _ = std::fs::remove_file(path);
    let file =
        OpenOptions::new().write(true).create(true).truncate(true).open(path).map_err(failed)?;
    seconds(|| {
        for at in (0..bytes).step_by(LARGE) {
            let part = &chunk[..(bytes - at).min(LARGE as u64) as usize];
            file.write_all_at(part, at).map_err(failed)?;
        }
        file.sync_all().map_err(failed)
    })
}

/// Seconds to read the first `bytes` bytes of a file that the page cache does not hold.
fn read_raw(path: &Path, bytes: u64) -> Result<f64, Failure> {
    forget(path)?;
    let file = File::open(path).map_err(failed)?;
    let mut chunk = vec![0; LARGE];
    seconds(|| {
        for at in (0..bytes).step_by(LARGE) {
            file.read_exact_at(&mut chunk, at).map_err(failed)?;
        }
        Ok(())
    })
}

/// Drops a file's clean pages from the page cache.
fn forget(path: &Path) -> Result<(), Failure> {
    let file = File::open(path).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(failed)
}
