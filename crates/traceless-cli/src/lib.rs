//! The commands of the program `traceless`.
//!
//! This is a library so that the program traceless-lab, which measures the products and attacks
//! them, can share the plumbing, and so that the Python package gives the same advice. It is not
//! meant as an interface for other crates.
//!
//! File by file: `args`: the command line and nothing else; `advise`: which product protects;
//! `volume`: one file for each command; `audit`: `compare` and `convert` of a
//! `source`, `diff`, their `outcome` and its page (`html`); `sim`: the simulator (`experiment`:
//! figures of papers); `run`: paging of programs (`program`: which programs can be paged); `cloud`:
//! what `gateway` and `host` share; `dashboard`: the live page of `--dashboard`; `lab`: commands
//! that traceless-lab runs; `entry`: the beginning and end of a program; `failure`: exit codes, and
//! how failures are printed; `shares`: completions and manual pages; `output`: printing, and
//! progress of long work; `signals`: SIGINT and SIGTERM; `trace`: the files that `--trace` writes.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "nothing outside this workspace uses it")]

pub mod advise;
pub mod args;
#[cfg(feature = "audit")]
pub mod audit;
#[cfg(feature = "cloud")]
pub mod cloud;
#[cfg(any(feature = "volume", feature = "pager", feature = "cloud", feature = "sim"))]
mod dashboard;
pub mod entry;
pub mod failure;
#[cfg(feature = "cloud")]
mod gateway;
#[cfg(feature = "cloud")]
mod host;
pub mod lab;
#[cfg(feature = "cloud")]
mod log;
pub mod output;
#[cfg(feature = "cloud")]
mod plan;
#[cfg(feature = "pager")]
pub mod run;
mod shares;
pub mod signals;
#[cfg(feature = "sim")]
mod sim;
#[cfg(feature = "cloud")]
mod store;
pub mod trace;
#[cfg(feature = "volume")]
pub mod volume;

use args::{Cli, Product};
use entry::report;
use std::process::ExitCode;

/// What the program `traceless` does.
pub fn main() -> ExitCode {
    // Must come before anything secret is in memory.
    traceless_sys::harden_process();
    let cli: Cli = match entry::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let code = match &cli.product {
        Product::Advise(args) => advise::run(args).unwrap_or_else(|failure| report(Err(failure))),
        #[cfg(feature = "cloud")]
        Product::Plan { command } => report(plan::run(command)),
        #[cfg(feature = "volume")]
        Product::Volume { command } => report(volume::run(command)),
        #[cfg(feature = "audit")]
        Product::Audit(args) => audit::run(args),
        #[cfg(feature = "pager")]
        Product::Run(args) => run::run(args),
        #[cfg(feature = "pager")]
        Product::ServePages => run::serve(),
        #[cfg(feature = "cloud")]
        Product::Gateway(args) => report(gateway::run(args)),
        #[cfg(feature = "cloud")]
        Product::Host(args) => report(host::run(args)),
        #[cfg(feature = "cloud")]
        Product::Enclave => report(host::enclave()),
        Product::Bench(_) => report(lab::run()),
        #[cfg(feature = "sim")]
        Product::Sim { command } => report(sim::run(command)),
        Product::Completions(args) => {
            shares::completions(args);
            0
        }
        Product::Man(args) => report(shares::man_pages(args)),
    };
    ExitCode::from(code)
}
