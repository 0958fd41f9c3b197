//! The keys of a tree, by the opening in which a bucket was written.

use crate::error::Result;
use crate::scheme::openings::{Opening, Openings, State};
use crate::seal::{Aegis, Forged, Sealer, Secret, TAG_LEN};
use crate::tree::SealedTree;

/// Seals under the key of the newest opening, and opens under that of the one which wrote.
pub(super) struct Keys(Openings<Aegis>);

/// None: for those who only ask for lengths.
impl Default for Keys {
    fn default() -> Self {
        Self(Openings::new(&State::default(), |_| unreachable!("there is no opening")))
    }
}

impl Keys {
    /// Those of tree number `tree` for the openings of `state`.
    pub fn new(state: &State, key: &Secret, tree: u8) -> Self {
        Self(Openings::new(state, |opening| derive(key, opening, tree)))
    }

    /// Adds the newest opening.
    pub fn push(&mut self, opening: Opening, key: &Secret, tree: u8) -> Result {
        self.0.push(opening, derive(key, &opening, tree))
    }

    /// Forgets all but the newest opening, under which every bucket was written anew.
    pub fn forget_older(&mut self) {
        let newest = self.0.last().start;
        self.0.prune(|next| next <= newest);
    }

    fn of(&self, nonce: u64) -> &Aegis {
        let write = SealedTree::<Self>::path_write_of(nonce);
        &self.0.find(|opening| opening.start < write).1
    }
}

fn derive(key: &Secret, opening: &Opening, tree: u8) -> Aegis {
    Aegis::new(&key.derive(&[b"path bucket", &opening.id, &[tree]]))
}

impl Sealer for Keys {
    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn seal(&self, nonce: u64, bound: &[u8], plain: &[u8], sealed: &mut [u8], tag: &mut [u8]) {
        self.of(nonce).seal(nonce, bound, plain, sealed, tag);
    }

    fn seal_in_place(&self, nonce: u64, bound: &[u8], body: &mut [u8], tag: &mut [u8]) {
        self.of(nonce).seal_in_place(nonce, bound, body, tag);
    }

    fn open_in_place(
        &self,
        nonce: u64,
        bound: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), Forged> {
        self.of(nonce).open_in_place(nonce, bound, body, tag)
    }

    fn open(
        &self,
        nonce: u64,
        bound: &[u8],
        sealed: &[u8],
        tag: &[u8],
        plain: &mut [u8],
    ) -> Result<(), Forged> {
        self.of(nonce).open(nonce, bound, sealed, tag, plain)
    }
}
