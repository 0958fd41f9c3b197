//! `traceless gateway check` and `repair`: the state of a gateway that does not run.

use super::scrub::LostNameReport;
use crate::args::{GatewayCheckArgs, GatewayRepairArgs, GatewayStateArgs};
use crate::cloud::failure;
use crate::failure::{FINDING, Failure};
use crate::output::{print_json, print_line};
use serde::Serialize;
use std::path::{Path, PathBuf};
use traceless_cloud::gateway::{self, Keys, StateReport};
use traceless_cloud::local_deployment::{LocalDeployment, existing_keys, state_folder};
use traceless_core::rng::System;

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    sound: bool,
    generation: u64,
    entries: u64,
    records: u64,
    torn_bytes: u64,
    damaged: Option<Damage>,
    /// Blocks that were lost with damaged slots of the host's store.
    lost_blocks: usize,
    /// Values and objects with lost blocks.
    lost: Vec<LostNameReport>,
    /// How the anchor contradicts the state.
    anchor: Option<String>,
    new_anchor: bool,
    /// Where the old file is kept; `None` if nothing was repaired.
    kept: Option<PathBuf>,
}

/// The part of the state that cannot be read.
#[derive(Serialize)]
struct Damage {
    entry: u64,
    at: u64,
    lost_entries: u64,
    lost_records: u64,
    lost_bytes: u64,
    /// The generation that a repair goes on with; `None` if there is none.
    repairable: Option<u64>,
}

/// A gateway's state, its keys, and its anchor.
struct State<'a> {
    folder: PathBuf,
    keys: Keys,
    anchor: Option<&'a Path>,
}

pub fn check(args: &GatewayCheckArgs) -> Result<(), Failure> {
    let state = State::of(&args.of)?;
    // An anchor that is to be made anew is not compared with the state.
    let mut report = state.look(state.anchor.filter(|_| !args.new_anchor))?;
    if let (None, true, Some(path)) = (&report.damaged, args.new_anchor, state.anchor) {
        gateway::new_anchor(&state.folder, &state.keys, path).map_err(|e| failure(&e))?;
        report.new_anchor = true;
    }
    finish(&report, args.of.json)
}

pub fn repair(args: &GatewayRepairArgs) -> Result<(), Failure> {
    let state = State::of(&args.of)?;
    let mut report = state.look(state.anchor)?;
    let repairable = match &report.damaged {
        Some(damaged) => damaged.repairable.is_some(),
        // An anchor that contradicts a whole state is no damage: the state may have been put back.
        None => !report.lost.is_empty() && report.anchor.is_none(),
    };
    if args.accept_loss && repairable {
        let State { folder, keys, anchor } = &state;
        let kept = gateway::repair(folder, keys, *anchor, &mut System);
        report.kept = Some(kept.map_err(|e| failure(&e))?);
    }
    finish(&report, args.of.json)
}

impl<'a> State<'a> {
    fn of(args: &'a GatewayStateArgs) -> Result<Self, Failure> {
        let home = args.home.local.as_deref().map(LocalDeployment::home);
        let home = home.or(args.home.state.clone()).expect("one of both is required");
        let keys = existing_keys(&home, args.key_file.as_deref()).map_err(|e| failure(&e))?;
        Ok(Self { folder: state_folder(&home), keys, anchor: args.anchor.as_deref() })
    }

    fn look(&self, anchor: Option<&Path>) -> Result<Report, Failure> {
        let checked = gateway::check(&self.folder, &self.keys, anchor);
        let StateReport {
            generation,
            entries,
            records,
            torn,
            lost,
            lost_blocks,
            lost_names,
            anchor,
        } = checked.map_err(|e| failure(&e))?;
        let damaged = lost.map(|lost| Damage {
            entry: lost.entry,
            at: lost.at,
            lost_entries: lost.entries,
            lost_records: lost.records,
            lost_bytes: lost.bytes,
            repairable: lost.repairable,
        });
        Ok(Report {
            schema: "traceless.gateway.check.v1",
            sound: damaged.is_none() && anchor.is_none() && lost_names.is_empty(),
            generation,
            entries,
            records,
            torn_bytes: torn,
            damaged,
            lost_blocks,
            lost: lost_names.iter().map(LostNameReport::of).collect(),
            anchor,
            new_anchor: false,
            kept: None,
        })
    }
}

/// Prints the report, and fails if anything is wrong.
fn finish(report: &Report, json: bool) -> Result<(), Failure> {
    if json {
        print_json(report)?;
    } else {
        print_report(report);
    }
    let Some(damaged) = &report.damaged else {
        let message = match (&report.anchor, report.lost.len(), &report.kept) {
            (Some(anchor), ..) => anchor.clone(),
            (None, 0, _) => return Ok(()),
            (None, lost, Some(_)) => format!("{lost} values and objects were removed"),
            (None, lost, None) => format!(
                "{lost} values and objects have lost blocks: write them again, or remove them \
                 with `gateway repair --accept-loss`"
            ),
        };
        return Err(Failure::new(FINDING, message));
    };
    let outcome = match (&report.kept, damaged.repairable) {
        (Some(_), _) => "repaired",
        (None, Some(_)) => "nothing was repaired: that takes `gateway repair --accept-loss`",
        (None, None) => {
            "nothing here can repair that: restore a copy, or give the right --key-file"
        }
    };
    Err(Failure::new(FINDING, format!("the gateway's state is damaged; {outcome}")))
}

fn print_report(report: &Report) {
    let Report { generation, entries, records, torn_bytes, .. } = report;
    print_line(&format!(
        "generation {generation}: {entries} entries are whole, with {records} records"
    ));
    if *torn_bytes > 0 {
        print_line(&format!(
            "{torn_bytes} bytes behind them are of a write that was not acknowledged"
        ));
    }
    if let Some(damaged) = &report.damaged {
        let Damage { entry, at, lost_entries, lost_records, lost_bytes, .. } = damaged;
        print_line(&format!("damaged: entry {entry}, at byte {at}"));
        let loss = format!("{lost_entries} entries, {lost_records} or more records");
        print_line(&format!("lost with it: {loss}, {lost_bytes} bytes"));
        if let Some(other) = damaged.repairable.filter(|other| other != generation) {
            print_line(&format!("a repair goes back to generation {other}"));
        }
    } else if report.sound {
        print_line("sound: all that was written can be read");
    }
    report.lost.iter().for_each(LostNameReport::print);
    if report.new_anchor {
        print_line("the anchor is new: whatever was done to the state before, it does not tell");
    }
    if let Some(kept) = &report.kept {
        print_line(&format!("repaired without what is lost; the old file is {}", kept.display()));
    }
}
