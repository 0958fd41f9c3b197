use super::layout::HEADER_LEN;
use super::proof::CHAIN_LEN;
use super::testing::{Judged, every_damage, tails};
use super::*;
use crate::durable::put;
use traceless_core::rng::{SeededRng, System};
use traceless_core::seal::Secret;

const MAGIC: Magic = *b"tltest01";
const ENTRIES: u64 = 6;

/// The body of entry `number`, with a length that depends on the number.
fn body(number: u64) -> Vec<u8> {
    (0..number * 37 % 150).map(|i| (number * 31 + i) as u8).collect()
}

/// The log's file after each entry, in its state when the entry is acknowledged.
fn files<P: Proof>(key: &P::Key, durability: Durability) -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let (new, path) = (folder.path().join("new"), folder.path().join("log"));
    let head = Head { magic: MAGIC, generation: 3, id: [9; 16], about: b"about".to_vec() };
    let first = [EntryDraft::of(0, &body(1)), EntryDraft::of(0, &body(2))].into_iter();
    let mut log = Log::<P>::create(&new, &head, key, first, durability, Box::new(System)).unwrap();
    put(&new, &path).unwrap();
    let mut files = vec![std::fs::read(&path).unwrap()];
    for number in 3..=ENTRIES {
        log.write(&mut EntryDraft::of(2, &body(number))).unwrap();
        files.push(std::fs::read(&path).unwrap());
    }
    files
}

/// The bodies in a file; `None` if the file is refused.
fn opened<P: Proof>(bytes: Vec<u8>, key: &P::Key) -> Option<Vec<Vec<u8>>> {
    let found = read::<P>(bytes, MAGIC, key).ok()?;
    if found.damage.is_some() {
        return None;
    }
    assert_eq!((found.generation, &found.about[..]), (3, &b"about"[..]));
    Some(found.bodies().map(|(_, body)| body.to_vec()).collect())
}

fn bodies(count: u64) -> Vec<Vec<u8>> {
    (1..=count).map(body).collect()
}

fn key() -> Secret {
    Secret::random(&mut SeededRng::new(1))
}

fn all_damage_is_detected<P: Proof>(key: &P::Key) {
    for durability in [Durability::Process, Durability::Power] {
        let whole = files::<P>(key, durability).pop().unwrap();
        every_damage(&whole, |bytes| match opened::<P>(bytes, key) {
            None => Judged::Refused,
            Some(found) => {
                assert!(found == bodies(ENTRIES), "what is opened lacks an entry");
                Judged::Opened
            }
        });
    }
}

#[test]
fn all_damage_of_a_sealed_log_is_detected() {
    all_damage_is_detected::<SealProof>(&key());
}

#[test]
fn all_damage_of_a_hashed_log_is_detected() {
    all_damage_is_detected::<HashProof>(&());
}

/// An unacknowledged entry, in all forms that a power cut may leave: the file opens with all
/// earlier entries.
fn interrupted_writes_are_ignored<P: Proof>(key: &P::Key) {
    let mut files = files::<P>(key, Durability::Power);
    let (after, before) = (files.pop().unwrap(), files.pop().unwrap());
    let last = &after[before.len()..];
    let behind = |bytes: &[u8]| opened::<P>([&before, bytes].concat(), key);
    assert_eq!(behind(last), Some(bodies(ENTRIES)), "all of it is there, but not the mark");
    let short = Some(bodies(ENTRIES - 1));
    for cut in 0..last.len() {
        assert_eq!(behind(&last[..cut]), short, "cut at {cut}");
        for tail in tails().filter(|tail| tail.len() < 5000 && cut % 8 == 0) {
            assert_eq!(behind(&[&last[..cut], &tail].concat()), short, "cut at {cut}");
        }
    }
    for bit in 0..last.len() * 8 {
        let mut bytes = last.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(behind(&bytes), short, "bit {bit}");
    }
}

#[test]
fn an_interrupted_write_is_ignored() {
    interrupted_writes_are_ignored::<SealProof>(&key());
    interrupted_writes_are_ignored::<HashProof>(&());
}

/// After a power cut the mark may be one entry behind. An entry that is followed by another was
/// durable all the same.
#[test]
fn damage_before_a_later_entry_is_refused_without_a_mark() {
    let key = key();
    let files = files::<SealProof>(&key, Durability::Power);
    let [.., early, before, after] = &files[..] else { panic!("some files") };
    let mut lagging = after.clone();
    lagging[..ENTRIES_AT].copy_from_slice(&early[..ENTRIES_AT]);
    assert_eq!(opened::<SealProof>(lagging.clone(), &key), Some(bodies(ENTRIES)));
    for bit in early.len() * 8..before.len() * 8 {
        let mut bytes = lagging.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = read::<SealProof>(bytes, MAGIC, &key).unwrap();
        let damage = found.damage.expect("damage");
        assert_eq!((damage.entry, damage.at), (ENTRIES - 1, early.len() as u64));
        assert_eq!((damage.lost_entries, found.position.entries), (2, ENTRIES - 2));
    }
}

#[test]
fn lost_entries_and_records_are_counted() {
    let whole = files::<HashProof>(&(), Durability::Process).pop().unwrap();
    let mut bytes = whole.clone();
    let third = read::<HashProof>(bytes.clone(), MAGIC, &()).unwrap().entries[2].body.clone();
    bytes[third.start] ^= 1;
    let damage = read::<HashProof>(bytes, MAGIC, &()).unwrap().damage.unwrap();
    assert_eq!((damage.entry, damage.lost_entries), (3, 4));
    assert_eq!(damage.lost_records, 8, "all headers can be read");
    assert_eq!(damage.lost_bytes, whole.len() as u64 - damage.at);
    // Both marks are gone.
    let mut bytes = whole.clone();
    bytes[MARKS_AT..ENTRIES_AT].fill(0);
    let found = read::<HashProof>(bytes.clone(), MAGIC, &()).unwrap();
    let none_fits = Damage { at: MARKS_AT as u64, ..Damage::default() };
    assert_eq!((found.damage, found.entries.len()), (Some(none_fits), ENTRIES as usize));
    assert!(read::<HashProof>(bytes, *b"tltest02", &()).is_err());
    assert!(read::<SealProof>(whole, MAGIC, &key()).is_err());
}

/// Entries of another file with the same key, or of another place in the file, are not accepted.
#[test]
fn entries_are_bound_to_their_place() {
    let key = key();
    let whole = files::<SealProof>(&key, Durability::Process).pop().unwrap();
    let found = read::<SealProof>(whole.clone(), MAGIC, &key).unwrap();
    let entry = |number: usize| {
        let body = found.entries[number].body.clone();
        body.start - HEADER_LEN..body.end + CHAIN_LEN
    };
    let moved = [&whole[..entry(3).start], &whole[entry(4)], &whole[entry(3)]].concat();
    assert_eq!(opened::<SealProof>(moved, &key), None);
    // After the end, a copy of an earlier entry is noise.
    let again = [&whole[..], &whole[entry(2)]].concat();
    assert_eq!(opened::<SealProof>(again, &key), Some(bodies(ENTRIES)));
}

/// The files that two copies of a process write after a common beginning.
fn two_ways() -> [Vec<u8>; 2] {
    let folder = tempfile::tempdir().unwrap();
    let key = key();
    let files = files::<SealProof>(&key, Durability::Process);
    let copy = |name: &str, byte: u8| {
        let path = folder.path().join(name);
        std::fs::write(&path, &files[0]).unwrap();
        let found = read::<SealProof>(files[0].clone(), MAGIC, &key).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut log = Log::resume(file, found, Durability::Process, Box::new(System));
        for _ in 0..2 {
            log.write(&mut EntryDraft::of(1, &[byte; 40])).unwrap();
        }
        std::fs::read(path).unwrap()
    };
    [copy("one", 1), copy("other", 2)]
}

/// Two copies of a process each continue one file: their entries do not fit together.
#[test]
fn entries_of_two_process_copies_do_not_mix() {
    let ([one, other], key) = (two_ways(), key());
    let last = HEADER_LEN + 40 + CHAIN_LEN;
    let mixed = [&one[..one.len() - last], &other[other.len() - last..]].concat();
    assert!(opened::<SealProof>(one, &key).is_some() && opened::<SealProof>(other, &key).is_some());
    assert_eq!(opened::<SealProof>(mixed, &key), None);
}

/// A length in a head that reaches beyond the page is damage, and is not used.
#[test]
fn a_head_longer_than_its_page_is_refused() {
    let whole = files::<HashProof>(&(), Durability::Process).pop().unwrap();
    let about_len_at = 32;
    assert_eq!(whole[about_len_at..about_len_at + 4], 5_u32.to_le_bytes(), "the length is here");
    for about_len in (0..5).chain(6..100).chain(4000..4200).chain([u32::MAX - 16, u32::MAX]) {
        let mut bytes = whole.clone();
        bytes[about_len_at..about_len_at + 4].copy_from_slice(&about_len.to_le_bytes());
        let damage = read::<HashProof>(bytes, MAGIC, &()).err().expect("damage");
        let all = whole.len() as u64;
        let none_known = Damage { lost_bytes: all, ..Damage::default() };
        assert_eq!(damage, none_known, "{about_len}");
    }
}

#[test]
fn a_head_has_room_for_most_of_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    for about_len in [0, 300, 4096 - 32 - 4 - 16] {
        let head = Head { magic: MAGIC, generation: 1, id: [2; 16], about: vec![7; about_len] };
        let (process, rng) = (Durability::Process, Box::new(System));
        let none = std::iter::empty();
        Log::<HashProof>::create(&path, &head, &(), none, process, rng).unwrap();
        let found = read::<HashProof>(std::fs::read(&path).unwrap(), MAGIC, &()).unwrap();
        assert_eq!((found.about.len(), found.damage), (about_len, None));
    }
}

/// A mark without its tag is not accepted: otherwise damage that truncates a file could pass.
#[test]
fn marks_without_a_valid_tag_are_refused() {
    let (key, files) = (key(), files::<SealProof>(&key(), Durability::Process));
    let [.., earlier, last] = &files[..] else { panic!("some files") };
    let mark_len = 8 + 8 + POSITION_LEN;
    let mut cut = earlier.clone();
    cut[MARKS_AT..ENTRIES_AT].copy_from_slice(&last[MARKS_AT..ENTRIES_AT]);
    assert_eq!(opened::<SealProof>(cut.clone(), &key), None, "the last mark names one more entry");
    // Marks of the true end, with wrong tags.
    cut = earlier.clone();
    for at in [MARKS_AT, MARKS_AT + 4096] {
        cut[at + mark_len] ^= 1;
    }
    let found = read::<SealProof>(cut, MAGIC, &key).unwrap();
    let damage = found.damage.expect("no mark is whole");
    assert_eq!((damage.entry, damage.at), (0, MARKS_AT as u64));
}

/// Marks of a file with the same beginning that continued differently are not accepted.
#[test]
fn marks_of_a_diverged_copy_are_refused() {
    let [one, other] = two_ways();
    let mixed = [&one[..MARKS_AT], &other[MARKS_AT..ENTRIES_AT], &one[ENTRIES_AT..]].concat();
    assert_eq!(one.len(), other.len(), "both have come as far");
    assert!(opened::<SealProof>(mixed, &key()).is_none());
}

/// The current form of a file, byte for byte: older files open as long as this test passes.
#[test]
fn the_file_format_is_fixed() {
    use sha2::{Digest, Sha256};
    fn written<P: Proof>(key: &P::Key) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let head = Head { magic: MAGIC, generation: 3, id: [9; 16], about: b"about".to_vec() };
        let first = [EntryDraft::of(2, &body(1))].into_iter();
        let (process, rng) = (Durability::Process, Box::new(SeededRng::new(7)));
        let mut log = Log::<P>::create(&path, &head, key, first, process, rng).unwrap();
        for number in 2..=5 {
            log.write(&mut EntryDraft::of(1, &body(number))).unwrap();
        }
        std::fs::read(path).unwrap()
    }
    let hash = |bytes: Vec<u8>| {
        let halves = Sha256::digest(bytes);
        let (halves, _) = halves.as_chunks::<16>();
        halves.iter().map(|half| u128::from_be_bytes(*half)).collect::<Vec<_>>()
    };
    let sealed = hash(written::<SealProof>(&key()));
    assert_eq!(
        sealed,
        [0x63ff_35e7_1d6b_7e74_5a6c_9172_9a44_e881, 0x31bb_0a3d_4cc5_f17b_2f43_dd39_e6a4_f741]
    );
    assert_eq!(
        hash(written::<HashProof>(&())),
        [0x550e_f8ff_8b02_72d4_66ee_cec7_53d4_af16, 0x1d72_aeb6_fdd3_c41d_0ead_9b05_79c1_24da]
    );
}
