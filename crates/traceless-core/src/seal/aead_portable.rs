//! AES-256-GCM without a C compiler, from `RustCrypto`.

use super::{Forgery, Secret};
use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::{AeadInOut, Aes256Gcm, KeyInit, Tag};

pub struct PortableKey(Aes256Gcm);

impl PortableKey {
    pub fn new(key: &Secret) -> Self {
        Self(Aes256Gcm::new(key.bytes().into()))
    }

    pub fn seal(&self, n: [u8; 12], aad: &[u8], plain: &[u8], out: &mut [u8], tag: &mut [u8]) {
        let buffer = InOutBuf::new(plain, out).expect("lengths were checked");
        self.encrypt(n, aad, buffer, tag);
    }

    pub fn seal_in_place(&self, n: [u8; 12], aad: &[u8], body: &mut [u8], tag: &mut [u8]) {
        self.encrypt(n, aad, InOutBuf::from(body), tag);
    }

    pub fn open_in_place(
        &self,
        n: [u8; 12],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), Forgery> {
        self.decrypt(n, aad, InOutBuf::from(body), tag)
    }

    pub fn open(
        &self,
        n: [u8; 12],
        aad: &[u8],
        sealed: &[u8],
        tag: &[u8],
        plain: &mut [u8],
    ) -> Result<(), Forgery> {
        let buffer = InOutBuf::new(sealed, plain).expect("lengths were checked");
        self.decrypt(n, aad, buffer, tag)
    }

    fn decrypt(
        &self,
        n: [u8; 12],
        aad: &[u8],
        buffer: InOutBuf<'_, '_, u8>,
        tag: &[u8],
    ) -> Result<(), Forgery> {
        let tag = Tag::try_from(tag).expect("lengths were checked");
        self.0.decrypt_inout_detached(&n.into(), aad, buffer, &tag).map_err(|_| Forgery)
    }

    fn encrypt(&self, n: [u8; 12], aad: &[u8], buffer: InOutBuf<'_, '_, u8>, tag: &mut [u8]) {
        let made = self
            .0
            .encrypt_inout_detached(&n.into(), aad, buffer)
            .expect("a body is far shorter than the cipher's limit");
        tag.copy_from_slice(&made);
    }
}
