//! Keys of an area with blocks that are rewritten when they are read: one key per opening.

use traceless_core::error::Result;
use traceless_core::scheme::openings::{Opening, Openings, SchemeState};
use traceless_core::seal::{Aegis, Forgery, Nonce, Sealer, Secret, TAG_LEN};

/// Seals under the key of the newest opening; opens under the key of the opening that sealed.
pub(crate) struct Keys {
    openings: Openings<Aegis>,
    family: Family,
}

/// Distinguishes the keys of one area from the keys of other areas.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    /// Label of the purpose for key derivation.
    pub purpose: &'static [u8],
    /// The number of the area among the areas with this purpose.
    pub area: u8,
    /// Maps a nonce's version to the number of the write that it belongs to.
    pub write_of: fn(u64) -> u64,
}

impl Family {
    fn derive(&self, key: &Secret, opening: &Opening) -> Aegis {
        Aegis::new(&key.derive(&[self.purpose, &opening.id, &[self.area]]))
    }
}

impl Keys {
    /// The keys for the openings of `state`.
    pub fn new(state: &SchemeState, key: &Secret, family: Family) -> Self {
        Self { openings: Openings::new(state, |opening| family.derive(key, opening)), family }
    }

    /// No keys: for callers that need only lengths.
    pub fn none(family: Family) -> Self {
        let openings =
            Openings::new(&SchemeState::default(), |_| unreachable!("there is no opening"));
        Self { openings, family }
    }

    /// Adds the newest opening.
    pub fn push(&mut self, opening: Opening, key: &Secret) -> Result {
        self.openings.push(opening, self.family.derive(key, &opening))
    }

    /// Forgets the keys of openings that no slot uses any more, since every slot was rewritten
    /// after `start` writes.
    pub fn forget_before(&mut self, start: u64) {
        self.openings.prune(|next| next <= start);
    }

    fn of(&self, nonce: Nonce) -> &Aegis {
        let write = (self.family.write_of)(nonce.version);
        &self.openings.find(|opening| opening.start < write).1
    }
}

impl Sealer for Keys {
    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn seal(&self, nonce: Nonce, bound: &[u8], plain: &[u8], sealed: &mut [u8], tag: &mut [u8]) {
        self.of(nonce).seal(nonce, bound, plain, sealed, tag);
    }

    fn seal_in_place(&self, nonce: Nonce, bound: &[u8], body: &mut [u8], tag: &mut [u8]) {
        self.of(nonce).seal_in_place(nonce, bound, body, tag);
    }

    fn open_in_place(
        &self,
        nonce: Nonce,
        bound: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), Forgery> {
        self.of(nonce).open_in_place(nonce, bound, body, tag)
    }

    fn open(
        &self,
        nonce: Nonce,
        bound: &[u8],
        sealed: &[u8],
        tag: &[u8],
        plain: &mut [u8],
    ) -> Result<(), Forgery> {
        self.of(nonce).open(nonce, bound, sealed, tag, plain)
    }
}
