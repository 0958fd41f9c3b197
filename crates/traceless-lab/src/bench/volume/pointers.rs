//! The authors' pointers compared with last write counts, in the library alone.

use super::library::{BLOCK_LEN, BLOCKS, TestBed};
use super::{Effort, Places, Row, failed, row};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use traceless::store::{MemStore, WatchedStore};
use traceless::trace::{Event, Op, Witness};
use traceless_block::detwo::{DetWoGeometry, MapEntries, Refresh};
use traceless_cli::failure::Failure;

/// With the map in memory, and with it on the store: writes and reads by pointers, relative to
/// counts; bytes read per byte of the user, by either; time to open by pointers, relative to
/// counts.
pub const NAMES: [[&str; 5]; 2] = [
    [
        "pointers-writes-vs-counts",
        "pointers-reads-vs-counts",
        "pointers-bytes-per-byte-read",
        "counts-bytes-per-byte-read",
        "pointers-opening-vs-counts",
    ],
    [
        "pointers-disk-map-writes-vs-counts",
        "pointers-disk-map-reads-vs-counts",
        "pointers-disk-map-bytes-per-byte-read",
        "counts-disk-map-bytes-per-byte-read",
        "pointers-disk-map-opening-vs-counts",
    ],
];

pub fn measure_memory_map(_: &Places, effort: Effort) -> Result<Vec<Row>, Failure> {
    measure(0, effort)
}

pub fn measure_disk_map(_: &Places, effort: Effort) -> Result<Vec<Row>, Failure> {
    measure(1, effort)
}

fn measure(map_tiers: u8, effort: Effort) -> Result<Vec<Row>, Failure> {
    let geometry = |entries| {
        DetWoGeometry::new(BLOCKS, BLOCK_LEN, Refresh::ONE, map_tiers)
            .and_then(|g| g.with_map_entries(entries))
            .map_err(failed)
    };
    let (counts, pointers) = (geometry(MapEntries::Counts)?, geometry(MapEntries::Pointers)?);
    let bed = |g: DetWoGeometry| TestBed::in_memory(Arc::new(g));
    let (mut by_counts, mut by_pointers) = (bed(counts)?, bed(pointers)?);
    let (mut writes, mut reads, mut openings) = (vec![], vec![], vec![]);
    for _ in 0..effort.rounds {
        // Opening comes first, because the writes make all pointers anew.
        openings.push(by_pointers.reopen()? / by_counts.reopen()?);
        let addrs = by_counts.addresses();
        writes.push(by_pointers.write(&addrs)? / by_counts.write(&addrs)?);
        reads.push(by_pointers.read(&addrs)? / by_counts.read(&addrs)?);
    }
    let [w, r, bytes, counts_bytes, o] = NAMES[usize::from(map_tiers)];
    Ok(vec![
        row(w, "ratio", writes),
        row(r, "ratio", reads),
        row(bytes, "ratio", vec![bytes_per_byte(pointers)?]),
        row(counts_bytes, "ratio", vec![bytes_per_byte(counts)?]),
        row(o, "ratio", openings),
    ])
}

/// Bytes that reads take from the store.
#[derive(Default)]
struct ReadBytes(AtomicU64);

impl Witness for ReadBytes {
    fn record(&self, event: Event) {
        if event.op == Op::Read {
            self.0.fetch_add(u64::from(event.len), Ordering::Relaxed);
        }
    }
}

/// Bytes read per byte of the user, for random blocks after as many random writes.
fn bytes_per_byte(geometry: DetWoGeometry) -> Result<f64, Failure> {
    let witness = Arc::new(ReadBytes::default());
    let store = Arc::new(MemStore::new(geometry.store_len()));
    let mut bed =
        TestBed::new(Arc::new(geometry), Arc::new(WatchedStore::new(store, witness.clone())))?;
    let addrs = bed.addresses();
    bed.write(&addrs)?;
    witness.0.store(0, Ordering::Relaxed);
    let addrs = bed.addresses();
    bed.read(&addrs)?;
    Ok(witness.0.load(Ordering::Relaxed) as f64 / (addrs.len() * BLOCK_LEN) as f64)
}
