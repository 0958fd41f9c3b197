//! The results of the suite, as JSON and as tables.

use super::super::counts::Counts;
use super::super::measure::{Cell, ratios};
use super::super::subjects::VolumeSubject;
use super::super::{Machine, summary};
use super::paper::{self, PublishedRatio};
use super::seeks::Seeks;
use serde::Serialize;
use traceless_cli::output::print_line;
use traceless_sim::experiment::text_table::TextTable;
use traceless_sim::experiment::text_table::shortened;

#[derive(Serialize)]
pub struct Report {
    pub schema: &'static str,
    pub machine: Machine,
    /// `this disk`, or the model.
    pub device: &'static str,
    pub file_bytes: u64,
    pub rounds: usize,
    /// Whether the kernel's caches were dropped before each measurement; otherwise only the pages
    /// of the images were dropped. None for a model, which has no caches.
    pub caches_dropped: Option<bool>,
    pub subjects: Vec<SubjectReport>,
    pub rows: Vec<WorkloadRow>,
    /// Comparison with Theorem 3 of the paper; only where seeks were counted.
    pub seeks: Vec<Seeks>,
    pub left_out: Vec<LeftOut>,
}

/// A subject, and whether it could be measured.
#[derive(Serialize)]
pub struct SubjectReport {
    pub name: &'static str,
    pub create: String,
    pub measured: bool,
    /// The reason if it could not be measured.
    pub why: Option<String>,
    /// Bytes of the image per byte of the volume.
    pub space_factor: Option<f64>,
}

/// A requested measurement that is not possible here.
#[derive(Serialize)]
pub struct LeftOut {
    pub what: String,
    pub why: String,
}

/// One subject under one workload.
#[derive(Serialize)]
pub struct WorkloadRow {
    pub subject: &'static str,
    /// `raw`, `ext4`, or `model`.
    pub on: &'static str,
    pub workload: &'static str,
    pub request_bytes: usize,
    pub requests: u64,
    pub mb_per_s: f64,
    /// Largest less smallest, as a share of the median; none for a single round.
    pub spread: Option<f64>,
    /// Speed relative to the control in the same round.
    pub ratio: Option<f64>,
    pub ratio_spread: Option<f64>,
    /// Requests to the store, if recorded.
    pub store: Option<StoreRequests>,
    /// The paper's numbers.
    pub paper: Vec<PublishedRatio>,
}

/// Requests to the store, in total and per request of the user.
#[derive(Serialize)]
pub struct StoreRequests {
    #[serde(flatten)]
    pub counts: Counts,
    /// Bytes written to the store per byte written by the user; none if the user wrote nothing.
    pub write_amplification: Option<f64>,
    pub seeks_per_request: f64,
}

/// The rows of some cells that were measured through `on`.
pub fn rows(on: &'static str, cells: &[Cell]) -> Vec<WorkloadRow> {
    let row = |cell: &Cell| {
        let speeds = cell.seconds.iter().map(|took| cell.bytes as f64 / 1e6 / took).collect();
        let (mb_per_s, spread) = summary(speeds);
        let ratio = ratios(cells, cell).map(summary);
        WorkloadRow {
            subject: cell.subject.name,
            on,
            workload: cell.workload.name,
            request_bytes: cell.workload.request_len,
            requests: cell.requests,
            mb_per_s,
            spread,
            ratio: ratio.map(|(median, _)| median),
            ratio_spread: ratio.and_then(|(_, spread)| spread),
            store: cell.counts.map(|counts| store_requests(cell, counts)),
            paper: paper::about(cell.subject.name, cell.workload.name),
        }
    };
    cells.iter().map(row).collect()
}

fn store_requests(cell: &Cell, counts: Counts) -> StoreRequests {
    let requests = cell.requests * cell.seconds.len() as u64;
    let amplification = counts.bytes_written as f64 / cell.written as f64;
    StoreRequests {
        counts,
        write_amplification: (cell.written > 0).then_some(amplification),
        seeks_per_request: counts.seeks as f64 / requests as f64,
    }
}

impl SubjectReport {
    /// Whether this build can make a volume of `bytes` bytes for the subject.
    pub fn of(subject: VolumeSubject, bytes: u64) -> Self {
        let len = subject.image_len(bytes);
        Self {
            name: subject.name,
            create: subject.create.join(" "),
            measured: len.is_ok(),
            space_factor: len.as_ref().ok().map(|len| *len as f64 / bytes as f64),
            why: len.err(),
        }
    }
}

impl Report {
    /// Prints the report as text.
    pub fn print(&self) {
        print_line(&self.machine.hardware.to_string());
        print_line(&format!(
            "{}; a file of {} MiB, {} rounds; MB/s, and the speed beside {}'s",
            self.device,
            self.file_bytes >> 20,
            self.rounds,
            super::super::subjects::CONTROL,
        ));
        if self.caches_dropped == Some(false) {
            print_line("Not root: of the caches, only the pages of the images were dropped.");
        }
        let mut printed = vec![];
        for row in &self.rows {
            if !printed.contains(&row.on) {
                printed.push(row.on);
                print_line(&format!("\n{}\n{}", row.on, self.table(row.on)));
            }
        }
        print_line(&format!(
            "\nbeside the paper, as ratios to the baseline\n{}",
            self.beside_the_paper()
        ));
        if !self.seeks.is_empty() {
            let title = "seeks for each block written, beside the paper's Theorem 3";
            print_line(&format!("\n{title}\n{}", self.beside_theorem_3()));
        }
        for subject in self.subjects.iter().filter(|s| !s.measured) {
            print_line(&format!(
                "{}: {}",
                subject.name,
                subject.why.as_deref().unwrap_or_default()
            ));
        }
        for left_out in &self.left_out {
            print_line(&format!("left out: {}: {}", left_out.what, left_out.why));
        }
    }

    /// A table with a row for each workload and a column for each subject.
    fn table(&self, on: &str) -> TextTable {
        let rows = || self.rows.iter().filter(move |row| row.on == on);
        let mut subjects = vec![];
        let mut workloads = vec![];
        for row in rows() {
            if !subjects.contains(&row.subject) {
                subjects.push(row.subject);
            }
            if !workloads.contains(&row.workload) {
                workloads.push(row.workload);
            }
        }
        let header = ["workload"].into_iter().chain(subjects.iter().copied());
        let mut table = TextTable::new(header.map(str::to_owned).collect());
        for workload in workloads {
            let cell = |subject: &&str| {
                let row = rows().find(|r| r.workload == workload && r.subject == *subject);
                row.map_or(String::new(), |row| {
                    let ratio = row.ratio.map_or(String::new(), |ratio| format!("  {ratio:.3}"));
                    format!("{}{ratio}", shortened(row.mb_per_s))
                })
            };
            let cells = subjects.iter().map(cell);
            table.add_row([workload.to_owned()].into_iter().chain(cells));
        }
        table
    }

    /// Each published number, and the measured ones.
    fn beside_the_paper(&self) -> TextTable {
        let mut header = vec!["place", "workload", "subject", "paper"];
        let mut interfaces = vec![];
        for row in &self.rows {
            if !interfaces.contains(&row.on) {
                interfaces.push(row.on);
            }
        }
        header.extend(&interfaces);
        let mut table = TextTable::new(header.into_iter().map(str::to_owned).collect());
        for number in paper::published() {
            let mut cells = vec![
                number.place.to_owned(),
                number.workload.to_owned(),
                number.scheme.to_owned(),
                format!("{:.4}", number.ratio),
            ];
            for on in &interfaces {
                let row = self.rows.iter().find(|row| {
                    row.on == *on && row.subject == number.scheme && row.workload == number.workload
                });
                let ratio = row.and_then(|row| row.ratio);
                cells.push(ratio.map_or("not measured".to_owned(), |r| format!("{r:.4}")));
            }
            table.add_row(cells);
        }
        table
    }

    fn beside_theorem_3(&self) -> TextTable {
        let header = ["workload", "subject", "counted", "log2(N)/β", "4·log2(N)/β"];
        let mut table = TextTable::new(header.map(str::to_owned).to_vec());
        for Seeks { subject, workload, per_write, theorem_3, four_log_n_over_beta } in &self.seeks {
            let numbers = [per_write, theorem_3, four_log_n_over_beta].map(|n| format!("{n:.4}"));
            let names = [*workload, *subject].map(str::to_owned);
            table.add_row(names.into_iter().chain(numbers));
        }
        table
    }
}
