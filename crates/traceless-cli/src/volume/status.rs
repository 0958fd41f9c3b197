//! `traceless volume status`

use super::key;
use crate::args::StatusArgs;
use crate::failure::Failure;
use crate::output::{say, say_json};
use traceless_volume::volume::{Status, status};

pub fn run(args: &StatusArgs) -> Result<(), Failure> {
    let told = status(&args.image.image, &key::existing(&args.image.key)?)?;
    if args.json {
        return say_json(&told);
    }
    for (name, value) in lines(&told) {
        say(&format!("{name:<20}{value}"));
    }
    Ok(())
}

/// The value of `writes_reveal` in the JSON, in words.
fn writes_reveal(beyond_their_number: &str) -> &str {
    match beyond_their_number {
        "nothing" => "how many, when, and how grouped; not which blocks",
        "nearness" => "how many, when, and how near to each other: INSECURE",
        _ => "EVERYTHING but contents: how many, when, and which blocks",
    }
}

fn lines(told: &Status) -> Vec<(&'static str, String)> {
    let mut list = vec![
        ("scheme", told.scheme.to_owned()),
        ("cipher", told.cipher.to_owned()),
        ("writes reveal", writes_reveal(told.writes_reveal).to_owned()),
        ("uuid", told.uuid.clone()),
        ("size", format!("{} bytes in {} blocks", told.size_bytes, told.blocks)),
        ("image", format!("{} bytes, {:.3} times", told.image_bytes, told.space_factor)),
        ("write amplification", format!("{:.3}", told.write_amplification)),
        ("generation", told.generation.to_string()),
        ("writes", told.writes.to_string()),
        ("closed", if told.clean { "cleanly" } else { "not yet, or cut short" }.to_owned()),
        ("in use", if told.in_use { "yes" } else { "no" }.to_owned()),
        ("filled", if told.filled { "with ciphertext" } else { "NO: holes tell" }.to_owned()),
    ];
    if let Some(refresh) = &told.refresh {
        list.push(("refresh", format!("{refresh} blocks a write")));
    }
    if let Some(map) = told.map {
        let of = told.map_entries.map_or(String::new(), |entries| format!("of {entries}, "));
        list.push(("map", format!("{of}on {map}, {} bytes of memory", told.map_bytes)));
    }
    if told.buffer_bytes > 0 {
        list.push(("buffers", format!("{} bytes of memory", told.buffer_bytes)));
    }
    let numbers = [
        ("levels", told.levels),
        ("fanout", told.fanout),
        ("bucket", told.bucket),
        ("flushes", told.flushes),
    ];
    list.extend(numbers.into_iter().filter_map(|(name, n)| Some((name, n?.to_string()))));
    if let Some(cadence) = told.cadence {
        let warning = if cadence == "paper" { ": INSECURE, flushes tell nearness" } else { "" };
        list.push(("cadence", format!("{cadence}{warning}")));
    }
    for slot in &told.key_slots {
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
