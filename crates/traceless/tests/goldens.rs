//! Arrays and maps in files from earlier versions open, hold what was written, accept writes, and
//! open again.
//!
//! With `TRACELESS_GOLDENS=DIR` this version makes the files anew in that folder. This is for new
//! formats only: released files stay, and must open.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use traceless::array::ArrayBuilder;
use traceless::seal::Secret;
use traceless::store::{Caching, FileStore, Store};
use traceless::{Array, Map, Result, map};

const BLOCKS: u64 = 32;
const BLOCK_LEN: usize = 64;

fn array(is_oblivious: bool) -> ArrayBuilder {
    let array = Array::builder().blocks(BLOCKS).block_len(BLOCK_LEN).key(key());
    array.oblivious(is_oblivious)
}

fn map() -> map::MapBuilder {
    Map::builder().capacity(20).key_len(8).value_len(16).key(key())
}

fn key() -> Secret {
    Secret::from_bytes([7; 32])
}

fn store(path: &Path, len: u64) -> Arc<dyn Store> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
    let file = file.expect("a file");
    if file.metadata().expect("its length").len() == 0 {
        file.set_len(len).expect("room");
    }
    assert_eq!(file.metadata().expect("its length").len(), len, "{}", path.display());
    Arc::new(FileStore::new(file, len, Caching::Buffered))
}

/// Contents of a block; every fifth block was never written.
fn block(addr: u64) -> [u8; BLOCK_LEN] {
    if addr.is_multiple_of(5) { [0; BLOCK_LEN] } else { [addr as u8 + 1; BLOCK_LEN] }
}

fn make_array(path: &Path, is_oblivious: bool) -> Result {
    let made = array(is_oblivious);
    let len = made.store_len()?;
    let mut made = made.store(store(path, len)).build()?;
    for addr in (0..BLOCKS).filter(|addr| !addr.is_multiple_of(5)) {
        made.write(addr, &block(addr))?;
    }
    made.sync()?;
    // An unsynced write at the end, as a crash leaves it.
    made.write(0, &[9; BLOCK_LEN])?;
    drop(made);
    Ok(())
}

fn make_map(path: &Path) -> Result {
    let made = map();
    let len = made.store_len()?;
    let mut made = made.store(store(path, len)).build()?;
    for nth in 0..20_u8 {
        made.insert(&[nth; 8], &[nth + 1; 16])?;
    }
    made.remove(&[3; 8])?;
    made.close()
}

fn check_array(path: &Path, is_oblivious: bool) -> Result {
    let len = array(is_oblivious).store_len()?;
    for round in 0..2 {
        let mut opened = array(is_oblivious).store(store(path, len)).open()?;
        for addr in 1..BLOCKS {
            let changed = round == 1 && addr == 7;
            let wanted = if changed { [77; BLOCK_LEN] } else { block(addr) };
            assert_eq!(opened.read(addr)?, wanted, "block {addr} of {}", path.display());
        }
        assert!([[0; BLOCK_LEN], [9; BLOCK_LEN]].iter().any(|b| opened.read(0).unwrap() == b));
        opened.write(7, &[77; BLOCK_LEN])?;
        opened.close()?;
    }
    Ok(())
}

fn check_map(path: &Path) -> Result {
    let len = map().store_len()?;
    for round in 0..2 {
        let mut opened = map().store(store(path, len)).open()?;
        for nth in 0..20_u8 {
            let wanted = match (round, nth) {
                (_, 3) => None,
                (1, 4) => Some(vec![44; 16]),
                _ => Some(vec![nth + 1; 16]),
            };
            assert_eq!(opened.get(&[nth; 8])?, wanted, "key {nth}");
        }
        opened.insert(&[4; 8], &[44; 16])?;
        opened.close()?;
    }
    Ok(())
}

#[test]
fn what_earlier_versions_left_opens() {
    if let Some(folder) = std::env::var_os("TRACELESS_GOLDENS") {
        let folder = Path::new(&folder);
        make_array(&folder.join("array.1"), false).expect("an array");
        make_array(&folder.join("oblivious.1"), true).expect("an oblivious array");
        make_map(&folder.join("map.1")).expect("a map");
    }
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    let folder = tempfile::tempdir().expect("a folder");
    let copied = |name: &str| {
        let path = folder.path().join(name);
        fs::copy(goldens.join(name), &path).expect("a copy");
        path
    };
    check_array(&copied("array.1"), false).expect("an array");
    check_array(&copied("oblivious.1"), true).expect("an oblivious array");
    check_map(&copied("map.1")).expect("a map");
}
