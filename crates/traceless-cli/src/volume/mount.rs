//! `traceless volume mount` and `unmount`

use super::deniable_session::check_usage;
use super::export::{NEW, READY, key_to_pipe};
use super::key;
use crate::args::{MountArgs, UnmountArgs};
use crate::failure::{Failure, USAGE};
use crate::output::{print_error, print_line};
use crate::signals;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use traceless_volume::anchor_places::AnchorAddress;
use traceless_volume::format::UserKey;
use traceless_volume::fuse::capabilities;
use traceless_volume::fuse::mount::{
    AttachOptions, Daemon, MountRecord, Step, attach, check_dir, default_runtime, detach, prepare,
    record,
};

/// Seconds that a daemon may take to close its volume.
const STOP_LIMIT_SECONDS: u32 = 120;

pub fn mount(args: &MountArgs) -> Result<(), Failure> {
    check_usage(&args.deniable)?;
    let missing = capabilities().missing_for_mount(!args.open.read_only);
    if !missing.is_empty() {
        let list: Vec<String> = missing.iter().map(ToString::to_string).collect();
        return Err(Failure::usage(format!(
            "cannot mount here: {}. `traceless volume serve` works without",
            list.join("; ")
        )));
    }
    // Must come before the serving process opens the image, as opening writes to it.
    check_dir(&args.dir)?;
    let key = key::existing(&args.key)?;
    let runtime = default_runtime()?;
    let image = args.image.canonicalize().map_err(|e| {
        Failure::new(crate::failure::DEVICE, format!("{}: {e}", args.image.display()))
    })?;
    // A half-made mount has no record yet, so `unmount` could not remove it: a signal waits.
    let interrupted = signals::flag()?;
    let fuse_dir = prepare(&runtime, &args.dir)?;
    let mounted = start_daemon(args, &image, &fuse_dir, &key).and_then(|(mut child, is_new)| {
        let mounted = finish_mount(args, &runtime, &image, &fuse_dir, child.id(), is_new);
        if mounted.is_err() {
            stop_daemon(&mut child);
        }
        mounted
    });
    if mounted.is_err() {
        // Nothing is left behind. If the folder is not empty, something is still mounted there.
        let _ = std::fs::remove_dir(&fuse_dir);
    }
    mounted?;
    if interrupted.load(Ordering::Relaxed) {
        detach(&runtime, &args.dir)?;
        return Err(Failure::usage("interrupted; nothing is mounted"));
    }
    print_line(&format!("{} is mounted at {}", image.display(), args.dir.display()));
    Ok(())
}

fn finish_mount(
    args: &MountArgs,
    runtime: &Path,
    image: &Path,
    fuse_dir: &Path,
    pid: u32,
    is_new: bool,
) -> Result<(), Failure> {
    let read_only = args.open.read_only;
    let options =
        AttachOptions { mkfs: is_new && !read_only, read_only, further: args.options.clone() };
    let attached = attach(&fuse_dir.join("volume"), &args.dir, &options, &mut |step| {
        print_error(step);
    })?;
    let recorded = MountRecord::new(&attached, image, fuse_dir, Daemon::of(pid)?)
        .and_then(|record_of_mount| record(runtime, &record_of_mount));
    if let Err(e) = recorded {
        // Without a record `unmount` finds nothing, so the mount is undone here.
        let _ = Command::new("umount").arg(&attached.dir).status();
        let _ = Command::new("losetup").arg("-d").arg(&attached.loop_device).status();
        return Err(e.into());
    }
    Ok(())
}

/// Starts the process that serves the volume, and waits until its file is there. Returns whether
/// the volume can have no file system yet.
fn start_daemon(
    args: &MountArgs,
    image: &Path,
    fuse_dir: &Path,
    key: &UserKey,
) -> Result<(Child, bool), Failure> {
    let failed =
        |what: &'static str| move |e: std::io::Error| Failure::usage(format!("cannot {what}: {e}"));
    let program = std::env::current_exe().map_err(failed("find this program"))?;
    let mut command = Command::new(program);
    command.args(["volume", "export", "--for-mount"]).arg(image).arg(fuse_dir);
    if args.open.read_only {
        command.arg("--read-only");
    }
    if args.open.discard {
        command.arg("--discard");
    }
    command.arg("--rate").arg(args.open.rate.to_string());
    command.args(deniable_words(args)?);
    if let Some(address) = &args.open.dashboard.dashboard {
        command.arg("--dashboard").arg(address);
    }
    for (flag, path) in [
        ("--trace", &args.open.trace.trace),
        ("--secret", &args.open.trace.secret),
        ("--dashboard-password-file", &args.open.dashboard.dashboard_password_file),
    ] {
        if let Some(path) = path {
            command.arg(flag).arg(absolute(path)?);
        }
    }
    if let Some(anchor) = &args.open.anchor.anchor {
        let anchor = AnchorAddress::parse(anchor)?;
        command.arg("--anchor").arg(anchor.for_process()?).envs(anchor.password_for_process());
    }
    // The daemon stays behind, and must not keep this folder in use.
    command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failed("start the serving process"))?;
    let mut pipe = child.stdin.take().expect("it was asked for");
    let sent = key_to_pipe(key, &mut pipe);
    drop(pipe);
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it was asked for");
    let read = BufReader::new(stdout).read_line(&mut line);
    let is_there = [READY, NEW].contains(&line.trim());
    if sent.is_ok() && read.is_ok() && is_there {
        return Ok((child, line.trim() == NEW));
    }
    // The daemon has printed on standard error what was wrong.
    let status = child.wait().map_err(failed("wait for the serving process"))?;
    let code = status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(USAGE);
    Err(Failure::new(code.max(1), "the volume could not be served; nothing is mounted"))
}

/// The options of a deniable image, for the process that serves it.
fn deniable_words(args: &MountArgs) -> Result<Vec<OsString>, Failure> {
    let deniable = &args.deniable;
    let flags = [
        (deniable.deniable, "--deniable"),
        (deniable.overwrite_hidden, "--overwrite-hidden"),
        (deniable.accept_overwritten, "--accept-overwritten"),
    ];
    let given = flags.into_iter().filter(|(is_given, _)| *is_given);
    let mut words: Vec<OsString> = given.map(|(_, flag)| flag.into()).collect();
    for path in &deniable.protect_key_file {
        words.extend(["--protect-key-file".into(), absolute(path)?.into()]);
    }
    let numbers = [
        ("--cover", deniable.cover.map(u64::from)),
        ("--hidden", args.hidden.hidden.map(|n| n as u64)),
    ];
    for (option, number) in numbers {
        words.extend(number.map(|number| format!("{option}={number}").into()));
    }
    Ok(words)
}

fn stop_daemon(child: &mut Child) {
    if let Ok(daemon) = Daemon::of(child.id())
        && let Err(e) = daemon.stop(STOP_LIMIT_SECONDS)
    {
        print_error(&e.to_string());
        return;
    }
    let _ = child.wait();
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(Failure::usage)
}

pub fn unmount(args: &UnmountArgs) -> Result<(), Failure> {
    let report = detach(&default_runtime()?, &args.dir)?;
    if report.is_clean() {
        print_line(&format!("{} is unmounted, and its volume closed", args.dir.display()));
    } else {
        print_line(&format!("{} is cleaned up", args.dir.display()));
        let parts = [
            ("file system", report.dir),
            ("loop device", report.loop_device),
            ("volume file", report.fuse),
            ("serving process", report.daemon),
        ];
        for (name, step) in parts {
            let how = match step {
                Step::Done => "taken down",
                Step::AlreadyGone => "was gone already",
                Step::Forced => "taken away by force: its users see errors",
            };
            print_line(&format!("  {name}: {how}"));
        }
    }
    Ok(())
}
