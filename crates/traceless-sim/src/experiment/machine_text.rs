//! The report of a machine's run as text, line by line.

use super::machine_run::{ChannelReport, MachineReport, RequestReport};
use crate::dram::Summary;
use crate::latency::Latency;
use crate::oram::{Counts, Latencies};
use crate::processor::Run;
use std::fmt::{self, Display, Formatter};

impl Display for MachineReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Run { cycles, instructions, records } = self.outcome.run;
        let per_cycle = instructions as f64 / cycles as f64;
        writeln!(f, "{cycles} cycles, {instructions} instructions ({per_cycle:.3} a cycle)")?;
        writeln!(f, "{records} records, {:.0} a second simulated", self.records_per_second)?;
        if let Some(paths) = &self.outcome.paths {
            write_paths(f, paths)?;
        }
        if let Some(latencies) = &self.outcome.latencies {
            write_latencies(f, latencies, self.outcome.paths.is_some())?;
        }
        if let Some(dram) = &self.outcome.dram {
            write_memory(f, dram)?;
        }
        if let Some(commands) = self.commands_checked {
            writeln!(f, "{commands} commands, none of which breaks a constraint of the memory")?;
        }
        self.channels
            .iter()
            .enumerate()
            .try_for_each(|(nth, channel)| write_channel(f, nth, channel))
    }
}

fn write_paths(f: &mut Formatter<'_>, paths: &Counts) -> fmt::Result {
    let all = paths.paths().max(1) as f64;
    let share = |n: u64| n as f64 * 100.0 / all;
    writeln!(
        f,
        "{} path accesses of {:.1} cycles each: {:.1} % for data, {:.1} % for the map, {:.1} % \
         dummies, {:.1} % evictions",
        paths.paths(),
        paths.busy as f64 / all,
        share(paths.data),
        share(paths.map),
        share(paths.dummy),
        share(paths.eviction),
    )
}

/// Writes the latencies of reads, writes and path accesses, as far as there were any.
fn write_latencies(f: &mut Formatter<'_>, latencies: &Latencies, is_hidden: bool) -> fmt::Result {
    let Latencies { reads, reads_at_hand, reads_by_map, write_backs, paths } = latencies;
    write_latency(f, "reads", reads)?;
    if !is_hidden {
        write_latency(f, "  merged with a request", reads_at_hand)?;
        return write_latency(f, "writes", write_backs);
    }
    write_latency(f, "  without a path access", reads_at_hand)?;
    for (levels, latency) in reads_by_map.iter().enumerate() {
        write_latency(f, &format!("  after {levels} accesses to the map"), latency)?;
    }
    for (what, latency) in [
        ("write-backs", write_backs),
        ("path accesses for data", &paths.data),
        ("  for the map", &paths.map),
        ("  dummies", &paths.dummy),
        ("  evictions", &paths.eviction),
        ("  early write-backs", &paths.early),
    ] {
        write_latency(f, what, latency)?;
    }
    Ok(())
}

fn write_latency(f: &mut Formatter<'_>, what: &str, latency: &Latency) -> fmt::Result {
    let Latency { count, mean, p50, p99, max } = latency;
    if *count == 0 {
        return Ok(());
    }
    writeln!(f, "{what:<32} {count:>9}: mean {mean:.1}, p50 {p50}, p99 {p99}, most {max} cycles")
}

fn write_memory(f: &mut Formatter<'_>, dram: &Summary) -> fmt::Result {
    let (used, hits) = (dram.utilisation * 100.0, dram.row_hits * 100.0);
    writeln!(f, "memory: {used:.1} % of the bandwidth used, {hits:.1} % found their row open")?;
    if let (Some(milliwatts), Some(per_bit)) = (dram.milliwatts, dram.picojoules_per_bit) {
        writeln!(f, "chips: {milliwatts:.0} mW, {per_bit:.1} pJ for each bit moved")?;
    }
    Ok(())
}

fn write_channel(f: &mut Formatter<'_>, nth: usize, channel: &ChannelReport) -> fmt::Result {
    for (name, requests) in [("reads", &channel.reads), ("writes", &channel.writes)] {
        let RequestReport { counts, latency, p50, p99, max, row_hits } = requests;
        if counts.served + counts.merged == 0 {
            continue;
        }
        let hits = row_hits.max(0.0) * 100.0;
        writeln!(
            f,
            "channel {nth}: {:>9} {name:<6} mean {latency:.1}, p50 {p50}, p99 {p99}, most {max} \
             cycles; {hits:.1} % found their row open, {} merged",
            counts.served, counts.merged,
        )?;
    }
    Ok(())
}
