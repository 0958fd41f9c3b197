//! Kernel block devices that this process serves (`ublk_drv`, Linux 6.5 or later).
//!
//! Control commands go to `/dev/ublk-control`, and requests come from `/dev/ublkcN`, both as
//! commands of `io_uring`. The kernel's `Documentation/block/ublk.rst` and
//! `include/uapi/linux/ublk_cmd.h` define them. Data are copied by reading and writing
//! `/dev/ublkcN` (`UBLK_F_USER_COPY`), so that the kernel never learns an address of a buffer.
//!
//! A device of 1 MiB is made. Each of its queues is served by a thread that calls `serve`; then
//! [`Control::start`] makes the disk. If the kernel has no driver there is an error, as without the
//! right to make a device:
//!
//! ```
//! use traceless_sys::ublk::{Control, KIND_MASK, Queue, READ, SECTOR_LEN, Shape, WRITE};
//!
//! /// Serves the bytes of `disk` until the device is stopped.
//! fn serve(queue: &mut Queue, disk: &mut [u8]) -> std::io::Result<()> {
//!     while let Some(request) = queue.next_request()? {
//!         let first = (request.start_sector * SECTOR_LEN) as usize;
//!         let len = (u64::from(request.sectors) * SECTOR_LEN) as usize;
//!         match request.op_flags & KIND_MASK {
//!             READ => queue.give_data(&request, &disk[first..][..len])?,
//!             WRITE => queue.take_data(&request, &mut disk[first..][..len])?,
//!             // A flush: memory does not become more durable.
//!             _ => {}
//!         }
//!         queue.complete(&request, len as i32)?;
//!     }
//!     Ok(())
//! }
//!
//! # fn main() -> std::io::Result<()> {
//! let (bytes, block_len, request_bytes_max) = (1 << 20, 4096, 1 << 16);
//! let (read_only, discards) = (false, false);
//! let shape =
//!     Shape { bytes, block_len, read_only, queues: 1, depth: 8, request_bytes_max, discards };
//! match Control::add(&shape) {
//!     Ok(control) => assert_eq!(control.queues(), 1),
//!     Err(error) => {
//!         use std::io::ErrorKind::{NotFound, PermissionDenied, Unsupported};
//!         assert!(matches!(error.kind(), NotFound | PermissionDenied | Unsupported), "{error}");
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// The kernel's device for control commands.
pub const CONTROL: &str = "/dev/ublk-control";
/// The unit of the kernel's offsets and lengths.
pub const SECTOR_LEN: u64 = 512;

/// Kinds of requests: the low bits of [`Request::op_flags`].
pub const KIND_MASK: u32 = 0xff;
/// A request to read bytes.
pub const READ: u32 = 0;
/// A request to write bytes.
pub const WRITE: u32 = 1;
/// A request to make earlier writes durable.
pub const FLUSH: u32 = 2;
/// A request to discard bytes, which carries no data.
pub const DISCARD: u32 = 3;
/// A request to write zeros, which carries no data.
pub const WRITE_ZEROES: u32 = 5;
/// A flag of a write: it must be durable before it is completed.
pub const FORCE: u32 = 1 << 13;

const ADD_DEVICE: u32 = control_command(0x04);
const DELETE_DEVICE: u32 = control_command(0x05);
const START_DEVICE: u32 = control_command(0x06);
const STOP_DEVICE: u32 = control_command(0x07);
const SET_PARAMETERS: u32 = control_command(0x08);
const FETCH: u32 = command(0x20, size_of::<QueueCommand>());
const COMMIT_AND_FETCH: u32 = command(0x21, size_of::<QueueCommand>());

const USER_COPY: u64 = 1 << 7;
const BASIC_PARAMETERS: u32 = 1;
const DISCARD_PARAMETERS: u32 = 1 << 1;
/// Bytes of the largest discard.
const DISCARD_BYTES_MAX: u64 = 1 << 31;
const READ_ONLY: u32 = 1;
const VOLATILE_CACHE: u32 = 1 << 2;
const FORCE_UNIT_ACCESS: u32 = 1 << 3;
/// Any device, or no queue.
const NONE: u32 = u32::MAX;
/// The kernel lays out the descriptors of each queue as if it had this depth.
const QUEUE_DEPTH_MAX: usize = 4096;
/// The offset of requests' data in `/dev/ublkcN`, and which bits hold queue and tag.
const DATA_OFFSET: u64 = 0x8000_0000;
const TAG_SHIFT: u32 = 25;
const QUEUE_SHIFT: u32 = 41;

const fn control_command(number: u32) -> u32 {
    command(number, CONTROL_COMMAND_LEN)
}

/// A command that carries a structure in both directions, numbered like an ioctl.
const fn command(number: u32, len: usize) -> u32 {
    3 << 30 | (len as u32) << 16 | (b'u' as u32) << 8 | number
}

/// `struct ublksrv_ctrl_cmd`, padded to the length of a command.
#[repr(C)]
struct ControlCommand {
    device: u32,
    queue: u16,
    argument_len: u16,
    argument: u64,
    data: u64,
    reserved: u64,
    rest: [u8; 48],
}

const CONTROL_COMMAND_LEN: usize = size_of::<ControlCommand>() - 48;

/// `struct ublksrv_io_cmd`.
#[repr(C)]
struct QueueCommand {
    queue: u16,
    tag: u16,
    result: i32,
    address: u64,
}

/// `struct ublksrv_ctrl_dev_info`.
#[repr(C)]
#[derive(Default)]
struct DeviceInfo {
    queues: u16,
    depth: u16,
    state: u16,
    pad: u16,
    request_bytes_max: u32,
    device: u32,
    process: i32,
    pad_2: u32,
    flags: u64,
    server_flags: u64,
    owner: [u32; 2],
    reserved: [u64; 2],
}

/// The beginning of `struct ublk_params`: `len` is how much of it is present.
#[repr(C)]
#[derive(Default)]
struct Parameters {
    len: u32,
    kinds: u32,
    attributes: u32,
    logical_block_shift: u8,
    physical_block_shift: u8,
    optimal_shift: u8,
    minimal_shift: u8,
    sectors_max: u32,
    chunk_sectors: u32,
    device_sectors: u64,
    boundary_mask: u64,
    discard_alignment: u32,
    discard_granularity: u32,
    discard_sectors_max: u32,
    zeroing_sectors_max: u32,
    discard_segments_max: u16,
    pad: u16,
    /// The first part of parameters that are not set.
    rest: u32,
}

/// The structures that a control command points to.
#[derive(Default)]
struct Arguments {
    info: DeviceInfo,
    parameters: Parameters,
}

/// A device to be made.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Size in bytes; a multiple of `block_len`.
    pub bytes: u64,
    /// The physical block size, a power of two from a sector on.
    pub block_len: u32,
    /// Whether the kernel refuses writes.
    pub read_only: bool,
    /// Requested number of queues. The kernel makes no more than it has processors.
    pub queues: u16,
    /// Requests in flight in each queue.
    pub depth: u16,
    /// Bytes of the largest request.
    pub request_bytes_max: u32,
    /// Whether the kernel may send [`DISCARD`] and [`WRITE_ZEROES`].
    pub discards: bool,
}

/// A device, which is removed when this is dropped. The drop waits until no program has its
/// `/dev/ublkcN` or `/dev/ublkbN` open.
pub struct Control {
    // Declared before `arguments`, which it may point to, so that it is dropped first.
    ring: IoUring<squeue::Entry128>,
    file: File,
    arguments: Box<Arguments>,
    device: u32,
    queues: u16,
}

impl Control {
    /// Makes a device. It has a `/dev/ublkcN`, and no `/dev/ublkbN` yet.
    pub fn add(shape: &Shape) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(CONTROL)?;
        let ring = IoUring::<squeue::Entry128>::builder().build(4)?;
        let mut control =
            Self { ring, file, arguments: Box::default(), device: NONE, queues: shape.queues };
        control.arguments.info = DeviceInfo {
            queues: shape.queues,
            depth: shape.depth,
            request_bytes_max: shape.request_bytes_max,
            device: NONE,
            process: process_id(),
            flags: USER_COPY,
            ..DeviceInfo::default()
        };
        let info = &raw mut control.arguments.info;
        control.control_command(ADD_DEVICE, info as u64, size_of::<DeviceInfo>(), 0)?;
        control.device = control.arguments.info.device;
        control.queues = control.arguments.info.queues;
        if control.arguments.info.flags & USER_COPY == 0 {
            return Err(Errno::OPNOTSUPP.into());
        }
        control.set_parameters(shape)?;
        Ok(control)
    }

    /// The N of `/dev/ublkbN`.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// Number of queues that must be served.
    pub fn queues(&self) -> u16 {
        self.queues
    }

    /// Opens the device that requests come from. The kernel allows only one open file.
    pub fn open_device(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(format!("/dev/ublkc{}", self.device))
    }

    /// Makes `/dev/ublkbN`. Waits until every queue fetches requests.
    pub fn start(&mut self) -> io::Result<()> {
        self.control_command(START_DEVICE, 0, 0, u64::from(process_id().cast_unsigned()))
    }

    /// Removes `/dev/ublkbN`. The kernel first writes out its page cache, so the queues must still
    /// be served.
    pub fn stop(&mut self) -> io::Result<()> {
        self.control_command(STOP_DEVICE, 0, 0, 0)
    }

    fn set_parameters(&mut self, shape: &Shape) -> io::Result<()> {
        let block_shift = shape.block_len.ilog2() as u8;
        let read_only = if shape.read_only { READ_ONLY } else { 0 };
        let len = size_of::<Parameters>();
        let kinds = if shape.discards { DISCARD_PARAMETERS } else { 0 };
        let sectors_max = if shape.discards { DISCARD_BYTES_MAX / SECTOR_LEN } else { 0 };
        self.arguments.parameters = Parameters {
            len: len as u32,
            kinds: BASIC_PARAMETERS | kinds,
            attributes: VOLATILE_CACHE | FORCE_UNIT_ACCESS | read_only,
            logical_block_shift: SECTOR_LEN.ilog2() as u8,
            physical_block_shift: block_shift,
            optimal_shift: block_shift,
            minimal_shift: block_shift,
            sectors_max: shape.request_bytes_max / SECTOR_LEN as u32,
            device_sectors: shape.bytes / SECTOR_LEN,
            discard_granularity: shape.block_len,
            discard_sectors_max: sectors_max as u32,
            zeroing_sectors_max: sectors_max as u32,
            discard_segments_max: 1,
            ..Parameters::default()
        };
        let parameters = &raw mut self.arguments.parameters;
        self.control_command(SET_PARAMETERS, parameters as u64, len, 0)
    }

    /// Sends a control command and waits for its end. `argument` is null, or points into
    /// `arguments`.
    fn control_command(
        &mut self,
        number: u32,
        argument: u64,
        len: usize,
        data: u64,
    ) -> io::Result<()> {
        let command = ControlCommand {
            device: self.device,
            queue: NONE as u16,
            argument_len: len as u16,
            argument,
            data,
            reserved: 0,
            rest: [0; 48],
        };
        // SAFETY: integers without gaps between them, 80 bytes as the compiler checks.
        let bytes = unsafe { std::mem::transmute::<ControlCommand, [u8; 80]>(command) };
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), number).cmd(bytes);
        // SAFETY: file and arguments belong to `self` and outlive the ring, as the order of the
        // fields says. The arguments are in a box, and no code changes them before the end.
        unsafe { self.ring.submission().push(&entry.build()) }.map_err(io::Error::other)?;
        loop {
            if let Some(completion) = self.ring.completion().next() {
                return result_of(completion.result());
            }
            wait_for_completion(self.ring.submit_and_wait(1))?;
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.device != NONE {
            // The device may be gone already, and a drop cannot report an error.
            let _ = self.control_command(DELETE_DEVICE, 0, 0, 0);
        }
    }
}

/// One request of the block layer.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The request's number in its [`Queue`].
    pub tag: u16,
    /// Kind and flags of the request.
    pub op_flags: u32,
    /// First sector.
    pub start_sector: u64,
    /// Length in sectors.
    pub sectors: u32,
}

/// `struct ublksrv_io_desc`.
#[repr(C)]
struct Descriptor {
    op_flags: u32,
    sectors: u32,
    start_sector: u64,
    address: u64,
}

/// One of a device's queues. It belongs to the thread that made it, as the kernel demands.
pub struct Queue {
    // Declared before the file that its entries name, so that it is dropped first.
    ring: IoUring,
    descriptors: Descriptors,
    device: Arc<File>,
    id: u16,
    /// Number of entries without a completion.
    in_flight: usize,
}

impl Queue {
    /// Begins to fetch the requests of the queue `id` of a device opened with
    /// [`Control::open_device`]. `depth` is the depth in the device's shape.
    pub fn open(device: Arc<File>, id: u16, depth: u16) -> io::Result<Self> {
        let ring = IoUring::new(u32::from(depth).next_power_of_two())?;
        let descriptors = Descriptors::map(&device, id, depth)?;
        let mut queue = Self { ring, descriptors, device, id, in_flight: 0 };
        for tag in 0..depth {
            queue.push(FETCH, tag, 0)?;
        }
        queue.ring.submit()?;
        Ok(queue)
    }

    /// Waits for a request; `None` once the device is stopped. Each request must be completed.
    pub fn next_request(&mut self) -> io::Result<Option<Request>> {
        while self.in_flight > 0 {
            let Some(completion) = self.ring.completion().next() else {
                wait_for_completion(self.ring.submit_and_wait(1))?;
                continue;
            };
            self.in_flight -= 1;
            match result_of(completion.result()) {
                Ok(()) => return Ok(Some(self.descriptors.get(completion.user_data() as u16))),
                // The device is being stopped, and all other entries end with the same error.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Copies the data of a write request to `into`.
    pub fn take_data(&self, request: &Request, into: &mut [u8]) -> io::Result<()> {
        self.device.read_exact_at(into, self.data_of(request))
    }

    /// Copies `from` to the data of a read request.
    pub fn give_data(&self, request: &Request, from: &[u8]) -> io::Result<()> {
        self.device.write_all_at(from, self.data_of(request))
    }

    /// Completes a request with a number of bytes, or a negative error number.
    pub fn complete(&mut self, request: &Request, result: i32) -> io::Result<()> {
        self.push(COMMIT_AND_FETCH, request.tag, result)
    }

    fn data_of(&self, request: &Request) -> u64 {
        let place = u64::from(self.id) << QUEUE_SHIFT | u64::from(request.tag) << TAG_SHIFT;
        DATA_OFFSET + place
    }

    fn push(&mut self, number: u32, tag: u16, result: i32) -> io::Result<()> {
        let command = QueueCommand { queue: self.id, tag, result, address: 0 };
        // SAFETY: integers without gaps between them, 16 bytes as the compiler checks.
        let bytes = unsafe { std::mem::transmute::<QueueCommand, [u8; 16]>(command) };
        let entry = opcode::UringCmd16::new(types::Fd(self.device.as_raw_fd()), number)
            .cmd(bytes)
            .build()
            .user_data(u64::from(tag));
        // SAFETY: the entry names no memory, and a file that this object holds.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        self.in_flight += 1;
        Ok(())
    }
}

/// The descriptors of a queue's requests, which the kernel writes.
struct Descriptors {
    first: NonNull<Descriptor>,
    depth: u16,
    bytes: usize,
}

impl Descriptors {
    fn map(device: &File, queue: u16, depth: u16) -> io::Result<Self> {
        let round = |count: usize| {
            (count * size_of::<Descriptor>()).next_multiple_of(rustix::param::page_size())
        };
        let bytes = round(usize::from(depth));
        let offset = u64::from(queue) * round(QUEUE_DEPTH_MAX) as u64;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let first =
            unsafe { rustix::mm::mmap(null_mut(), bytes, ProtFlags::READ, flags, device, offset)? };
        let first = NonNull::new(first.cast()).ok_or(Errno::FAULT)?;
        Ok(Self { first, depth, bytes })
    }

    fn get(&self, tag: u16) -> Request {
        assert!(tag < self.depth);
        // SAFETY: inside the mapping, which begins at a page and so is aligned. The kernel changes
        // it meanwhile, hence the volatile read; any bytes are a valid descriptor.
        let found = unsafe { self.first.add(usize::from(tag)).read_volatile() };
        Request {
            tag,
            op_flags: found.op_flags,
            start_sector: found.start_sector,
            sectors: found.sectors,
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: this is what was mapped, and no other pointer to it is left.
        let _ = unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), self.bytes) };
    }
}

fn process_id() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

fn result_of(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(result.saturating_neg())) } else { Ok(()) }
}

/// A signal ends a wait early; then the caller waits again.
fn wait_for_completion(submitted: io::Result<usize>) -> io::Result<()> {
    match submitted {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_lengths() {
        assert_eq!(CONTROL_COMMAND_LEN, 32);
        assert_eq!(size_of::<QueueCommand>(), 16);
        assert_eq!(size_of::<DeviceInfo>(), 64);
        assert_eq!(size_of::<Parameters>(), 64);
        assert_eq!(size_of::<Descriptor>(), 24);
    }

    #[test]
    fn commands_are_numbered_as_in_the_kernels_header() {
        assert_eq!(ADD_DEVICE, 0xc020_7504);
        assert_eq!(COMMIT_AND_FETCH, 0xc010_7521);
    }

    #[test]
    fn a_device_without_the_driver_is_an_error() {
        let shape = Shape {
            bytes: 1 << 20,
            block_len: 4096,
            read_only: false,
            queues: 1,
            depth: 0,
            request_bytes_max: 1 << 16,
            discards: true,
        };
        assert!(Control::add(&shape).is_err(), "no driver, no right, or no queue that is 0 deep");
    }
}
