//! AEGIS-256X4: four states of AEGIS-256 side by side, for bodies of a page and more.
//!
//! Not AEGIS-256 in other bytes but a cipher of the same draft, so for what nobody keeps: pages of
//! a run. It needs libaegis, which chooses what the processor has.

use super::aegis::nonce;
use super::{Forged, Sealer, Secret, TAG_LEN};
use aegis::aegis256x4::Aegis256X4;

/// One AEGIS-256X4 key. The nonce is the version, so each version seals one content only.
pub struct WideAegis {
    key: Secret,
    #[cfg(feature = "suite")]
    name: u64,
}

impl WideAegis {
    /// The cipher under `key`.
    pub fn new(key: &Secret) -> Self {
        Self {
            key: key.clone(),
            #[cfg(feature = "suite")]
            name: super::record::name_of(key),
        }
    }

    fn cipher(&self, version: u64) -> Aegis256X4<TAG_LEN> {
        Aegis256X4::new(self.key.bytes(), &nonce(version))
    }
}

impl Sealer for WideAegis {
    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn seal_in_place(&self, version: u64, bound: &[u8], body: &mut [u8], tag: &mut [u8]) {
        tag.copy_from_slice(&self.cipher(version).encrypt_in_place(body, bound));
        #[cfg(feature = "suite")]
        super::record::note(self.name, version, tag);
    }

    fn open_in_place(
        &self,
        version: u64,
        bound: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), Forged> {
        let tag = tag.try_into().expect("lengths agree");
        self.cipher(version).decrypt_in_place(body, tag, bound).map_err(|_| Forged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_what_it_sealed_and_refuses_changes() {
        let wide = WideAegis::new(&Secret::from_bytes([7; 32]));
        for len in [0, 1, 255, 4096] {
            let plain: alloc::vec::Vec<u8> = (0..len).map(|i| i as u8).collect();
            let (mut sealed, mut tag) = (plain.clone(), [0; TAG_LEN]);
            wide.seal_in_place(3, b"place", &mut sealed, &mut tag);
            let open = |version, bound: &[u8], tag: &[u8]| {
                let mut out = sealed.clone();
                wide.open_in_place(version, bound, &mut out, tag).map(|()| out)
            };
            assert_eq!(open(3, b"place", &tag), Ok(plain.clone()));
            assert_eq!(open(4, b"place", &tag), Err(Forged));
            assert_eq!(open(3, b"Place", &tag), Err(Forged));
            let mut wrong = tag;
            wrong[0] ^= 1;
            assert_eq!(open(3, b"place", &wrong), Err(Forged));
            if let Some(last) = sealed.last_mut() {
                *last ^= 1;
                let mut out = sealed.clone();
                assert_eq!(wide.open_in_place(3, b"place", &mut out, &tag), Err(Forged));
            }
        }
    }
}
