use super::suite::{behaves, bytes_of, is_copyable, path, removes, reopens, shapes, write_round};
use super::*;
use crate::block_on::block_on;
use crate::error::Error;
use crate::geometry::Geometry;
use crate::geometry::tests::small;

#[test]
fn the_memory_store_passes_the_store_tests() {
    for g in shapes() {
        behaves(&MemStore::new(g), &g);
        behaves(&std::sync::Arc::new(MemStore::new(g)), &g);
        behaves(&BoxedStore::new(MemStore::new(g)), &g);
    }
}

#[test]
fn the_file_store_passes_the_store_tests() {
    for g in shapes() {
        let folder = tempfile::tempdir().unwrap();
        behaves(&FileStore::open(folder.path(), g, Durability::Power).unwrap(), &g);
    }
}

/// Slots come from the disk, when the system's cache does not have them.
#[test]
fn evicted_pages_are_read_from_the_disk() {
    use rustix::fs::{Advice, fadvise};
    let (folder, g) = (tempfile::tempdir().unwrap(), small());
    let store = FileStore::open(folder.path(), g, Durability::Power).unwrap();
    for sequence in 1..=20 {
        write_round(&store, &g, sequence);
        for name in ["inner.nodes", "leaf.nodes"] {
            let file = std::fs::File::open(folder.path().join(name)).unwrap();
            fadvise(file, 0, None, Advice::DontNeed).unwrap();
        }
        let versions = path(&g, sequence - 1, sequence);
        let mut found = vec![vec![0; g.slot_len()]; versions.len()];
        let reads = versions.iter().zip(&mut found);
        let mut reads: Vec<SlotRead<'_>> =
            reads.map(|(&version, into)| SlotRead { version, slot: 3, into }).collect();
        block_on(store.read_slots(&mut reads)).unwrap();
        for (version, found) in versions.into_iter().zip(found) {
            assert!(found == bytes_of(&g, version)[3 * g.slot_len()..][..g.slot_len()]);
        }
    }
}

#[test]
fn files_reopen_in_the_state_of_the_last_commit() {
    let (folder, g) = (tempfile::tempdir().unwrap(), small());
    let open = || FileStore::open(folder.path(), g, Durability::Process);
    reopens(|| open().unwrap(), &g);
    let store = open().unwrap();
    assert!(matches!(open(), Err(Error::InUse(_))));
    drop(store);
    for g in shapes() {
        let folder = tempfile::tempdir().unwrap();
        is_copyable(|| FileStore::open(folder.path(), g, Durability::Process).unwrap(), &g);
        let folder = tempfile::tempdir().unwrap();
        removes(|| FileStore::open(folder.path(), g, Durability::Process).unwrap(), &g);
    }
}

#[test]
fn files_of_another_version_are_refused_and_stay() {
    let (folder, g) = (tempfile::tempdir().unwrap(), small());
    let open = || FileStore::open(folder.path(), g, Durability::Process).map(drop);
    open().unwrap();
    let log = folder.path().join("places.log");
    let whole = std::fs::read(&log).unwrap();
    let mut later = whole.clone();
    (later[7], later[16]) = (b'4', !later[16]);
    std::fs::write(&log, &later).unwrap();
    let refused = open().unwrap_err();
    assert!(matches!(refused, Error::Format { found: 4, known: 3, .. }), "{refused:?}");
    assert!(std::fs::read(&log).unwrap() == later);
    let mut damaged = whole;
    damaged[7] ^= 1;
    std::fs::write(&log, damaged).unwrap();
    assert!(matches!(open(), Err(Error::Damaged { .. })));
}

/// The room of removed nodes is free again.
#[test]
fn removed_nodes_leave_the_cache_and_the_disk() {
    for g in shapes() {
        let folder = tempfile::tempdir().unwrap();
        let file = || FileStore::open(folder.path(), g, Durability::Process).unwrap();
        removes(|| CachedStore::new(BoxedStore::new(file()), g, 1 << 20), &g);
    }
    let g = Geometry { block_len: 4096, ..small() };
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::open(folder.path(), g, Durability::Process).unwrap();
    for sequence in 1..=10 {
        write_round(&store, &g, sequence);
    }
    let used = || {
        let files = std::fs::read_dir(folder.path()).unwrap();
        let blocks = |entry: std::io::Result<std::fs::DirEntry>| {
            std::os::unix::fs::MetadataExt::blocks(&entry.unwrap().metadata().unwrap())
        };
        files.map(blocks).sum::<u64>() * 512
    };
    let all: Vec<Node> = (0..g.nodes()).map(Node).collect();
    let before = used();
    block_on(store.remove(&all)).unwrap();
    assert!(used() < before / 4, "{} of {before}", used());
}
