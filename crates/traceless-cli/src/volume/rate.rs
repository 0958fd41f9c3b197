//! Serving a volume as it is, or at a constant rate.

use crate::args::Rate;
use crate::failure::Failure;
use crate::output::print_error;
use std::sync::Arc;
use std::thread;
use traceless_core::clock::Monotonic;
use traceless_volume::device::Device;
use traceless_volume::volume::{ConstantRateDevice, Volume};

/// Calls `serve` with a device that accesses the image of the volume at the rate.
pub fn serve_at(
    rate: Rate,
    volume: &Arc<Volume>,
    serve: impl FnOnce(Arc<dyn Device>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Rate::Fixed(per_second) = rate else { return serve(volume.clone()) };
    let device = Arc::new(ConstantRateDevice::new(volume.clone(), per_second)?);
    let outcome = thread::scope(|scope| {
        let _end = EndOfRate(&device);
        scope.spawn(|| device.run(&Monotonic::start()));
        serve(device.clone())
    });
    match device.late_ticks() {
        0 => {}
        late => print_error(&format!(
            "{late} ticks were late by a period or more: the rate is too high for this machine"
        )),
    }
    outcome
}

/// Ends the ticks, also if serving panics.
struct EndOfRate<'a>(&'a ConstantRateDevice);

impl Drop for EndOfRate<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
