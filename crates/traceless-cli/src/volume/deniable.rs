//! `traceless volume hidden`, and deniable images in `create` and `serve`

use super::{create, key, serve};
use crate::args::{
    AddHiddenArgs, CreateArgs, HiddenCommand, ImageArgs, Rate, ServeArgs, StatusArgs,
};
use crate::failure::Failure;
use crate::output::{Meter, print_error, print_json, print_line};
use crate::signals;
use crate::trace::Trace;
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

/// Cover writes of a session that changes what is hidden: always as many, needed or not.
const SESSION_WRITES: u32 = 64;

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
    traceless_sys::lock_all_memory();
    if args.open.dashboard.dashboard.is_some() || args.open.trace.secret.is_some() {
        // Both would show or record what is hidden.
        return Err(Failure::usage("--dashboard and --secret do not go with a deniable image"));
    }
    if args.open.rate != Rate::Demand {
        return Err(Failure::usage("--rate goes without --deniable, which has --cover"));
    }
    let mut keys = vec![key::existing(&args.image.key)?];
    for path in &args.deniable.protect_key_file {
        keys.push(key::from_file(path)?);
    }
    let trace = Trace::open(&args.open.trace)?;
    let server = serve::bind(args, &mut inherited)?;
    let options = DeniableOptions {
        open: OpenOptions {
            read_only: args.open.read_only,
            anchor: args.open.anchor.anchor.clone(),
            caching: if args.direct { Caching::Direct } else { Caching::Buffered },
            witness: trace.witness(),
            ..OpenOptions::default()
        },
        overwrite_hidden: args.deniable.overwrite_hidden,
        accept_overwritten: args.deniable.accept_overwritten,
    };
    let mut meter = Meter::new("opening", args.progress.progress);
    let opened = DeniableVolume::open(&args.image.image, &keys, &options, &mut |done, all| {
        meter.update(done, all);
    });
    meter.finish();
    drop(keys);
    let opened = opened?;
    let (handle, end_waiting, cover) =
        (server.handle(), opened.waiting_end(), args.deniable.cover());
    signals::on_stop(move || {
        handle.shutdown();
        if cover == 0 {
            end_waiting();
        }
    })?;
    let outcome = serve_exports(server, &opened, cover);
    let closed = opened.volume().close().map_err(Failure::from);
    if opened.has_waiting() {
        print_error("some hidden writes that no flush had covered got no slot, and are lost");
    }
    outcome.and(closed).and(trace.finish())
}

fn serve_exports(server: Server, opened: &DeniableVolume, rate: u32) -> Result<(), Failure> {
    let hidden: Vec<HiddenDevice> = opened.hidden();
    let names: Vec<_> = (1..=hidden.len()).map(|number| format!("hidden-{number}")).collect();
    let mut exports = vec![NamedDevice { name: "", device: opened.volume() }];
    for (name, device) in names.iter().zip(&hidden) {
        exports.push(NamedDevice { name, device });
    }
    let (cover, is_covered) = (Cover::new(rate), rate > 0 && !opened.volume().read_only());
    std::thread::scope(|scope| {
        let covering = scope
            .spawn(|| if is_covered { cover.run(opened, &Monotonic::start()) } else { Ok(()) });
        let ended = server.run_exports(&exports).map_err(Failure::from);
        cover.stop();
        let covered = covering.join().expect("the cover does not panic").map_err(Failure::from);
        ended.and(covered)
    })
}

/// Opens the image for a session of its own. `change` changes what is hidden.
fn change(
    image: &ImageArgs,
    key: UserKey,
    overwrite_hidden: bool,
    change: impl FnOnce(&DeniableVolume) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let options = DeniableOptions { overwrite_hidden, ..DeniableOptions::default() };
    let opened = DeniableVolume::open(&image.image, &[key], &options, &mut |_, _| {})?;
    let changed = change(&opened).and_then(|()| {
        opened.cover(SESSION_WRITES)?;
        if opened.has_waiting() {
            return Err(Failure::usage("no slot was free in time: serve the image for a while"));
        }
        Ok(())
    });
    opened.volume().close()?;
    changed
}

fn add(args: &AddHiddenArgs) -> Result<(), Failure> {
    let old = key::existing(&args.image.key)?;
    let new = key::new(&args.new_key())?;
    change(&args.image, old, args.overwrite_hidden, |opened| {
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

fn list(args: &StatusArgs) -> Result<(), Failure> {
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

fn remove(args: &ImageArgs) -> Result<(), Failure> {
    let key = key::existing(&args.key)?;
    change(args, key, false, |opened| Ok(opened.remove_hidden()?))
}
