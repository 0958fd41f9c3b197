//! What a backup keeps, and that no damage of it passes.

use super::*;
use crate::gateway::testing::{BLOCK, in_memory};
use traceless_core::rng::SeededRng;

/// A gateway with names of every space, objects of several pieces, and empty ones.
fn filled() -> Gateway {
    let mut gateway = in_memory(1500, 1);
    for nth in 0..40_u8 {
        let bytes = vec![nth; usize::from(nth) * 37];
        gateway.store(&[b'v', nth], &bytes, &[nth]).unwrap();
    }
    // Rules of a bucket may be longer than a mebibyte.
    gateway.bind(Namespace::Buckets, b"bucket", None, &vec![b'n'; 3 << 20]).unwrap();
    let mut ids = Vec::new();
    let pieces = vec![3 * BLOCK as u64 + 1, 5, 2 * BLOCK as u64];
    for &len in &pieces {
        ids.extend(gateway.copy_in(len, &mut &vec![len as u8; len as usize][..]).unwrap());
    }
    let object = Object { pieces, ids: ids.into(), note: b"parts".to_vec() };
    let (namespace, name) = (Namespace::Objects, b"bucket/key".to_vec());
    gateway.log_and_apply(Record::Bind { namespace, name, object }).unwrap();
    gateway
}

type Contents = Vec<(Namespace, Vec<u8>, Vec<u64>, Vec<u8>, Vec<u8>)>;

fn contents(gateway: &mut Gateway) -> Contents {
    let mut all = Vec::new();
    for namespace in Namespace::ALL {
        let names: Vec<_> = gateway
            .names_from(namespace, Bound::Unbounded)
            .map(|(name, object)| (name.to_vec(), object.clone()))
            .collect();
        for (name, object) in names {
            let (pieces, note) = (object.pieces().to_vec(), object.note().to_vec());
            let mut bytes = Vec::new();
            gateway.copy_out(object, &mut bytes).unwrap();
            all.push((namespace, name, pieces, note, bytes));
        }
    }
    all
}

fn backup(gateway: &mut Gateway) -> Vec<u8> {
    let mut file = Vec::new();
    let mut reports = 0;
    let found = gateway.back_up(&mut file, |_| reports += 1).unwrap();
    assert_eq!((found.names, reports), (42, 42));
    assert_eq!(gateway.verify_backup(&file[..]).unwrap(), found);
    file
}

/// A gateway with the same master key, over another tree.
fn empty(blocks: u64) -> Gateway {
    in_memory(blocks, 1)
}

#[test]
fn a_backup_restores_all_names_into_a_tree_of_another_shape() {
    let mut gateway = filled();
    let file = backup(&mut gateway);
    assert_ne!(file, backup(&mut gateway), "each file has a key of its own");
    let mut restored = empty(4000);
    let found = restored.restore(&file[..], |_| ()).unwrap();
    assert_eq!(found.names, 42);
    assert_eq!(contents(&mut restored), contents(&mut gateway));
    let again = restored.restore(&file[..], |_| ());
    assert!(matches!(again, Err(Error::Parameters(_))), "{again:?}");
    let mut small = empty(60);
    assert!(matches!(small.verify_backup(&file[..]), Err(Error::Full { blocks: 60 })));
    assert!(matches!(small.restore(&file[..], |_| ()), Err(Error::Full { .. })));
    assert_eq!((small.names(Namespace::Values), small.blocks_used()), (0, 0));
    assert!(matches!(small.back_up(&mut Vec::new(), |_| ()), Err(Error::Parameters(_))));
    let other_key = in_memory(1500, 2);
    assert!(other_key.verify_backup(&file[..]).is_err());
}

#[test]
fn no_damage_of_a_backup_passes() {
    let mut gateway = filled();
    let file = backup(&mut gateway);
    assert!(file.len() > 20_000);
    let verifier = empty(1500);
    let is_refused = |file: &[u8]| verifier.verify_backup(file).is_err();
    for at in (0..file.len()).step_by(9973).chain(0..64).chain(file.len() - 40..file.len()) {
        let mut damaged = file.clone();
        damaged[at] ^= 1;
        assert!(is_refused(&damaged), "bit of byte {at}");
        assert!(is_refused(&file[..at]), "cut at {at}");
    }
    let mut later = file.clone();
    later[8] += 1;
    let refused = verifier.verify_backup(&later[..]).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Format { found: 2, known: 1, .. }), "{refused:?}");
    assert!(is_refused(&[&file[..], &[0]].concat()) && is_refused(&[]) && is_refused(&[0; 5000]));
}

/// The items of a backup have an end of their own, so the seal is tested without them.
#[test]
fn a_sealed_file_that_was_cut_between_chunks_is_refused() {
    let (key, chunk) = (in_memory(300, 4).backup_key, (64 << 10) + 16);
    let mut file = Vec::new();
    let mut writer = SealedWriter::begin(&mut file, &key, &mut SeededRng::new(5)).unwrap();
    writer.write_all(&vec![6; 3 << 16]).unwrap();
    writer.end().unwrap();
    let open = |len: usize| {
        let mut bytes = Vec::new();
        SealedReader::begin(&file[..len], &key)?.read_to_end(&mut bytes)?;
        Ok::<_, Error>(bytes)
    };
    assert!(open(file.len()).unwrap() == vec![6; 3 << 16]);
    for chunks in 0..3 {
        assert!(open(44 + chunks * chunk).is_err(), "{chunks}");
    }
}

#[test]
fn chunks_cannot_be_exchanged_or_left_out() {
    let mut gateway = in_memory(4000, 3);
    gateway.store(b"long", &vec![7; 200_000], b"").unwrap();
    let mut file = Vec::new();
    gateway.back_up(&mut file, |_| ()).unwrap();
    let (head, chunk) = (44, (64 << 10) + 16);
    assert!(file.len() > head + 3 * chunk);
    let chunks: Vec<&[u8]> = file[head..].chunks(chunk).collect();
    let with = |order: &[usize]| {
        let mut other = file[..head].to_vec();
        for &nth in order {
            other.extend_from_slice(chunks[nth]);
        }
        gateway.verify_backup(&other[..]).is_ok()
    };
    assert!(with(&[0, 1, 2, 3]));
    for wrong in [&[1, 0, 2, 3][..], &[0, 1, 3], &[0, 1, 2], &[0, 1, 2, 3, 3], &[3], &[]] {
        assert!(!with(wrong), "{wrong:?}");
    }
}
