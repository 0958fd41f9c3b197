//! The command `traceless-lab`: it measures the products, reproduces what papers found, and attacks
//! the products and the auditor with planted faults. Users of Traceless need none of it.
//!
//! File by file. `audit`, of volumes: `workload`, `runner`, `target`, `claims`, `slot_draws`,
//! `volume`, and `mutants`, `sq_mutants` and `random_mutants` (schemes with a planted fault).
//! `suite`: what audits of many schemes share; `sampling`: claims about draws. `false_positives`:
//! how many alarms are false. `audit/tree`: `users` at a fixed rate on `schemes` and `mutants`,
//! under `watch`. `audit/sim`: programs on `machines` (`computer`: the parts around each machine).
//! `audit/pager`, `audit/cloud`, `audit/timing`. `report`: the output that all audits share.
//! `bench`: `experiment`: an experiment's file, run by each bench's runner; `tree`; `cloud`: the
//! cloud store, the paper's tables, and the systems it is compared with; `controls`: times of the
//! cipher, memory, threads and sockets of this machine, as a base of comparison; `stash`: how full
//! stashes are; `pager`; `paging`: the paging paper's figures (`programs`, `workloads`: the paged
//! programs; `runner`, `subject`, `measure`, `native`: one run; `threads`: a thread for each
//! refresh); `simulator`; `volume`. The suites of `volume` share `subjects` (the compared
//! programs), `workload` (the requests), `target` (over NBD, on ext4, or recorded), `measure`
//! (subjects in turn), `device` (models of disks) and `counts`; `sqoram` prints results beside the
//! paper's and plots them, `write_only` measures floors. `report`: types that measurements share.
//! `program`: the program `traceless`, which some benches start. `page`: the page that the
//! command `report` writes.
#![forbid(unsafe_code)]

mod args;
mod audit;
mod bench;
mod delay_proxy;
mod page;
mod program;
mod report;
mod scale;

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
        Command::Report(args) => entry::report(page::run(args)),
        Command::Supervise(args) => page::supervise(args).unwrap_or_else(|e| entry::report(Err(e))),
        Command::Scale(args) => entry::report(scale::run(args)),
        Command::PagedProgram(args) => entry::report(bench::program(args)),
    };
    ExitCode::from(code)
}
