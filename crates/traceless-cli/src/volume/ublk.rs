//! `traceless volume ublk`

use super::{held, key};
use crate::args::UblkArgs;
use crate::failure::Failure;
use crate::output::{complain, say};
use crate::signals;
use std::sync::Arc;
use traceless_volume::device::Device;
use traceless_volume::fuse::runtime::become_io_flusher;
use traceless_volume::ublk::UblkExport;

pub fn run(args: &UblkArgs) -> Result<(), Failure> {
    // Must come before the image is opened, as opening writes to it.
    UblkExport::check()?;
    let key = key::existing(&args.image.key)?;
    // Must come before the first thread starts: the mark belongs to a thread and is inherited.
    for warning in become_io_flusher() {
        complain(&warning.to_string());
    }
    held::hold(&args.image.image, key, &args.open, |_, device| serve(device))
}

fn serve(device: Arc<dyn Device>) -> Result<(), Failure> {
    let export = UblkExport::attach(device)?;
    let stopper = export.stopper();
    signals::on_stop(move || stopper.stop())?;
    say(&export.device().display().to_string());
    Ok(export.wait(|busy| complain(&busy.to_string()))?)
}
