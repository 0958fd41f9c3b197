//! Lists objects: in order, under a prefix, and grouped by a delimiter.

use super::checksums::StoredChecksum;
use super::names::name_of;
use super::note::Note;
use crate::gateway::{Gateway, Namespace};
use core::ops::Bound;
use s3s::dto::{CommonPrefix, EncodingType, Object};
use s3s::{S3Result, s3_error};

/// Most entries of a page.
pub const PAGE_LEN_MAX: usize = 1000;

/// A request for a list.
pub struct ListRequest<'a> {
    pub bucket: &'a str,
    pub prefix: &'a str,
    /// Groups keys up to its first occurrence after the prefix. Empty for no grouping.
    pub delimiter: &'a str,
    /// The entry, or any text, after which to begin. Empty for the beginning.
    pub after: &'a str,
    pub len: usize,
    /// Whether names are escaped as in URLs.
    pub escaped: bool,
}

/// A page of names.
#[derive(Default)]
pub struct Page {
    pub objects: Vec<Object>,
    pub prefixes: Vec<CommonPrefix>,
    /// The last entry, if more follow.
    pub next: Option<String>,
}

impl Page {
    /// How many entries the page has.
    pub fn len(&self) -> usize {
        self.objects.len() + self.prefixes.len()
    }
}

/// How many entries a client wants.
pub fn page_len(requested: Option<i32>) -> S3Result<usize> {
    let requested = requested.map_or(Ok(PAGE_LEN_MAX), usize::try_from);
    Ok(requested.map_err(|_| s3_error!(InvalidArgument))?.min(PAGE_LEN_MAX))
}

/// A number of things in S3's type.
pub fn count(things: usize) -> i32 {
    i32::try_from(things).unwrap_or(i32::MAX)
}

/// A number of bytes in S3's type.
pub fn size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Escapes text as in URLs, if `escaped`.
pub fn escape(text: &str, escaped: bool) -> String {
    if !escaped {
        return text.to_owned();
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    let one = |byte: u8| {
        if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(one).collect()
}

/// Whether names are to be escaped.
pub fn is_escaped(requested: Option<&EncodingType>) -> bool {
    requested.is_some_and(|requested| requested.as_str() == EncodingType::URL)
}

/// The next page of a list.
pub fn page(gateway: &Gateway, request: &ListRequest<'_>) -> S3Result<Page> {
    let ListRequest { bucket, prefix, delimiter, after, len, escaped } = *request;
    let base = name_of(bucket, "");
    let first = name_of(bucket, prefix);
    let mut from = match rolled_up(after, prefix, delimiter) {
        _ if after < prefix => Bound::Included(first.clone()),
        Some(rolled) if rolled == after => Bound::Included(behind_all(&name_of(bucket, rolled))),
        _ => Bound::Excluded(name_of(bucket, after)),
    };
    let (mut page, mut last) = (Page::default(), "");
    loop {
        let start = from.as_ref().map(Vec::as_slice);
        let Some((name, object)) = gateway.names_from(Namespace::Objects, start).next() else {
            break;
        };
        if !name.starts_with(&first) {
            break;
        }
        let key = core::str::from_utf8(&name[base.len()..]);
        let key = key.map_err(|_| s3_error!(InternalError, "a name is damaged"))?;
        if page.len() == len {
            page.next = Some(last.to_owned()).filter(|_| len > 0);
            break;
        }
        if let Some(rolled) = rolled_up(key, prefix, delimiter) {
            let prefix = Some(escape(rolled, escaped));
            page.prefixes.push(CommonPrefix { prefix });
            from = Bound::Included(behind_all(&name_of(bucket, rolled)));
            last = rolled;
        } else {
            let note = Note::read(object.note())?;
            page.objects.push(Object {
                key: Some(escape(key, escaped)),
                checksum_algorithm: note.checksum.as_ref().map(|one| vec![one.algorithm()]),
                checksum_type: note.checksum.as_ref().map(StoredChecksum::kind),
                e_tag: Some(note.etag()),
                last_modified: Some(note.modified()),
                size: Some(size(object.len())),
                storage_class: Some(s3s::dto::ObjectStorageClass::from_static("STANDARD")),
                ..Object::default()
            });
            from = Bound::Excluded(name.to_vec());
            last = key;
        }
    }
    Ok(page)
}

/// The front of a key up to its first delimiter after the prefix.
pub fn rolled_up<'a>(key: &'a str, prefix: &str, delimiter: &str) -> Option<&'a str> {
    let rest = key.strip_prefix(prefix).filter(|_| !delimiter.is_empty())?;
    let at = rest.find(delimiter)?;
    Some(&key[..prefix.len() + at + delimiter.len()])
}

/// The first name after all names that begin with `front`. Text has no byte 255, so it exists.
pub fn behind_all(front: &[u8]) -> Vec<u8> {
    let mut name = front.to_vec();
    if let Some(last) = name.last_mut() {
        *last += 1;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::testing::in_memory;

    const KEYS: [&str; 11] =
        ["a", "a/", "a/1", "a/2", "a/b/3", "a0", "b/c", "b/d", "c d", "\u{e4}/x", "\u{ff}"];

    fn gateway() -> Gateway {
        let mut gateway = in_memory(10, 1);
        for bucket in ["aaa", "bbb", "bbb-", "bbc"] {
            for key in KEYS.iter().filter(|_| bucket == "bbb").chain(&["z"]) {
                let note = Note { etag: (*key).to_owned(), ..Note::default() }.bytes();
                gateway.bind(Namespace::Objects, &name_of(bucket, key), None, &note).unwrap();
            }
        }
        gateway
    }

    /// All pages of a given length, joined.
    fn list(gateway: &Gateway, prefix: &str, delimiter: &str, after: &str, len: usize) -> String {
        let (mut words, mut after) = (Vec::new(), after.to_owned());
        loop {
            let request = ListRequest {
                bucket: "bbb",
                prefix,
                delimiter,
                after: &after,
                len,
                escaped: false,
            };
            let page = page(gateway, &request).unwrap();
            assert!(page.len() == len || page.next.is_none());
            words.extend(page.objects.into_iter().map(|object| object.key.unwrap()));
            let prefixes = page.prefixes.into_iter();
            words.extend(prefixes.map(|rolled| format!("{}*", rolled.prefix.unwrap())));
            let Some(next) = page.next else { break };
            after = next;
        }
        words.sort();
        words.join(" ")
    }

    #[test]
    fn pages_of_any_length_cover_the_whole_listing() {
        let gateway = gateway();
        let all = [&KEYS[..], &["z"]].concat();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        for len in 1..=13 {
            assert_eq!(list(&gateway, "", "", "", len), sorted.join(" "));
            assert_eq!(list(&gateway, "", "/", "", len), "a a/* a0 b/* c d z \u{e4}/* \u{ff}");
            assert_eq!(list(&gateway, "a/", "/", "", len), "a/ a/1 a/2 a/b/*");
            assert_eq!(list(&gateway, "a/", "", "", len), "a/ a/1 a/2 a/b/3");
            assert_eq!(list(&gateway, "a", "/", "", len), "a a/* a0");
            assert_eq!(list(&gateway, "", "/", "a0", len), "b/* c d z \u{e4}/* \u{ff}");
            assert_eq!(list(&gateway, "a/", "", "a/1", len), "a/2 a/b/3");
            assert_eq!(list(&gateway, "b", "", "a/1", len), "b/c b/d");
            assert_eq!(list(&gateway, "none", "/", "", len), "");
            assert_eq!(list(&gateway, "", "d", "", len).matches('*').count(), 2, "b/d* and c d*");
        }
    }

    #[test]
    fn no_entries_is_a_page_too_and_names_are_escaped() {
        let gateway = gateway();
        let mut request = ListRequest {
            bucket: "bbb",
            prefix: "",
            delimiter: "",
            after: "",
            len: 0,
            escaped: true,
        };
        let none = page(&gateway, &request).unwrap();
        assert!(none.len() == 0 && none.next.is_none());
        request.len = 100;
        let keys = page(&gateway, &request).unwrap().objects;
        assert!(keys.iter().any(|object| object.key.as_deref() == Some("c%20d")));
        assert!(keys.iter().any(|object| object.key.as_deref() == Some("%C3%A4/x")));
        assert!(page_len(Some(-1)).is_err());
        assert_eq!((page_len(None).unwrap(), page_len(Some(7)).unwrap()), (1000, 7));
    }
}
