//! The live page of a paged program: faults and pages that leave beside the events of the store.

use super::RunError;
use crate::args::RunArgs;
use crate::dashboard::Dashboard;
use std::path::Path;
use std::sync::Arc;
use traceless_dashboard::Reading;
use traceless_pager::paging::{ActivityFile, Error, Lock, ProgramCounters, Settings, Summary};

/// The file's name, in the folder of counters. All programs that are paged together share it.
const NAME: &str = "activity";

/// Starts the page, if the option was given, and names its file in the settings.
pub fn start(
    args: &RunArgs,
    settings: &mut Settings,
    folder: &Path,
) -> Result<Option<Dashboard>, RunError> {
    if args.dashboard.dashboard.is_none() {
        return Ok(None);
    }
    let path = folder.join(NAME);
    let in_use = Error::Configuration("the file of the live page is there already");
    let file = ActivityFile::create_new(&path)?.ok_or(in_use)?;
    // A message that pages may be swapped out was printed before.
    if settings.lock != Lock::Off
        && let Err(e) = file.lock()
        && settings.lock == Lock::Strict
    {
        return Err(Error::Unlocked(e).into());
    }
    let title = format!("run {}", args.command[0].display());
    let dashboard = Dashboard::start_over(&args.dashboard, &title, Arc::new(file));
    let dashboard = dashboard.map_err(RunError::Dashboard)?;
    if let Some(monitor) = dashboard.monitor() {
        let folder = folder.to_owned();
        monitor.set_readings(move || readings(&ProgramCounters::read_all(&folder)));
    }
    settings.activity = Some(path);
    Ok(Some(dashboard))
}

/// The counters of all programs, also of the ended ones.
fn readings(programs: &[ProgramCounters]) -> Vec<Reading> {
    let sum = |of: fn(&Summary) -> u64| programs.iter().map(|one| of(&one.summary)).sum::<u64>();
    [
        (Some("pager_programs"), "Programs that were paged", programs.len() as u64),
        (Some("pager_faults"), "Page faults served", sum(|one| one.faults)),
        (Some("pager_evictions"), "Pages that left", sum(|one| one.evictions)),
        (Some("pager_standby_hits"), "Faults of standby pages", sum(|one| one.standby_hits)),
        (Some("pager_ticks"), "Ticks at a constant rate", sum(|one| one.ticks)),
        (Some("pager_ticks_late"), "Ticks that were late", sum(|one| one.ticks_late)),
        (None, "Most pages in memory at a time", sum(|one| one.resident_max)),
        (None, "Nanoseconds of processor time of the pagers", sum(|one| one.handler_cpu_ns)),
    ]
    .map(|(metric, help, value)| Reading { metric, help, value: value as f64 })
    .into()
}
