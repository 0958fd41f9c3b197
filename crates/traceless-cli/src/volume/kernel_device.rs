//! Holding a volume open for as long as the kernel uses it.

use super::{rate, recorded_device, start_dashboard};
use crate::args::OpenArgs;
use crate::failure::Failure;
use crate::trace::Trace;
use std::path::Path;
use std::sync::Arc;
use traceless_core::store::Caching;
use traceless_volume::device::Device;
use traceless_volume::format::UserKey;
use traceless_volume::volume::{LockedImage, OpenOptions};

/// Opens the image, serves it as a device, and closes it even if `serve` fails. `serve` gets
/// whether nothing was ever written. Bypasses the page cache: below a block device the cache could
/// wait for itself.
pub fn serve(
    image: &Path,
    key: UserKey,
    open: &OpenArgs,
    serve: impl FnOnce(bool, Arc<dyn Device>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let trace = Trace::open(&open.trace)?;
    let dashboard = start_dashboard(open, image)?;
    let options = OpenOptions {
        read_only: open.read_only,
        exclusive: false,
        anchor: open.anchor.anchor.clone(),
        caching: Caching::Direct,
        witness: dashboard.witness(&trace),
        // The dashboard has a clock of its own.
        event_times: trace.witness().is_some(),
        discard: open.discard,
    };
    let image = LockedImage::new(image, &key, options)?;
    drop(key);
    if let Some(monitor) = dashboard.monitor() {
        monitor.adversary().set_space(image.image_len());
    }
    let volume = Arc::new(image.open(&mut |_, _| {})?);
    // At a constant rate there are writes from now on.
    let is_new = volume.writes() == 0;
    let outcome = rate::serve_at(open.rate, &volume, |device| {
        serve(is_new, recorded_device::record_requests(&volume, device, &trace, &dashboard))
    });
    let closed = volume.close().map_err(Failure::from);
    let traced = trace.finish();
    outcome.and(closed).and(traced)
}
