//! Results of the `SqORAM` paper: its Tables 1 and 2, and the text about Figure 7.

use serde::Serialize;

/// A published number, as a ratio to its baseline.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct PublishedRatio {
    /// The table or figure.
    pub place: &'static str,
    /// The matching subject of this bench; `sq` matches all names that begin with `sq-`, too.
    #[serde(skip)]
    pub scheme: &'static str,
    /// The closest workload of this bench.
    #[serde(skip)]
    pub workload: &'static str,
    /// MB/s; none where the text gives ratios alone.
    pub mb_per_s: Option<f64>,
    /// MB/s of dm-crypt (Table 1) or of the paper's own baseline.
    pub baseline_mb_per_s: Option<f64>,
    pub ratio: f64,
}

/// Scheme, workload, MB/s of the scheme, and MB/s of the baseline.
type Line = (&'static str, &'static str, f64, f64);

/// Kernel implementations on a 256 GB partition of a disk at 7200 rpm, an 8 GB file.
const TABLE_1: [Line; 12] = [
    ("sq", "seq-read-1m", 21.0, 91.0),
    ("sq", "seq-write-1m", 1.5, 88.0),
    ("sq", "random-read-4k", 0.055, 5.0),
    ("sq", "random-write-4k", 1.0, 4.3),
    ("hive", "seq-read-1m", 0.135, 91.0),
    ("hive", "seq-write-1m", 0.016, 88.0),
    ("hive", "random-read-4k", 0.120, 5.0),
    ("hive", "random-write-4k", 0.014, 4.3),
    ("datalair", "seq-read-1m", 0.200, 91.0),
    ("datalair", "seq-write-1m", 0.110, 88.0),
    ("datalair", "random-read-4k", 0.105, 5.0),
    ("datalair", "random-write-4k", 0.2, 4.3),
];

/// In user space, 40 GB, a 1 GB file, 100 MB of it rewritten.
const TABLE_2: [Line; 4] = [
    ("sq", "seq-read-1m", 47.2, 61.0),
    ("sq", "aging-read-1m", 42.0, 60.7),
    ("detwo-1/3", "seq-read-1m", 18.7, 61.0),
    ("detwo-1/3", "aging-read-1m", 10.2, 60.7),
];

/// The text gives only ratios of Figure 7: sequential reads with the map on the disk take less than
/// twice as long as the baseline's; with 70 % reads `SqORAM` is 1.5 times slower than the baseline,
/// and 1.6 times faster than DetWoORAM.
const FIGURE_7: [(&str, &str, &str, f64); 3] = [
    ("Figure 7a", "sq-map-disk", "seq-read-1m", 0.5),
    ("Figure 7c", "sq", "mix-70-30-4k", 1.0 / 1.5),
    ("Figure 7c", "detwo-1/3", "mix-70-30-4k", 1.0 / 1.5 / 1.6),
];

/// All published numbers.
pub fn published() -> Vec<PublishedRatio> {
    let table = |place, lines: &[Line]| {
        let number = |&(scheme, workload, scheme_speed, baseline): &Line| PublishedRatio {
            place,
            scheme,
            workload,
            mb_per_s: Some(scheme_speed),
            baseline_mb_per_s: Some(baseline),
            ratio: scheme_speed / baseline,
        };
        lines.iter().map(number).collect::<Vec<_>>()
    };
    let mut all = table("Table 1", &TABLE_1);
    all.extend(table("Table 2", &TABLE_2));
    all.extend(FIGURE_7.iter().map(|&(place, scheme, workload, ratio)| PublishedRatio {
        place,
        scheme,
        workload,
        mb_per_s: None,
        baseline_mb_per_s: None,
        ratio,
    }));
    all
}

/// The published numbers for a subject under a workload.
pub fn about(subject: &str, workload: &str) -> Vec<PublishedRatio> {
    let fits = |p: &PublishedRatio| {
        let is_meant = if p.scheme == "sq" {
            subject == "sq" || subject.starts_with("sq-")
        } else {
            subject == p.scheme
        };
        is_meant && p.workload == workload
    };
    published().into_iter().filter(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::subjects::VolumeSubject;
    use super::super::super::workload::SUITE;
    use super::*;

    #[test]
    fn every_number_finds_its_row() {
        for number in published() {
            assert!(VolumeSubject::find(number.scheme).is_some(), "{number:?}");
            assert!(SUITE.iter().any(|w| w.name == number.workload), "{number:?}");
            assert!(about(number.scheme, number.workload).contains(&number));
        }
        let places =
            |subject| about(subject, "seq-read-1m").iter().map(|p| p.place).collect::<Vec<_>>();
        assert_eq!(places("sq-paper"), ["Table 1", "Table 2"]);
        assert_eq!(places("sq-map-disk"), ["Table 1", "Table 2", "Figure 7a"]);
        assert_eq!(places("detwo-1/3"), ["Table 2"]);
        assert!(places("detwo").is_empty() && places("plain").is_empty());
    }
}
