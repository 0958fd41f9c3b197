//! The class `Volume`.

use crate::buffer::{InputBuffer, OutputBuffer};
use crate::failure::{Failure, FailureKind, Result};
use crate::handle::drop_detached;
use crate::interrupt::interruptible;
use crate::json::to_python;
use crate::storage::Recording;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use traceless_block::detwo::Refresh;
use traceless_block::registry;
use traceless_core::clock::Monotonic;
use traceless_core::scheme::contract::{BlockScheme, MapPlace, SchemeOptions};
use traceless_core::seal::Cipher;
use traceless_core::trace::Witness;
use traceless_volume::device::Device;
use traceless_volume::format::{KEY_FILE_LEN_MAX, Kdf, UserKey};
use traceless_volume::volume::{CreateOptions, OpenOptions, create, status, uuid_text};
use zeroize::Zeroizing;

/// Bytes of a block.
const BLOCK_LEN: usize = 4096;

/// Opens an encrypted block device in a file, which hides which blocks are written. It is a raw,
/// seekable binary file of fixed size; `buffered` makes a buffered one of it.
///
/// path: the image.
/// key, key_file, passphrase: one of them. The bytes of a key, 32 or more, or a file with them, or
///     a passphrase as `str` or bytes.
/// read_only: whether writes are refused, and nothing at all is written.
/// anchor: a file, kept away from the image, that records how far the volume had come, or a URL.
/// trace: a file to make with what an observer of the image sees; see `read_trace`.
///
/// `Volume.create` makes a new one, and `traceless volume` on the command line opens the same
/// images. Without `close`, the writes since the last `flush` may be lost.
///
/// >>> with traceless.Volume.create("photos.img", 1 << 24, key=os.urandom(32)) as volume:
/// ...     volume.write(b"hello")
/// 5
#[pyclass(frozen, module = "traceless")]
pub struct Volume {
    image: RwLock<Option<OpenVolume>>,
    position: Mutex<u64>,
    path: PathBuf,
    key: UserKey,
    size: u64,
    block_len: u32,
    read_only: bool,
    scheme: &'static str,
    cipher: &'static str,
    uuid: String,
}

struct OpenVolume {
    volume: traceless_volume::volume::Volume,
    recording: Option<Recording>,
}

#[pymethods]
impl Volume {
    #[new]
    #[pyo3(signature = (
        path, *, key = None, key_file = None, passphrase = None, read_only = false, anchor = None,
        trace = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python gives them by name")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        key: Option<&Bound<'_, PyAny>>,
        key_file: Option<PathBuf>,
        passphrase: Option<&Bound<'_, PyAny>>,
        read_only: bool,
        anchor: Option<PathBuf>,
        trace: Option<PathBuf>,
    ) -> Result<Self> {
        let key = user_key(key, key_file, passphrase)?;
        let options = OpenOptions { read_only, anchor, ..OpenOptions::default() };
        py.detach(|| Self::open(path, key, options, trace))
    }

    /// Makes a new volume in a file or on a device, and opens it.
    ///
    /// path: the image.
    /// size: bytes that it can hold, rounded up to whole blocks of 4096 bytes.
    /// key, key_file, passphrase: one of them, as for opening.
    /// scheme: "detwo", "sq", "hive" or "datalair", which hide writes; "ring" hides reads, too;
    /// "plain" hides contents only.
    /// refresh: blocks refreshed per write, as "3", "1/3" or 2.5 ("detwo" and "sq").
    /// fanout, bucket, amortized: how "sq" merges.
    /// map: where the map lies: "auto", "memory" or "disk"; map_memory: bytes that it may take.
    /// cipher: "auto" measures which is fastest here.
    /// force: overwrite an existing file or device.
    /// unfilled: leave holes instead of ciphertext, which reveal what was never written; for tests.
    /// kdf_memory, kdf_time: bytes and passes that a passphrase takes to open.
    /// anchor, trace: as for opening.
    #[classmethod]
    #[pyo3(signature = (
        path, size, *, key = None, key_file = None, passphrase = None, scheme = "detwo",
        refresh = None, fanout = None, bucket = None, amortized = None, map = "auto",
        map_memory = 1 << 30, cipher = "auto", force = false, unfilled = false, kdf_memory = None,
        kdf_time = None, anchor = None, trace = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python gives them by name")]
    fn create(
        class: &Bound<'_, PyType>,
        path: PathBuf,
        size: u64,
        key: Option<&Bound<'_, PyAny>>,
        key_file: Option<PathBuf>,
        passphrase: Option<&Bound<'_, PyAny>>,
        scheme: &str,
        refresh: Option<&Bound<'_, PyAny>>,
        fanout: Option<u32>,
        bucket: Option<u32>,
        amortized: Option<bool>,
        map: &str,
        map_memory: u64,
        cipher: &str,
        force: bool,
        unfilled: bool,
        kdf_memory: Option<u64>,
        kdf_time: Option<u32>,
        anchor: Option<PathBuf>,
        trace: Option<PathBuf>,
    ) -> Result<Self> {
        let refresh = refresh.map(|refresh| refresh.str()?.extract::<String>()).transpose()?;
        let wanted = SchemeOptions {
            map: map_named(map)?,
            map_memory,
            refresh: refresh.as_deref().map(Refresh::parse).transpose()?.map(|k| (k.p(), k.q())),
            fanout,
            bucket,
            amortized,
            ..SchemeOptions::default()
        };
        let key = user_key(key, key_file, passphrase)?;
        let (scheme, kdf) = (scheme_named(scheme, size, &wanted)?, kdf(kdf_memory, kdf_time)?);
        let (cipher, kept) = (cipher.to_owned(), anchor.clone());
        interruptible(class.py(), move |interrupted| {
            let cipher = cipher_named(&cipher)?;
            let options = CreateOptions { scheme, cipher, kdf, force, unfilled, anchor };
            create(&path, &key, &options, &mut |_, _| !interrupted.load(Ordering::Relaxed))?;
            let options = OpenOptions { anchor: kept, ..OpenOptions::default() };
            Self::open(path, key, options, trace)
        })
    }

    /// Bytes that the volume holds.
    #[getter]
    fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of a block, the unit of writing: a write of whole blocks reads nothing first.
    #[getter]
    fn block_len(&self) -> u32 {
        self.block_len
    }

    /// Whether writes are refused.
    #[getter]
    fn read_only(&self) -> bool {
        self.read_only
    }

    /// The name of the scheme.
    #[getter]
    fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// The name of the cipher.
    #[getter]
    fn cipher(&self) -> &'static str {
        self.cipher
    }

    /// The identity of the volume.
    #[getter]
    fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The path of the image.
    #[getter]
    fn name(&self) -> &OsStr {
        self.path.as_os_str()
    }

    /// "rb" or "rb+", as of a file.
    #[getter]
    fn mode(&self) -> &'static str {
        if self.read_only { "rb" } else { "rb+" }
    }

    /// Number of blocks written since creation.
    #[getter]
    fn writes(&self, py: Python<'_>) -> Result<u64> {
        self.with(py, |volume| Ok(volume.writes()))
    }

    /// Whether the volume was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        py.detach(|| self.image.read().unwrap_or_else(PoisonError::into_inner).is_none())
    }

    /// What `traceless volume status --json` prints, as a dictionary. A volume with a passphrase
    /// stretches it anew, which takes about as long as an opening.
    fn status<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        self.with(py, |_| Ok(()))?;
        let report = py.detach(|| status(&self.path, &self.key))?;
        to_python(py, &report)
    }

    /// Verifies everything that is live. Returns the damaged places as dictionaries; an empty list
    /// means that there is no damage.
    fn verify<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let damaged = self.with(py, |volume| {
            let mut damaged = vec![];
            volume.verify(&mut |_, _| {}, &mut |place| damaged.push(place))?;
            Ok(damaged)
        })?;
        let places = damaged.iter().map(|place| {
            serde_json::json!({ "area": place.area, "slot": place.slot, "block": place.block })
        });
        to_python(py, &places.collect::<Vec<_>>())
    }

    /// Reads at most `size` bytes from the position on, or with -1 all up to the end.
    #[pyo3(signature = (size = -1, /), text_signature = "($self, size=-1, /)")]
    fn read<'py>(&self, py: Python<'py>, size: Option<i64>) -> Result<Bound<'py, PyBytes>> {
        let most = size.and_then(|size| u64::try_from(size).ok());
        let (at, len) = self.with(py, |_| {
            let mut position = self.position();
            let (at, left) = (*position, self.size.saturating_sub(*position));
            let len = most.unwrap_or(left).min(left);
            *position += len;
            Ok((at, len))
        })?;
        self.read_at(py, at, len as usize)
    }

    /// Reads from the position on up to the end.
    fn readall<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        self.read(py, None)
    }

    /// Reads from the position on into `buffer`. Returns how many bytes, which are fewer than it
    /// takes only at the end.
    #[pyo3(signature = (buffer, /))]
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> Result<usize> {
        let mut buffer = OutputBuffer::of(buffer)?;
        let into = buffer.as_slice()?;
        self.with(py, |volume| {
            let mut position = self.position();
            let len = self.size.saturating_sub(*position).min(into.len() as u64);
            volume.read_at(*position, &mut into[..len as usize])?;
            *position += len;
            Ok(len as usize)
        })
    }

    /// Writes `data` from the position on. Returns how many bytes, which are fewer only at the end.
    #[pyo3(signature = (data, /))]
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> Result<usize> {
        let data = InputBuffer::of(data)?;
        let from = data.as_slice()?;
        self.with(py, |volume| {
            let mut position = self.position();
            let room = self.size.saturating_sub(*position);
            if room == 0 && !from.is_empty() {
                let message = format!("the volume ends after {} bytes", self.size);
                return Err(Failure::Kind(FailureKind::File, message));
            }
            let len = room.min(from.len() as u64);
            volume.write_at(*position, &from[..len as usize])?;
            *position += len;
            Ok(len as usize)
        })
    }

    /// Reads `size` bytes at `offset`; the position stays. Threads may read at a time.
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        size: usize,
    ) -> Result<Bound<'py, PyBytes>> {
        self.check_extent(offset, size)?;
        Ok(PyBytes::new_with(py, size, |into| {
            self.with(py, |volume| Ok(volume.read_at(offset, into)?))?;
            Ok(())
        })?)
    }

    /// Reads at `offset` into `buffer`, all of it; the position stays.
    fn read_into(&self, py: Python<'_>, offset: u64, buffer: &Bound<'_, PyAny>) -> Result {
        let mut buffer = OutputBuffer::of(buffer)?;
        let into = buffer.as_slice()?;
        self.with(py, |volume| Ok(volume.read_at(offset, into)?))
    }

    /// Writes all of `data` at `offset`; the position stays.
    fn write_at(&self, py: Python<'_>, offset: u64, data: &Bound<'_, PyAny>) -> Result {
        let data = InputBuffer::of(data)?;
        let from = data.as_slice()?;
        self.with(py, |volume| Ok(volume.write_at(offset, from)?))
    }

    /// Moves the position, from the beginning (0), from where it is (1) or from the end (2).
    /// Returns the new one.
    #[pyo3(signature = (offset, whence = 0, /))]
    fn seek(&self, py: Python<'_>, offset: i64, whence: u8) -> Result<u64> {
        self.with(py, |_| {
            let mut position = self.position();
            let from = match whence {
                0 => 0,
                1 => *position,
                2 => self.size,
                _ => return Err(Failure::usage("whence is 0, 1 or 2")),
            };
            let moved = from.checked_add_signed(offset);
            *position = moved.ok_or_else(|| Failure::usage("a position is not negative"))?;
            Ok(*position)
        })
    }

    /// The position.
    #[pyo3(name = "tell")]
    fn current_position(&self, py: Python<'_>) -> Result<u64> {
        self.with(py, |_| Ok(*self.position()))
    }

    /// Makes all earlier writes durable.
    fn flush(&self, py: Python<'_>) -> Result {
        self.with(py, |volume| Ok(volume.flush_all()?))
    }

    /// Flushes, and ends the volume. A second call does nothing.
    fn close(&self, py: Python<'_>) -> Result {
        py.detach(|| {
            let open = self.image.write().unwrap_or_else(PoisonError::into_inner).take();
            open.map_or(Ok(()), |mut open| open.end())
        })
    }

    /// Whether it can be read: always.
    fn readable(&self, py: Python<'_>) -> Result<bool> {
        self.with(py, |_| Ok(true))
    }

    /// Whether it can be written.
    fn writable(&self, py: Python<'_>) -> Result<bool> {
        self.with(py, |_| Ok(!self.read_only))
    }

    /// Whether it has a position: always.
    fn seekable(&self, py: Python<'_>) -> Result<bool> {
        self.with(py, |_| Ok(true))
    }

    /// Whether it is a terminal: never.
    fn isatty(&self) -> bool {
        false
    }

    /// A volume has no file descriptor.
    fn fileno(&self, py: Python<'_>) -> Result<i32> {
        Err(unsupported(py, "a volume has no file descriptor")?)
    }

    /// A volume has a fixed size.
    #[pyo3(signature = (size = None, /))]
    fn truncate(&self, py: Python<'_>, size: Option<u64>) -> Result<u64> {
        let _ = size;
        Err(unsupported(py, "a volume has a fixed size: `traceless volume grow`")?)
    }

    /// The volume as a buffered file: an `io.BufferedRandom`, or a reader where it is read-only.
    fn buffered<'py>(this: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        let class = if this.get().read_only { "BufferedReader" } else { "BufferedRandom" };
        Ok(this.py().import("io")?.call_method1(class, (this,))?)
    }

    fn __len__(&self) -> usize {
        self.size as usize
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> Result {
        self.close(py)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let closed = if self.closed(py) { ", closed" } else { "" };
        format!("<traceless.Volume {} of {} bytes{closed}>", self.path.display(), self.size)
    }
}

impl Volume {
    fn open(
        path: PathBuf,
        key: UserKey,
        options: OpenOptions,
        trace: Option<PathBuf>,
    ) -> Result<Self> {
        let recording = trace.as_deref().map(Recording::create).transpose()?;
        let witness = recording.as_ref().map(|r| r.witness.clone() as Arc<dyn Witness>);
        let options = OpenOptions { witness, ..options };
        let volume = traceless_volume::volume::Volume::open(&path, &key, &options, &mut |_, _| {})?;
        let header = volume.header();
        Ok(Self {
            size: volume.len(),
            block_len: volume.block_len(),
            read_only: options.read_only,
            scheme: header.scheme.name(),
            cipher: header.cipher.name(),
            uuid: uuid_text(&header.uuid),
            position: Mutex::new(0),
            image: RwLock::new(Some(OpenVolume { volume, recording })),
            path,
            key,
        })
    }

    /// Works with the volume, without the lock of the interpreter. Several threads may at a time.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&traceless_volume::volume::Volume) -> Result<R> + Send,
    ) -> Result<R> {
        py.detach(|| {
            let open = self.image.read().unwrap_or_else(PoisonError::into_inner);
            let open = open.as_ref().ok_or_else(|| Failure::usage("the volume is closed"))?;
            work(&open.volume)
        })
    }

    /// The position, for one request at a time.
    fn position(&self) -> MutexGuard<'_, u64> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses bytes that are not there before there is memory for them.
    fn check_extent(&self, offset: u64, size: usize) -> Result {
        match offset.checked_add(size as u64) {
            Some(end) if end <= self.size => Ok(()),
            _ => {
                let message = format!("bytes are out of range: there are {}", self.size);
                Err(Failure::Kind(FailureKind::Range, message))
            }
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        drop_detached(self.image.write().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl OpenVolume {
    fn end(&mut self) -> Result {
        let closed = self.volume.close();
        let finished = self.recording.take().map_or(Ok(()), |recording| recording.finish());
        closed?;
        finished
    }
}

impl Drop for OpenVolume {
    fn drop(&mut self) {
        // A drop cannot report an error. After a failure the volume is in the state that a crash
        // would leave; after `end` there is nothing left to do.
        let _ = self.end();
    }
}

fn user_key(
    key: Option<&Bound<'_, PyAny>>,
    key_file: Option<PathBuf>,
    passphrase: Option<&Bound<'_, PyAny>>,
) -> Result<UserKey> {
    match (key, key_file, passphrase) {
        (Some(key), None, None) => {
            let bytes = Zeroizing::new(InputBuffer::of(key)?.as_slice()?.to_vec());
            Ok(UserKey::from_file(bytes)?)
        }
        (None, Some(path), None) => key_in(&path),
        (None, None, Some(passphrase)) => {
            let bytes = match passphrase.extract::<String>() {
                Ok(text) => Zeroizing::new(text.into_bytes()),
                Err(_) => Zeroizing::new(InputBuffer::of(passphrase)?.as_slice()?.to_vec()),
            };
            if bytes.is_empty() {
                let message = "the passphrase is empty".to_owned();
                return Err(Failure::Kind(FailureKind::Key, message));
            }
            Ok(UserKey::Passphrase(bytes))
        }
        _ => Err(Failure::usage("give one of `key`, `key_file` and `passphrase`")),
    }
}

fn key_in(path: &Path) -> Result<UserKey> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(4096));
    // Reads one byte more than the limit, so that a key that is too long is noticed.
    let limit = KEY_FILE_LEN_MAX as u64 + 1;
    File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)).map_err(|e| {
        let message = format!("{}: cannot read the key: {e}", path.display());
        Failure::Kind(FailureKind::Key, message)
    })?;
    Ok(UserKey::from_file(bytes)?)
}

fn kdf(memory: Option<u64>, time: Option<u32>) -> Result<Kdf> {
    let usual = Kdf::default();
    let memory_kib = memory.map_or(Ok(usual.memory_kib), |bytes| u32::try_from(bytes >> 10));
    let memory_kib = memory_kib.map_err(|_| Failure::usage("`kdf_memory` is more than 4 TiB"))?;
    Ok(Kdf { memory_kib, time: time.unwrap_or(usual.time), ..usual })
}

/// The place of the map of this name; `auto` leaves it to the scheme.
fn map_named(name: &str) -> Result<Option<MapPlace>> {
    match name {
        "auto" => Ok(None),
        "memory" => Ok(Some(MapPlace::Memory)),
        "disk" => Ok(Some(MapPlace::Disk)),
        _ => Err(Failure::usage(format!("there is no map `{name}`; there are auto, memory, disk"))),
    }
}

/// The cipher of this name; for `auto`, the one that seals a block fastest on this machine.
fn cipher_named(name: &str) -> Result<Cipher> {
    if name == "auto" {
        return Ok(Cipher::fastest(BLOCK_LEN, &Monotonic::start()));
    }
    Cipher::named(name).ok_or_else(|| Failure::usage(format!("there is no cipher `{name}`")))
}

fn scheme_named(name: &str, size: u64, wanted: &SchemeOptions) -> Result<Arc<dyn BlockScheme>> {
    let names = |fits: &dyn Fn(&[&str]) -> bool| {
        let kinds = registry::KINDS.iter().filter(|kind| fits(kind.options));
        kinds.map(|kind| kind.name).collect::<Vec<_>>().join(", ")
    };
    let kind = registry::named(name).ok_or_else(|| {
        Failure::usage(format!("there is no scheme `{name}`; there are {}", names(&|_| true)))
    })?;
    if size == 0 {
        return Err(Failure::usage("a volume must hold something: `size` is 0"));
    }
    let given = [
        ("refresh", wanted.refresh.is_some()),
        ("fanout", wanted.fanout.is_some()),
        ("bucket", wanted.bucket.is_some()),
        ("amortized", wanted.amortized.is_some()),
    ];
    for (option, is_given) in given {
        if is_given && !kind.options.contains(&option) {
            let fitting = names(&|options| options.contains(&option));
            return Err(Failure::usage(format!("`{option}` goes with a scheme of {fitting}")));
        }
    }
    Ok((kind.choose)(size.div_ceil(BLOCK_LEN as u64), BLOCK_LEN, wanted)?)
}

/// The exception of a file that cannot do what is requested.
fn unsupported(py: Python<'_>, message: &str) -> PyResult<Failure> {
    let class = py.import("io")?.getattr("UnsupportedOperation")?;
    Ok(PyErr::from_value(class.call1((message,))?).into())
}
