//! Rules by which browsers let pages from elsewhere read the replies of a bucket (CORS).

use hyper::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, HeaderMap,
    HeaderName, HeaderValue, VARY,
};
use s3s::{S3Result, dto, s3_error};
use serde::{Deserialize, Serialize};

/// Most rules of a bucket.
const RULES_MAX: usize = 100;
/// Longest name of a rule, in bytes.
const ID_LEN_MAX: usize = 255;
/// Most bytes of all rules of a bucket.
const RULES_LEN_MAX: usize = 64 << 10;
/// The methods that a rule can allow.
const METHODS: [&str; 5] = ["GET", "PUT", "POST", "DELETE", "HEAD"];
/// What a reply depends on beside its address.
const VARIES: &str = "Origin, Access-Control-Request-Headers, Access-Control-Request-Method";

/// A rule. In origins and headers one `*` stands for any text.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct CorsRule {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub origins: Vec<String>,
    pub methods: Vec<String>,
    /// The headers that a request may have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// The headers of a reply that a page may read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exposed: Vec<String>,
    /// How many seconds a browser may rely on what it was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<u32>,
}

impl CorsRule {
    /// The rules of a request.
    pub fn of_request(configuration: dto::CORSConfiguration) -> S3Result<Vec<Self>> {
        let rules = configuration.cors_rules;
        if rules.is_empty() || rules.len() > RULES_MAX {
            return Err(s3_error!(MalformedXML, "there are 1 to 100 rules"));
        }
        let rules: Vec<_> = rules.into_iter().map(Self::of_one).collect::<S3Result<_>>()?;
        if rules.iter().flat_map(Self::texts).map(String::len).sum::<usize>() > RULES_LEN_MAX {
            return Err(s3_error!(MalformedXML, "all rules have at most 64 KiB"));
        }
        Ok(rules)
    }

    fn of_one(rule: dto::CORSRule) -> S3Result<Self> {
        let rule =
            Self {
                id: rule.id,
                origins: rule.allowed_origins,
                methods: rule.allowed_methods,
                headers: rule.allowed_headers.unwrap_or_default(),
                exposed: rule.expose_headers.unwrap_or_default(),
                max_age: rule.max_age_seconds.map(u32::try_from).transpose().map_err(|_| {
                    s3_error!(InvalidRequest, "the seconds of a rule are not negative")
                })?,
            };
        if rule.origins.is_empty() || rule.methods.is_empty() {
            return Err(s3_error!(MalformedXML, "a rule has origins and methods"));
        }
        if rule.id.as_ref().is_some_and(|id| id.len() > ID_LEN_MAX) {
            return Err(s3_error!(InvalidArgument, "the name of a rule has at most 255 bytes"));
        }
        if let Some(method) = rule.methods.iter().find(|one| !METHODS.contains(&one.as_str())) {
            return Err(s3_error!(InvalidRequest, "a rule cannot allow the method {method}"));
        }
        let mut patterns = rule.origins.iter().chain(&rule.headers);
        if let Some(text) = patterns.find(|text| text.matches('*').count() > 1) {
            return Err(s3_error!(InvalidRequest, "{text} has more than one *"));
        }
        // They are written into headers of replies.
        if let Some(text) = rule.texts().find(|text| !text.bytes().all(|b| b.is_ascii_graphic())) {
            return Err(s3_error!(InvalidRequest, "{text:?} is no origin and no header"));
        }
        Ok(rule)
    }

    /// All that replies are made of.
    fn texts(&self) -> impl Iterator<Item = &String> {
        self.origins.iter().chain(&self.methods).chain(&self.headers).chain(&self.exposed)
    }

    /// As a reply has it.
    pub fn reply(&self) -> dto::CORSRule {
        let list = |list: &[String]| Some(list.to_vec()).filter(|list| !list.is_empty());
        dto::CORSRule {
            allowed_headers: list(&self.headers),
            allowed_methods: self.methods.clone(),
            allowed_origins: self.origins.clone(),
            expose_headers: list(&self.exposed),
            id: self.id.clone(),
            max_age_seconds: self.max_age.and_then(|seconds| i32::try_from(seconds).ok()),
        }
    }

    pub fn allows(&self, page: &CorsRequest) -> bool {
        self.origins.iter().any(|pattern| fits(pattern, &page.origin))
            && self.methods.contains(&page.method)
            && page.headers.iter().all(|header| {
                self.headers.iter().any(|pattern| fits(&pattern.to_ascii_lowercase(), header))
            })
    }

    /// Writes what the rule allows to a page into the headers of a reply.
    pub fn write(&self, page: &CorsRequest, into: &mut HeaderMap) {
        let mut put = |name: HeaderName, value: &str| {
            // What a rule is made of, and what came as a header, can be one.
            if let Ok(value) = HeaderValue::from_str(value) {
                into.insert(name, value);
            }
        };
        if self.origins.iter().any(|origin| origin == "*") {
            put(ACCESS_CONTROL_ALLOW_ORIGIN, "*");
        } else {
            put(ACCESS_CONTROL_ALLOW_ORIGIN, &page.origin);
            put(ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
        }
        put(ACCESS_CONTROL_ALLOW_METHODS, &self.methods.join(", "));
        if !page.headers.is_empty() {
            put(ACCESS_CONTROL_ALLOW_HEADERS, &page.headers.join(", "));
        }
        if !self.exposed.is_empty() {
            put(ACCESS_CONTROL_EXPOSE_HEADERS, &self.exposed.join(", "));
        }
        if let Some(seconds) = self.max_age.filter(|_| page.is_preflight) {
            put(ACCESS_CONTROL_MAX_AGE, &seconds.to_string());
        }
        put(VARY, VARIES);
    }
}

/// Whether a text is what a pattern stands for.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text
            .strip_prefix(before)
            .is_some_and(|rest| rest.len() >= after.len() && rest.ends_with(after)),
    }
}

/// The request of a page, as browsers describe it.
pub struct CorsRequest {
    pub origin: String,
    pub method: String,
    /// The headers of the request that the page wants to make, in small letters.
    pub headers: Vec<String>,
    /// Whether this comes before the request itself, which it is about.
    pub is_preflight: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(origin: &str, method: &str, header: &str) -> CorsRule {
        let list = |text: &str| text.split(' ').map(str::to_owned).collect();
        CorsRule {
            origins: list(origin),
            methods: list(method),
            headers: list(header),
            ..CorsRule::default()
        }
    }

    fn page(origin: &str, method: &str, headers: &[&str]) -> CorsRequest {
        CorsRequest {
            origin: origin.into(),
            method: method.into(),
            headers: headers.iter().map(|&header| header.to_owned()).collect(),
            is_preflight: true,
        }
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*suffix", "foo.suffix", true),
            ("*suffix", "foo.suffix.get", false),
            ("start*end", "startend", true),
            ("start*end", "start12end", true),
            ("start*end", "0start12end", false),
            ("aba*aba", "aba", false),
            ("prefix*", "prefix.suffix", true),
            ("exact", "exact", true),
            ("exact", "exactly", false),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_rule_allows_origins_methods_and_headers_together() {
        let rule = rule("https://*.example.com http://localhost", "GET PUT", "X-Amz-* content-md5");
        for (origin, method, headers, expected) in [
            ("https://a.example.com", "GET", &["x-amz-date", "content-md5"][..], true),
            ("http://localhost", "PUT", &[], true),
            ("http://localhost", "DELETE", &[], false),
            ("http://localhost:80", "GET", &[], false),
            ("http://localhost", "GET", &["x-other"], false),
        ] {
            assert_eq!(rule.allows(&page(origin, method, headers)), expected, "{origin} {method}");
        }
    }

    #[test]
    fn a_reply_names_what_is_allowed() {
        let exposed = vec!["ETag".to_owned(), "x-amz-version-id".to_owned()];
        let rule = CorsRule { exposed, max_age: Some(60), ..rule("https://*.a *", "GET PUT", "*") };
        let mut page = page("https://b.a", "GET", &["range"]);
        let mut headers = HeaderMap::new();
        rule.write(&page, &mut headers);
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_ORIGIN], "*");
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_METHODS], "GET, PUT");
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_HEADERS], "range");
        assert_eq!(headers[ACCESS_CONTROL_EXPOSE_HEADERS], "ETag, x-amz-version-id");
        assert_eq!(headers[ACCESS_CONTROL_MAX_AGE], "60");
        assert!(!headers.contains_key(ACCESS_CONTROL_ALLOW_CREDENTIALS));
        let rule = CorsRule { origins: vec!["https://*.a".into()], ..rule };
        page.is_preflight = false;
        let mut headers = HeaderMap::new();
        rule.write(&page, &mut headers);
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_ORIGIN], "https://b.a");
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_CREDENTIALS], "true");
        assert!(!headers.contains_key(ACCESS_CONTROL_MAX_AGE));
    }

    #[test]
    fn rules_that_no_reply_can_carry_are_refused() {
        let of = |rule: dto::CORSRule| {
            CorsRule::of_request(dto::CORSConfiguration { cors_rules: vec![rule] })
        };
        let good = || rule("https://a", "GET", "range").reply();
        assert_eq!(of(good()).unwrap()[0].reply(), good());
        let wrong: [fn(&mut dto::CORSRule); 7] = [
            |rule| rule.allowed_origins.clear(),
            |rule| rule.allowed_methods.clear(),
            |rule| rule.allowed_methods.push("PATCH".into()),
            |rule| rule.allowed_origins.push("a*b*c".into()),
            |rule| rule.allowed_origins.push("a\r\nb".into()),
            |rule| rule.max_age_seconds = Some(-1),
            |rule| rule.id = Some("x".repeat(256)),
        ];
        for (nth, wrong) in wrong.into_iter().enumerate() {
            let mut rule = good();
            wrong(&mut rule);
            assert!(of(rule).is_err(), "{nth}");
        }
        let many = |count| {
            CorsRule::of_request(dto::CORSConfiguration { cors_rules: vec![good(); count] })
        };
        assert!(many(100).is_ok() && many(101).is_err() && many(0).is_err());
        let mut long = good();
        long.allowed_origins = vec!["x".repeat(1000); 66];
        assert!(of(long).is_err());
    }
}
