//! Records every seal, so that tests can check that no nonce ever covers two contents. It works in
//! the one place where every nonce is used, for all schemes.
//!
//! ```
//! use traceless_core::rng::Salt;
//! use traceless_core::seal::{Aead, Nonce, Sealer, Secret, TAG_LEN, record};
//!
//! record::start();
//! let aead = Aead::new(&Secret::from_bytes([1; 32]));
//! for version in [5, 6] {
//!     let nonce = Nonce::new(version, Salt(0));
//!     aead.seal_in_place(nonce, b"", &mut [0; 64], &mut [0; TAG_LEN]);
//! }
//!
//! let sealed = record::take();
//! assert_eq!(sealed.len(), 2);
//! assert_eq!(sealed[0].key, sealed[1].key);
//! assert_ne!(sealed[0].nonce, sealed[1].nonce, "no nonce covers two contents");
//! ```

use super::{Nonce, Secret, TAG_LEN};
use std::cell::RefCell;
use std::hash::{DefaultHasher, Hasher};

/// One use of a nonce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SealRecord {
    /// A hash that identifies the key.
    pub key: u64,
    /// The nonce.
    pub nonce: Nonce,
    /// Depends on every bit that was sealed or bound, so it stands for both.
    pub tag: [u8; TAG_LEN],
}

thread_local! {
    static SEALED: RefCell<Option<Vec<SealRecord>>> = const { RefCell::new(None) };
}

/// Starts to record the seals of this thread.
pub fn start() {
    SEALED.set(Some(Vec::new()));
}

/// The seals of this thread since the last call; empty if recording was never started.
pub fn take() -> Vec<SealRecord> {
    SEALED.with_borrow_mut(|sealed| sealed.as_mut().map(std::mem::take).unwrap_or_default())
}

pub(super) fn name_of(key: &Secret) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key.bytes());
    hasher.finish()
}

pub(super) fn note(key: u64, nonce: Nonce, tag: &[u8]) {
    SEALED.with_borrow_mut(|sealed| {
        if let Some(list) = sealed {
            let tag = tag.try_into().expect("a whole tag");
            list.push(SealRecord { key, nonce, tag });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Salt;
    use crate::seal::{Aead, Sealer};

    #[test]
    fn equal_uses_are_equal_and_any_change_shows() {
        start();
        let nonce = Nonce::new(2, Salt(3));
        let seal = |key, nonce, bound: &[u8], plain: &[u8]| {
            let (aead, mut tag) = (Aead::new(&Secret::from_bytes([key; 32])), [0; TAG_LEN]);
            aead.seal(nonce, bound, plain, &mut plain.to_vec(), &mut tag);
            aead.seal_in_place(nonce, bound, &mut plain.to_vec(), &mut tag);
            let both = take();
            assert_eq!((both.len(), both[0]), (2, both[1]), "sealed in place or not");
            both[0]
        };
        let one = seal(1, nonce, b"place", b"body");
        assert_eq!(one.nonce, nonce);
        assert_eq!(seal(1, nonce, b"place", b"body"), one);
        assert_ne!(seal(2, nonce, b"place", b"body").key, one.key);
        for other in [seal(1, nonce, b"Place", b"body"), seal(1, nonce, b"place", b"Body")] {
            assert_eq!((other.key, other.nonce), (one.key, one.nonce));
            assert_ne!(other.tag, one.tag);
        }
        assert!(take().is_empty());
    }
}
