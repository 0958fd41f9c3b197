//! Passwords of the Redis protocol.

use crate::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::path::Path;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Shortest password, in bytes.
const PASSWORD_LEN_MIN: usize = 8;

/// A password of the server. Only its digest is kept.
#[derive(Clone)]
pub struct Password([u8; 32]);

impl Password {
    /// Reads the first line of a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = Zeroizing::new(std::fs::read(path)?);
        let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
        Self::new(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// A password of at least eight bytes.
    pub fn new(password: &[u8]) -> Result<Self> {
        if password.len() < PASSWORD_LEN_MIN {
            return Err(Error::Parameters("a password has at least 8 bytes"));
        }
        Ok(Self(Sha256::digest(password).into()))
    }

    /// Whether `password` is the right one, in constant time.
    pub fn is(&self, password: &[u8]) -> bool {
        let other: [u8; 32] = Sha256::digest(password).into();
        self.0.ct_eq(&other).into()
    }
}

#[cfg(test)]
mod tests {
    use super::Password;

    #[test]
    fn only_the_same_password_is_accepted() {
        let password = Password::new(b"open sesame").unwrap();
        assert!(password.is(b"open sesame") && !password.is(b"open Sesame") && !password.is(b""));
        assert!(Password::new(b"short").is_err());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        std::fs::write(&path, "open sesame\r\nand more\n").unwrap();
        assert!(Password::read(&path).unwrap().is(b"open sesame"));
        assert!(Password::read(&folder.path().join("none")).is_err());
    }
}
