//! `traceless volume swap`
//!
//! When memory is short the kernel writes pages to this process, which then may not wait for
//! memory itself: its pages are locked, its heap is grown beforehand, and it is marked as an I/O
//! flusher. The key is drawn at the start and is nowhere else.

use super::create::{BLOCK_LEN, cipher};
use crate::args::{CipherName, SwapArgs};
use crate::failure::Failure;
use crate::output::{Meter, print_error, print_line};
use crate::signals;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use traceless_block::registry;
use traceless_core::rng::{Rng, System};
use traceless_core::scheme::contract::{BlockScheme, MapPlace, SchemeOptions};
use traceless_core::store::Caching;
use traceless_volume::format::{AREAS_AT, Kdf, UserKey};
use traceless_volume::fuse::runtime::become_io_flusher;
use traceless_volume::ublk::UblkExport;
use traceless_volume::volume::{CreateOptions, LockedImage, OpenOptions, create};
use zeroize::Zeroizing;

/// Bytes of heap for requests: buffers of all queues, with their sealed copies.
const HEAP: usize = 64 << 20;

/// Score of this process when the system ends one for lack of memory: never this one.
const NEVER_ENDED: &str = "-1000";

pub fn run(args: &SwapArgs) -> Result<(), Failure> {
    UblkExport::check()?;
    // Must come before the first thread starts.
    if let Some(warning) = become_io_flusher().first() {
        return Err(Failure::usage(format!("no swap: {warning}")));
    }
    let device_len = device_len(&args.image).map_err(Failure::usage)?;
    let scheme = scheme(args, device_len)?;
    let facts = scheme.facts(0);
    if !traceless_sys::reserve_heap(HEAP + (facts.map_bytes + facts.buffer_bytes) as usize) {
        print_error("this build's allocator may wait for memory while it serves the swap");
    }
    std::fs::write("/proc/self/oom_score_adj", NEVER_ENDED).map_err(Failure::usage)?;
    let key = random_key()?;
    make(args, (scheme, device_len.is_some()), &key)?;
    let options = OpenOptions { caching: Caching::Direct, ..OpenOptions::default() };
    let volume = Arc::new(LockedImage::new(&args.image, &key, options)?.open(&mut |_, _| {})?);
    drop(key);
    let export = UblkExport::attach(volume)?;
    let (device, stopper) = (export.device().to_owned(), export.stopper());
    let is_on = Arc::new(AtomicBool::new(false));
    let (of_signals, swap) = (is_on.clone(), device.clone());
    signals::on_stop(move || {
        let ended = if of_signals.load(Ordering::Acquire) {
            execute(Command::new("swapoff").arg(&swap))
        } else {
            Ok(())
        };
        match ended {
            Ok(()) => stopper.stop(),
            Err(failure) => print_error(&format!("{}; the swap goes on", failure.message)),
        }
    })?;
    execute(Command::new("mkswap").arg(&device))?;
    let mut swap_on = Command::new("swapon");
    if let Some(priority) = args.priority {
        swap_on.arg("-p").arg(priority.to_string());
    }
    is_on.store(true, Ordering::Release);
    execute(swap_on.arg(&device))?;
    print_line(&device.display().to_string());
    // What is there is of no use without the key, so the volume is not closed.
    Ok(export.wait(|busy| print_error(&busy.to_string()))?)
}

/// A key that no file has.
fn random_key() -> Result<UserKey, Failure> {
    let mut bytes = Zeroizing::new(vec![0; 32]);
    System.fill(&mut bytes);
    Ok(UserKey::from_file(bytes)?)
}

/// The scheme that the arguments describe, for a device of this length or for a file.
fn scheme(args: &SwapArgs, device_len: Option<u64>) -> Result<Arc<dyn BlockScheme>, Failure> {
    let kind = registry::named(&args.scheme).expect("clap has checked");
    // A fault must not wait for the map.
    let options = SchemeOptions { map: Some(MapPlace::Memory), ..SchemeOptions::default() };
    match (args.size, device_len) {
        (Some(0), _) => Err(Failure::usage("--size 0: a swap must hold something")),
        (Some(size), _) => (kind.choose)(size.div_ceil(BLOCK_LEN as u64), BLOCK_LEN, &options)
            .map_err(Failure::usage),
        (None, Some(len)) => {
            let room = len.saturating_sub(AREAS_AT);
            registry::largest_within(kind, room, BLOCK_LEN, &options)
                .ok_or_else(|| Failure::usage("the device is too small for a swap"))
        }
        (None, None) => Err(Failure::usage("how large? give --size for a swap in a file")),
    }
}

/// Makes the volume. A file has all its space from now on; of a device, what was there stays until
/// it is overwritten.
fn make(
    args: &SwapArgs,
    (scheme, is_device): (Arc<dyn BlockScheme>, bool),
    key: &UserKey,
) -> Result<(), Failure> {
    let options = CreateOptions {
        scheme,
        cipher: cipher(CipherName::Auto),
        kdf: Kdf::default(),
        force: args.force,
        unfilled: is_device,
        anchor: None,
    };
    let mut meter = Meter::new("filling", args.progress.progress);
    let made = signals::interruptible(|interrupted| {
        create(&args.image, key, &options, &mut |done, all| {
            meter.update(done, all);
            !interrupted.load(Ordering::Relaxed)
        })
    })?;
    meter.finish();
    made.map(drop).map_err(Failure::from)
}

/// Bytes of a block device; `None` for a file, also for one that is not there yet.
fn device_len(path: &Path) -> io::Result<Option<u64>> {
    match path.metadata() {
        Ok(metadata) if metadata.file_type().is_block_device() => {
            use std::io::{Seek, SeekFrom};
            std::fs::File::open(path)?.seek(SeekFrom::End(0)).map(Some)
        }
        _ => Ok(None),
    }
}

/// Runs a command of the system, out of reach of the terminal's Ctrl-C.
fn execute(command: &mut Command) -> Result<(), Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output =
        command.process_group(0).output().map_err(|e| Failure::usage(format!("{name}: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::usage(format!("{name} failed: {}", said.trim())))
}
