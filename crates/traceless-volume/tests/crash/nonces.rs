//! Does any nonce ever cover two contents? The sealers themselves are asked, so that the answer
//! holds for every scheme.

use crate::disk::Event;
use std::collections::HashMap;
use traceless::seal::{Nonce, TAG_LEN};

/// When a nonce was used first, and for what.
#[derive(Clone, Copy)]
struct Use {
    /// One more than the number of the event; zero for what was before the record began.
    when: usize,
    tag: [u8; TAG_LEN],
}

/// What each nonce sealed: by key. Salts are zero but for the control, so that what is redone after
/// a crash is seen to be what it was.
#[derive(Clone, Default)]
pub struct Nonces {
    seen: HashMap<(u64, Nonce), Use>,
}

impl Nonces {
    /// Takes note of what `log` wrote, as events from number `first` on.
    pub fn note(&mut self, log: &[Event], first: usize) -> Result<(), String> {
        self.note_after(None, log, first)
    }

    /// As [`Nonces::note`], when also the events before number `.1` of another log happened.
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

    /// A new record begins: all that was seen was before it.
    pub fn begin(&mut self) {
        self.seen.values_mut().for_each(|known| known.when = 0);
    }
}
