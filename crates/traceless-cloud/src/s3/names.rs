//! The gateway's names of objects: a bucket, `/` and a key for the current version, and names that
//! no bucket begins for older ones.

/// Characters of a version's name.
pub const ID_LEN: usize = 32;
/// Begins names of the archive. No bucket's name begins with it.
const ARCHIVE: &str = "\0";
/// Ends the key in a name of the archive, before the version.
const KEY_END: &str = "\0";
/// The bucket and the key of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectPlace {
    pub bucket: String,
    pub key: String,
}

impl ObjectPlace {
    /// The place with this key in this bucket.
    pub fn new(bucket: impl Into<String>, key: impl Into<String>) -> Self {
        Self { bucket: bucket.into(), key: key.into() }
    }

    /// The gateway's name of the current version.
    pub fn name(&self) -> Vec<u8> {
        name_of(&self.bucket, &self.key)
    }

    /// The beginning of the gateway's names of all other versions.
    pub fn archive(&self) -> Vec<u8> {
        format!("{ARCHIVE}{}/{}{KEY_END}", self.bucket, self.key).into_bytes()
    }

    /// The gateway's name of another version.
    pub fn archived(&self, id: &str) -> Vec<u8> {
        [&self.archive()[..], id.as_bytes()].concat()
    }
}

/// The gateway's name of the current version of an object.
pub fn name_of(bucket: &str, key: &str) -> Vec<u8> {
    [bucket.as_bytes(), b"/", key.as_bytes()].concat()
}

/// Whether a text has the form of a version.
pub fn is_id(text: &[u8]) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    text.len() == ID_LEN && text.iter().all(is_digit)
}

/// The beginning of the names of all archives of a bucket under a prefix of keys.
pub fn archives_of(bucket: &str, prefix: &str) -> Vec<u8> {
    format!("{ARCHIVE}{bucket}/{prefix}").into_bytes()
}

/// The key and the version of a name in the archives of a bucket.
pub fn key_and_version<'a>(bucket: &str, name: &'a [u8]) -> Option<(&'a str, &'a str)> {
    let rest = name.strip_prefix(&archives_of(bucket, "")[..])?;
    let (key, id) = rest.split_at_checked(rest.len().checked_sub(ID_LEN)?)?;
    let key = core::str::from_utf8(key).ok()?.strip_suffix(KEY_END)?;
    Some((key, core::str::from_utf8(id).ok()?)).filter(|(_, id)| is_id(id.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_archive_are_read_again() {
        let id = "0123456789abcdef0123456789abcdef";
        for key in ["a", "a/b", "a\0", "", "\u{e4}"] {
            let name = ObjectPlace::new("bbb", key).archived(id);
            assert_eq!(key_and_version("bbb", &name), Some((key, id)));
            assert_eq!(key_and_version("bb", &name), None);
            assert!(name.starts_with(&archives_of("bbb", key)));
            assert!(!name.starts_with(&name_of("bbb", "")));
        }
        let upper = ObjectPlace::new("bbb", "a").archived(&id.to_uppercase());
        assert_eq!(key_and_version("bbb", &upper), None);
        assert_eq!(key_and_version("bbb", b"\0bbb/short"), None);
    }
}
