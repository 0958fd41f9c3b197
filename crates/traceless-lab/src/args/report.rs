//! `traceless-lab report`

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// Folder for the page, report.html, and for results. What has a result in it is not made
    /// again, so that a report that was stopped goes on
    #[arg(long, value_name = "DIR", default_value = "target/report")]
    pub out: PathBuf,
    /// The checkout of Traceless with `experiments` and `bench`
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub checkout: PathBuf,
    /// All at the size at which claims can be judged, which takes a night (--list): the shortest
    /// first, and the page is written after each. Without it at most ten minutes
    #[arg(long)]
    pub full: bool,
    /// Make nothing: list figures and audits, which of them are there, and how long the rest takes
    /// at level full, about, on two processors
    #[arg(long)]
    pub list: bool,
    /// Only figures and audits with one of these in the name, as `ir-oram/fig12` or `audit/tree`
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Simulations at a time [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
}

/// Arguments of the command that a report runs its commands under.
#[derive(Args, Clone, Debug)]
pub struct SupervisorArgs {
    /// The process of the report
    pub report: i32,
    pub program: PathBuf,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}
