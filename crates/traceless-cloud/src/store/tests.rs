use super::*;
use crate::block_on::block_on;
use crate::error::Error;
use crate::geometry::Geometry;
use crate::geometry::tests::{rootless, small};

pub fn path(g: &Geometry, round: u64, attempt: u64) -> Vec<NodeVersion> {
    let node = |layer| g.node(layer, g.evicted(round));
    (0..g.layers).map(|layer| NodeVersion { node: node(layer), attempt }).collect()
}

pub fn bytes_of(g: &Geometry, version: NodeVersion) -> Vec<u8> {
    let byte = (version.node.0 as u8).wrapping_mul(31) ^ version.attempt as u8;
    let slot = |slot: usize| vec![byte.wrapping_add(slot as u8 * 3); g.slot_len()];
    (0..g.slots(g.layer_of(version.node))).flat_map(slot).collect()
}

pub fn write_round(store: &impl NodeStore, g: &Geometry, sequence: u64) {
    let versions = path(g, sequence - 1, sequence);
    for version in &versions {
        block_on(store.stage(*version, &bytes_of(g, *version))).unwrap();
    }
    block_on(store.commit(sequence, &versions)).unwrap();
}

fn check_round(store: &impl NodeStore, g: &Geometry, sequence: u64) {
    for version in path(g, sequence - 1, sequence) {
        let want = bytes_of(g, version);
        let mut node = vec![0; want.len()];
        block_on(store.read_node(version, &mut node)).unwrap();
        assert!(node == want);
        let never = NodeVersion { attempt: 0, ..version };
        let (mut first, mut second) = (vec![1; g.slot_len()], vec![1; g.slot_len()]);
        let mut reads = [
            SlotRead { version, slot: 3, into: &mut first },
            SlotRead { version: never, slot: 4, into: &mut second },
        ];
        block_on(store.read_slots(&mut reads)).unwrap();
        assert!(
            first == want[3 * g.slot_len()..][..g.slot_len()]
                && second.iter().all(|&byte| byte == 0)
        );
    }
}

/// Checks the contract that every store must keep.
pub fn behaves(store: &impl NodeStore, g: &Geometry) {
    for sequence in 1..=40 {
        write_round(store, g, sequence);
        check_round(store, g, sequence);
        if sequence > 1 {
            check_round(store, g, sequence - 1);
        }
        assert_eq!(block_on(store.sequence()).unwrap(), sequence);
    }
    let versions = path(g, 40, 99);
    assert!(block_on(store.commit(41, &versions)).is_err(), "nothing is staged");
    block_on(store.stage(versions[0], &bytes_of(g, versions[0]))).unwrap();
    assert!(
        block_on(store.read_node(versions[0], &mut bytes_of(g, versions[0]))).is_err(),
        "not yet"
    );
    assert!(block_on(store.commit(43, &versions[..1])).is_err(), "a commit is missing");
    let replaced = path(g, 0, 1)[0];
    assert!(
        block_on(store.read_node(replaced, &mut bytes_of(g, replaced))).is_err(),
        "replaced long ago"
    );
    assert_eq!(block_on(store.sequence()).unwrap(), 40);
    block_on(store.stage(versions[0], &bytes_of(g, versions[0]))).unwrap();
    block_on(store.abandon()).unwrap();
    assert!(block_on(store.commit(41, &versions[..1])).is_err(), "it was abandoned");
    assert_eq!(block_on(store.sequence()).unwrap(), 40);
}

/// Trees with a root, without a root, and of leaves alone.
fn shapes() -> [Geometry; 3] {
    [small(), rootless(), Geometry { layers: 1, ..rootless() }]
}

#[test]
fn the_memory_store_passes_the_store_tests() {
    for g in shapes() {
        behaves(&MemStore::new(g), &g);
        behaves(&std::sync::Arc::new(MemStore::new(g)), &g);
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
    for sequence in 1..=30 {
        let store = open().unwrap();
        write_round(&store, &g, sequence);
        // Versions that were staged and never committed are dropped.
        for version in path(&g, sequence, 77) {
            block_on(store.stage(version, &bytes_of(&g, version))).unwrap();
        }
        assert!(matches!(open(), Err(Error::InUse(_))));
        drop(store);
        let store = open().unwrap();
        assert_eq!(block_on(store.sequence()).unwrap(), sequence);
        check_round(&store, &g, sequence);
    }
}
