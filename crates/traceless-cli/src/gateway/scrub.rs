//! `traceless gateway scrub`: verifies the store of a gateway that does not run.

use super::tree;
use crate::args::GatewayScrubArgs;
use crate::cloud::failure;
use crate::failure::{FINDING, Failure};
use crate::output::{Meter, print_json, print_line};
use serde::Serialize;
use traceless_cloud::gateway::{Gateway, LostName, NodeVerdict};
use traceless_cloud::geometry::Node;
use traceless_cloud::host::DamagedSlot;
use traceless_cloud::shared::time_of;
use traceless_core::clock::{Clock, Monotonic};

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    sound: bool,
    nodes: u32,
    /// Bytes that the host has read.
    bytes: u64,
    damaged_slots: Vec<Slot>,
    /// Slots that were damaged, and were found well in the second copy.
    healed_slots: Vec<Slot>,
    /// Lost blocks, also of earlier scrubs.
    lost_blocks: usize,
    lost: Vec<LostNameReport>,
}

#[derive(Serialize)]
struct Slot {
    node: u32,
    slot: u32,
}

impl From<DamagedSlot> for Slot {
    fn from(DamagedSlot { node, slot }: DamagedSlot) -> Self {
        Self { node: node.0, slot }
    }
}

/// A value, an object, or a part of an upload, with lost blocks.
#[derive(Serialize)]
pub struct LostNameReport {
    kind: &'static str,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    blocks: usize,
}

impl LostNameReport {
    pub fn of(lost: &LostName) -> Self {
        let (name, version) = lost.text();
        Self { kind: lost.namespace.word(), name, version, blocks: lost.blocks }
    }

    pub fn print(&self) {
        let Self { kind, name, version, blocks } = self;
        let version = version.as_ref().map_or_else(String::new, |id| format!(", version {id}"));
        print_line(&format!("lost: {blocks} blocks of the {kind} {name:?}{version}"));
    }
}

pub fn scrub(args: &GatewayScrubArgs) -> Result<(), Failure> {
    let mut gateway = tree::open_alone(&args.tree)?;
    let scrubbed = scrub_all(&mut gateway, args);
    // What was found to be lost is kept even if the rest was not verified.
    let closed = gateway.close().map_err(|e| failure(&e));
    let report = scrubbed.and_then(|report| closed.map(|()| report))?;
    if args.json {
        print_json(&report)?;
    } else {
        print_report(&report);
    }
    if report.sound {
        return Ok(());
    }
    let what = format!("{} slots are damaged", report.damaged_slots.len());
    let what = match report.lost.len() {
        0 => format!("{what}, and nothing with a name is lost"),
        lost => format!(
            "{what}: {lost} values and objects cannot be read; write them again, or remove them \
             with `gateway repair --accept-loss`"
        ),
    };
    Err(Failure::new(FINDING, what))
}

fn scrub_all(gateway: &mut Gateway, args: &GatewayScrubArgs) -> Result<Report, Failure> {
    let geometry = gateway.params().geometry;
    let (clock, mut meter) = (Monotonic::start(), Meter::new("verifying", args.progress.progress));
    let (mut bytes, mut damaged_slots, mut healed_slots) = (0, Vec::new(), Vec::new());
    for node in (0..geometry.nodes()).map(Node) {
        let NodeVerdict { lost, healed } = gateway.scrub(node).map_err(|e| failure(&e))?;
        damaged_slots.extend(lost.into_iter().map(Slot::from));
        healed_slots.extend(healed.into_iter().map(Slot::from));
        bytes += geometry.node_len(geometry.layer_of(node)) as u64;
        meter.update(bytes, geometry.tree_len());
        if let Some(speed) = args.speed {
            let due = time_of(bytes, speed);
            let elapsed = std::time::Duration::from_nanos(clock.now());
            std::thread::sleep(due.saturating_sub(elapsed));
        }
    }
    meter.finish();
    let lost: Vec<_> = gateway.lost_names().iter().map(LostNameReport::of).collect();
    Ok(Report {
        schema: "traceless.gateway.scrub.v1",
        sound: damaged_slots.is_empty() && lost.is_empty(),
        nodes: geometry.nodes(),
        bytes,
        damaged_slots,
        healed_slots,
        lost_blocks: gateway.lost_blocks(),
        lost,
    })
}

fn print_report(report: &Report) {
    let Report { nodes, bytes, damaged_slots, healed_slots, .. } = report;
    print_line(&format!("{nodes} nodes were verified, {bytes} bytes"));
    for Slot { node, slot } in damaged_slots {
        print_line(&format!("damaged: slot {slot} of node {node}; written anew"));
    }
    for Slot { node, slot } in healed_slots {
        print_line(&format!("healed: slot {slot} of node {node}; written anew"));
    }
    report.lost.iter().for_each(LostNameReport::print);
    if report.sound {
        print_line("sound: every slot can be read as it was written");
    }
}
