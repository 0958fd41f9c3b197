//! `traceless audit diff`: two snapshots of one image.

use super::outcome::{CLEAN, NOT_WHAT_IT_SHOULD_BE, Outcome, json};
use crate::args::audit::DiffArgs;
use std::path::Path;
use traceless_audit::{SnapshotError, SnapshotReport, diff_images, grouped};

/// The parts of a volume's image: name, first byte, and length in bytes.
type Parts = Vec<(&'static str, u64, u64)>;

/// Stretches listed without `--all`.
const LISTED: usize = 20;

pub fn run(args: &DiffArgs) -> Outcome {
    match diff_images(&args.old, &args.new) {
        Err(error) => refusal(args, &error),
        Ok(diff) => {
            let parts = parts_of(&args.new);
            let area = |block: u64| {
                let at = block * diff.block_len;
                let part = parts.iter().find(|(_, first, len)| (*first..first + len).contains(&at));
                part.map(|(name, ..)| *name)
            };
            let report = SnapshotReport::new(&diff, &area);
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

/// What to say, and the exit code, if two images cannot be compared.
fn refusal(args: &DiffArgs, error: &SnapshotError) -> Outcome {
    match error {
        SnapshotError::Old(error) => Outcome::file_error(&args.old, error),
        SnapshotError::New(error) => Outcome::file_error(&args.new, error),
        SnapshotError::Lengths(old, new) => {
            let message = format!(
                "these are not snapshots of one image: {} has {} bytes, {} has {}",
                args.old.display(),
                grouped(*old),
                args.new.display(),
                grouped(*new)
            );
            Outcome::error(NOT_WHAT_IT_SHOULD_BE, &message)
        }
    }
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
}
