//! `traceless volume ublk`

use super::{kernel_device, key};
use crate::args::UblkArgs;
use crate::failure::Failure;
use crate::output::{print_error, print_line};
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
        print_error(&warning.to_string());
    }
    kernel_device::serve(&args.image.image, key, &args.open, |_, device| serve(device))
}

fn serve(device: Arc<dyn Device>) -> Result<(), Failure> {
    let export = UblkExport::attach(device)?;
    let stopper = export.stopper();
    signals::on_stop(move || stopper.stop())?;
    print_line(&export.device().display().to_string());
    Ok(export.wait(|busy| print_error(&busy.to_string()))?)
}
