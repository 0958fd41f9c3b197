//! Does any nonce ever seal two contents? The sealers themselves record their nonces, so the answer
//! holds for every scheme.

use crate::disk::Event;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use traceless_core::seal::{Nonce, TAG_LEN};

/// The first use of a nonce, and the tag of what it sealed.
#[derive(Clone, Copy)]
struct Use {
    /// One more than the number of the event; zero for uses before the record began.
    when: usize,
    tag: [u8; TAG_LEN],
}

/// The uses of nonces, by key and nonce.
///
/// The crash test forces the salts of every scheme to zero, except the insecure control's. A write
/// that a recovery repeats then has the nonce of the lost write, so that the two contents can be
/// compared.
#[derive(Clone, Default)]
pub struct Nonces {
    seen: HashMap<(u64, Nonce), Use, BuildHasherDefault<NumberHasher>>,
}

/// A hash of numbers that no adversary chooses. A fifth of the time of a crash test went to a hash
/// that withstands chosen ones.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        // Tables take the highest and the lowest bits; the multiplication mixes the high ones.
        self.0 ^ self.0 >> 32
    }
}

impl Nonces {
    /// Records the seals of `log`; its first event has the number `first`.
    pub fn note(&mut self, log: &[Event], first: usize) -> Result<(), String> {
        self.note_after(None, log, first)
    }

    /// Like [`Nonces::note`], after the events before number `.1` of another log.
    pub fn note_after(
        &mut self,
        past: Option<(&Self, usize)>,
        log: &[Event],
        first: usize,
    ) -> Result<(), String> {
        for (i, event) in log.iter().enumerate() {
            let Event::Write(_, sealed) = event else { continue };
            for sealed in sealed {
                let nonce = (sealed.key, sealed.nonce);
                let known =
                    *self.seen.entry(nonce).or_insert(Use { when: first + i + 1, tag: sealed.tag });
                let before = past.and_then(|(past, until)| {
                    past.seen.get(&nonce).filter(|known| known.when <= until)
                });
                if [Some(&known), before].into_iter().flatten().any(|u| u.tag != sealed.tag) {
                    return Err(format!(
                        "one nonce, two contents: version {}",
                        sealed.nonce.version
                    ));
                }
            }
        }
        Ok(())
    }

    /// Begins a new record: all uses so far count as earlier.
    pub fn begin(&mut self) {
        self.seen.values_mut().for_each(|known| known.when = 0);
    }
}
