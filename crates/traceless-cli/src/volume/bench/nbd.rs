//! Volumes in memory over NBD, detwo beside plain, and the server's memory.

use super::client::{Client, Command};
use super::served::{Served, create};
use super::{Effort, Places, Row, row, seconds};
use crate::failure::Failure;
use traceless::rng::{Rng, Seeded};

const LARGE: usize = 1 << 20;
const SMALL: usize = 4096;
const LARGE_DEPTH: usize = 4;
const SMALL_DEPTH: usize = 32;

/// What the server may hold beside nine bytes a block.
const MEMORY_ALLOWED: u64 = 64 << 20;
const BYTES_PER_BLOCK_ALLOWED: u64 = 9;

pub fn measure(places: &Places, effort: Effort) -> Result<Vec<Row>, Failure> {
    let bytes = effort.volume_bytes / 2;
    let images = [
        create(&places.ram, "plain", bytes, &[])?,
        create(&places.ram, "detwo", bytes, &["--refresh", "1"])?,
    ];
    let servers = [Served::start(&images[0])?, Served::start(&images[1])?];
    let mut clients = [Client::connect(&servers[0].socket)?, Client::connect(&servers[1].socket)?];
    let sequential: Vec<u64> = (0..bytes).step_by(LARGE).collect();
    let mut rng = Seeded::new(2);
    let small_blocks = bytes / SMALL as u64;
    let random: Vec<u64> =
        (0..small_blocks.min(100_000)).map(|_| rng.below(small_blocks) * SMALL as u64).collect();
    // Two passes, so that every block has been written and refreshed.
    for client in &mut clients {
        for _ in 0..2 {
            client.run(Command::Write, &sequential, LARGE, LARGE_DEPTH)?;
        }
        client.flush()?;
    }
    let (mut writes, mut reads, mut random_reads) = (vec![], vec![], vec![]);
    let mut ratio = |work: &dyn Fn(&mut Client) -> Result<(), Failure>| {
        let plain = seconds(|| work(&mut clients[0]))?;
        let detwo = seconds(|| work(&mut clients[1]))?;
        Ok::<f64, Failure>(plain / detwo)
    };
    for _ in 0..effort.rounds {
        writes.push(ratio(&|c| c.run(Command::Write, &sequential, LARGE, LARGE_DEPTH))?);
        reads.push(ratio(&|c| c.run(Command::Read, &sequential, LARGE, LARGE_DEPTH))?);
        ratio(&|c| c.run(Command::Write, &random, SMALL, SMALL_DEPTH))?;
        random_reads.push(ratio(&|c| c.run(Command::Read, &random, SMALL, SMALL_DEPTH))?);
        // Back to where neighbours are neighbours.
        ratio(&|c| c.run(Command::Write, &sequential, LARGE, LARGE_DEPTH))?;
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

pub fn measure_memory(places: &Places, effort: Effort) -> Result<Vec<Row>, Failure> {
    let bytes = effort.volume_bytes * 4;
    let image = create(&places.ram, "detwo", bytes, &["--unfilled"])?;
    let mut values = vec![];
    // The second time it opens what the first has written.
    for _ in 0..2 {
        let server = Served::start(&image)?;
        let mut client = Client::connect(&server.socket)?;
        let offsets: Vec<u64> = (0..effort.volume_bytes / 4).step_by(LARGE).collect();
        client.run(Command::Write, &offsets, LARGE, LARGE_DEPTH)?;
        client.run(Command::Read, &offsets, LARGE, LARGE_DEPTH)?;
        client.flush()?;
        let allowed = bytes / SMALL as u64 * BYTES_PER_BLOCK_ALLOWED + MEMORY_ALLOWED;
        values.push(server.peak_memory()? as f64 / allowed as f64);
        server.stop()?;
    }
    std::fs::remove_file(image).map_err(super::failed)?;
    Ok(vec![row("memory-over-budget", "ratio", values)])
}
