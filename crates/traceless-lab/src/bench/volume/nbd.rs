//! Volumes in memory over NBD: the ratio of detwo to plain, and the server's memory.

use super::client::{NbdClient, NbdCommand};
use super::server::{VolumeServer, create, create_image};
use super::{Effort, Places, Row, row, seconds, summary};
use traceless::rng::{Rng, SeededRng};
use traceless_cli::failure::Failure;

const LARGE: usize = 1 << 20;
const SMALL: usize = 4096;
const LARGE_DEPTH: usize = 4;
const SMALL_DEPTH: usize = 32;

/// Pieces of each workload; the two volumes take turns after each.
const PIECES: usize = 32;

/// Passes of a sequential workload. A piece takes some milliseconds, and half of that may be a wait
/// for a processor that other processes use.
const PASSES: usize = 4;

/// Memory that the server may hold besides the bytes for each block.
const MEMORY_ALLOWED: u64 = 64 << 20;
const BYTES_PER_BLOCK_ALLOWED: u64 = 9;

pub fn measure(places: &Places, effort: Effort) -> Result<Vec<Row>, Failure> {
    let bytes = effort.volume_bytes / 2;
    let images = [
        create(&places.ram, "plain", bytes, &[])?,
        create(&places.ram, "detwo", bytes, &["--refresh", "1"])?,
    ];
    let servers = [VolumeServer::start(&images[0])?, VolumeServer::start(&images[1])?];
    let mut clients =
        [NbdClient::connect(&servers[0].socket)?, NbdClient::connect(&servers[1].socket)?];
    let sequential: Vec<u64> = (0..bytes).step_by(LARGE).collect();
    let mut rng = SeededRng::new(2);
    let small_blocks = bytes / SMALL as u64;
    let random: Vec<u64> =
        (0..small_blocks.min(100_000)).map(|_| rng.below(small_blocks) * SMALL as u64).collect();
    // Two passes, so that every block has been written and refreshed.
    for client in &mut clients {
        for _ in 0..2 {
            client.run(NbdCommand::Write, &sequential, LARGE, LARGE_DEPTH)?;
        }
        client.flush()?;
    }
    let (mut writes, mut reads, mut random_reads) = (vec![], vec![], vec![]);
    let mut ratio = |command, offsets, len, depth, passes| {
        let time = |volume: usize, piece: &[u64]| {
            seconds(|| clients[volume].run(command, piece, len, depth))
        };
        interleaved_ratio(offsets, passes, time)
    };
    for _ in 0..effort.rounds {
        writes.push(ratio(NbdCommand::Write, &sequential, LARGE, LARGE_DEPTH, PASSES)?);
        reads.push(ratio(NbdCommand::Read, &sequential, LARGE, LARGE_DEPTH, PASSES)?);
        ratio(NbdCommand::Write, &random, SMALL, SMALL_DEPTH, 1)?;
        random_reads.push(ratio(NbdCommand::Read, &random, SMALL, SMALL_DEPTH, 1)?);
        // Sequential writes put neighbouring blocks side by side again.
        ratio(NbdCommand::Write, &sequential, LARGE, LARGE_DEPTH, 1)?;
    }
    drop(clients);
    for server in servers {
        server.stop()?;
    }
    for image in images {
        std::fs::remove_file(image).map_err(super::failed)?;
    }
    Ok(vec![
        row("nbd-seq-write-ram-vs-plain", "ratio", writes),
        row("nbd-seq-read-vs-plain", "ratio", reads),
        row("nbd-random-read-vs-plain", "ratio", random_reads),
    ])
}

/// Memory of a ring besides that for each block, and for each block.
const RING_MEMORY_ALLOWED: u64 = 64 << 20;
const RING_BYTES_PER_BLOCK_ALLOWED: u64 = 16;

/// The rows of [`measure_ring`].
pub const RING_ROWS: [&str; 4] =
    ["nbd-ring-random-read-vs-plain", "ring-blocks-moved", "ring-space", "ring-memory-over-budget"];

/// What hidden reads cost: a ring beside plain.
pub fn measure_ring(places: &Places, effort: Effort) -> Result<Vec<Row>, Failure> {
    let bytes = effort.volume_bytes;
    let images =
        [create(&places.ram, "plain", bytes, &[])?, create(&places.ram, "ring", bytes, &[])?];
    let servers = [VolumeServer::start(&images[0])?, VolumeServer::start(&images[1])?];
    let mut clients =
        [NbdClient::connect(&servers[0].socket)?, NbdClient::connect(&servers[1].socket)?];
    let sequential: Vec<u64> = (0..bytes).step_by(LARGE).collect();
    let blocks = bytes / SMALL as u64;
    let mut rng = SeededRng::new(4);
    let random: Vec<u64> = (0..50_000).map(|_| rng.below(blocks) * SMALL as u64).collect();
    for client in &mut clients {
        client.run(NbdCommand::Write, &sequential, LARGE, LARGE_DEPTH)?;
        client.flush()?;
    }
    let (mut reads, mut moved) = (vec![], vec![]);
    for _ in 0..effort.rounds {
        let before = servers[1].bytes_moved()?;
        reads.push(interleaved_ratio(&random, 1, |volume, piece| {
            seconds(|| clients[volume].run(NbdCommand::Read, piece, SMALL, SMALL_DEPTH))
        })?);
        let bytes = servers[1].bytes_moved()? - before;
        moved.push(bytes as f64 / (random.len() * SMALL) as f64);
    }
    let allowed = RING_MEMORY_ALLOWED + blocks * RING_BYTES_PER_BLOCK_ALLOWED;
    let memory = servers[1].peak_memory()? as f64 / allowed as f64;
    let space = std::fs::metadata(&images[1]).map_err(super::failed)?.len() as f64 / bytes as f64;
    drop(clients);
    for server in servers {
        server.stop()?;
    }
    for image in images {
        std::fs::remove_file(image).map_err(super::failed)?;
    }
    Ok(vec![
        row(RING_ROWS[0], "ratio", reads),
        row(RING_ROWS[1], "blocks", moved),
        row(RING_ROWS[2], "ratio", vec![space]),
        row(RING_ROWS[3], "ratio", vec![memory]),
    ])
}

/// The ratio of the first volume's time to the second one's for some work: the median over pieces.
/// `time` returns the seconds of a piece on one volume. The first volume alternates, so that other
/// load on the machine affects both.
fn interleaved_ratio(
    work: &[u64],
    passes: usize,
    mut time: impl FnMut(usize, &[u64]) -> Result<f64, Failure>,
) -> Result<f64, Failure> {
    let mut ratios = vec![];
    let pieces = work.chunks(work.len().div_ceil(PIECES));
    for (number, piece) in (0..passes).flat_map(|_| pieces.clone()).enumerate() {
        let mut times = [0.0; 2];
        for volume in [number % 2, 1 - number % 2] {
            times[volume] = time(volume, piece)?;
        }
        ratios.push(times[0] / times[1]);
    }
    Ok(summary(ratios).0)
}

/// The cost of the live page: small writes to two volumes, one of which is shown.
pub fn measure_dashboard(places: &Places, effort: Effort) -> Result<Vec<Row>, Failure> {
    let bytes = effort.volume_bytes / 8;
    let (mut servers, mut clients) = (vec![], vec![]);
    for (name, args) in [("alone", &[][..]), ("shown", &["--dashboard", "127.0.0.1:0"])] {
        let image = create_image(&places.ram, name, bytes, &["--scheme", "detwo"])?;
        let server = VolumeServer::start_with(&image, args)?;
        clients.push(NbdClient::connect(&server.socket)?);
        servers.push((server, image));
    }
    let mut rng = SeededRng::new(3);
    let blocks = bytes / SMALL as u64;
    let random: Vec<u64> = (0..2 * blocks).map(|_| rng.below(blocks) * SMALL as u64).collect();
    let mut ratios = vec![];
    for _ in 0..effort.rounds {
        ratios.push(interleaved_ratio(&random, PASSES, |volume, piece| {
            seconds(|| clients[volume].run(NbdCommand::Write, piece, SMALL, SMALL_DEPTH))
        })?);
    }
    drop(clients);
    for (server, image) in servers {
        server.stop()?;
        std::fs::remove_file(image).map_err(super::failed)?;
    }
    Ok(vec![row("nbd-dashboard", "ratio", ratios)])
}

pub fn measure_memory(places: &Places, effort: Effort) -> Result<Vec<Row>, Failure> {
    let bytes = effort.volume_bytes * 4;
    let image = create(&places.ram, "detwo", bytes, &["--unfilled"])?;
    let mut values = vec![];
    // The second time the server opens what the first one has written.
    for _ in 0..2 {
        let server = VolumeServer::start(&image)?;
        let mut client = NbdClient::connect(&server.socket)?;
        let offsets: Vec<u64> = (0..effort.volume_bytes / 4).step_by(LARGE).collect();
        client.run(NbdCommand::Write, &offsets, LARGE, LARGE_DEPTH)?;
        client.run(NbdCommand::Read, &offsets, LARGE, LARGE_DEPTH)?;
        client.flush()?;
        let allowed = bytes / SMALL as u64 * BYTES_PER_BLOCK_ALLOWED + MEMORY_ALLOWED;
        values.push(server.peak_memory()? as f64 / allowed as f64);
        server.stop()?;
    }
    std::fs::remove_file(image).map_err(super::failed)?;
    Ok(vec![row("memory-over-budget", "ratio", values)])
}
