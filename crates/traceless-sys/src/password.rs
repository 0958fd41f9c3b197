//! Passwords that clients of a server give.

use sha2::{Digest, Sha256};
use std::io::{self, ErrorKind};
use std::path::Path;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Shortest password, in bytes.
const PASSWORD_LEN_MIN: usize = 8;

/// A password that clients of a server must give. Only its digest is kept.
///
/// ```
/// use traceless_sys::password::Password;
///
/// # fn main() -> std::io::Result<()> {
/// let password = Password::new(b"open sesame")?;
/// assert!(password.is(b"open sesame"));
/// assert!(!password.is(b"Open sesame"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Password([u8; 32]);

impl Password {
    /// Reads a password from the first line of a file.
    pub fn read(path: &Path) -> io::Result<Self> {
        Self::first_line_of(&Zeroizing::new(std::fs::read(path)?))
    }

    /// The first line of a text, without its end.
    pub fn first_line_of(text: &[u8]) -> io::Result<Self> {
        let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
        Self::new(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// A password of at least eight bytes; a shorter one is [`ErrorKind::InvalidInput`].
    pub fn new(password: &[u8]) -> io::Result<Self> {
        if password.len() < PASSWORD_LEN_MIN {
            let text = "a password has at least 8 bytes";
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        Ok(Self(Sha256::digest(password).into()))
    }

    /// The password that has this digest (SHA-256).
    pub fn of_digest(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// Its digest (SHA-256).
    pub fn digest(&self) -> &[u8; 32] {
        &self.0
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
        assert!(password.is(b"open sesame"));
        for wrong in ["", "open sesam", "open sesame ", "open Sesame"] {
            assert!(!password.is(wrong.as_bytes()), "{wrong}");
        }
        assert!(Password::new(b"short").is_err());
        assert!(Password::of_digest(*password.digest()).is(b"open sesame"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        std::fs::write(&path, "open sesame\r\nand more\n").unwrap();
        assert!(Password::read(&path).unwrap().is(b"open sesame"));
        assert!(Password::read(&folder.path().join("none")).is_err());
    }
}
