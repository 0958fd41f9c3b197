//! Names of stores and stripes as text.

use crate::engine::{StripeName, ValueName};
use std::fmt;
use traceless_cloud::geometry::Node;
use traceless_cloud::store::NodeVersion;

/// Most bytes of a store's name.
const STORE_NAME_MAX: usize = 64;

/// The name of a store in an engine that has several: 1 to 64 letters, digits, `-`, `_` and `.`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreName(String);

impl StoreName {
    /// The name in this text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.is_empty() || text.len() > STORE_NAME_MAX || !text.chars().all(is_plain) {
            return Err(format!(
                "{text:?} is no name of a store: 1 to {STORE_NAME_MAX} letters, digits, -, _ and ."
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for StoreName {
    fn default() -> Self {
        Self("traceless".to_owned())
    }
}

/// A stripe's name as text: numbers in hexadecimal, between these separators.
pub struct StripeText {
    /// The stripe.
    pub name: StripeName,
    /// What separates the numbers.
    pub separator: char,
}

impl fmt::Display for StripeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ValueName { version, staging } = self.name.value;
        let (node, attempt, stripe, s) =
            (version.node.0, version.attempt, self.name.stripe, self.separator);
        write!(f, "{node:08x}{s}{attempt:016x}{s}{staging:016x}{s}{stripe:x}")
    }
}

impl StripeText {
    /// The stripe with this name.
    pub fn parse(text: &str, separator: char) -> Option<StripeName> {
        let mut parts = text.split(separator);
        let mut next = || u64::from_str_radix(parts.next()?, 16).ok();
        let (node, attempt, staging, stripe) = (next()?, next()?, next()?, next()?);
        let version = NodeVersion { node: Node(u32::try_from(node).ok()?), attempt };
        let value = ValueName { version, staging };
        let name = StripeName { value, stripe: u32::try_from(stripe).ok()? };
        // A name in another form was not written by this program.
        (Self { name, separator }.to_string() == text).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_stripes_round_trip_in_one_form() {
        let version = NodeVersion { node: Node(77), attempt: u64::MAX };
        let name = StripeName { value: ValueName { version, staging: 0 }, stripe: 300 };
        let text = StripeText { name, separator: ':' }.to_string();
        assert_eq!(text, "0000004d:ffffffffffffffff:0000000000000000:12c");
        assert_eq!(StripeText::parse(&text, ':'), Some(name));
        let wrong = [
            &text[1..],
            &text[..30],
            "",
            &format!("{text}:0"),
            &format!("{text} "),
            &text.replace(':', "/"),
            &text.to_uppercase(),
            "0000004d:+fffffffffffffff:0000000000000000:12c",
            "000000004d:ffffffffffffffff:0000000000000000:12c",
        ];
        assert!(wrong.iter().all(|wrong| StripeText::parse(wrong, ':').is_none()));
    }

    #[test]
    fn names_of_stores_have_no_wildcards() {
        assert_eq!(StoreName::parse("a.B-9_").unwrap().as_str(), "a.B-9_");
        let long = "a".repeat(STORE_NAME_MAX + 1);
        for wrong in ["", "a b", "a*", "a:b", "{a}", "é", "a/b", &long] {
            assert!(StoreName::parse(wrong).is_err(), "{wrong}");
        }
    }
}
