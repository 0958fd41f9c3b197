//! Seeks of a write, compared with Theorem 3 of the `SqORAM` paper.

use super::super::measure::{Cell, Plan};
use super::super::subjects::VolumeSubject;
use crate::args::Interface;
use serde::Serialize;

/// Seeks per block that a user writes, of a subject with buckets, under a workload that only
/// writes.
#[derive(Serialize)]
pub struct Seeks {
    pub subject: &'static str,
    pub workload: &'static str,
    /// Counted seeks: reads of merges, log, levels, headers, superblocks.
    pub per_write: f64,
    /// Theorem 3, which is O(log N)/β, with a constant of one.
    pub theorem_3: f64,
    /// With the constant of its proof: four seeks per bucket of each level, two to read, one to
    /// write and one for the map.
    pub four_log_n_over_beta: f64,
}

/// The seeks of all `cells` that only write and were counted.
pub fn seeks(cells: &[Cell], plan: &Plan) -> Vec<Seeks> {
    cells.iter().filter_map(|cell| seeks_of(cell, plan.volume_bytes(Interface::Raw))).collect()
}

fn seeks_of(cell: &Cell, volume_bytes: u64) -> Option<Seeks> {
    if cell.workload.read_percent > 0 {
        return None;
    }
    let (bound, block_len) = bound(cell.subject, volume_bytes)?;
    let blocks = cell.written as f64 / block_len as f64;
    Some(Seeks {
        subject: cell.subject.name,
        workload: cell.workload.name,
        per_write: cell.counts?.seeks as f64 / blocks,
        theorem_3: bound,
        four_log_n_over_beta: 4.0 * bound,
    })
}

/// log2(N)/β of a subject with buckets, and the bytes of its blocks.
fn bound(subject: VolumeSubject, volume_bytes: u64) -> Option<(f64, usize)> {
    let scheme = subject.scheme(volume_bytes).ok()?;
    let bucket = scheme.facts(0).bucket?;
    Some(((scheme.blocks() as f64).log2() / bucket as f64, scheme.block_len()))
}

#[cfg(test)]
mod tests {
    use super::super::super::counts::Counts;
    use super::super::super::workload::{AGE, READ_FRESH};
    use super::*;

    #[test]
    fn the_papers_shape_has_the_papers_bound() {
        let cell = |name, workload| Cell {
            subject: VolumeSubject::find(name).unwrap(),
            workload,
            bytes: 8192,
            written: 8192,
            requests: 2,
            seconds: vec![],
            pieces: vec![],
            counts: Some(Counts { seeks: 3, ..Counts::default() }),
        };
        let cells = [cell("sq-paper", AGE), cell("detwo", AGE), cell("sq-paper", READ_FRESH)];
        let volume_bytes = Some(1 << 28);
        let plan = Plan { file_bytes: 1 << 28, volume_bytes, requests: 2, rounds: 1 };
        let counted = seeks(&cells, &plan);
        assert_eq!(counted.len(), 1);
        assert!((counted[0].per_write - 1.5).abs() < 1e-9);
        assert!((counted[0].theorem_3 - 16.0 / 256.0).abs() < 1e-9);
        assert!((counted[0].four_log_n_over_beta - 0.25).abs() < 1e-9);
    }
}
