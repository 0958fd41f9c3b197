//! `traceless volume hidden`, and deniable images in `create` and `serve`

use super::deniable_session::Opening;
use super::{create, export, key, serve};
use crate::args::{
    AddHiddenArgs, CreateArgs, ExportArgs, HiddenCommand, ListHiddenArgs, ProgressHow,
    RemoveHiddenArgs, ServeArgs, SessionArgs,
};
use crate::failure::{DEVICE, Failure};
use crate::output::{Meter, print_json, print_line};
use crate::signals;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use traceless_core::clock::Monotonic;
use traceless_core::store::Caching;
use traceless_volume::device::Device;
use traceless_volume::format::UserKey;
use traceless_volume::nbd::{NamedDevice, Server};
use traceless_volume::volume::{
    Cover, DeniableCreateOptions, DeniableOptions, DeniableVolume, HiddenDevice, OpenOptions,
    create_deniable,
};

/// Cover writes of a session that changes what is hidden, at least: as many, needed or not.
pub const SESSION_WRITES: u32 = 64;

/// Bytes at the beginning of a volume in which a file system would have put something.
const BEGINNING: u64 = 1 << 20;

pub fn run(command: &HiddenCommand) -> Result<(), Failure> {
    match command {
        HiddenCommand::Add(args) => add(args),
        HiddenCommand::List(args) => list(args),
        HiddenCommand::Open(args) => serve(args),
        HiddenCommand::Remove(args) => remove(args),
    }
}

pub fn create(args: &CreateArgs) -> Result<(), Failure> {
    let key = key::new(&args.image.key)?;
    let options = DeniableCreateOptions {
        size: args.size,
        cipher: create::cipher(args.cipher),
        force: args.force,
        anchor: args.anchor.anchor.clone(),
    };
    let interrupted = signals::flag()?;
    let mut meter = Meter::new("filling", args.progress.progress);
    let created = create_deniable(&args.image.image, &key, &options, &mut |done, all| {
        meter.update(done, all);
        !interrupted.load(Ordering::Relaxed)
    });
    meter.finish();
    let (size, image_len) = created?;
    let image = args.image.image.display();
    print_line(&format!("{image}: public volume of {size} bytes, {image_len} bytes in all"));
    Ok(())
}

/// Serves the public volume, and the hidden ones under names of their own.
pub fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let mut inherited = serve::inherited(args)?;
    let key = key::existing(&args.image.key)?;
    let caching = if args.direct { Caching::Direct } else { Caching::Buffered };
    let opening = Opening::new(&args.image.image, key, (&args.deniable, &args.open), caching)?;
    let server = serve::bind(args, &mut inherited)?;
    let session = opening.open(args.progress.progress)?;
    let (handle, end_waiting) = (server.handle(), session.waiting_end());
    signals::on_stop(move || {
        handle.shutdown();
        end_waiting();
    })?;
    session.run(|opened| serve_exports(server, opened))
}

fn serve_exports(server: Server, opened: &DeniableVolume) -> Result<(), Failure> {
    let hidden: Vec<HiddenDevice> = opened.hidden();
    let names: Vec<_> = (1..=hidden.len()).map(|number| format!("hidden-{number}")).collect();
    let mut exports = vec![NamedDevice { name: "", device: opened.volume() }];
    for (name, device) in names.iter().zip(&hidden) {
        exports.push(NamedDevice { name, device });
    }
    Ok(server.run_exports(&exports)?)
}

/// Shows the public volume or a hidden one as a file.
pub fn export(args: &ExportArgs) -> Result<(), Failure> {
    let key = export::prepare(args)?;
    let read_only = args.open.read_only;
    if args.hidden.hidden.is_some() && args.deniable.cover() == 0 && !read_only {
        return Err(Failure::usage("without --cover nothing brings slots to a hidden volume"));
    }
    // Below a block device the page cache could wait for itself.
    let parts = (&args.deniable, &args.open);
    let opening = Opening::new(&args.image, key, parts, Caching::Direct)?;
    let session = opening.open(ProgressHow::None)?;
    let end_waiting = session.waiting_end();
    session.run(|opened| {
        if args.for_mount && !read_only && opened.volume().read_only() {
            return Err(Failure::usage(
                "this key opens no hidden volume, so writes could overwrite one: give --read-only, \
                 --protect-key-file or --overwrite-hidden",
            ));
        }
        let device = device(opened, args.hidden.hidden)?;
        let is_new = is_blank(&*device)?;
        export::serve(args, is_new, device, end_waiting)
    })
}

/// The public volume, or the hidden one of this number.
fn device(opened: &DeniableVolume, hidden: Option<usize>) -> Result<Arc<dyn Device>, Failure> {
    let Some(number) = hidden else { return Ok(opened.device()) };
    let nth = number.checked_sub(1).and_then(|nth| opened.hidden().into_iter().nth(nth));
    let found = nth.ok_or_else(|| Failure::usage(format!("the key opens no hidden-{number}")))?;
    Ok(Arc::new(found))
}

/// Whether the beginning of a device, where a file system says what it is, is zeros.
fn is_blank(device: &dyn Device) -> Result<bool, Failure> {
    let mut bytes = vec![0; device.len().min(BEGINNING) as usize];
    device.read(0, &mut bytes).map_err(|e| Failure::new(DEVICE, e))?;
    Ok(bytes.iter().all(|byte| *byte == 0))
}

/// Opens the image for a session of its own. `change` changes what is hidden; what the disk sees is
/// a session in which nothing but cover writes were made. Returns whether all that is hidden got
/// its slot.
pub fn change(
    image: &Path,
    key: &UserKey,
    (options, session): (&DeniableOptions, &SessionArgs),
    change: impl FnOnce(&DeniableVolume) -> Result<(), Failure>,
) -> Result<bool, Failure> {
    let keys = std::slice::from_ref(key);
    let opened = DeniableVolume::open(image, keys, options, &mut |_, _| {})?;
    let changed = change(&opened).and_then(|()| {
        let seconds = u64::from(SESSION_WRITES.div_ceil(session.cover));
        Cover::new(session.cover).run_for(seconds, &opened, &Monotonic::start())?;
        Ok(())
    });
    // A close brings slots, too.
    opened.volume().close()?;
    changed.map(|()| !opened.has_waiting())
}

/// The same as [`change`], which must be durable.
fn change_durably(
    image: &Path,
    key: &UserKey,
    session: (&DeniableOptions, &SessionArgs),
    to: impl FnOnce(&DeniableVolume) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if change(image, key, session, to)? {
        return Ok(());
    }
    Err(Failure::usage("no slot was free in time: serve the image for a while"))
}

fn add(args: &AddHiddenArgs) -> Result<(), Failure> {
    let old = key::existing(&args.image.key)?;
    let new = key::new(&args.new_key.key_args())?;
    let overwrite_hidden = args.overwrite_hidden;
    let options = DeniableOptions { overwrite_hidden, ..DeniableOptions::default() };
    change_durably(&args.image.image, &old, (&options, &args.session), |opened| {
        if opened.volume().read_only() {
            return Err(Failure::usage(
                "this key opens no hidden volume. If there is none yet, give --overwrite-hidden; \
                 else give the key of the most secret one",
            ));
        }
        let added = opened.add_hidden(&new, args.size)?;
        print_line(&format!("hidden-{}: {} bytes", opened.hidden().len(), added.len()));
        Ok(())
    })
}

fn list(args: &ListHiddenArgs) -> Result<(), Failure> {
    let key = key::existing(&args.image.key)?;
    let open = OpenOptions { read_only: true, ..OpenOptions::default() };
    let options = DeniableOptions { open, ..DeniableOptions::default() };
    let opened = DeniableVolume::open(&args.image.image, &[key], &options, &mut |_, _| {})?;
    let sizes: Vec<_> = opened.hidden().iter().map(Device::len).collect();
    if args.json {
        return print_json(&serde_json::json!({
            "schema": "traceless.volume.hidden.v1",
            "public_bytes": opened.volume().len(),
            "hidden_bytes": sizes,
            "hidden_room_bytes": opened.hidden_room(),
        }));
    }
    print_line(&format!("public   {} bytes", opened.volume().len()));
    for (number, size) in (1..).zip(sizes) {
        print_line(&format!("hidden-{number} {size} bytes"));
    }
    Ok(())
}

fn remove(args: &RemoveHiddenArgs) -> Result<(), Failure> {
    let key = key::existing(&args.image.key)?;
    let options = DeniableOptions::default();
    change_durably(&args.image.image, &key, (&options, &args.session), |opened| {
        Ok(opened.remove_hidden()?)
    })
}
