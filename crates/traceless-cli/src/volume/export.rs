//! `traceless volume export`

use super::deniable_session::check_usage;
use super::{kernel_device, key};
use crate::args::ExportArgs;
use crate::failure::{Failure, KEY};
use crate::output::{print_error, print_line};
use crate::signals;
use std::io::{Read, Write};
use std::sync::Arc;
use traceless_volume::device::Device;
use traceless_volume::format::UserKey;
use traceless_volume::fuse::export::{self, ExportOptions, spawn};
use traceless_volume::fuse::runtime::become_io_flusher;
use zeroize::Zeroizing;

/// What a daemon prints once the file is there.
pub const READY: &str = "ready";

/// What it prints if the volume has no file system yet.
pub const NEW: &str = "new";

pub fn run(args: &ExportArgs) -> Result<(), Failure> {
    check_usage(&args.deniable)?;
    let key = prepare(args)?;
    kernel_device::serve(&args.image, key, &args.open, |is_new, device| {
        serve(args, is_new, device, || {})
    })
}

/// Prepares the process, and reads the key.
pub fn prepare(args: &ExportArgs) -> Result<UserKey, Failure> {
    // Must come before the image is opened, as opening writes to it.
    export::check(&args.dir)?;
    let key = if args.for_mount {
        // The terminal's Ctrl-C is for the command that mounts, not for the daemon that stays
        // behind.
        let _ = rustix::process::setsid();
        key_from_pipe()?
    } else {
        key::existing(&args.key)?
    };
    // Must come before the first thread starts: the mark belongs to a thread and is inherited.
    for warning in become_io_flusher() {
        if !args.for_mount {
            print_error(&warning.to_string());
        }
    }
    Ok(key)
}

/// Shows `device` as a file until a signal, at which `stop` is called, or an unmount. `is_new` says
/// whether it can have no file system yet.
pub fn serve(
    args: &ExportArgs,
    is_new: bool,
    device: Arc<dyn Device>,
    stop: impl Fn() + Send + 'static,
) -> Result<(), Failure> {
    let export = Arc::new(spawn(device, &args.dir, ExportOptions::default())?);
    let stopper = export.clone();
    signals::on_stop(move || {
        if let Err(e) = stopper.shutdown() {
            print_error(&e.to_string());
        }
        stop();
    })?;
    if args.for_mount {
        print_line(if is_new { NEW } else { READY });
        forget_terminal();
    } else {
        print_line(&format!("{}", args.dir.join("volume").display()));
    }
    export.wait()?;
    Ok(())
}

/// Redirects standard input and output to /dev/null, as the mounting command ends and reads no
/// more.
fn forget_terminal() {
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Writes one byte for the kind of key, then the key.
pub fn key_to_pipe(key: &UserKey, pipe: &mut dyn Write) -> std::io::Result<()> {
    let (kind, bytes) = match key {
        UserKey::Passphrase(bytes) => (b"p", bytes),
        UserKey::File(bytes) => (b"f", bytes),
    };
    pipe.write_all(kind)?;
    pipe.write_all(bytes)
}

fn key_from_pipe() -> Result<UserKey, Failure> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(4096));
    let failed = |e| Failure::new(KEY, format!("no key came from the mounting command: {e}"));
    let mut kind = [0];
    let mut pipe = std::io::stdin().lock();
    pipe.read_exact(&mut kind).map_err(failed)?;
    pipe.read_to_end(&mut bytes).map_err(failed)?;
    match &kind {
        b"p" => Ok(UserKey::Passphrase(bytes)),
        _ => Ok(UserKey::from_file(bytes)?),
    }
}
