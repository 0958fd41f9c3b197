//! Damage to files, for tests of the users of a log.

use traceless_core::rng::{Rng, SeededRng};

/// The outcome for a damaged file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judged {
    /// The file was opened, with all that was written.
    Opened,
    /// The file was refused.
    Refused,
}

/// Tails that a power cut may leave at the end of a file.
pub fn tails() -> impl Iterator<Item = Vec<u8>> {
    let noise = |len: usize| {
        let mut tail = vec![0; len];
        SeededRng::new(len as u64).fill(&mut tail);
        tail
    };
    [1, 3, 64, 511, 512, 4095, 4096, 4097, 70_000]
        .into_iter()
        .flat_map(move |len| [vec![0; len], vec![0xff; len], noise(len)])
}

/// A file with each of its bits flipped, then cut at each of its bytes.
pub fn damages(whole: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let flip = |bit: usize| {
        let mut bytes = whole.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    };
    (0..whole.len() * 8).map(flip).chain((0..whole.len()).map(|len| whole[..len].to_vec()))
}

/// Judges a file with each single damage. `judge` must fail if an opened file lacks data.
pub fn every_damage(whole: &[u8], mut judge: impl FnMut(Vec<u8>) -> Judged) {
    assert_eq!(judge(whole.to_vec()), Judged::Opened, "the file itself");
    for tail in tails() {
        let len = tail.len();
        assert_eq!(judge([whole, &tail].concat()), Judged::Opened, "a tail of {len} bytes");
    }
    let bits = whole.len() * 8;
    let mut refused = 0;
    for (number, bytes) in damages(whole).enumerate() {
        let judged = judge(bytes);
        if number >= bits {
            assert_eq!(judged, Judged::Refused, "cut at byte {}", number - bits);
        }
        refused += usize::from(judged == Judged::Refused);
    }
    let entries = whole.len() - super::ENTRIES_AT;
    assert!(refused >= entries * 8 + whole.len(), "every bit of every entry counts: {refused}");
    zeroed_parts(whole, &mut judge);
}

/// Judges the file with sectors of zeros or noise, and with a part cut out.
fn zeroed_parts(whole: &[u8], judge: &mut impl FnMut(Vec<u8>) -> Judged) {
    let mut rng = SeededRng::new(1);
    for start in (0..whole.len()).step_by(256) {
        let end = (start + 512).min(whole.len());
        let mut bytes = whole.to_vec();
        bytes[start..end].fill(0);
        judge(bytes.clone());
        rng.fill(&mut bytes[start..end]);
        judge(bytes);
        judge([&whole[..start], &whole[end..]].concat());
    }
}
