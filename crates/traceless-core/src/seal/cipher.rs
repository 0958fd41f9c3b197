//! The ciphers that can seal a store.

use super::{Aead, Aegis, Sealer, Secret};
#[cfg(feature = "std")]
use super::{DoubleAegis, WideAegis};
#[cfg(feature = "std")]
use super::{Nonce, TAG_LEN};
#[cfg(feature = "std")]
use crate::clock::Clock;
#[cfg(feature = "std")]
use crate::error::{Error, Result};
use alloc::boxed::Box;
#[cfg(feature = "std")]
use alloc::vec;
#[cfg(feature = "std")]
use alloc::vec::Vec;

/// Number of trials of each cipher in the search for the fastest; the best trial counts.
#[cfg(feature = "std")]
const TRIALS: usize = 8;

/// Number of contents that a trial seals and opens.
#[cfg(feature = "std")]
const CONTENTS: u64 = 64;

/// Bytes of the known answer: enough for the widest loops of each implementation, and a rest.
#[cfg(feature = "std")]
const KNOWN_LEN: usize = 4099;

/// Of each cipher the tag of the known answer, and the first bytes of its contents. A plain
/// implementation of draft-irtf-cfrg-aegis-aead, and for AES-256-GCM OpenSSL, compute the same.
#[cfg(feature = "std")]
const KNOWN_AES_GCM: (u128, u128) =
    (0x9d53_7148_9dba_a64b_4dba_ea03_f9e6_c743, 0x88f2_683b_9f85_61e6_fa71_7e5d_c7f3_1b49);
#[cfg(feature = "std")]
const KNOWN_AEGIS_256: (u128, u128) =
    (0x9e6c_aaeb_f217_c3d5_ae3a_10ef_f4a4_68c0, 0xa0a1_bc5e_8eae_3f9c_429c_6809_d8a6_f160);
#[cfg(feature = "std")]
const KNOWN_AEGIS_256X2: (u128, u128) =
    (0xd2a8_d795_f823_942c_88e4_f342_6cab_74ff, 0x913c_5b0c_e2d1_24d2_3276_0487_1d95_b464);
#[cfg(feature = "std")]
const KNOWN_AEGIS_256X4: (u128, u128) =
    (0xcc3e_bfeb_ad49_6e46_3550_14f0_73a7_53f3, 0x47af_2bd8_e9cc_2c56_f58d_3f77_5ede_d583);

/// An authenticated cipher with keys of 256 bits and tags of 128.
///
/// All are as strong as AES-256. AES-256-GCM is a standard; the ciphers of the AEGIS draft take
/// nonces of 256 bits, and are faster where the processor has AES instructions but not the widest
/// ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cipher {
    /// AES-256-GCM.
    #[default]
    AesGcm,
    /// AEGIS-256.
    Aegis256,
    /// AEGIS-256X2: two states side by side, for blocks of a few hundred bytes and more.
    #[cfg(feature = "std")]
    Aegis256X2,
    /// AEGIS-256X4: four states side by side, for blocks of a page and more.
    #[cfg(feature = "std")]
    Aegis256X4,
}

impl Cipher {
    /// All ciphers.
    #[cfg(feature = "std")]
    pub const ALL: [Self; 4] = [Self::AesGcm, Self::Aegis256, Self::Aegis256X2, Self::Aegis256X4];

    /// All ciphers.
    #[cfg(not(feature = "std"))]
    pub const ALL: [Self; 2] = [Self::AesGcm, Self::Aegis256];

    /// Name on the command line and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::AesGcm => "aes-256-gcm",
            Self::Aegis256 => "aegis-256",
            #[cfg(feature = "std")]
            Self::Aegis256X2 => "aegis-256x2",
            #[cfg(feature = "std")]
            Self::Aegis256X4 => "aegis-256x4",
        }
    }

    /// The cipher of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cipher| cipher.name() == name)
    }

    /// The number that stands for the cipher in stored formats.
    pub fn code(self) -> u8 {
        match self {
            Self::AesGcm => 1,
            Self::Aegis256 => 2,
            #[cfg(feature = "std")]
            Self::Aegis256X2 => 3,
            #[cfg(feature = "std")]
            Self::Aegis256X4 => 4,
        }
    }

    /// The cipher with this number.
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|cipher| cipher.code() == code)
    }

    /// The fastest cipher on this machine for contents of `len` bytes, measured in some
    /// milliseconds. AES-256-GCM is preferred unless another cipher is faster by more than a tenth:
    /// it is the best known.
    #[cfg(feature = "std")]
    pub fn fastest(len: usize, clock: &dyn Clock) -> Self {
        let (sound, mut times) = (Self::ALL.map(Self::is_sound), Self::ALL.map(|_| u64::MAX));
        // The ciphers take turns, so that a drift in the machine's speed affects all alike.
        for _ in 0..TRIALS {
            for (nth, best) in times.iter_mut().enumerate().filter(|(nth, _)| sound[*nth]) {
                *best = (*best).min(Self::ALL[nth].time_of(len, clock));
            }
        }
        let (fastest, time) = Self::ALL
            .into_iter()
            .zip(times)
            .min_by_key(|(_, time)| *time)
            .expect("there are ciphers");
        let of_gcm = times[0];
        if time.saturating_mul(10) >= of_gcm.saturating_mul(9) { Self::AesGcm } else { fastest }
    }

    /// Whether this machine computes the cipher as it is defined, for one known answer, which is
    /// sealed and opened in each way, and refuses a forgery of it. Some emulated processors compute
    /// wide AES instructions wrongly: contents come back, and so do zeros that nothing sealed.
    #[cfg(feature = "std")]
    pub fn is_sound(self) -> bool {
        let (tag, begin) = match self {
            Self::AesGcm => KNOWN_AES_GCM,
            Self::Aegis256 => KNOWN_AEGIS_256,
            Self::Aegis256X2 => KNOWN_AEGIS_256X2,
            Self::Aegis256X4 => KNOWN_AEGIS_256X4,
        };
        let (plain, ciphertext, made) = self.seal_known();
        made == tag.to_be_bytes()
            && ciphertext[..16] == begin.to_be_bytes()
            && self.opens_known(&plain, &ciphertext, made)
    }

    /// Refuses a cipher that [is not sound](Self::is_sound) on this machine.
    #[cfg(feature = "std")]
    pub fn check(self) -> Result {
        if self.is_sound() { Ok(()) } else { Err(Error::CipherUnsound(self.name())) }
    }

    /// The contents of the known answer, the same sealed, and the tag.
    #[cfg(feature = "std")]
    fn seal_known(self) -> (Vec<u8>, Vec<u8>, [u8; TAG_LEN]) {
        let plain: Vec<u8> = (0..KNOWN_LEN).map(|at| at as u8).collect();
        let (mut sealed, mut tag) = (vec![0; KNOWN_LEN], [0; TAG_LEN]);
        let cipher = self.sealer(&Secret::from_bytes([7; 32]));
        cipher.seal(Nonce::of_fresh_key(3), b"place", &plain, &mut sealed, &mut tag);
        (plain, sealed, tag)
    }

    /// Whether the known answer is the same when it is sealed in place, opens in both ways, and
    /// does not open with another tag.
    #[cfg(feature = "std")]
    fn opens_known(self, plain: &[u8], sealed: &[u8], mut tag: [u8; TAG_LEN]) -> bool {
        let (cipher, nonce) = (self.sealer(&Secret::from_bytes([7; 32])), Nonce::of_fresh_key(3));
        let (mut in_place, mut tag_in_place) = (plain.to_vec(), [0; TAG_LEN]);
        cipher.seal_in_place(nonce, b"place", &mut in_place, &mut tag_in_place);
        let is_alike = in_place == sealed && tag_in_place == tag;
        let mut apart = vec![0; sealed.len()];
        let opened = cipher.open(nonce, b"place", sealed, &tag, &mut apart).is_ok()
            && cipher.open_in_place(nonce, b"place", &mut in_place, &tag).is_ok();
        let is_back = apart == plain && in_place == plain;
        tag[TAG_LEN - 1] ^= 1;
        let is_refused = cipher.open(nonce, b"place", sealed, &tag, &mut apart).is_err()
            && cipher.open_in_place(nonce, b"place", &mut sealed.to_vec(), &tag).is_err();
        is_alike && opened && is_back && is_refused
    }

    /// Time to seal and open a few contents of `len` bytes.
    #[cfg(feature = "std")]
    fn time_of(self, len: usize, clock: &dyn Clock) -> u64 {
        let sealer = self.sealer(&Secret::from_bytes([0; 32]));
        let (mut body, mut tag) = (vec![0; len], [0; TAG_LEN]);
        let begin = clock.now();
        for version in 0..CONTENTS {
            // The key protects no data: a repeated nonce reveals nothing.
            let nonce = Nonce::of_fresh_key(version);
            sealer.seal_in_place(nonce, &[], &mut body, &mut tag);
            let opened = sealer.open_in_place(nonce, &[], &mut body, &tag);
            assert!(opened.is_ok(), "what was sealed opens");
        }
        clock.now() - begin
    }

    /// A sealer under `key`.
    pub fn sealer(self, key: &Secret) -> Box<dyn Sealer> {
        match self {
            Self::AesGcm => Box::new(Aead::new(key)),
            Self::Aegis256 => Box::new(Aegis::new(key)),
            #[cfg(feature = "std")]
            Self::Aegis256X2 => Box::new(DoubleAegis::new(key)),
            #[cfg(feature = "std")]
            Self::Aegis256X4 => Box::new(WideAegis::new(key)),
        }
    }
}

impl core::fmt::Display for Cipher {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::{Nonce, Salt, TAG_LEN};

    #[cfg(feature = "std")]
    #[test]
    fn the_fastest_is_what_the_clock_says() {
        use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

        /// Each trial of cipher number `.1` takes `.2`, each other trial 100.
        struct Scripted(AtomicU64, u64, u64);

        impl Clock for Scripted {
            fn now(&self) -> u64 {
                let calls = self.0.fetch_add(1, Relaxed);
                let (trials, in_trial) = (calls / 2, calls % 2);
                let of_this = |trial| if trial % 4 == self.1 { self.2 } else { 100 };
                (0..trials).map(of_this).sum::<u64>() + in_trial * of_this(trials)
            }
        }

        let chosen = |nth, time| Cipher::fastest(64, &Scripted(AtomicU64::new(0), nth, time));
        for (nth, cipher) in (0..).zip(Cipher::ALL) {
            assert_eq!(chosen(nth, 50), cipher);
        }
        assert_eq!(chosen(2, 95), Cipher::AesGcm, "hardly faster");
        assert_eq!(chosen(2, 85), Cipher::ALL[2]);
    }

    #[cfg(feature = "std")]
    #[test]
    fn this_machine_computes_all_of_them_rightly() {
        for cipher in Cipher::ALL {
            let (_, sealed, tag) = cipher.seal_known();
            let begin = sealed.first_chunk().expect("it is long enough");
            let found = (u128::from_be_bytes(tag), u128::from_be_bytes(*begin));
            assert!(cipher.is_sound(), "{cipher}: {found:#x?}");
        }
    }

    #[cfg(feature = "suite")]
    #[test]
    fn a_cipher_that_is_computed_wrongly_is_found_and_not_chosen() {
        use crate::clock::Monotonic;
        use crate::seal::wrong_machine::{with, with_openings};

        let look = |wrong: Cipher| {
            assert_eq!(Cipher::ALL.map(Cipher::is_sound), Cipher::ALL.map(|other| other != wrong));
            assert!(
                matches!(wrong.check(), Err(Error::CipherUnsound(name)) if name == wrong.name())
            );
            assert!((0..3).all(|_| Cipher::fastest(64, &Monotonic::start()) != wrong), "{wrong}");
        };
        with::<Aead, _>(|| look(Cipher::AesGcm));
        with::<Aegis, _>(|| look(Cipher::Aegis256));
        with::<DoubleAegis, _>(|| look(Cipher::Aegis256X2));
        with::<WideAegis, _>(|| look(Cipher::Aegis256X4));
        with_openings::<Aead, _>(|| look(Cipher::AesGcm));
        with_openings::<Aegis, _>(|| look(Cipher::Aegis256));
        with_openings::<DoubleAegis, _>(|| look(Cipher::Aegis256X2));
        with_openings::<WideAegis, _>(|| look(Cipher::Aegis256X4));
    }

    #[test]
    fn each_has_a_name_and_a_code_and_bytes_of_its_own() {
        let mut all = alloc::vec::Vec::new();
        for cipher in Cipher::ALL {
            assert_eq!(Cipher::named(cipher.name()), Some(cipher));
            assert_eq!(Cipher::of_code(cipher.code()), Some(cipher));
            let sealer = cipher.sealer(&Secret::from_bytes([7; 32]));
            let (mut body, mut tag) = ([0; 64], [0; TAG_LEN]);
            assert_eq!(sealer.tag_len(), TAG_LEN);
            sealer.seal_in_place(Nonce::new(1, Salt(2)), &[], &mut body, &mut tag);
            assert!(!all.contains(&body));
            all.push(body);
        }
        assert_eq!(Cipher::named("rot13"), None);
        assert_eq!(Cipher::of_code(0), None);
    }
}
