//! Recording with a plugin of QEMU's user mode, some two hundred times faster than lackey. The
//! plugin simulates the first cache; a C compiler makes it anew for each recording.

use super::{Output, Recording, RecordingConfig, Writer, failed, finish};
use crate::error::{Error, Result};
use crate::workload::{LINE_LEN, Op, Record};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

const PLUGIN: &str = include_str!("plugin.c");

/// The plugin's marks for the end of a recording.
const BY_ITSELF: u64 = u64::MAX;
const WITH_ENOUGH: u64 = u64::MAX - 1;

/// Runs the program to its end, or until enough is recorded.
pub fn record(config: &RecordingConfig, output: &Output<'_>, writer: Writer) -> Result<Recording> {
    let folder = Folder::beside(output)?;
    let plugin = folder.0.join("plugin.so");
    compile(&folder.0, &plugin)?;
    let passed = folder.0.join("passed");
    File::create_new(&passed).map_err(failed(&passed))?;
    let status = run(config, &plugin, &passed)?;
    convert(&passed, writer, status).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => {
            let what =
                format!("QEMU recorded nothing of the program's end; it ended with {status}");
            Error::NotRecorded(what)
        }
        _ => failed(output.path)(e),
    })
}

fn compile(folder: &Path, plugin: &Path) -> Result {
    let source = folder.join("plugin.c");
    fs::write(&source, PLUGIN).map_err(failed(&source))?;
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-o"]).arg(plugin).arg(&source);
    let status = status_of(&mut cc, "a C compiler", "gcc")?;
    if status.success() {
        return Ok(());
    }
    Err(Error::NotRecorded("QEMU's plugin does not compile".into()))
}

/// Runs the program under QEMU. Its own input and output are the ones of this process.
fn run(config: &RecordingConfig, plugin: &Path, passed: &Path) -> Result<ExitStatus> {
    let RecordingConfig { l1, skip, .. } = config;
    let sets = l1.bytes / LINE_LEN / u64::from(l1.ways);
    let mut option = doubled_commas(plugin);
    option.push(",out=");
    option.push(doubled_commas(passed));
    let misses = config.misses.unwrap_or(0);
    option.push(format!(",sets={sets},ways={},skip={skip},misses={misses}", l1.ways));
    let Some((program, arguments)) = config.program.split_first() else {
        return Err(Error::NotRecorded("there is no program to record".into()));
    };
    let mut qemu = Command::new(format!("qemu-{}", std::env::consts::ARCH));
    qemu.args(["-cpu", "max", "-plugin"]).arg(option).arg("--").arg(found(program)?);
    qemu.args(arguments);
    status_of(&mut qemu, "QEMU's user mode", "qemu-user")
}

fn status_of(command: &mut Command, what: &str, package: &str) -> Result<ExitStatus> {
    command.status().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Error::NotRecorded(format!(
            "{what} is not installed: recording with QEMU needs it (Debian: apt install {package})"
        )),
        _ => failed(what)(e),
    })
}

/// Resolves the program's path, as QEMU neither searches for programs nor runs scripts.
fn found(program: &OsString) -> Result<PathBuf> {
    let path = PathBuf::from(program);
    let search = std::env::var_os("PATH").unwrap_or_default();
    let mut places = if path.components().count() > 1 {
        vec![path.clone()]
    } else {
        std::env::split_paths(&search).map(|folder| folder.join(&path)).collect()
    };
    places.retain(|place| place.is_file());
    let missing = || Error::NotRecorded(format!("there is no program {}", path.display()));
    let place = places.into_iter().next().ok_or_else(missing)?;
    let mut start = [0; ELF_MAGIC.len()];
    let read =
        File::open(&place).and_then(|mut file| file.read(&mut start)).map_err(failed(&place))?;
    if start[..read] != ELF_MAGIC {
        let what = format!("{} is a script: name what runs it, and then it", place.display());
        return Err(Error::NotRecorded(what));
    }
    Ok(place)
}

/// The first bytes of a program.
const ELF_MAGIC: [u8; 4] = *b"\x7fELF";

/// In QEMU's options a single comma ends a word.
fn doubled_commas(path: &Path) -> OsString {
    path.to_string_lossy().replace(',', ",,").into()
}

/// Packs the plugin's output.
fn convert(passed: &Path, mut packed: Writer, status: ExitStatus) -> io::Result<Recording> {
    let mut numbers = BufReader::new(File::open(passed)?);
    let mut next = || {
        let mut bytes = [0; 8];
        numbers.read_exact(&mut bytes).map(|()| u64::from_le_bytes(bytes))
    };
    let first = next()?;
    let (mut last, mut reads, mut writes) = (first, 0, 0);
    loop {
        let now = next()?;
        if now == BY_ITSELF || now == WITH_ENOUGH {
            finish(packed)?;
            let status = (now == BY_ITSELF).then_some(status);
            return Ok(Recording { instructions: last - first, reads, writes, status });
        }
        let line = next()?;
        let op = if line & 1 == 0 { Op::Read } else { Op::Write };
        let before = (now - last).saturating_sub(1);
        packed.append(Record { before, op, addr: (line >> 1) * LINE_LEN })?;
        last = now;
        *(if op == Op::Read { &mut reads } else { &mut writes }) += 1;
    }
}

/// A folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn beside(output: &Output<'_>) -> Result<Self> {
        let mut path = output.coming.as_os_str().to_owned();
        path.push(".qemu");
        let path = std::path::absolute(&path).and_then(|path| {
            fs::create_dir(&path)?;
            Ok(path)
        });
        path.map(Self).map_err(failed(output.path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover folder does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}
