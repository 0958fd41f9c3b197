//! Making a block device, serving it, and removing it.
//!
//! A volume as a block device, until a [`Stopper`] removes it:
//!
//! ```
//! use std::sync::Arc;
//! use traceless_volume::device::Device;
//! use traceless_volume::ublk::{Error, UblkExport};
//! # use traceless_block::detwo::{DetWoGeometry, Refresh};
//! # use traceless_core::seal::Cipher;
//! # use traceless_volume::format::{Kdf, UserKey};
//! # use traceless_volume::volume::{CreateOptions, OpenOptions, Volume, create};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("image");
//! # let key = UserKey::from_file(vec![7; 32].into())?;
//! # let scheme = Arc::new(DetWoGeometry::new(64, 4096, Refresh::ONE, 0)?);
//! # let (cipher, kdf) = (Cipher::default(), Kdf::default());
//! # let options =
//! #     CreateOptions { scheme, cipher, kdf, force: false, unfilled: true, anchor: None };
//! # create(&path, &key, &options, &mut |_, _| true)?;
//! let volume = Volume::open(&path, &key, &OpenOptions::default(), &mut |_, _| {})?;
//! volume.write(0, &[7; 4096])?;
//! let volume = Arc::new(volume);
//! let export = match UblkExport::attach(volume.clone()) {
//!     // The kernel has no driver, or this is not root.
//!     Err(Error::Missing | Error::Denied) => return Ok(()),
//!     attached => attached?,
//! };
//! let mut first = [0; 4096];
//! std::io::Read::read_exact(&mut std::fs::File::open(export.device())?, &mut first)?;
//! assert_eq!(first, [7; 4096]);
//! export.stopper().stop();
//! export.wait(|busy| eprintln!("{busy}"))?;
//! volume.close()?;
//! # Ok(())
//! # }
//! ```

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle, available_parallelism};

use rustix::fs::OFlags;
use rustix::io::Errno;
use traceless_sys::ublk::{Control, Queue, Request, Shape};

use super::error::{Error, Result};
use super::requests::{Work, parse};
use crate::device::Device;
use crate::guarded::GuardedDevice;

/// Most queues of a device. A thread answers a queue's requests one by one, and with more queues
/// than this the threads only wait for each other in the device.
const QUEUES_MAX: usize = 4;
/// Most requests in flight in each queue.
const DEPTH: u16 = 64;
/// Bytes of the largest request. Each queue has one buffer of this length.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// A block device of the kernel that this process serves. Dropping it removes the device, even if
/// it is in use, and waits until it is no longer open.
pub struct UblkExport {
    device: PathBuf,
    queues: Vec<JoinHandle<()>>,
    events: Receiver<Event>,
    stopper: Stopper,
    control: Control,
}

/// Ends a [`UblkExport`] from any thread.
#[derive(Clone, Debug)]
pub struct Stopper(Sender<Event>);

#[derive(Debug)]
enum Event {
    /// A [`Stopper`] wants the device removed.
    Stop,
    /// A queue is ready for requests.
    Ready,
    /// A queue has ended: with `None` if the kernel stopped the device, else with the error.
    Ended(Option<io::Error>),
}

impl Stopper {
    /// Removes the device if it is not in use. Has no effect on a device that is gone.
    pub fn stop(&self) {
        let _ = self.0.send(Event::Stop);
    }
}

impl UblkExport {
    /// Checks whether this user may make block devices in the kernel.
    pub fn check() -> Result<()> {
        let opened = OpenOptions::new().read(true).write(true).open(traceless_sys::ublk::CONTROL);
        opened.map(|_| ()).map_err(Error::of_making)
    }

    /// Makes a block device with the bytes of `device`, and serves it.
    ///
    /// The block device offers discards if `device` keeps them. A write is answered after it
    /// reached `device`, and a flush after `device` was flushed.
    pub fn attach(device: Arc<dyn Device>) -> Result<Self> {
        let shape = Shape {
            bytes: device.len(),
            block_len: device.block_len(),
            read_only: device.read_only(),
            queues: available_parallelism().map_or(1, usize::from).min(QUEUES_MAX) as u16,
            depth: DEPTH,
            request_bytes_max: REQUEST_BYTES_MAX,
            discards: device.keeps_discards(),
        };
        let control = Control::add(&shape).map_err(Error::of_making)?;
        let (sender, events) = channel();
        let mut export = Self {
            device: format!("/dev/ublkb{}", control.device()).into(),
            queues: Vec::new(),
            events,
            stopper: Stopper(sender),
            control,
        };
        export.start(&Arc::new(GuardedDevice::new(device)))?;
        Ok(export)
    }

    /// The path of the block device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// A handle that ends this device.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits until the device ends, by a [`Stopper`] or otherwise. While the device is in use a
    /// stop is refused: `busy` is called, and serving goes on.
    pub fn wait(mut self, mut busy: impl FnMut(&Error)) -> Result<()> {
        loop {
            match self.events.recv() {
                Ok(Event::Stop) if self.in_use() => busy(&Error::Busy(self.device.clone())),
                Ok(Event::Ready) => {}
                // The channel itself never closes, as this object has a sender.
                Ok(Event::Stop | Event::Ended(None)) | Err(_) => break,
                Ok(Event::Ended(Some(source))) => {
                    return Err(Error::Server { device: self.device.clone(), source });
                }
            }
        }
        self.end()
    }

    fn start(&mut self, device: &Arc<GuardedDevice>) -> Result<()> {
        let opened = self.control.open_device().map_err(Error::refused("opening the device"))?;
        let opened = Arc::new(opened);
        for id in 0..self.control.queues() {
            let (opened, device) = (opened.clone(), device.clone());
            let events = self.stopper.0.clone();
            let thread = Builder::new()
                .name(format!("traceless-ublk-{id}"))
                .spawn(move || {
                    let serve = || serve_queue(id, opened, &device, &events);
                    // Also after a panic the end must be reported, as `start` and `wait` wait for
                    // it.
                    let ended = catch_unwind(AssertUnwindSafe(serve))
                        .unwrap_or_else(|_| Err(io::Error::other("it panicked")));
                    let _ = events.send(Event::Ended(ended.err()));
                })
                .map_err(Error::refused("starting a thread"))?;
            self.queues.push(thread);
        }
        // The kernel starts a device only once all its queues are served, and waits until then.
        for _ in 0..self.control.queues() {
            if let Ok(Event::Ended(how)) = self.events.recv() {
                let source = how.unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into());
                return Err(Error::Refused { what: "serving a queue", source });
            }
        }
        self.control.start().map_err(Error::refused("starting the device"))
    }

    /// Whether the device is in use: mounted, or part of another device.
    fn in_use(&self) -> bool {
        let exclusive = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::EXCL.bits().cast_signed())
            .open(&self.device);
        exclusive.is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
    }

    fn end(&mut self) -> Result<()> {
        let stopped = self.control.stop();
        for queue in self.queues.drain(..) {
            let _ = queue.join();
        }
        stopped.map_err(Error::refused("stopping the device"))
    }
}

impl Drop for UblkExport {
    fn drop(&mut self) {
        if !self.queues.is_empty() {
            let _ = self.end();
        }
    }
}

/// Answers the requests of one queue until the kernel removes the device.
fn serve_queue(
    id: u16,
    opened: Arc<File>,
    device: &GuardedDevice,
    events: &Sender<Event>,
) -> io::Result<()> {
    let mut buffer = vec![0; REQUEST_BYTES_MAX as usize];
    let mut queue = Queue::open(opened, id, DEPTH)?;
    let _ = events.send(Event::Ready);
    while let Some(request) = queue.next_request()? {
        let result = match parse(&request, device, buffer.len()) {
            Ok(work) => carry_out(&queue, &request, work, device, &mut buffer),
            Err(errno) => Err(errno),
        };
        // The length fits, as a buffer is far shorter than `i32::MAX`.
        let answer = result.map_or_else(|errno| -errno, |len| (len as u32).cast_signed());
        queue.complete(&request, answer)?;
    }
    Ok(())
}

/// Carries out a request. Returns the number of bytes, or the error number.
fn carry_out(
    queue: &Queue,
    request: &Request,
    work: Work,
    device: &GuardedDevice,
    buffer: &mut [u8],
) -> std::result::Result<usize, i32> {
    let copied = |outcome: io::Result<()>| {
        outcome.map_err(|error| error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()))
    };
    match work {
        Work::Discard { .. } | Work::Flush => work.execute(device, &mut []).map(|()| 0),
        Work::Read { len, .. } => {
            work.execute(device, &mut buffer[..len])?;
            copied(queue.give_data(request, &buffer[..len]))?;
            Ok(len)
        }
        Work::Write { len, .. } => {
            copied(queue.take_data(request, &mut buffer[..len]))?;
            work.execute(device, &mut buffer[..len])?;
            Ok(len)
        }
    }
}
