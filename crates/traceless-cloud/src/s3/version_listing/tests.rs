use super::*;
use crate::gateway::NameChanges;
use crate::gateway::testing::in_memory;
use crate::s3::buckets::Versioning;
use crate::s3::note::Note;
use crate::s3::versions::{Stamp, make_room, remove_object, remove_version};

/// Versions in the buckets `b` and `bb`, written without versions first, then with them.
fn gateway() -> Gateway {
    let mut gateway = in_memory(10, 1);
    let mut now = 1000;
    for versioning in [None, Some(Versioning::Enabled)] {
        for bucket in ["b", "bb"] {
            for key in ["a", "a/1", "a/2", "a0", "c", "\u{e4}"] {
                let place = ObjectPlace::new(bucket, key);
                let mut changes = NameChanges::default();
                now += 1;
                let note = Note { etag: format!("{now}"), modified: now, ..Note::default() };
                let stamp = Stamp { now, salt: 0 };
                let note =
                    make_room(&gateway, versioning, &place, note, stamp, &mut changes).unwrap();
                changes.bind(Namespace::Objects, &place.name(), None, &note.bytes());
                gateway.change_names(changes).unwrap();
            }
        }
    }
    let enabled = Some(Versioning::Enabled);
    for key in ["a/2", "c"] {
        let mut changes = NameChanges::default();
        let stamp = Stamp { now: 2000, salt: 0 };
        remove_object(&gateway, enabled, &ObjectPlace::new("b", key), stamp, &mut changes).unwrap();
        gateway.change_names(changes).unwrap();
    }
    gateway
}

/// All pages of a given length, joined: `+` is the newest version, `x` a delete marker.
fn list(gateway: &Gateway, prefix: &str, delimiter: &str, len: usize) -> String {
    let (mut words, mut next) = (Vec::new(), (String::new(), String::new()));
    loop {
        let (after, version) = &next;
        let request = ListRequest { bucket: "b", prefix, delimiter, after, len, escaped: false };
        let version = VersionId::parse(Some(&version[..]).filter(|id| !id.is_empty())).unwrap();
        let page = version_page(gateway, &request, version.as_ref()).unwrap();
        assert!(page.len() <= len);
        let versions = page.versions.iter().map(|version| {
            let latest = if version.is_latest { "+" } else { "" };
            let marker = if version.known.note.is_marker { "x" } else { "" };
            let null = if version.known.note.is_null() { "0" } else { "" };
            format!("{}{latest}{marker}{null}", version.key)
        });
        words.extend(versions);
        words.extend(page.prefixes.into_iter().map(|one| one.prefix.unwrap() + "*"));
        match page.next {
            Some(more) => next = more,
            None => return words.join(" "),
        }
    }
}

#[test]
fn all_versions_are_listed_in_order() {
    let gateway = gateway();
    for len in [1, 2, 3, 5, 100] {
        let all = "a+ a0 a/1+ a/10 a/2+x a/2 a/20 a0+ a00 c+x c c0 \u{e4}+ \u{e4}0";
        assert_eq!(list(&gateway, "", "", len), all, "{len}");
        assert_eq!(list(&gateway, "a/", "", len), "a/1+ a/10 a/2+x a/2 a/20", "{len}");
        assert_eq!(list(&gateway, "none", "", len), "");
        if len < 100 {
            let grouped = list(&gateway, "", "/", len);
            assert_eq!(grouped.matches('*').count(), 1, "{grouped}");
        }
    }
    let grouped = "a+ a0 a0+ a00 c+x c c0 \u{e4}+ \u{e4}0 a/*";
    assert_eq!(list(&gateway, "", "/", 100), grouped);
}

#[test]
fn a_page_begins_after_versions_that_are_gone() {
    let gateway = gateway();
    let page = |after, version: Option<VersionId>| {
        let request = ListRequest {
            bucket: "b",
            prefix: "a/",
            delimiter: "",
            after,
            len: 100,
            escaped: false,
        };
        let page = version_page(&gateway, &request, version.as_ref()).unwrap();
        page.versions.into_iter().map(|version| version.key).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(page("a/1", None), "a/2 a/2 a/2");
    let gone = VersionId::Named("f".repeat(32));
    assert_eq!(page("a/1", Some(gone.clone())), "a/2 a/2 a/2");
    assert_eq!(page("a/1", Some(VersionId::Named("0".repeat(32)))), "a/1 a/1 a/2 a/2 a/2");
    assert_eq!(page("a", Some(gone)), "a/1 a/1 a/2 a/2 a/2", "a key before the prefix");
}

/// The versions of a page are removed before the next page is listed, as tools empty a bucket.
#[test]
fn a_bucket_is_emptied_page_by_page() {
    for len in [1, 2, 3, 4, 100] {
        let (mut gateway, mut removed) = (gateway(), 0);
        let mut next = (String::new(), None);
        loop {
            let (after, version) = &next;
            let request =
                ListRequest { bucket: "b", prefix: "", delimiter: "", after, len, escaped: false };
            let page = version_page(&gateway, &request, version.as_ref()).unwrap();
            for listed in page.versions {
                let place = ObjectPlace::new("b", &listed.key[..]);
                let id = VersionId::parse(Some(&listed.known.note.version_id())).unwrap().unwrap();
                let mut changes = NameChanges::default();
                remove_version(
                    &gateway,
                    Some(Versioning::Enabled),
                    &place,
                    &id,
                    |_| Ok(()),
                    &mut changes,
                )
                .unwrap();
                gateway.change_names(changes).unwrap();
                removed += 1;
            }
            match page.next {
                Some((key, id)) => next = (key, VersionId::parse(Some(&id)).unwrap()),
                None => break,
            }
        }
        assert_eq!((list(&gateway, "", "", 100), removed), (String::new(), 14), "{len}");
    }
}

/// Keys with a zero byte are older than versions, and new ones are refused.
#[test]
fn keys_with_a_zero_byte_do_not_lead_back() {
    let mut gateway = gateway();
    let note = Note::default().bytes();
    for key in ["a\0", "a\0b"] {
        gateway.bind(Namespace::Objects, &name_of("b", key), None, &note).unwrap();
    }
    let all = list(&gateway, "a", "", 2);
    assert!(all.starts_with("a+ a0 a\0+0 a\0b+0 a/1+ a/10"), "{all:?}");
}

#[test]
fn markers_outside_the_list_lead_into_it() {
    let gateway = gateway();
    let page = |prefix, delimiter, after| {
        let request =
            ListRequest { bucket: "b", prefix, delimiter, after, len: 100, escaped: false };
        let page = version_page(&gateway, &request, Some(&VersionId::Null)).unwrap();
        let keys = page.versions.into_iter().map(|version| version.key);
        let prefixes = page.prefixes.into_iter().map(|one| one.prefix.unwrap());
        keys.chain(prefixes).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(page("a/", "", "c"), "");
    assert_eq!(page("", "/", "a/1"), "a0 a0 c c c \u{e4} \u{e4} a/");
}
