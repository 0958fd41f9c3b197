//! Does a file system on an exported volume keep its files, and does unmounting work after partial
//! unmounts, open files and a killed daemon?

mod fuse_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fuse_support::{Memory, Place, can_mount, must, noise, run};
use traceless_volume::device::Device;
use traceless_volume::fuse::export::{FILE_NAME, spawn};
use traceless_volume::fuse::mount::{
    AttachOptions, Attachment, Daemon, MountRecord, Step, attach, detach, find, prepare, record,
};
use traceless_volume::fuse::{Error, ExportOptions};

const BYTES: usize = 32 << 20;
/// Turns the test [`daemon`] into a daemon: it exports a device of this many bytes in this folder.
const DAEMON_DIR: &str = "TRACELESS_TEST_DAEMON_DIR";
const DAEMON_BYTES: &str = "TRACELESS_TEST_DAEMON_BYTES";

const FORMAT: AttachOptions = options(true, false);
const WRITABLE: AttachOptions = options(false, false);
const READ_ONLY: AttachOptions = options(false, true);

const fn options(mkfs: bool, read_only: bool) -> AttachOptions {
    AttachOptions { mkfs, read_only, further: String::new() }
}

fn attach_quietly(place: &Place, options: &AttachOptions) -> Attachment {
    attach(&place.file(), &place.dir(), options, &mut |_| ()).expect("attached")
}

/// Unmounts like `detach`, but for a daemon inside this process.
fn detach_from_us(place: &Place, attached: &Attachment) {
    must("umount", [&attached.dir]);
    must("losetup", [Path::new("--detach"), &attached.loop_device]);
    wait_until("the loop device is free", || {
        fs::File::open(place.file()).is_ok() && {
            let name = attached.loop_device.file_name().expect("a device has a name");
            !Path::new("/sys/block").join(name).join("loop/backing_file").exists()
        }
    });
}

fn wait_until(what: &str, ready: impl Fn() -> bool) {
    for _ in 0..1000 {
        if ready() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("waited in vain until {what}");
}

fn write_tree(at: &Path) {
    for folder in ["a", "a/b", "c"] {
        fs::create_dir(at.join(folder)).expect("a folder");
        for (number, count) in [0, 1, 4095, 4096, 300_000].into_iter().enumerate() {
            let path = at.join(folder).join(format!("file {number}"));
            fs::write(path, noise(count + number).split_off(number)).expect("written");
        }
    }
}

#[test]
fn a_tree_survives_unmounting() {
    if !can_mount("a file system on a volume") {
        return;
    }
    let place = Place::new();
    let tree = place.root().join("tree");
    fs::create_dir(&tree).expect("a folder");
    write_tree(&tree);
    fs::write(tree.join("file to discard"), noise(1 << 20)).expect("written");
    let device = Memory::new(noise(BYTES));
    let export = place.export(&device);
    let mut steps: Vec<String> = Vec::new();
    let attached =
        attach(&place.file(), &place.dir(), &FORMAT, &mut |step| steps.push(step.into()));
    let attached = attached.expect("attached");
    assert_eq!(steps.len(), 3, "{steps:?}");
    let name = attached.loop_device.file_name().expect("a device has a name");
    let sys = Path::new("/sys/block").join(name);
    let said = |file: &str| fs::read_to_string(sys.join(file)).expect("a file of the kernel");
    assert_eq!(said("loop/dio").trim(), "1", "direct I/O");
    assert_eq!(said("queue/logical_block_size").trim(), "4096");
    must("cp", ["-r".into(), tree.clone(), place.dir()]);
    let flushes = device.flushes();
    must("sync", ["--file-system".into(), place.dir()]);
    assert!(device.flushes() > flushes, "a sync reaches the device");
    fs::remove_file(place.dir().join("tree/file to discard")).expect("deleted");
    must("sync", ["--file-system".into(), place.dir()]);
    let before = device.contents();
    let _refused = run("fstrim", [place.dir()]);
    assert!(device.contents() == before, "a discard is never passed on");
    detach_from_us(&place, &attached);

    must("fsck.ext4", ["-fn".into(), place.file()]);
    fs::remove_file(tree.join("file to discard")).expect("deleted");
    let again = attach_quietly(&place, &WRITABLE);
    must("diff", ["-r".into(), tree.clone(), place.dir().join("tree")]);
    detach_from_us(&place, &again);
    let refused = attach(&place.file(), &place.dir(), &FORMAT, &mut |_| ());
    assert!(matches!(&refused, Err(Error::NotBlank { kind }) if kind == "ext4"), "{refused:?}");
    export.shutdown().expect("nothing is left that uses it");

    device.read_only.store(true, Ordering::SeqCst);
    let before = device.contents();
    let export = place.export(&device);
    let attached = attach_quietly(&place, &READ_ONLY);
    must("diff", ["-r".into(), tree, place.dir().join("tree")]);
    assert!(fs::write(place.dir().join("new"), "").is_err());
    detach_from_us(&place, &attached);
    export.shutdown().expect("nothing is left that uses it");
    assert!(device.contents() == before, "a read-only mount writes nothing");
}

#[test]
fn a_dirty_file_system_can_be_read() {
    if !can_mount("a file system that was not unmounted") {
        return;
    }
    let place = Place::new();
    let device = Memory::new(vec![0; BYTES]);
    let export = place.export(&device);
    let attached = attach_quietly(&place, &FORMAT);
    fs::write(place.dir().join("file"), noise(10_000)).expect("written");
    must("sync", ["--file-system".into(), place.dir()]);
    let crashed = Memory::new(device.contents());
    crashed.read_only.store(true, Ordering::SeqCst);
    detach_from_us(&place, &attached);
    export.shutdown().expect("nothing is left that uses it");

    let export = place.export(&crashed);
    let mut steps: Vec<String> = Vec::new();
    let attached =
        attach(&place.file(), &place.dir(), &READ_ONLY, &mut |step| steps.push(step.into()));
    let attached = attached.expect("attached without its journal");
    assert!(steps.iter().any(|step| step.contains("journal")), "{steps:?}");
    detach_from_us(&place, &attached);
    export.shutdown().expect("nothing is left that uses it");
}

#[test]
fn what_fails_leaves_nothing_behind() {
    if !can_mount("failing to mount") {
        return;
    }
    let place = Place::new();
    let device = Memory::new(noise(BYTES));
    let export = place.export(&device);
    let refused = attach(&place.file(), &place.dir(), &WRITABLE, &mut |_| ());
    let Err(Error::CommandFailed { line, stderr, advice, .. }) = refused else {
        panic!("noise is no file system: {refused:?}");
    };
    assert!(line.starts_with("mount -t ext4"), "{line}");
    assert!(!stderr.is_empty() && !advice.is_empty());
    let both = options(true, true);
    let refused = attach(&place.file(), &place.dir(), &both, &mut |_| ());
    assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
    let missing = place.root().join("missing");
    let refused = attach(&place.file(), &missing, &WRITABLE, &mut |_| ());
    assert!(matches!(refused, Err(Error::NotAFolder { .. })), "{refused:?}");
    let refused = attach(&place.file(), &place.fuse_dir(), &WRITABLE, &mut |_| ());
    assert!(matches!(refused, Err(Error::AlreadyMounted { .. })), "{refused:?}");
    wait_until("the loop device is free", || export.shutdown().is_ok());
}

/// Not a test by itself: the other tests start it as a process, and kill it.
#[test]
fn daemon() {
    let Some(dir) = std::env::var_os(DAEMON_DIR) else {
        return;
    };
    let bytes = std::env::var(DAEMON_BYTES).ok().and_then(|bytes| bytes.parse().ok());
    let device: Arc<dyn Device> = Memory::new(vec![0; bytes.unwrap_or(BYTES)]);
    let warnings = traceless_volume::fuse::runtime::become_io_flusher();
    for warning in &warnings {
        eprintln!("{warning}");
    }
    let export = spawn(device, Path::new(&dir), ExportOptions::default()).expect("exported");
    export.wait().expect("served to the end");
}

/// A daemon in another process, with a file system on its volume. Drop kills it.
struct Served<'a> {
    place: &'a Place,
    child: Child,
    fuse_dir: PathBuf,
    attached: Attachment,
}

impl<'a> Served<'a> {
    fn start(place: &'a Place) -> Self {
        let fuse_dir = prepare(&place.runtime(), &place.dir()).expect("prepared");
        let child = Command::new(std::env::current_exe().expect("we run"))
            .args(["--exact", "daemon"])
            .env(DAEMON_DIR, &fuse_dir)
            .stdout(Stdio::null())
            .spawn()
            .expect("started");
        let file = fuse_dir.join(FILE_NAME);
        wait_until("the daemon exports", || file.exists());
        let attached = attach(&file, &place.dir(), &FORMAT, &mut |_| ()).expect("attached");
        let image = place.root();
        let daemon = Daemon::of(child.id()).expect("it runs");
        let entry = MountRecord::new(&attached, &image, &fuse_dir, daemon).expect("all exist");
        record(&place.runtime(), &entry).expect("written");
        fs::write(place.dir().join("file"), noise(10_000)).expect("written");
        Self { place, child, fuse_dir, attached }
    }

    fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
    }

    fn assert_nothing_is_left(&self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("read");
        let root = self.place.root();
        assert!(!mounts.contains(root.to_str().expect("UTF-8")), "{mounts}");
        assert!(!self.fuse_dir.exists());
        assert_eq!(find(&self.place.runtime(), &self.place.dir()).expect("looked up"), None);
        let again = detach(&self.place.runtime(), &self.place.dir());
        assert!(matches!(again, Err(Error::NotMounted { .. })), "{again:?}");
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = detach(&self.place.runtime(), &self.place.dir());
    }
}

#[test]
fn unmounting_ends_the_daemon() {
    if !can_mount("unmounting") {
        return;
    }
    let place = Place::new();
    let mut served = Served::start(&place);
    let held = fs::File::open(place.dir().join("file")).expect("opened");
    let refused = detach(&place.runtime(), &place.dir());
    assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
    assert_eq!(fs::read(place.dir().join("file")).expect("read"), noise(10_000));
    drop(held);

    // The folder is given by another name.
    let link = place.root().join("link");
    std::os::unix::fs::symlink(place.dir(), &link).expect("a link");
    let report = detach(&place.runtime(), &link).expect("unmounted");
    assert!(report.is_clean(), "{report:?}");
    assert!(served.child.try_wait().expect("asked").is_some(), "it has exited");
    served.assert_nothing_is_left();
}

#[test]
fn a_killed_daemon_is_cleaned_up_after() {
    if !can_mount("a daemon that was killed") {
        return;
    }
    let place = Place::new();
    let mut served = Served::start(&place);
    served.kill();
    let report = detach(&place.runtime(), &place.dir()).expect("unmounted");
    assert_eq!(report.daemon, Step::AlreadyGone);
    assert_ne!(report.dir, Step::AlreadyGone);
    assert_ne!(report.loop_device, Step::AlreadyGone);
    assert_ne!(report.fuse, Step::AlreadyGone);
    served.assert_nothing_is_left();
}

#[test]
fn a_killed_daemon_is_cleaned_up_after_even_in_use() {
    if !can_mount("a daemon that was killed while files were open") {
        return;
    }
    let place = Place::new();
    let mut served = Served::start(&place);
    let held = fs::File::open(place.dir().join("file")).expect("opened");
    served.kill();
    let report = detach(&place.runtime(), &place.dir()).expect("unmounted");
    assert_eq!((report.dir, report.loop_device), (Step::Forced, Step::Forced));
    served.assert_nothing_is_left();
    drop(held);
    let name = served.attached.loop_device.file_name().expect("a device has a name");
    let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
    wait_until("the loop device is free", || {
        // Another test may have taken the loop device's number.
        fs::read_to_string(&backing).map_or(true, |file| file != "/volume\n")
    });
}

#[test]
fn what_was_undone_by_hand_is_not_undone_again() {
    if !can_mount("unmounting what is half gone") {
        return;
    }
    let place = Place::new();
    let served = Served::start(&place);
    must("umount", [place.dir()]);
    let report = detach(&place.runtime(), &place.dir()).expect("unmounted");
    assert_eq!(report.dir, Step::AlreadyGone);
    assert_eq!((report.fuse, report.daemon), (Step::Done, Step::Done));
    served.assert_nothing_is_left();
}
