//! `traceless audit diff`: two snapshots of one image.

use super::outcome::{CLEAN, NOT_WHAT_IT_SHOULD_BE, Outcome, grouped, json};
use crate::args::audit::DiffArgs;
use serde::Serialize;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;
use traceless_audit::{ChangedRun, SnapshotDiff, SnapshotError, diff};

/// The parts of a volume's image: name, first byte, and length in bytes.
type Parts = Vec<(&'static str, u64, u64)>;

/// Stretches listed without `--all`.
const LISTED: usize = 20;

/// The name of the area that a block lies in, if the image names its areas.
type AreaOf<'a> = dyn Fn(u64) -> Option<&'a str> + 'a;

pub fn run(args: &DiffArgs) -> Outcome {
    match compare_images(&args.old, &args.new) {
        Err(outcome) => outcome,
        Ok(diff) => {
            let parts = parts_of(&args.new);
            let area = |block: u64| {
                let at = block * diff.block_len;
                let part = parts.iter().find(|(_, first, len)| (*first..first + len).contains(&at));
                part.map(|(name, ..)| *name)
            };
            let report = DiffReport::new(&diff, &area);
            let listed = if args.all { usize::MAX } else { LISTED };
            let out = if args.json { json(&report) } else { report.text(listed) };
            Outcome::new(CLEAN, out)
        }
    }
}

/// The parts that the image at `path` names in its header; none if it is no volume.
#[cfg(feature = "volume")]
fn parts_of(path: &Path) -> Parts {
    traceless_volume::volume::public_parts(path)
}

/// A build without volumes does not know their parts.
#[cfg(not(feature = "volume"))]
fn parts_of(_: &Path) -> Parts {
    vec![]
}

fn compare_images(old: &Path, new: &Path) -> Result<SnapshotDiff, Outcome> {
    let open = |path: &Path| -> Result<(File, u64), Outcome> {
        let refuse = |error| Outcome::file_error(path, &error);
        let mut file = File::open(path).map_err(refuse)?;
        // Seeking also gives the length of a block device, which its metadata does not have.
        let len = file.seek(SeekFrom::End(0)).map_err(refuse)?;
        file.rewind().map_err(refuse)?;
        Ok((file, len))
    };
    let ((old_file, old_len), (new_file, new_len)) = (open(old)?, open(new)?);
    if old_len != new_len {
        let message = format!(
            "these are not snapshots of one image: {} has {} bytes, {} has {}",
            old.display(),
            grouped(old_len),
            new.display(),
            grouped(new_len)
        );
        return Err(Outcome::error(NOT_WHAT_IT_SHOULD_BE, &message));
    }
    diff(old_file, new_file, old_len).map_err(|error| match error {
        SnapshotError::Old(error) => Outcome::file_error(old, &error),
        SnapshotError::New(error) => Outcome::file_error(new, &error),
    })
}

/// A stretch that changed, inside one area.
#[derive(Serialize)]
struct NamedRun {
    first: u64,
    blocks: u64,
    area: Option<String>,
}

/// The report of two snapshots.
#[derive(Serialize)]
struct DiffReport {
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

impl DiffReport {
    fn new(diff: &SnapshotDiff, area: &AreaOf) -> Self {
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

    fn text(&self, listed: usize) -> String {
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
    use super::super::outcome::FAILED;
    use super::super::tests::outcome;
    use super::*;

    fn images(len: usize, changed: &[usize]) -> (tempfile::TempDir, String, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name).to_str().unwrap().to_owned();
        let (old, new) = (path("old.img"), path("new.img"));
        let mut bytes = vec![7; len];
        std::fs::write(&old, &bytes).unwrap();
        for &block in changed {
            bytes[block * 4096] ^= 1;
        }
        std::fs::write(&new, &bytes).unwrap();
        (folder, old, new)
    }

    #[test]
    fn stretches_are_counted_and_listed() {
        let changed: Vec<usize> = (0..25).map(|i| 3 * i).chain([100, 101]).collect();
        let (_folder, old, new) = images(200 * 4096, &changed);
        let diff = outcome(&["diff", &old, &new]);
        assert_eq!(diff.code, CLEAN);
        assert!(diff.out.starts_with("27 of 200 blocks of 4096 bytes changed (13.50 %)\n"));
        assert!(diff.out.contains("and 6 more: --all lists them\n"), "{}", diff.out);
        assert!(diff.out.ends_with("the changes form 26 contiguous stretches\n"));
        let all = outcome(&["diff", &old, &new, "--all"]).out;
        assert!(all.contains("           100            2  -\n"), "{all}");
        let report = outcome(&["diff", &old, &new, "--json"]).out;
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["changed_bytes"], 27);
        assert_eq!(report["runs"].as_array().unwrap().len(), 26);
        assert_eq!(report["runs"][25]["first"], 100);
        let none = outcome(&["diff", &old, &old]);
        assert!(none.out.ends_with("nothing changed\n"));
    }

    #[test]
    fn images_of_different_lengths_are_refused() {
        let (folder, old, new) = images(4096, &[0]);
        std::fs::write(&new, [7; 4097]).unwrap();
        let longer = outcome(&["diff", &old, &new]);
        assert_eq!(longer.code, NOT_WHAT_IT_SHOULD_BE);
        assert!(longer.err.contains("4,097"), "{}", longer.err);
        let missing = folder.path().join("missing");
        assert_eq!(outcome(&["diff", &old, missing.to_str().unwrap()]).code, FAILED);
    }

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
