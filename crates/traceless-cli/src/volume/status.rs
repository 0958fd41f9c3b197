//! `traceless volume status`

use super::key;
use crate::args::StatusArgs;
use crate::failure::Failure;
use crate::output::{print_json, print_line};
use traceless_volume::volume::{Status, deniable_status, status};

pub fn run(args: &StatusArgs) -> Result<(), Failure> {
    let report = read(args)?;
    if args.json {
        return print_json(&report);
    }
    for (name, value) in lines(&report) {
        print_line(&format!("{name:<20}{value}"));
    }
    Ok(())
}

/// The status of an image of either kind.
pub fn read(args: &StatusArgs) -> Result<Status, Failure> {
    let key = key::existing(&args.image.key)?;
    let status = if args.deniable { deniable_status } else { status };
    Ok(status(&args.image.image, &key)?)
}

/// The value of `writes_reveal` in the JSON, in words.
fn writes_reveal(beyond_their_number: &str) -> &str {
    match beyond_their_number {
        "nothing" => "how many, when, and how grouped; not which blocks",
        "nearness" => "how many, when, and how near to each other: INSECURE",
        _ => "EVERYTHING but contents: how many, when, and which blocks",
    }
}

fn lines(report: &Status) -> Vec<(&'static str, String)> {
    let mut list = vec![
        ("scheme", report.scheme.to_owned()),
        ("cipher", report.cipher.to_owned()),
        ("writes reveal", writes_reveal(report.writes_reveal).to_owned()),
        ("uuid", report.uuid.clone()),
        ("size", format!("{} bytes in {} blocks", report.size_bytes, report.blocks)),
        ("image", format!("{} bytes, {:.3} times", report.image_bytes, report.space_factor)),
        ("write amplification", format!("{:.3}", report.write_amplification)),
        ("generation", report.generation.to_string()),
        ("writes", report.writes.to_string()),
        ("closed", if report.clean { "cleanly" } else { "not yet, or cut short" }.to_owned()),
        ("in use", if report.in_use { "yes" } else { "no" }.to_owned()),
        ("discards", if report.discards { "kept" } else { "refused" }.to_owned()),
        ("filled", if report.filled { "with ciphertext" } else { "NO: holes tell" }.to_owned()),
    ];
    if let Some(refresh) = &report.refresh {
        list.push(("refresh", format!("{refresh} blocks a write")));
    }
    if let Some(map) = report.map {
        let of = report.map_entries.map_or(String::new(), |entries| format!("of {entries}, "));
        list.push(("map", format!("{of}on {map}, {} bytes of memory", report.map_bytes)));
    }
    if report.buffer_bytes > 0 {
        list.push(("buffers", format!("{} bytes of memory", report.buffer_bytes)));
    }
    let numbers = [
        ("levels", report.levels),
        ("fanout", report.fanout),
        ("bucket", report.bucket),
        ("flushes", report.flushes),
    ];
    list.extend(numbers.into_iter().filter_map(|(name, n)| Some((name, n?.to_string()))));
    if let Some(cadence) = report.cadence {
        let warning = if cadence == "paper" { ": INSECURE, flushes tell nearness" } else { "" };
        list.push(("cadence", format!("{cadence}{warning}")));
    }
    for slot in &report.key_slots {
        let how = match (slot.memory_kib, slot.time, slot.lanes) {
            (Some(memory), Some(time), Some(lanes)) => {
                format!(", argon2id: {memory} KiB, {time} passes, {lanes} lanes")
            }
            _ => String::new(),
        };
        list.push(("key slot", format!("{}: {}{how}", slot.slot, slot.kind)));
    }
    list
}
