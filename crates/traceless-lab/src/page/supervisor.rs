//! Commands of a report end with it, however it ends: each runs under a process of this program,
//! which gets a signal when the report ends, and then ends the command with all that the command
//! has started.

use crate::args::SupervisorArgs;
use rustix::process::{
    Pid, Signal, getpgrp, getppid, kill_process_group, set_parent_process_death_signal,
};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use traceless_cli::failure::{DEVICE, Failure};
use traceless_cli::signals;

/// The name of the hidden command.
pub const NAME: &str = "supervise";

/// A command that runs the program of `command` under a supervisor, to which words may be added.
pub fn supervised(command: &Command) -> io::Result<Command> {
    let mut supervisor = Command::new(std::env::current_exe()?);
    supervisor.args([NAME, &std::process::id().to_string()]).arg(command.get_program());
    // A group of its own: one signal ends all of it, and none of the terminal's arrives there.
    supervisor.process_group(0);
    Ok(supervisor)
}

/// Ends a supervisor, its command and what that has started.
pub fn end(supervisor: &Child) {
    if let Some(group) = Pid::from_raw(supervisor.id().cast_signed()) {
        // Fails if all of it has ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Runs a command until it ends, or the report does. Returns its exit code.
pub fn run(args: &SupervisorArgs) -> Result<u8, Failure> {
    let failed = |e: io::Error| Failure::new(DEVICE, format!("{}: {e}", args.program.display()));
    signals::on_stop(|| {
        let _ = kill_process_group(getpgrp(), Signal::KILL);
    })?;
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(|e| failed(e.into()))?;
    // A report that had ended before is no parent, and sends no signal.
    if getppid().map(|parent| parent.as_raw_nonzero().get()) != Some(args.report) {
        return Err(Failure::new(DEVICE, "the report has ended".to_owned()));
    }
    let status = Command::new(&args.program).args(&args.words).status().map_err(failed)?;
    let ended = || Failure::new(DEVICE, format!("{}: {status}", args.program.display()));
    status.code().and_then(|code| u8::try_from(code).ok()).ok_or_else(ended)
}
