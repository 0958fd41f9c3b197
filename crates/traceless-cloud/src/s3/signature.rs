//! Checks a request's signature before the protocol's library handles the request. A form has its
//! signature in its body, of which the library knows nothing.
//!
//! The library also accepts signatures of version 2, which cover no body and in headers never
//! expire, presigned URLs that are valid for a century, unsigned headers, and bodies without a hash
//! on any connection. Requests of these kinds are refused here. Every other request has one
//! signature of version 4, which the library verifies, with its date and the hash of the body.

use super::form_parser;
use crate::connection::Wire;
use hyper::body::Body;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use hyper::{Method, Request};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

/// The only accepted algorithm.
pub const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The service in the scope of a credential.
const SERVICE: &str = "s3";
/// Seconds that a presigned URL may be valid for: a week.
const EXPIRES_MAX: u32 = 7 * 24 * 60 * 60;
/// The header with the hash of the body.
const CONTENT_HASH: &str = "x-amz-content-sha256";
/// The header's values for a body without a hash.
const UNSIGNED: [&str; 2] = ["UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"];

/// Refuses a request without a signature of version 4 that covers all of it.
pub fn check<B: Body>(request: &Request<B>, wire: Wire) -> S3Result<()> {
    let headers = request.headers();
    let query = UrlQuery::of(request.uri().query().unwrap_or_default());
    if query.has("Signature") || query.has("AWSAccessKeyId") {
        return Err(other_version());
    }
    let mut signed = headers.get_all(AUTHORIZATION).iter();
    match (signed.next(), query.has("X-Amz-Signature")) {
        (None, false) => Err(s3_error!(AccessDenied, "the request is not signed")),
        (Some(_), true) => Err(s3_error!(InvalidArgument, "only one signature is allowed")),
        (None, true) => check_query(request, &query, wire),
        (Some(_), false) if signed.next().is_some() => {
            Err(s3_error!(InvalidArgument, "only one signature is allowed"))
        }
        (Some(value), false) => {
            check_header(request, value.to_str().map_err(|_| other_version())?, wire)
        }
    }
}

/// The error that S3 returns in regions without support for version 2.
fn other_version() -> S3Error {
    s3_error!(
        InvalidRequest,
        "The authorization mechanism you have provided is not supported. Please use {ALGORITHM}."
    )
}

/// Whether a request uploads a form of a browser.
pub fn is_form<B>(request: &Request<B>) -> bool {
    let types = request.headers().get_all(CONTENT_TYPE);
    request.method() == Method::POST
        && types.iter().any(|kind| form_parser::is_form(kind.as_bytes()))
}

/// Refuses a form with another signature than that of its policy, or without TLS on a network.
pub fn check_form<B>(request: &Request<B>, wire: Wire) -> S3Result<()> {
    if request.uri().query().is_some() {
        return Err(s3_error!(InvalidRequest, "a form is sent to a bucket, without a query"));
    }
    if request.headers().contains_key(AUTHORIZATION) {
        return Err(s3_error!(InvalidArgument, "only one signature is allowed"));
    }
    if wire == Wire::Network {
        return Err(s3_error!(InvalidRequest, "forms need TLS: their file is unsigned"));
    }
    Ok(())
}

fn check_header<B: Body>(request: &Request<B>, value: &str, wire: Wire) -> S3Result<()> {
    let headers = request.headers();
    let fields = value.strip_prefix(ALGORITHM).filter(|rest| rest.starts_with(' '));
    let fields = fields.ok_or_else(other_version)?;
    let (scope, signed) = credential_and_headers(fields)
        .ok_or_else(|| s3_error!(AuthorizationHeaderMalformed, "the header is malformed"))?;
    check_scope(scope, S3ErrorCode::AuthorizationHeaderMalformed)?;
    check_signed(signed, headers, |_| false)?;
    let is_unsigned = headers.get_all(CONTENT_HASH).iter().any(|hash| {
        UNSIGNED.iter().any(|unsigned| hash.as_bytes().eq_ignore_ascii_case(unsigned.as_bytes()))
    });
    if is_unsigned && wire != Wire::Tls && !has_never_a_body(request) {
        return Err(s3_error!(
            InvalidRequest,
            "without TLS {CONTENT_HASH} must be the body's hash"
        ));
    }
    Ok(())
}

/// Whether this request has no body, and no request with the same signature can upload one: a
/// request with a body is refused here, and this path names no object. restic creates buckets this
/// way.
fn has_never_a_body<B: Body>(request: &Request<B>) -> bool {
    let names_object = request.uri().path().trim_matches('/').contains(['/', '%']);
    let uploads = request.method() == Method::PUT || request.method() == Method::POST;
    request.body().is_end_stream() && !(uploads && names_object)
}

/// The values of `Credential` and `SignedHeaders`, which must follow each other.
fn credential_and_headers(fields: &str) -> Option<(&str, &str)> {
    let (scope, rest) = fields.trim_start().strip_prefix("Credential=")?.split_once(',')?;
    let (signed, _) = rest.trim_start().strip_prefix("SignedHeaders=")?.split_once(',')?;
    Some((scope, signed))
}

fn check_query<B>(request: &Request<B>, query: &UrlQuery, wire: Wire) -> S3Result<()> {
    let wrong = |what: &'static str| {
        S3Error::with_message(S3ErrorCode::AuthorizationQueryParametersError, what)
    };
    let one = |name: &str| query.one(name).ok_or_else(|| wrong("a parameter is missing, or twice"));
    if one("X-Amz-Algorithm")? != ALGORITHM {
        return Err(wrong("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\""));
    }
    check_scope(one("X-Amz-Credential")?, S3ErrorCode::AuthorizationQueryParametersError)?;
    let expires = one("X-Amz-Expires")?;
    let is_number = expires.bytes().all(|byte| byte.is_ascii_digit());
    let expires = expires.parse().ok().filter(|_| is_number);
    if !expires.is_some_and(|seconds| (1..=EXPIRES_MAX).contains(&seconds)) {
        return Err(wrong("X-Amz-Expires must be from 1 to 604800 seconds, which is a week"));
    }
    // An unsigned hash only makes the request stricter.
    check_signed(one("X-Amz-SignedHeaders")?, request.headers(), |name| name == CONTENT_HASH)?;
    let has_body = request.method() == Method::PUT || request.method() == Method::POST;
    if has_body && wire == Wire::Network {
        return Err(s3_error!(
            InvalidRequest,
            "presigned uploads need TLS: their body is unsigned"
        ));
    }
    Ok(())
}

/// A scope is `KEY/DATE/REGION/s3/aws4_request`.
pub fn check_scope(scope: &str, code: S3ErrorCode) -> S3Result<()> {
    let mut parts = scope.split('/').skip(3);
    if (parts.next(), parts.next(), parts.next()) == (Some(SERVICE), Some("aws4_request"), None) {
        return Ok(());
    }
    Err(S3Error::with_message(code, "the credential must be KEY/DATE/REGION/s3/aws4_request"))
}

/// Refuses a request that lacks a signed header, or has an unsigned header that influences the
/// request.
fn check_signed(
    signed: &str,
    headers: &HeaderMap,
    is_exempt: impl Fn(&str) -> bool,
) -> S3Result<()> {
    let names: Vec<&str> = signed.split(';').collect();
    // The library finds headers by lower-case names only.
    let is_there = |name: &&str| {
        !name.bytes().any(|byte| byte.is_ascii_uppercase()) && headers.contains_key(*name)
    };
    if !names.contains(&"host") || !names.iter().all(is_there) {
        return Err(s3_error!(
            AccessDenied,
            "host must be signed, and what is signed must be sent"
        ));
    }
    let decides = |name: &str| name.starts_with("x-amz-") && !is_exempt(name);
    if headers.keys().any(|name| decides(name.as_str()) && !names.contains(&name.as_str())) {
        return Err(s3_error!(
            AccessDenied,
            "There were headers present in the request which were not signed"
        ));
    }
    Ok(())
}

/// The parameters of a URL, decoded as by the library.
struct UrlQuery(Vec<(String, String)>);

impl UrlQuery {
    fn of(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let decoded = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        Self(decoded.collect())
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(own, _)| own == name)
    }

    /// The value of a parameter that occurs exactly once.
    fn one(&self, name: &str) -> Option<&str> {
        let mut all = self.0.iter().filter(|(own, _)| own == name);
        let (_, value) = all.next()?;
        all.next().is_none().then_some(value)
    }
}

/// Decodes `+` as a blank, and `%` with two digits as a byte.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'+', _) => bytes.push(b' '),
            (b'%', [high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                bytes.push(digit(*high) << 4 | digit(*low));
                rest = after;
            }
            _ => bytes.push(*first),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn digit(hex: u8) -> u8 {
    char::from(hex).to_digit(16).map_or(0, |value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::{Empty, Full};
    use hyper::http::request::Builder;

    const SIGNED: &str = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, \
        SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=0";
    const PRESIGNED: &str = "/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=604800&\
        X-Amz-Credential=key%2F20260101%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Signature=0&\
        X-Amz-Date=20260101T000000Z&X-Amz-SignedHeaders=host";

    fn code(request: Builder, wire: Wire) -> Option<S3ErrorCode> {
        let request = request.header("host", "h").body(Empty::<Bytes>::new()).unwrap();
        check(&request, wire).err().map(|error| error.code().clone())
    }

    fn by_header(authorization: &str) -> Builder {
        let request = Request::builder().method("PUT").uri("/b/k").header("x-amz-date", "d");
        request.header(CONTENT_HASH, "hash").header(AUTHORIZATION, authorization)
    }

    fn by_query(uri: &str) -> Builder {
        Request::builder().method("PUT").uri(uri)
    }

    #[test]
    fn only_a_valid_signature_of_version_4_is_accepted() {
        let (wire, invalid) = (Wire::Tls, Some(S3ErrorCode::InvalidRequest));
        assert_eq!(code(by_header(SIGNED), Wire::Network), None);
        assert_eq!(code(by_query(PRESIGNED), wire), None);
        for other in ["AWS key:c2lnbmF0dXJl", "aws key:x", "Bearer x", "AWS4-HMAC-SHA256", ""] {
            assert_eq!(code(by_header(other), wire), invalid, "{other}");
        }
        for uri in [
            "/b/k?AWSAccessKeyId=key&Expires=4000000000&Signature=x",
            "/b/k?Signature=x",
            "/b/k?%53ignatur%65=x",
            "/b/k?a&Signature",
            "/b/k?AWSAccessKeyId=key",
        ] {
            assert_eq!(code(by_query(uri), wire), invalid, "{uri}");
            let both = by_header(SIGNED).uri(uri);
            assert_eq!(code(both, wire), invalid, "{uri}, beside version 4");
        }
        let two = Some(S3ErrorCode::InvalidArgument);
        assert_eq!(code(by_header(SIGNED).uri(PRESIGNED), wire), two);
        assert_eq!(code(by_header(SIGNED).header(AUTHORIZATION, SIGNED), wire), two);
        assert_eq!(code(by_query("/b/k"), wire), Some(S3ErrorCode::AccessDenied));
    }

    #[test]
    fn a_form_has_no_other_signature_and_needs_tls_on_a_network() {
        let form = |uri: &str, wire, signed: &[&str]| {
            let mut request = Request::builder().method("POST").uri(uri);
            request = request.header(CONTENT_TYPE, "Multipart/Form-Data;boundary=b");
            for value in signed {
                request = request.header(AUTHORIZATION, *value);
            }
            let request = request.body(()).unwrap();
            assert!(is_form(&request));
            check_form(&request, wire).err().map(|error| error.code().clone())
        };
        let invalid = Some(S3ErrorCode::InvalidRequest);
        assert_eq!(form("/b", Wire::Tls, &[]), None);
        assert_eq!(form("/b", Wire::Loopback, &[]), None);
        assert_eq!(form("/b", Wire::Network, &[]), invalid);
        assert_eq!(form("/b?delete", Wire::Tls, &[]), invalid);
        assert_eq!(form("/b", Wire::Tls, &[SIGNED]), Some(S3ErrorCode::InvalidArgument));
        for method in ["PUT", "GET"] {
            let request = Request::builder().method(method).uri("/b");
            let request = request.header(CONTENT_TYPE, "multipart/form-data;boundary=b");
            assert!(!is_form(&request.body(()).unwrap()));
        }
    }

    #[test]
    fn all_security_relevant_fields_are_signed() {
        let denied = Some(S3ErrorCode::AccessDenied);
        let unsigned = by_header(SIGNED).header("x-amz-copy-source", "other/secret");
        assert_eq!(code(unsigned, Wire::Tls), denied);
        for names in ["x-amz-content-sha256;x-amz-date", "", "Host;x-amz-content-sha256;x-amz-date"]
        {
            let signed = SIGNED.replace("host;x-amz-content-sha256;x-amz-date", names);
            assert_eq!(code(by_header(&signed), Wire::Tls), denied, "{names}");
        }
        let missing = SIGNED.replace("host;", "host;range;");
        assert_eq!(code(by_header(&missing), Wire::Tls), denied);
        assert_eq!(code(by_header(&missing).header("range", "bytes=0-1"), Wire::Tls), None);
        let more = by_query(PRESIGNED).header("x-amz-copy-source", "other/secret");
        assert_eq!(code(more, Wire::Tls), denied);
        assert_eq!(code(by_query(PRESIGNED).header(CONTENT_HASH, "hash"), Wire::Tls), None);
        assert_eq!(code(by_query(&PRESIGNED.replace("=host", "=range")), Wire::Tls), denied);
    }

    #[test]
    fn scopes_and_times_have_limits() {
        let header = Some(S3ErrorCode::AuthorizationHeaderMalformed);
        let query = Some(S3ErrorCode::AuthorizationQueryParametersError);
        for service in ["sts", "", "s3/s3"] {
            let scope = format!("/{service}/aws4_request");
            let signed = SIGNED.replace("/s3/aws4_request", &scope);
            assert_eq!(code(by_header(&signed), Wire::Tls), header, "{service}");
            let uri = PRESIGNED.replace("%2Fs3%2Faws4_request", &scope);
            assert_eq!(code(by_query(&uri), Wire::Tls), query, "{service}");
        }
        for expires in ["604801", "0", "-1", "+5", "", "5x", "4294967297", "99999999999999999999"] {
            let uri = PRESIGNED.replace("604800", expires);
            assert_eq!(code(by_query(&uri), Wire::Tls), query, "{expires}");
        }
        let twice = format!("{PRESIGNED}&X-Amz-Expires=1");
        assert_eq!(code(by_query(&twice), Wire::Tls), query);
        let other = PRESIGNED.replace("HMAC", "ECDSA-P256");
        assert_eq!(code(by_query(&other), Wire::Tls), query);
    }

    #[test]
    fn bodies_without_a_hash_need_tls() {
        for hash in UNSIGNED {
            let of = |method: &str, uri: &str| {
                let request = Request::builder().method(method).uri(uri).header("x-amz-date", "d");
                request.header(CONTENT_HASH, hash).header(AUTHORIZATION, SIGNED)
            };
            let unsigned = || of("PUT", "/b/k");
            for wire in [Wire::Loopback, Wire::Network] {
                assert_eq!(code(unsigned(), wire), Some(S3ErrorCode::InvalidRequest), "{hash}");
            }
            assert_eq!(code(unsigned(), Wire::Tls), None);
            for (method, uri) in [("PUT", "/b%2Fk"), ("POST", "/b/k?uploads"), ("PUT", "/b//k")] {
                assert!(code(of(method, uri), Wire::Loopback).is_some(), "{method} {uri}");
            }
            // Requests without a body, or for which no body is accepted.
            for (method, uri) in
                [("PUT", "/b"), ("PUT", "/b/"), ("GET", "/b/k"), ("DELETE", "/b/k")]
            {
                assert_eq!(code(of(method, uri), Wire::Loopback), None, "{method} {uri}");
                let request = of(method, uri).header("host", "h");
                let request = request.body(Full::new(Bytes::from("x"))).unwrap();
                assert!(check(&request, Wire::Loopback).is_err(), "{method} {uri} with a body");
            }
        }
        let refused = Some(S3ErrorCode::InvalidRequest);
        assert_eq!(code(by_query(PRESIGNED), Wire::Network), refused);
        assert_eq!(code(by_query(PRESIGNED), Wire::Loopback), None);
        assert_eq!(code(by_query(PRESIGNED).method("GET"), Wire::Network), None);
    }
}
