//! The header `x-amz-expiration`: when an object expires, and by which rule.

use super::buckets::BucketNote;
use super::lifecycle::{Expiration, Rule, end_of};
use super::listing::escape;
use super::object_info::ObjectInfo;
use super::times::{http_date, timestamp};

/// The header of the current version of an object, if a rule of its bucket ends it.
pub fn expiry_header(bucket: &BucketNote, key: &str, known: &ObjectInfo) -> Option<String> {
    let enabled = bucket.lifecycle.iter().filter(|rule| rule.is_enabled);
    let ending = enabled.filter_map(|rule| Some((expiry_by(rule, key, known)?, rule)));
    let (time, rule) = ending.min_by_key(|(time, _)| *time)?;
    let (date, id) = (http_date(Some(&timestamp(time)))?, escape(&rule.id, true));
    Some(format!("expiry-date=\"{date}\", rule-id=\"{id}\""))
}

/// When a rule ends an object, in milliseconds since 1970.
fn expiry_by(rule: &Rule, key: &str, known: &ObjectInfo) -> Option<u64> {
    let time = match rule.expiration? {
        Expiration::Days(days) => end_of(known.note.modified, days),
        Expiration::Date(date) => date,
        Expiration::Marker => return None,
    };
    rule.filter.includes(key, &known.note, known.object.len()).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::super::lifecycle::Filter;
    use super::super::note::Note;
    use super::super::times::DAY_MS;
    use super::*;
    use crate::gateway::{Namespace, testing::in_memory};

    #[test]
    fn the_first_rule_that_ends_an_object_is_named() {
        let mut gateway = in_memory(50, 1);
        gateway.bind(Namespace::Objects, b"b/k", None, b"").unwrap();
        let object = gateway.find(Namespace::Objects, b"b/k").unwrap().clone();
        let note = Note { modified: 3 * DAY_MS + 1, ..Note::default() };
        let known = ObjectInfo { name: Vec::new(), object, note };
        let rule = |id: &str, prefix: &str, expiration| Rule {
            id: id.to_owned(),
            is_enabled: true,
            filter: Filter { prefix: prefix.to_owned(), ..Filter::default() },
            expiration: Some(expiration),
            noncurrent: None,
            abort_days: None,
        };
        let header = |lifecycle: Vec<Rule>| {
            let bucket = BucketNote { lifecycle, ..BucketNote::default() };
            expiry_header(&bucket, "k", &known)
        };
        let (late, soon) = (Expiration::Days(9), Expiration::Days(2));
        let named = header(vec![rule("late", "", late), rule("so\u{fc}n", "k", soon)]);
        let text = "expiry-date=\"Wed, 07 Jan 1970 00:00:00 GMT\", rule-id=\"so%C3%BCn\"";
        assert_eq!(named.as_deref(), Some(text));
        let at = header(vec![rule("at", "", Expiration::Date(4 * DAY_MS)), rule("x", "", soon)]);
        let text = "expiry-date=\"Mon, 05 Jan 1970 00:00:00 GMT\", rule-id=\"at\"";
        assert_eq!(at.as_deref(), Some(text));
        let off = Rule { is_enabled: false, ..rule("off", "", soon) };
        let others = [rule("other", "x", soon), rule("marker", "", Expiration::Marker), off];
        assert_eq!(header(others.to_vec()), None);
    }
}
