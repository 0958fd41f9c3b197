//! Keys and authenticated encryption.
//!
//! Files: `nonce`: a version and a salt; `cipher`: the ciphers for a store, and the fastest of
//! them; `aead` (aws-lc, or `aead_portable`), `aegis` (libaegis, or `aegis_portable`), `wide`
//! (AEGIS-256X2 and X4, for pages), `chacha_hmac` (the paging paper's), `masked` (no tag), `hashed`
//! (for Merkle trees), `keystream`, `secret`: keys and HKDF; `unsealed`: no encryption, for
//! measurements; `prf`: AES as a random function; `veil`: structure that shall look random;
//! `record`: every nonce used, `wrong_machine`: a cipher computed wrongly, both for tests (feature
//! `suite`).
//!
//! A block is sealed, bound to its place, and opened again; at another place it does not open:
//!
//! ```
//! use traceless_core::rng::{Rng, System};
//! use traceless_core::seal::{Cipher, Nonce, Secret, TAG_LEN};
//!
//! let sealer = Cipher::default().sealer(&Secret::random(&mut System));
//! let (mut body, mut tag) = (*b"the contents of a block", [0; TAG_LEN]);
//! // The version never repeats under one key; the salt differs in copies of the process.
//! let nonce = Nonce::new(1, System.salt());
//! sealer.seal_in_place(nonce, b"slot 7", &mut body, &mut tag);
//! assert_ne!(&body, b"the contents of a block");
//!
//! assert!(sealer.open_in_place(nonce, b"slot 8", &mut body.clone(), &tag).is_err());
//! sealer.open_in_place(nonce, b"slot 7", &mut body, &tag).expect("it is unchanged");
//! assert_eq!(&body, b"the contents of a block");
//! ```

mod aead;
mod aegis;
mod chacha_hmac;
mod cipher;
mod hashed;
mod keystream;
mod masked;
mod nonce;
mod prf;
#[cfg(feature = "suite")]
pub mod record;
mod secret;
mod unsealed;
mod veil;
#[cfg(feature = "std")]
mod wide;
#[cfg(feature = "suite")]
pub mod wrong_machine;

pub use crate::rng::Salt;
pub use aead::{Aead, Forgery};
pub use aegis::Aegis;
pub use chacha_hmac::ChaChaHmac;
pub use cipher::Cipher;
pub use hashed::HashSeal;
pub use keystream::Keystream;
pub use masked::MaskSeal;
pub use nonce::Nonce;
pub use prf::Prf;
pub use secret::{KeyDeriver, Mac, SECRET_LEN, Secret};
pub use unsealed::NoSeal;
pub use veil::Veil;
#[cfg(feature = "std")]
pub use wide::{DoubleAegis, WideAegis};

/// Bytes of the tag of an authenticated cipher.
pub const TAG_LEN: usize = 16;

/// Turns plaintext into ciphertext that an adversary may hold, bound to its place and version.
///
/// A sealer must never use a nonce twice for different contents; the caller stores the salt.
/// `bound` is authenticated, not stored.
pub trait Sealer: Send + Sync {
    /// Bytes of a tag.
    fn tag_len(&self) -> usize;

    /// Whether an adversary can make a tag, as for a hash without a key. Then the tag proves
    /// something only where the adversary cannot change it, so it must not lie beside its contents.
    fn tag_is_public(&self) -> bool {
        false
    }

    /// Seals `plain` into `sealed`, of the same length, and `tag`.
    fn seal(&self, nonce: Nonce, bound: &[u8], plain: &[u8], sealed: &mut [u8], tag: &mut [u8]) {
        sealed.copy_from_slice(plain);
        self.seal_in_place(nonce, bound, sealed, tag);
    }

    /// Seals `body` in place.
    fn seal_in_place(&self, nonce: Nonce, bound: &[u8], body: &mut [u8], tag: &mut [u8]);

    /// Opens `body` in place. On failure the contents of `body` are useless.
    fn open_in_place(
        &self,
        nonce: Nonce,
        bound: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> core::result::Result<(), Forgery>;

    /// Opens `sealed` into `plain`, of the same length. On failure the contents of `plain` are
    /// useless.
    fn open(
        &self,
        nonce: Nonce,
        bound: &[u8],
        sealed: &[u8],
        tag: &[u8],
        plain: &mut [u8],
    ) -> core::result::Result<(), Forgery> {
        plain.copy_from_slice(sealed);
        self.open_in_place(nonce, bound, plain, tag)
    }
}
