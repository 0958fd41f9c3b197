//! A sealer without encryption: for measurements, and for private memory.

use super::{Forgery, Nonce, Sealer};

/// Leaves bytes as they are: the contents are neither hidden nor authenticated.
#[derive(Clone, Copy)]
pub struct NoSeal;

impl Sealer for NoSeal {
    fn tag_len(&self) -> usize {
        0
    }

    fn seal_in_place(&self, _: Nonce, _: &[u8], _: &mut [u8], _: &mut [u8]) {}

    fn open_in_place(&self, _: Nonce, _: &[u8], _: &mut [u8], _: &[u8]) -> Result<(), Forgery> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_changed_and_nothing_is_added() {
        let (nonce, mut body) = (Nonce::of_fresh_key(1), [5; 20]);
        NoSeal.seal_in_place(nonce, &[], &mut body, &mut []);
        assert!(NoSeal.open_in_place(nonce, &[], &mut body, &[]).is_ok());
        assert_eq!((body, NoSeal.tag_len(), NoSeal.tag_is_public()), ([5; 20], 0, false));
    }
}
