//! Does the exported file behave like the device's bytes?

mod fuse_support;

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fuse_support::{Memory, Place, can_export, must, noise, run};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;
use traceless_volume::fuse::export::spawn;
use traceless_volume::fuse::{Error, ExportOptions};

const BYTES: usize = 4 << 20;

fn writable(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("opened")
}

#[test]
fn it_is_the_only_file_and_private() {
    if !can_export("the folder that is exported") {
        return;
    }
    let place = Place::new();
    let export = place.export(&Memory::new(noise(BYTES)));
    let names: Vec<_> = std::fs::read_dir(place.fuse_dir())
        .expect("listed")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names, ["volume"]);
    let folder = std::fs::metadata(place.fuse_dir()).expect("a folder");
    let file = std::fs::metadata(place.file()).expect("a file");
    assert_eq!(folder.permissions().mode() & 0o7777, 0o700);
    assert_eq!(file.permissions().mode() & 0o7777, 0o600);
    assert_eq!((file.len(), file.blocks()), (BYTES as u64, BYTES as u64 / 512));
    assert_eq!(file.uid(), rustix::process::getuid().as_raw());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("read");
    let dir = format!(" {} ", place.fuse_dir().display());
    let line = mounts.lines().find(|line| line.contains(&dir)).expect("it is mounted");
    assert!(line.contains(" rw,nosuid,nodev,noatime "), "{line}");
    assert!(line.contains(" - fuse.traceless traceless "), "{line}");
    for refused in [
        File::create(place.fuse_dir().join("other")).map(|_| ()),
        std::fs::create_dir(place.fuse_dir().join("other")),
        std::fs::remove_file(place.file()),
        std::fs::rename(place.file(), place.fuse_dir().join("other")),
        std::fs::set_permissions(place.file(), PermissionsExt::from_mode(0o644)),
    ] {
        assert_eq!(refused.expect_err("refused").kind(), ErrorKind::PermissionDenied);
    }
    export.shutdown().expect("unmounted");
    assert!(export.has_ended());
}

#[test]
fn bytes_are_the_devices() {
    if !can_export("reading and writing at odd places") {
        return;
    }
    let place = Place::new();
    let mut model = noise(BYTES);
    let device = Memory::new(model.clone());
    let export = place.export(&device);
    let file = writable(&place.file());
    let spans = [(0, 1), (1, 4095), (4095, 2), (8191, 70_001), (1 << 20, (1 << 20) + 13)];
    for (round, (at, count)) in spans.into_iter().enumerate() {
        let mut seen = vec![0; count];
        file.read_exact_at(&mut seen, at as u64).expect("read");
        assert!(seen == model[at..at + count], "bytes at {at}");
        let new = noise(count + round + 1).split_off(round + 1);
        file.write_all_at(&new, at as u64).expect("written");
        model[at..at + count].copy_from_slice(&new);
    }
    assert!(device.contents() == model);
    drop(file);
    // The same with common tools.
    let copy = place.root().join("copy");
    std::fs::write(&copy, &model).expect("written");
    must("cmp", [&place.file(), &copy]);
    let new = noise(BYTES + 7).split_off(7);
    std::fs::write(&copy, &new).expect("written");
    let (from, to) = (format!("if={}", copy.display()), format!("of={}", place.file().display()));
    must("dd", [from.as_str(), to.as_str(), "bs=1M", "oflag=direct", "status=none"]);
    assert!(device.contents() == new);
    must("cp", [&copy, &place.file()]);
    assert!(device.contents() == new);
    assert_eq!(std::fs::metadata(place.file()).expect("there").len(), BYTES as u64);
    drop(export);
    assert_eq!(Arc::strong_count(&device), 1, "the device is no longer held");
}

#[test]
fn the_end_is_the_end() {
    if !can_export("the end of the file") {
        return;
    }
    let place = Place::new();
    let device = Memory::new(noise(BYTES));
    let _export = place.export(&device);
    let mut file = writable(&place.file());
    let end = BYTES as u64;
    let mut seen = [0; 10];
    assert_eq!(file.read_at(&mut seen, end - 3).expect("read"), 3);
    assert_eq!(file.read_at(&mut seen, end).expect("read"), 0);
    assert_eq!(file.read_at(&mut seen, end + 4096).expect("read"), 0);
    assert_eq!(file.write_at(&[7; 10], end - 3).expect("written"), 3);
    for at in [end, end + 1, end + (1 << 40)] {
        let refused = file.write_at(&[7; 10], at).expect_err("no room");
        assert_eq!(refused.kind(), ErrorKind::StorageFull);
    }
    assert_eq!(file.seek(SeekFrom::End(0)).expect("sought"), end);
    assert_eq!(file.read(&mut seen).expect("read"), 0);
    assert_eq!(device.contents()[BYTES - 3..], [7; 3]);
}

#[test]
fn only_syncing_flushes_and_it_does() {
    if !can_export("flushes") {
        return;
    }
    let place = Place::new();
    let device = Memory::new(noise(BYTES));
    let _export = place.export(&device);
    let mut file = writable(&place.file());
    file.write_all(&[1; 5000]).expect("written");
    assert_eq!(device.flushes(), 0);
    file.sync_all().expect("synced");
    assert_eq!(device.flushes(), 1);
    file.sync_data().expect("synced");
    assert_eq!(device.flushes(), 2);
    drop(file);
    assert_eq!(device.flushes(), 3, "closing what could be written flushes");
    File::open(place.fuse_dir()).expect("opened").sync_all().expect("synced");
    assert_eq!(device.flushes(), 4);
    drop(File::open(place.file()).expect("opened"));
    assert_eq!(device.flushes(), 4, "closing what was only read does not");

    let flags = OFlags::DSYNC.bits().cast_signed();
    let file = OpenOptions::new().write(true).custom_flags(flags).open(place.file());
    file.expect("opened").write_all(&[2; 100]).expect("written");
    assert!(device.flushes() >= 6, "a synchronous write flushes, and so does its close");
}

#[test]
fn the_size_and_the_space_are_fixed() {
    if !can_export("truncation and holes") {
        return;
    }
    let place = Place::new();
    let before = noise(BYTES);
    let device = Memory::new(before.clone());
    let _export = place.export(&device);
    let file = writable(&place.file());
    for size in [0, 4096, BYTES as u64 - 1, BYTES as u64 + 1] {
        let refused = file.set_len(size).expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{size}");
    }
    file.set_len(BYTES as u64).expect("nothing changes");
    drop(File::create(place.file()).expect("an open that truncates is let through"));
    assert_eq!(file.metadata().expect("there").len(), BYTES as u64);

    let zero = FallocateFlags::ZERO_RANGE;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for mode in [punch, zero, zero | FallocateFlags::KEEP_SIZE] {
        assert_eq!(fallocate(&file, mode, 0, 8192), Err(Errno::OPNOTSUPP), "{mode:?}");
    }
    let output = run(
        "fallocate",
        [
            "--punch-hole",
            "--length=8192",
            place.file().to_str().expect("a temporary folder is UTF-8"),
        ],
    );
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("unsupported") || said.contains("not supported"), "{said}");
    fallocate(&file, FallocateFlags::empty(), 0, BYTES as u64).expect("the space is there");
    let more = fallocate(&file, FallocateFlags::empty(), 0, BYTES as u64 + 1);
    assert_eq!(more, Err(Errno::NOSPC));
    assert!(device.contents() == before, "none of this changed a byte");
}

#[test]
fn holes_and_ranges_of_zeros_are_discards_where_the_device_keeps_them() {
    if !can_export("holes as discards") {
        return;
    }
    let place = Place::new();
    let mut want = noise(BYTES);
    let device = Memory::new(want.clone());
    device.keeps_discards.store(true, Ordering::SeqCst);
    let _export = place.export(&device);
    let file = writable(&place.file());
    let zero = FallocateFlags::ZERO_RANGE;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for (mode, at) in [(punch, 4096), (zero, 20_000), (zero | FallocateFlags::KEEP_SIZE, 40_000)] {
        fallocate(&file, mode, at, 5000).expect("it is discarded");
        want[at as usize..][..5000].fill(0);
        assert!(device.contents() == want, "{mode:?}");
        assert_eq!(fallocate(&file, mode, BYTES as u64 - 1, 2), Err(Errno::NOSPC));
    }
    assert_eq!(fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096), Err(Errno::OPNOTSUPP));
    assert_eq!(file.metadata().expect("there").len(), BYTES as u64);
    assert!(device.contents() == want);
}

#[test]
fn a_read_only_device_is_only_read() {
    if !can_export("a read-only device") {
        return;
    }
    let place = Place::new();
    let bytes = noise(BYTES);
    let device = Memory::new(bytes.clone());
    device.read_only.store(true, Ordering::SeqCst);
    let _export = place.export(&device);
    let mode = std::fs::metadata(place.file()).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o400);
    assert!(std::fs::read(place.file()).expect("read") == bytes);
    for options in [OpenOptions::new().write(true), OpenOptions::new().read(true).append(true)] {
        let refused = options.open(place.file()).expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    }
}

#[test]
fn many_threads_see_one_device() {
    if !can_export("several threads at once") {
        return;
    }
    let place = Place::new();
    let device = Memory::new(vec![0; BYTES]);
    let _export = place.export(&device);
    let parts = 8;
    let part = BYTES / parts;
    std::thread::scope(|scope| {
        for (at, value) in (0..BYTES).step_by(part).zip(1..) {
            let path = place.file();
            scope.spawn(move || {
                let file = writable(&path);
                for at in (at..at + part).step_by(4096) {
                    file.write_all_at(&[value; 4096], at as u64).expect("written");
                }
                let mut seen = vec![0; part];
                file.read_exact_at(&mut seen, at as u64).expect("read");
                assert!(seen.iter().all(|&byte| byte == value));
            });
        }
    });
    let contents = device.contents();
    assert!(contents.chunks(part).zip(1..).all(|(part, value)| part.iter().all(|&b| b == value)));
}

#[test]
fn it_stays_while_it_is_used_and_then_goes() {
    if !can_export("unmounting an export") {
        return;
    }
    let place = Place::new();
    let device = Memory::new(noise(BYTES));
    let export = place.export(&device);
    let file = writable(&place.file());
    assert!(matches!(export.shutdown(), Err(Error::Busy { .. })));
    file.sync_all().expect("it is still served");
    drop(file);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| export.wait());
        let unmounted = run("umount", [place.fuse_dir()]);
        // A failed assertion here would wait for the thread for ever, so unmount lazily first.
        if !unmounted.status.success() {
            let _ = run("umount", [Path::new("--lazy"), &place.fuse_dir()]);
        }
        assert!(unmounted.status.success(), "{unmounted:?}");
        waiting.join().expect("no panic").expect("ended");
    });
    assert!(export.has_ended());
    export.shutdown().expect("it is gone already");

    // Dropping the export while the file is in use removes its name at once.
    let export = place.export(&device);
    let file = writable(&place.file());
    drop(export);
    assert!(!place.file().exists());
    file.sync_all().expect("who has it open is served on");
}

#[test]
fn a_missing_folder_is_an_error() {
    if !can_export("exporting to a missing folder") {
        return;
    }
    let place = Place::new();
    let missing = place.root().join("missing");
    let outcome = spawn(Memory::new(vec![0; 4096]), &missing, ExportOptions::default());
    assert!(matches!(outcome, Err(Error::Io { .. })), "{outcome:?}");
    std::fs::write(&missing, "").expect("written");
    let outcome = spawn(Memory::new(vec![0; 4096]), &missing, ExportOptions::default());
    assert!(matches!(outcome, Err(Error::NotAFolder { .. })), "{outcome:?}");
}
