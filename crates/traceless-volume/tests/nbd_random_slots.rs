//! A real NBD client against volumes that write random slots: fio verifies what it wrote, also
//! after the server ended without closing the volume.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use traceless_block::datalair::DataLairScheme;
use traceless_block::hive::HiveScheme;
use traceless_block::random::RandomGeometry;
use traceless_core::scheme::contract::BlockScheme;
use traceless_core::seal::Cipher;
use traceless_volume::device::Device;
use traceless_volume::format::{Kdf, UserKey};
use traceless_volume::nbd::{Endpoint, Options, Server};
use traceless_volume::volume::{CreateOptions, OpenOptions, Volume, create};

const BLOCKS: u64 = 2048;

#[test]
fn fio_verifies_hive() {
    fio_verifies(Arc::new(HiveScheme::new(RandomGeometry::new(BLOCKS, 4096, 0).unwrap())));
}

#[test]
fn fio_verifies_hive_with_its_map_on_the_disk() {
    fio_verifies(Arc::new(HiveScheme::new(RandomGeometry::new(BLOCKS, 4096, 1).unwrap())));
}

#[test]
fn fio_verifies_datalair() {
    fio_verifies(Arc::new(DataLairScheme::new(RandomGeometry::new(BLOCKS, 4096, 0).unwrap())));
}

#[test]
fn fio_verifies_datalair_with_its_map_on_the_disk() {
    fio_verifies(Arc::new(DataLairScheme::new(RandomGeometry::new(BLOCKS, 4096, 1).unwrap())));
}

fn fio_verifies(scheme: Arc<dyn BlockScheme>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let key = UserKey::from_file(vec![7; 32].into()).unwrap();
    let (kdf, anchor) = (Kdf::default(), None);
    let options = CreateOptions {
        scheme,
        cipher: Cipher::default(),
        kdf,
        force: false,
        unfilled: false,
        anchor,
    };
    create(&path, &key, &options, &mut |_, _| true).unwrap();
    let open = || {
        let opened = Volume::open(&path, &key, &OpenOptions::default(), &mut |_, _| {});
        Arc::new(opened.unwrap())
    };
    let random = "--rw=randwrite --bsrange=512-16k --blockalign=512 --size=4m --fsync=20";
    serve(open(), folder.path(), random);
    // The volume was not closed, so this opening recovers. fio verifies the same data again.
    serve(open(), folder.path(), &format!("{random} --verify_only=1"));
    serve(open(), folder.path(), "--rw=write --bs=64k --size=8m --iodepth=8");
    let volume = open();
    let mut damaged = vec![];
    volume.verify(&mut |_, _| {}, &mut |place| damaged.push(place)).unwrap();
    assert_eq!(damaged, []);
    volume.close().unwrap();
}

/// Serves `volume` to one run of fio, and drops it without closing it.
fn serve(volume: Arc<Volume>, folder: &Path, arguments: &str) {
    let socket = folder.join("nbd.sock");
    let server = Server::bind(Endpoint::Unix(socket.clone()), &Options::default()).unwrap();
    let handle = server.handle();
    let device: Arc<dyn Device> = volume;
    let thread = std::thread::spawn(move || server.run(&device));
    let uri = format!("--uri=nbd+unix:///?socket={}", socket.display());
    let aux = format!("--aux-path={}", folder.display());
    // `timeout` makes a client that hangs fail.
    let output = Command::new("timeout")
        .args(["60", "fio", "--name=test", "--ioengine=nbd", "--randseed=5", &uri, &aux])
        .args(["--verify=crc32c", "--verify_state_save=0"])
        .args(arguments.split(' '))
        .output()
        .expect("timeout is missing: install coreutils");
    handle.shutdown();
    thread.join().unwrap().unwrap();
    assert_ne!(output.status.code(), Some(127), "fio is missing: install fio");
    let (text, errors) = (&output.stdout, &output.stderr);
    let output_text = [text, errors].map(|t| String::from_utf8_lossy(t).into_owned()).concat();
    assert!(output.status.success(), "{arguments}: {output_text}");
}
