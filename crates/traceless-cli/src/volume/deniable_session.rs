//! Sessions of deniable images: how they are opened, and their cover writes.

use super::key;
use crate::args::{DeniableArgs, OpenArgs, ProgressHow, Rate};
use crate::failure::Failure;
use crate::output::{Meter, print_error};
use crate::trace::Trace;
use std::path::Path;
use traceless_core::clock::Monotonic;
use traceless_core::store::Caching;
use traceless_volume::device::Device;
use traceless_volume::format::UserKey;
use traceless_volume::volume::{Cover, DeniableOptions, DeniableVolume, OpenOptions};

/// Refuses options that only a deniable image has, if the arguments do not say that it is one.
pub fn check_usage(args: &DeniableArgs) -> Result<(), Failure> {
    if args.is_incomplete() {
        return Err(Failure::usage(
            "--overwrite-hidden, --protect-key-file, --accept-overwritten and --cover go with \
             --deniable",
        ));
    }
    Ok(())
}

/// Opens an image to check it.
pub fn open_to_check(
    image: &Path,
    key: &UserKey,
    open: OpenOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> traceless_volume::Result<DeniableVolume> {
    let options = DeniableOptions { open, ..DeniableOptions::default() };
    DeniableVolume::open(image, std::slice::from_ref(key), &options, progress)
}

/// What it takes to open an image that is served.
pub struct Opening<'a> {
    image: &'a Path,
    keys: Vec<UserKey>,
    options: DeniableOptions,
    trace: Trace,
    cover: u32,
}

impl<'a> Opening<'a> {
    pub fn new(
        image: &'a Path,
        key: UserKey,
        (deniable, open): (&DeniableArgs, &OpenArgs),
        caching: Caching,
    ) -> Result<Self, Failure> {
        traceless_sys::lock_all_memory();
        if open.dashboard.dashboard.is_some() || open.trace.secret.is_some() {
            // Both would show or record what is hidden.
            return Err(Failure::usage("--dashboard and --secret do not go with a deniable image"));
        }
        if open.rate != Rate::Demand {
            return Err(Failure::usage("--rate goes without --deniable, which has --cover"));
        }
        let mut keys = vec![key];
        for path in &deniable.protect_key_file {
            keys.push(key::from_file(path)?);
        }
        let trace = Trace::open(&open.trace)?;
        let options = DeniableOptions {
            open: OpenOptions {
                read_only: open.read_only,
                anchor: open.anchor.anchor.clone(),
                caching,
                witness: trace.witness(),
                discard: open.discard,
                ..OpenOptions::default()
            },
            overwrite_hidden: deniable.overwrite_hidden,
            accept_overwritten: deniable.accept_overwritten,
        };
        Ok(Self { image, keys, options, trace, cover: deniable.cover() })
    }

    pub fn open(self, progress: ProgressHow) -> Result<Session, Failure> {
        let mut meter = Meter::new("opening", progress);
        let opened =
            DeniableVolume::open(self.image, &self.keys, &self.options, &mut |done, all| {
                meter.update(done, all);
            });
        meter.finish();
        Ok(Session { opened: opened?, trace: self.trace, cover: self.cover })
    }
}

/// An open image, and its cover writes a second.
pub struct Session {
    opened: DeniableVolume,
    trace: Trace,
    cover: u32,
}

impl Session {
    /// What ends hidden requests that wait for slots, if no cover writes bring any.
    pub fn waiting_end(&self) -> impl Fn() + Send + 'static {
        let (is_covered, end) = (self.cover > 0, self.opened.waiting_end());
        move || {
            if !is_covered {
                end();
            }
        }
    }

    /// Runs `work` beside cover writes, and closes the image even if it fails.
    pub fn run(
        self,
        work: impl FnOnce(&DeniableVolume) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Self { opened, trace, cover: rate } = self;
        let is_covered = rate > 0 && !opened.volume().read_only();
        let cover = Cover::new(rate);
        let outcome = std::thread::scope(|scope| {
            let covering = scope.spawn(|| {
                if is_covered { cover.run(&opened, &Monotonic::start()) } else { Ok(()) }
            });
            let ended = work(&opened);
            cover.stop();
            let covered = covering.join().expect("the cover does not panic");
            ended.and(covered.map_err(Failure::from))
        });
        let closed = opened.volume().close().map_err(Failure::from);
        if opened.has_waiting() {
            print_error("some hidden writes that no flush had covered got no slot, and are lost");
        }
        outcome.and(closed).and(trace.finish())
    }
}
