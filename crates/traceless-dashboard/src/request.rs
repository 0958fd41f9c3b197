//! The head of a request, read strictly: what is not plainly HTTP/1 is refused.

use crate::host;

/// Longest head of a request, in bytes.
pub const HEAD_LEN_MAX: usize = 8 << 10;

/// What the server uses of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head<'a> {
    /// Whether only the head of the reply is wanted.
    pub without_body: bool,
    /// The path, without the query.
    pub path: &'a str,
    /// What stands behind the `?`.
    pub query: &'a str,
    /// The header `Host`.
    pub host: &'a str,
    /// The password of the header `Authorization`.
    pub password: Option<&'a str>,
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It is no request of HTTP/1.
    Malformed,
    /// Its method is neither GET nor HEAD.
    Method,
    /// It has a body.
    Body,
}

impl<'a> Head<'a> {
    /// Reads a head, up to the empty line and without it.
    pub fn parse(head: &'a [u8]) -> Result<Self, Refusal> {
        let is_text = |byte: &u8| matches!(byte, b'\t' | b'\r' | b'\n' | b' '..=b'~');
        let text = std::str::from_utf8(head).ok().filter(|_| head.iter().all(is_text));
        let mut lines = text.ok_or(Refusal::Malformed)?.split("\r\n");
        let (without_body, target) = request_line(lines.next().unwrap_or_default())?;
        let (mut host, mut password) = (None, None);
        for line in lines {
            let (name, value) = header(line)?;
            let once = |slot: &mut Option<&'a str>, value| match slot.replace(value) {
                None => Ok(()),
                Some(_) => Err(Refusal::Malformed),
            };
            match &name.to_ascii_lowercase()[..] {
                "host" => once(&mut host, value)?,
                "authorization" => once(&mut password, value)?,
                "content-length" if value == "0" => {}
                "content-length" | "transfer-encoding" => return Err(Refusal::Body),
                _ => {}
            }
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let host = host.ok_or(Refusal::Malformed)?;
        let password = password.and_then(bearer);
        Ok(Self { without_body, path, query, host, password })
    }

    /// The number of the query's parameter `name`; `None` without it.
    pub fn number(&self, name: &str) -> Option<u64> {
        let mut parameters = self.query.split('&').filter_map(|pair| pair.split_once('='));
        parameters.find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok())
    }
}

/// Whether the method is HEAD, and the target.
fn request_line(line: &str) -> Result<(bool, &str), Refusal> {
    let mut words = line.split(' ');
    let mut word = || words.next().filter(|word| !word.is_empty()).ok_or(Refusal::Malformed);
    let (method, target, version) = (word()?, word()?, word()?);
    let is_http = matches!(version, "HTTP/1.1" | "HTTP/1.0") && words.next().is_none();
    if !is_http || !target.starts_with('/') || line.contains(['\t', '\r', '\n']) {
        return Err(Refusal::Malformed);
    }
    match method {
        "GET" => Ok((false, target)),
        "HEAD" => Ok((true, target)),
        _ => Err(Refusal::Method),
    }
}

fn header(line: &str) -> Result<(&str, &str), Refusal> {
    let (name, value) = line.split_once(':').ok_or(Refusal::Malformed)?;
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(is_token) || value.contains(['\r', '\n']) {
        return Err(Refusal::Malformed);
    }
    Ok((name, value.trim_matches([' ', '\t'])))
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, password) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(password.trim_start_matches(' '))
}

/// Reads the head of a request and the host that it names, for the fuzzer.
#[doc(hidden)]
pub fn fuzz_request(head: &[u8]) {
    if let Ok(head) = Head::parse(head) {
        let _ = head.number("after");
        host::is_served(head.host, "127.0.0.1:0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::rng::{Rng, SeededRng};

    #[test]
    fn a_request_is_read() {
        let head = b"GET /user.json?after=17&x=y HTTP/1.1\r\nhOst: localhost:9 \r\n\
                     Accept:*/*\r\nContent-Length: 0\r\nauthorization: bearer  abc";
        let wanted = Head {
            without_body: false,
            path: "/user.json",
            query: "after=17&x=y",
            host: "localhost:9",
            password: Some("abc"),
        };
        let head = Head::parse(head).unwrap();
        assert_eq!(head, wanted);
        assert_eq!(
            (head.number("after"), head.number("x"), head.number("z")),
            (Some(17), None, None)
        );
        let head = Head::parse(b"HEAD / HTTP/1.0\r\nHost: a\r\nAuthorization: Basic abc").unwrap();
        assert_eq!((head.without_body, head.path, head.password), (true, "/", None));
    }

    #[test]
    fn anything_else_is_refused() {
        use Refusal::{Body, Malformed, Method};
        for (head, refusal) in [
            ("", Malformed),
            ("GET", Malformed),
            ("GET /", Malformed),
            ("GET / HTTP/1.1", Malformed),
            ("GET / HTTP/2\r\nHost: a", Malformed),
            ("GET  / HTTP/1.1\r\nHost: a", Malformed),
            ("GET / HTTP/1.1 \r\nHost: a", Malformed),
            ("GET http://a/ HTTP/1.1\r\nHost: a", Malformed),
            ("GET / HTTP/1.1\nHost: a", Malformed),
            ("GET / HTTP/1.1\r\nHost: a\nX: b", Malformed),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b", Malformed),
            ("GET / HTTP/1.1\r\nHost: a\r\n folded", Malformed),
            ("GET / HTTP/1.1\r\nHost : a", Malformed),
            ("GET / HTTP/1.1\r\nHost: a\r\n: b", Malformed),
            ("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: a\r\nAuthorization: a", Malformed),
            ("GET /\u{e4} HTTP/1.1\r\nHost: a", Malformed),
            ("GET /\0 HTTP/1.1\r\nHost: a", Malformed),
            ("POST / HTTP/1.1\r\nHost: a", Method),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1", Body),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked", Body),
        ] {
            assert_eq!(Head::parse(head.as_bytes()), Err(refusal), "{head}");
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut rng = SeededRng::new(26);
        let whole = b"GET /a?b=c HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\nA: b";
        for _ in 0..20_000 {
            let mut head = whole.to_vec();
            for _ in 0..rng.below(4) {
                let at = rng.below(head.len() as u64) as usize;
                head[at] = rng.next_u64() as u8;
            }
            head.truncate(1 + rng.below(head.len() as u64) as usize);
            let _ = Head::parse(&head).map(|head| head.number("b"));
        }
    }
}
