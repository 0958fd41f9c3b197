//! The password that readers of the page must give.

use sha2::{Digest, Sha256};
use std::fmt;
use std::io;
use std::path::Path;
use subtle::ConstantTimeEq;
use traceless_core::rng::Rng;

/// Shortest password, in bytes.
const PASSWORD_LEN_MIN: usize = 8;
/// Bytes of a random password.
const RANDOM_LEN: usize = 16;

/// A password, or a random token in its place.
pub struct Password {
    text: String,
    digest: [u8; 32],
}

/// Why a file has no usable password.
#[derive(Debug)]
pub enum PasswordError {
    /// The file cannot be read, or is no text.
    Io(io::Error),
    /// The first line is too short.
    Short,
}

impl Password {
    /// A random password, to be printed.
    pub fn random(rng: &mut dyn Rng) -> Self {
        let mut bytes = [0; RANDOM_LEN];
        rng.fill(&mut bytes);
        Self::of(format!("{:032x}", u128::from_be_bytes(bytes)))
    }

    /// The first line of a file.
    pub fn read(path: &Path) -> Result<Self, PasswordError> {
        let text = std::fs::read_to_string(path).map_err(PasswordError::Io)?;
        let line = text.lines().next().unwrap_or_default();
        if line.len() < PASSWORD_LEN_MIN {
            return Err(PasswordError::Short);
        }
        Ok(Self::of(line.to_owned()))
    }

    fn of(text: String) -> Self {
        let digest = Sha256::digest(&text).into();
        Self { text, digest }
    }

    /// The password itself.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn digest(&self) -> PasswordDigest {
        PasswordDigest(self.digest)
    }
}

/// What a server keeps of a password.
#[derive(Clone)]
pub struct PasswordDigest([u8; 32]);

impl PasswordDigest {
    /// Whether this is the password, in constant time.
    pub fn is_of(&self, password: &str) -> bool {
        let other: [u8; 32] = Sha256::digest(password).into();
        self.0.ct_eq(&other).into()
    }
}

impl fmt::Display for PasswordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot read the password: {error}"),
            Self::Short => write!(f, "a password has at least {PASSWORD_LEN_MIN} bytes"),
        }
    }
}

impl std::error::Error for PasswordError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Short => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::rng::SeededRng;

    #[test]
    fn only_the_same_password_is_accepted() {
        let password = Password::of("open sesame".to_owned()).digest();
        assert!(password.is_of("open sesame"));
        for wrong in ["", "open sesam", "open sesame ", "Open sesame"] {
            assert!(!password.is_of(wrong), "{wrong}");
        }
    }

    #[test]
    fn random_passwords_differ_and_fit_a_url() {
        let [a, b] = [1, 2].map(|seed| Password::random(&mut SeededRng::new(seed)));
        assert_ne!(a.text(), b.text());
        assert_eq!(a.text().len(), 2 * RANDOM_LEN);
        assert!(a.text().chars().all(|c| c.is_ascii_hexdigit()) && a.digest().is_of(a.text()));
    }
}
