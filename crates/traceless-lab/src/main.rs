//! The command `traceless-lab`: it measures the products, reproduces what papers found, and attacks
//! the products and the auditor with planted faults. Users of Traceless need none of it.
//!
//! File by file: `audit`: of volumes `workload`, `runner`, `target`, `claims`, `places`, `mutants`,
//! `sq_mutants` and `random_mutants` (schemes with a planted fault); `suite`: what audits of many
//! schemes share; `alarms`: how many are false; `audit/tree`: `users` at a fixed rate on `schemes`
//! and `mutants` that are `watch`ed; `audit/sim`: programs on `machines` (`computer`: what is
//! around each); `audit/pager`, `audit/cloud`, `audit/timing`; `audited`: what all of them print.
//! `bench`: `tree`; `cloud`: the cloud store, the paper's tables, and what they are compared with;
//! `controls`: what the cipher, memory, threads and sockets of this machine take, to compare speeds
//! with; `stash`: how full they are; `pager`; `paging`: the paging paper's figures (`programs`,
//! `workloads`: what is paged; `measure`, `native`: one run; `threads`: a thread for each refresh);
//! `simulator`; `volume`, whose suites share `subjects` (what is compared), `workload` (what is
//! asked), `target` (over NBD, on ext4, or recorded), `measure` (turn by turn), `device` (models of
//! disks) and `counts`; there `sqoram` reports beside the paper and draws, `write_only` measures
//! floors. `numbers`: what measurements share; `program`: the program `traceless`, which some of
//! them start.
#![forbid(unsafe_code)]

mod args;
mod audit;
mod bench;
mod numbers;
mod program;

use args::{Cli, Command};
use std::process::ExitCode;
use traceless_cli::entry;

fn main() -> ExitCode {
    traceless_sys::harden_process();
    let cli: Cli = match entry::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let code = match &cli.command {
        Command::Audit(args) => audit::run(args),
        Command::Bench { command } => entry::report(bench::run(command)),
        Command::PagedProgram(args) => entry::report(bench::program(args)),
    };
    ExitCode::from(code)
}
