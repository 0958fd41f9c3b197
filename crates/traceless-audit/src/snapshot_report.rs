//! What two snapshots of an image show, for people and programs.

use crate::grouped::grouped;
use crate::snapshot::{ChangedRun, SnapshotDiff};
use serde::Serialize;

/// The name of the area that a block lies in, if the image names its areas.
pub type AreaOf<'a> = dyn Fn(u64) -> Option<&'a str> + 'a;

/// The report of two snapshots.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SnapshotReport {
    schema: &'static str,
    block_len: u64,
    blocks: u64,
    changed_blocks: u64,
    changed_bytes: u64,
    changed_share: f64,
    entropy: f64,
    stretches: usize,
    runs: Vec<NamedRun>,
    verdict: String,
}

impl SnapshotReport {
    /// The report of `diff`, with the area that `area` says a block lies in.
    pub fn new(diff: &SnapshotDiff, area: &AreaOf) -> Self {
        let verdict = match diff.runs.len() {
            0 => "nothing changed".to_owned(),
            1 => "the changes form 1 contiguous stretch".to_owned(),
            n => format!("the changes form {} contiguous stretches", grouped(n as u64)),
        };
        Self {
            schema: "traceless.audit.diff.v1",
            block_len: diff.block_len,
            blocks: diff.blocks,
            changed_blocks: diff.changed_blocks,
            changed_bytes: diff.changed_bytes,
            changed_share: diff.changed_share,
            entropy: diff.entropy,
            stretches: diff.runs.len(),
            runs: diff.runs.iter().flat_map(|run| named(*run, area)).collect(),
            verdict,
        }
    }

    /// The report as text, with at most `listed` of the stretches that changed.
    pub fn text(&self, listed: usize) -> String {
        let share = 100.0 * self.changed_blocks as f64 / self.blocks.max(1) as f64;
        let (changed, all) = (grouped(self.changed_blocks), grouped(self.blocks));
        let len = self.block_len;
        let mut lines =
            vec![format!("{changed} of {all} blocks of {len} bytes changed ({share:.2} %)")];
        if self.changed_blocks > 0 {
            let (bytes, within) = (grouped(self.changed_bytes), 100.0 * self.changed_share);
            let bits = self.entropy;
            lines.push(format!("{bytes} bytes changed, {within:.2} % of those blocks"));
            lines.push(format!("entropy of the changed bytes: {bits:.3} bits a byte"));
            lines.push(format!("{:>14} {:>12}  area", "first block", "blocks"));
        }
        for run in self.runs.iter().take(listed) {
            let area = run.area.as_deref().unwrap_or("-");
            lines.push(format!("{:>14} {:>12}  {area}", grouped(run.first), grouped(run.blocks)));
        }
        if let Some(more) = self.runs.len().checked_sub(listed).filter(|&more| more > 0) {
            lines.push(format!("and {} more: --all lists them", grouped(more as u64)));
        }
        lines.push(format!("{}\n", self.verdict));
        lines.join("\n")
    }
}

/// A stretch that changed, inside one area.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct NamedRun {
    first: u64,
    blocks: u64,
    area: Option<String>,
}

/// Cuts a run where one area ends and another begins.
fn named(run: ChangedRun, area: &AreaOf) -> Vec<NamedRun> {
    let mut parts: Vec<NamedRun> = vec![];
    for block in run.first..run.first + run.blocks {
        let name = area(block);
        match parts.last_mut() {
            Some(part) if part.area.as_deref() == name => part.blocks += 1,
            _ => parts.push(NamedRun { first: block, blocks: 1, area: name.map(str::to_owned) }),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_cut_where_areas_meet() {
        let area = |block| match block {
            0..4 => Some("holding"),
            4..9 => Some("main"),
            _ => None,
        };
        let parts = named(ChangedRun { first: 2, blocks: 8 }, &area);
        let parts: Vec<_> = parts.iter().map(|p| (p.first, p.blocks, p.area.as_deref())).collect();
        assert_eq!(parts, [(2, 2, Some("holding")), (4, 5, Some("main")), (9, 1, None)]);
    }
}
