//! Names of values and objects with lost blocks.

use super::names::Namespace;
use super::record::Record;

/// A name with lost blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostName {
    /// What the name is for.
    pub namespace: Namespace,
    /// The name.
    pub name: Vec<u8>,
    /// How many of its blocks are lost.
    pub blocks: usize,
}

impl LostName {
    /// The name as text, and the version of an S3 object if it is not the current one.
    pub fn text(&self) -> (String, Option<String>) {
        let text = String::from_utf8_lossy(&self.name);
        match text.strip_prefix('\0').and_then(|text| text.rsplit_once('\0')) {
            Some((name, version)) => (name.to_owned(), Some(version.to_owned())),
            None => (text.into_owned(), None),
        }
    }

    /// The record that removes the name.
    pub(super) fn removal(&self) -> Record {
        Record::Unbind { namespace: self.namespace, name: self.name.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_no_part_of_a_name() {
        let text = |name: &[u8]| {
            let (namespace, name) = (Namespace::Objects, name.to_vec());
            LostName { namespace, name, blocks: 1 }.text()
        };
        assert_eq!(text(b"b/k"), ("b/k".to_owned(), None));
        assert_eq!(text(b"\0b/k\0id"), ("b/k".to_owned(), Some("id".to_owned())));
        assert_eq!(text(b"\0"), ("\0".to_owned(), None));
    }
}
