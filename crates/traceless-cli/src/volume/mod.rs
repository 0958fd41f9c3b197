//! `traceless volume ...`

mod check;
pub mod create;
mod deniable;
mod deniable_session;
mod export;
mod failure;
mod header;
mod kernel_device;
mod key;
mod keys;
mod mount;
mod mount_helper;
mod rate;
mod rebuild;
mod recorded_device;
mod serve;
mod status;
#[cfg(feature = "ublk")]
mod swap;
#[cfg(feature = "ublk")]
mod ublk;

use crate::args::{OpenArgs, VolumeCommand};
use crate::dashboard::Dashboard;
use crate::failure::Failure;
use crate::lab;
use std::path::Path;

pub fn run(command: &VolumeCommand) -> Result<(), Failure> {
    match command {
        VolumeCommand::Create(args) if args.deniable => deniable::create(args),
        VolumeCommand::Create(args) => create::run(args),
        VolumeCommand::Serve(args) if args.deniable.deniable => deniable::serve(args),
        VolumeCommand::Serve(args) => serve::run(args),
        VolumeCommand::Export(args) if args.deniable.deniable => deniable::export(args),
        VolumeCommand::Export(args) => export::run(args),
        #[cfg(feature = "ublk")]
        VolumeCommand::Ublk(args) => ublk::run(args),
        #[cfg(feature = "ublk")]
        VolumeCommand::Swap(args) => swap::run(args),
        VolumeCommand::Mount(args) => mount::mount(args),
        VolumeCommand::Unmount(args) => mount::unmount(args),
        VolumeCommand::MountHelper(args) => mount_helper::mount(&args.words),
        VolumeCommand::UnmountHelper(args) => mount_helper::unmount(&args.words),
        VolumeCommand::Status(args) => status::run(args),
        VolumeCommand::Check(args) => check::run(args),
        VolumeCommand::Grow(args) => rebuild::grow(args),
        VolumeCommand::Reencrypt(args) => rebuild::reencrypt(args),
        VolumeCommand::Keys { command } => keys::run(command),
        VolumeCommand::Hidden { command } => deniable::run(command),
        VolumeCommand::Header { command } => header::run(command),
        VolumeCommand::Bench(_) => lab::run(),
    }
}

/// The dashboard of the volume in an image.
fn start_dashboard(open: &OpenArgs, image: &Path) -> Result<Dashboard, Failure> {
    let name = image.file_name().unwrap_or(image.as_os_str());
    Dashboard::start(&open.dashboard, &format!("volume {}", name.display()))
}
