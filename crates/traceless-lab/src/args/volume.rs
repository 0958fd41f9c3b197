//! `traceless-lab bench volume`

use clap::{Args, ValueEnum};
use serde::Deserialize;
use std::path::PathBuf;
use traceless_cli::args::{ProgressArgs, parse_size};

#[derive(Args, Clone, Debug)]
pub struct VolumeBenchArgs {
    /// Folder on the disk to measure
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Smaller and less exact
    #[arg(long)]
    pub quick: bool,
    /// Only rows, or workloads, with one of these in the name
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
    /// Write a plot of the suite sqoram, as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// What to measure
    #[arg(long, value_enum, default_value = "volume")]
    pub suite: BenchSuite,
    /// Measure with the settings in a file of experiments/: suite, rows, sizes and subjects
    #[arg(long, value_name = "FILE", conflicts_with_all = ["suite", "only", "SuiteArgs"])]
    pub experiment: Option<PathBuf>,
    #[command(flatten)]
    pub sizes: SuiteArgs,
    #[command(flatten)]
    pub progress: ProgressArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BenchSuite {
    /// The floors of the group volume
    Volume,
    /// The floors of the group write-only
    WriteOnly,
    /// Every scheme beside the figures of the SqORAM paper
    Sqoram,
}

impl VolumeBenchArgs {
    /// Whether `--only` selects a row or a workload.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }
}

/// Arguments of the suites write-only and sqoram.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of the suites write-only and sqoram")]
pub struct SuiteArgs {
    /// Bytes of the file that is read and written [default: 2G; in a model, and
    /// for write-only, 512M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub file_size: Option<u64>,
    /// Bytes that a volume holds [default: the file; below ext4 an eighth and 64 MiB more]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub volume_size: Option<u64>,
    /// Rounds; the result is their median [default: 3; in a model 1; for write-only 7]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Requests of each workload of 4 KiB
    #[arg(long, value_name = "N", default_value_t = 8192,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: u64,
    /// Subjects by their names in the table; write-only takes one [default: most of them]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub subject: Vec<String>,
    /// The interfaces to measure
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        value_delimiter = ',',
        default_value = "raw,ext4",
        conflicts_with = "device"
    )]
    pub on: Vec<Interface>,
    /// Record the requests to this disk, and calculate the time of a model, instead of measuring
    #[arg(long, value_name = "MODEL", value_enum)]
    pub device: Option<Device>,
    /// Bytes of the disk of the model [default: the largest of the images]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "device")]
    pub disk_size: Option<u64>,
    /// Let the hard disk of the model sort up to 32 writes between two syncs
    #[arg(long, requires = "device")]
    pub elevator: bool,
    /// Keep the recorded traces here (docs/trace-format.md)
    #[arg(long, value_name = "DIR", requires = "device")]
    pub traces: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interface {
    /// The device itself, over NBD
    Raw,
    /// A file on a mounted ext4
    Ext4,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// A hard disk at 7200 rpm
    Hdd,
    /// A flash disk
    Ssd,
}
