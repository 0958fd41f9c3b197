//! Access keys, and the rights of each key on each bucket.

use crate::codec::hex;
use crate::error::{Error, Result};
use s3s::auth::SecretKey;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use traceless_core::rng::Rng;
use zeroize::Zeroizing;

/// Shortest access key and shortest secret, in bytes.
const LEN_MIN: usize = 3;
const SECRET_LEN_MIN: usize = 8;

/// The rights of a key on a bucket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Grant {
    /// Read and list.
    ReadOnly,
    /// Everything, including creating and removing the bucket.
    ReadWrite,
}

struct Key {
    secret: SecretKey,
    /// By bucket; `*` stands for all other buckets.
    grants: BTreeMap<String, Grant>,
}

/// Access keys.
pub struct AccessKeys(HashMap<String, Key>);

impl AccessKeys {
    /// Reads a file: on each line a key, its secret, and any number of `BUCKET=ro` or `BUCKET=rw`,
    /// with `*` for all other buckets; without any, everything is allowed. `#` begins a remark.
    pub fn read(path: &Path) -> Result<Self> {
        let text = Zeroizing::new(std::fs::read_to_string(path)?);
        Self::parse(&text)
    }

    /// The text of a file with one random key, which may do everything.
    pub fn draw(rng: &mut dyn Rng) -> Zeroizing<String> {
        let mut word = |bytes: usize| {
            let mut drawn = Zeroizing::new(vec![0; bytes]);
            rng.fill(&mut drawn);
            Zeroizing::new(hex(&drawn))
        };
        let (id, secret) = (word(8), word(20));
        Zeroizing::new(format!("# KEY SECRET [BUCKET=ro|rw]...\nTL{} {}\n", &*id, &*secret))
    }

    fn parse(text: &str) -> Result<Self> {
        const WRONG: Error =
            Error::Parameters("a line of the keys file is KEY SECRET [BUCKET=ro|BUCKET=rw]...");
        let mut keys = HashMap::new();
        for line in text.lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(id) = words.next() else { continue };
            let secret = words.next().ok_or(WRONG)?;
            if id.len() < LEN_MIN || secret.len() < SECRET_LEN_MIN || id.contains('/') {
                return Err(Error::Parameters("a key has 3 characters, its secret 8, at least"));
            }
            let mut grants = BTreeMap::new();
            for word in words {
                let (bucket, grant) = match word.split_once('=') {
                    Some((bucket, "ro")) => (bucket, Grant::ReadOnly),
                    Some((bucket, "rw")) => (bucket, Grant::ReadWrite),
                    _ => return Err(WRONG),
                };
                grants.insert(bucket.to_owned(), grant);
            }
            if grants.is_empty() {
                grants.insert("*".to_owned(), Grant::ReadWrite);
            }
            let key = Key { secret: SecretKey::from(secret), grants };
            if keys.insert(id.to_owned(), key).is_some() {
                return Err(Error::Parameters("a key is in the keys file twice"));
            }
        }
        if keys.is_empty() {
            return Err(Error::Parameters("there is no key in the keys file"));
        }
        Ok(Self(keys))
    }

    /// The rights of a key on a bucket, if it has any.
    pub fn grant(&self, id: &str, bucket: &str) -> Option<Grant> {
        let grants = &self.0.get(id)?.grants;
        grants.get(bucket).or_else(|| grants.get("*")).copied()
    }

    /// The secret of a key.
    pub fn secret(&self, id: &str) -> Option<&SecretKey> {
        self.0.get(id).map(|key| &key.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::rng::SeededRng;

    #[test]
    fn keys_have_grants() {
        let text = "# remark\n\nalice secret-of-alice\nbob secret-of-bob logs=ro drop=rw # more\n\
            carol secret-of-carol *=ro own=rw\n";
        let keys = AccessKeys::parse(text).unwrap();
        assert_eq!(keys.grant("alice", "any"), Some(Grant::ReadWrite));
        assert_eq!(keys.grant("bob", "logs"), Some(Grant::ReadOnly));
        assert_eq!(keys.grant("bob", "drop"), Some(Grant::ReadWrite));
        assert_eq!((keys.grant("bob", "any"), keys.grant("dave", "any")), (None, None));
        assert_eq!(keys.grant("carol", "own"), Some(Grant::ReadWrite));
        assert_eq!(keys.grant("carol", "any"), Some(Grant::ReadOnly));
        for wrong in [
            "",
            "alice",
            "al secret-of-al",
            "alice short",
            "alice secret-of-a x=y",
            "alice secret-of-a x",
            "a/c secret-of-ac",
            "alice secret-1\nalice secret-2",
        ] {
            assert!(AccessKeys::parse(wrong).is_err(), "{wrong}");
        }
        let drawn = AccessKeys::parse(&AccessKeys::draw(&mut SeededRng::new(1))).unwrap();
        assert_eq!(drawn.0.len(), 1);
    }
}
