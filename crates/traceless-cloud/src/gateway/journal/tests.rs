//! A journal's counts of appended and written records.

use super::state_folder::{ADVICE, KEY_ADVICE};
use super::*;
use std::path::Path;
use traceless_core::rng::SeededRng;

const KEY: [u8; 32] = [90; 32];

fn params() -> Params {
    Params::new(20, 64, 4).unwrap()
}

fn open(folder: &Path, key: [u8; 32]) -> Result<Journal> {
    let home = StateLocation { folder, durability: Durability::Process, anchor: None };
    Ok(Journal::open(&home, &Secret::from_bytes(key), &params(), &mut SeededRng::new(90))?.0)
}

#[test]
fn a_journal_is_long_beyond_four_states_and_64_mib() {
    const MIB: u64 = 1 << 20;
    assert_eq!([0, 1000].map(Journal::records_len_max), [64 * MIB, 64 * MIB + 4000]);
    assert_eq!(Journal::records_len_max(u64::MAX / 4), u64::MAX);
    let folder = tempfile::tempdir().unwrap();
    let mut journal = open(folder.path(), KEY).unwrap();
    let most = Journal::records_len_max(journal.state_len);
    let mut with = |len: u64| {
        journal.position.end = journal.records_at + len;
        (journal.is_long(), journal.is_overlong())
    };
    assert_eq!(with(0), (false, false));
    assert_eq!([most, most + 1].map(|len| with(len).0), [false, true]);
    let far = 8 * (most + 1);
    assert_eq!([far - 1, far].map(&mut with), [(true, false), (true, true)]);
}

#[test]
fn a_deferred_ack_ends_when_its_record_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = open(folder.path(), KEY).unwrap();
    assert_eq!(journal.deferred_ack(), None, "nothing has happened");
    journal.append(&Record::EndDummy);
    assert_eq!(journal.deferred_ack(), None, "nobody waits for it");
    journal.append(&Record::EndDummy);
    journal.defer_ack();
    journal.append(&Record::EndDummy);
    assert_eq!(journal.deferred_ack(), Some(2));
    assert!(journal.is_written(0) && !journal.is_written(1));
    assert_eq!(journal.written(), Some(0));
    journal.flush().unwrap();
    assert_eq!(journal.deferred_ack(), None);
    assert!(journal.is_written(3) && !journal.is_written(4));
    assert_eq!(journal.written(), Some(3));
    // A new generation contains earlier records in its state.
    journal.append(&Record::EndDummy);
    journal.defer_ack();
    journal.renew(&State::new(params()), &mut SeededRng::new(91)).unwrap();
    assert!(journal.deferred_ack().is_none() && journal.is_written(4));
    // A record that can no longer be written is settled.
    journal.append(&Record::EndDummy);
    journal.defer_ack();
    journal.broken = true;
    assert!(journal.written().is_none() && !journal.is_written(5));
}

/// Under a wrong key nothing in the file opens; otherwise one entry is damaged.
#[test]
fn errors_about_damage_contain_advice() {
    let folder = tempfile::tempdir().unwrap();
    let advice = |key| match open(folder.path(), key).map(drop) {
        Err(Error::Damaged { advice, .. }) => advice,
        other => panic!("{other:?}"),
    };
    drop(open(folder.path(), KEY).unwrap());
    assert_eq!(advice([91; 32]), KEY_ADVICE);
    let path = path_of(folder.path(), 1);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[crate::log::ENTRIES_AT + 70] ^= 1;
    std::fs::write(path, bytes).unwrap();
    assert_eq!(advice(KEY), ADVICE);
}
