//! An object that an HTTP server puts only if its tag is still the one that is named, as stores of
//! S3 and servers of `WebDAV` do. A server that ignores this is found out and refused.

use super::Outcome;
use super::s3_signature::{Header, S3Signer};
use super::server_link::{ServerLink, unexpected};
use super::server_url::ServerUrl;
use super::shared_place::SharedValue;
use crate::error::{Error, Result};
use std::fmt::Write;
use std::io;
use std::time::Duration;
use traceless_core::clock::{Clock, Monotonic};
use zeroize::Zeroizing;

/// Most bytes of a body that is read, and most lines of a head.
const BODY_LEN_MAX: usize = 1 << 16;
const HEAD_LINES_MAX: usize = 128;
/// Nanoseconds after which a connection is not used again, as servers close idle ones.
const IDLE_MAX: u64 = 1_000_000_000;
/// The interval and number of looks whether a weak tag becomes strong: at some servers the tag of
/// an object is weak for a second.
const WEAK_LOOK: Duration = Duration::from_millis(200);
const WEAK_LOOKS_MAX: u32 = 15;
/// A tag that no object has.
const NO_ETAG: &str = "\"traceless-no-such-version\"";

/// An object, and the connection while it works.
pub(super) struct HttpValue {
    url: ServerUrl,
    /// What signs requests to a store of S3.
    signer: Option<S3Signer>,
    /// The newest known object, with its tag.
    known: Option<(Vec<u8>, String)>,
    link: Option<ServerLink>,
    clock: Monotonic,
    used_at: u64,
}

struct HttpReply {
    status: u16,
    etag: Option<String>,
    body: Vec<u8>,
}

impl HttpValue {
    pub fn new(url: ServerUrl, signer: Option<S3Signer>) -> Result<Self> {
        if url.path.ends_with('/') {
            return Err(Error::AnchorAddress { why: "the URL names no object: https://HOST/PATH" });
        }
        Ok(Self { url, signer, known: None, link: None, clock: Monotonic::start(), used_at: 0 })
    }

    /// A request, with its body.
    fn request(&self, method: &str, condition: &[Header], body: &[u8]) -> Zeroizing<Vec<u8>> {
        let ServerUrl { path, options, .. } = &self.url;
        let mut headers = condition.to_vec();
        headers.push(("host", self.url.authority()));
        if method == "PUT" {
            headers.push(("content-length", body.len().to_string()));
            headers.push(("content-type", "application/octet-stream".into()));
        }
        if let Some(signer) = &self.signer {
            signer.sign(unix_seconds(), (method, path), &mut headers, body);
        }
        let mark = if options.is_empty() { "" } else { "?" };
        let mut head = format!("{method} {path}{mark}{options} HTTP/1.1\r\n");
        for (name, value) in &headers {
            write!(head, "{name}: {value}\r\n").expect("a string takes all");
        }
        let login = self.url.login().filter(|_| self.signer.is_none()).map(|(user, password)| {
            Zeroizing::new(match user {
                "" => format!("Bearer {}", *password),
                user => {
                    let both = Zeroizing::new(format!("{user}:{}", *password));
                    format!("Basic {}", *base64(both.as_bytes()))
                }
            })
        });
        let room = head.len() + body.len() + login.as_ref().map_or(0, |login| login.len() + 32);
        let mut request = Zeroizing::new(Vec::with_capacity(room + 32));
        request.extend_from_slice(head.as_bytes());
        if let Some(login) = login {
            request.extend_from_slice(b"authorization: ");
            request.extend_from_slice(login.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(body);
        request
    }

    fn ask(&mut self, method: &str, condition: &[Header], body: &[u8]) -> Outcome<HttpReply> {
        let request = self.request(method, condition, body);
        let is_idle = self.clock.now().saturating_sub(self.used_at) > IDLE_MAX;
        let mut link = match self.link.take().filter(|_| !is_idle) {
            Some(link) => link,
            None => ServerLink::connect(&self.url)?,
        };
        link.send(&request)?;
        let (reply, stays) = read_reply(&mut link)?;
        if stays {
            self.link = Some(link);
            self.used_at = self.clock.now();
        }
        Ok(reply)
    }

    /// Puts `body` under a condition, and says whether the condition held.
    fn put(&mut self, condition: Header, body: &[u8]) -> Outcome<bool> {
        self.known = None;
        let reply = self.ask("PUT", &[condition], body)?;
        match reply.status {
            200 | 201 | 204 => {
                let etag = reply.etag.filter(|etag| etag.starts_with('"'));
                self.known = etag.map(|etag| (body.to_vec(), etag));
                Ok(true)
            }
            412 => Ok(false),
            status => Err(refusal("PUT", status)),
        }
    }

    /// Fails if the server puts `value`, which it has, under a condition that does not hold.
    fn check_condition(&mut self, condition: Header, value: &[u8]) -> Outcome {
        let known = self.known.take();
        let name = condition.0;
        if self.put(condition, value)? {
            let why = format!(
                "the server ignores {name}: two machines could both advance the anchor. Take a \
                 server that honours it, or Redis"
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        self.known = known;
        Ok(())
    }
}

impl SharedValue for HttpValue {
    fn name(&self) -> String {
        self.url.to_string()
    }

    fn get(&mut self) -> Outcome<Option<Vec<u8>>> {
        self.known = None;
        for _ in 0..WEAK_LOOKS_MAX {
            let reply = self.ask("GET", &[("cache-control", "no-cache".into())], &[])?;
            match (reply.status, reply.etag) {
                (404, _) => return Ok(None),
                (200, Some(etag)) if etag.starts_with('"') => {
                    self.known = Some((reply.body.clone(), etag));
                    return Ok(Some(reply.body));
                }
                (200, Some(_)) => std::thread::sleep(WEAK_LOOK),
                (200, None) => break,
                (status, _) => return Err(refusal("GET", status)),
            }
        }
        let why = "the server gives no strong ETag, so it cannot compare and swap";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    fn swap(&mut self, old: Option<&[u8]>, new: &[u8]) -> Outcome<bool> {
        let Some(old) = old else {
            if !self.put(("if-none-match", "*".into()), new)? {
                return Ok(false);
            }
            self.check_condition(("if-none-match", "*".into()), new)?;
            self.check_condition(("if-match", NO_ETAG.into()), new)?;
            return Ok(true);
        };
        if self.known.as_ref().is_none_or(|(value, _)| value != old) {
            self.get()?;
        }
        match self.known.take() {
            Some((value, etag)) if value == old => self.put(("if-match", etag), new),
            _ => Ok(false),
        }
    }

    fn prove(&mut self, old: Option<&[u8]>) -> Outcome {
        // Where there is nothing the first swap proves it.
        old.map_or(Ok(()), |old| self.check_condition(("if-match", NO_ETAG.into()), old))
    }
}

/// The time of the machine's calendar, which signatures have.
fn unix_seconds() -> u64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec.cast_unsigned()
}

/// Reads a reply, and says whether the connection can be used again.
fn read_reply(link: &mut ServerLink) -> Outcome<(HttpReply, bool)> {
    loop {
        let first = link.line()?;
        let mut words = first.split(' ');
        let version = words.next().unwrap_or_default();
        let status = words.next().and_then(|word| word.parse().ok());
        let status: u16 = status
            .filter(|_| version.starts_with("HTTP/1."))
            .ok_or_else(|| unexpected("something that is no HTTP"))?;
        let (mut etag, mut len, mut chunked) = (None, None, false);
        let mut stays = version == "HTTP/1.1";
        for number in 0.. {
            let header = link.line()?;
            if header.is_empty() {
                break;
            }
            if number == HEAD_LINES_MAX {
                return Err(unexpected("too long a head"));
            }
            let (name, value) =
                header.split_once(':').ok_or_else(|| unexpected("half a header"))?;
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "etag" => etag = Some(value.to_owned()),
                "content-length" => {
                    let bytes: usize =
                        value.parse().map_err(|_| unexpected("a length without digits"))?;
                    len = Some(bytes);
                }
                "transfer-encoding" => chunked = value.eq_ignore_ascii_case("chunked"),
                "connection" => stays &= !value.eq_ignore_ascii_case("close"),
                _ => {}
            }
        }
        let body = match status {
            // What follows is the reply itself.
            100..200 => continue,
            204 | 304 => vec![],
            _ if chunked => chunks(link)?,
            _ => {
                // A body that only the end of the connection ends is not read.
                stays &= len.is_some();
                body_of(link, len.unwrap_or(0), 0)?
            }
        };
        return Ok((HttpReply { status, etag, body }, stays));
    }
}

fn body_of(link: &mut ServerLink, len: usize, before: usize) -> Outcome<Vec<u8>> {
    if len > BODY_LEN_MAX - before {
        return Err(unexpected("a longer body than an anchor has"));
    }
    link.bytes(len)
}

fn chunks(link: &mut ServerLink) -> Outcome<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let head = link.line()?;
        let digits = head.split(';').next().unwrap_or_default().trim();
        let len =
            usize::from_str_radix(digits, 16).map_err(|_| unexpected("a chunk of no size"))?;
        body.extend(body_of(link, len, body.len())?);
        if len > 0 {
            link.line()?;
            continue;
        }
        for _ in 0..HEAD_LINES_MAX {
            if link.line()?.is_empty() {
                return Ok(body);
            }
        }
        return Err(unexpected("too long a trailer"));
    }
}

fn refusal(method: &str, status: u16) -> io::Error {
    let kind = match status {
        401 | 403 => io::ErrorKind::PermissionDenied,
        // Another request for the object was under way, or the server is busy.
        408 | 409 | 429 | 500.. => io::ErrorKind::Interrupted,
        _ => io::ErrorKind::Unsupported,
    };
    io::Error::new(kind, format!("the server answered {method} with status {status}"))
}

/// Base64, with padding.
fn base64(bytes: &[u8]) -> Zeroizing<String> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Zeroizing::new(String::with_capacity(bytes.len().div_ceil(3) * 4));
    for three in bytes.chunks(3) {
        let at = |i: usize| u32::from(three.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            text.push(if digit <= three.len() { DIGITS[value as usize].into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_as_in_its_standard() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(*base64(plain.as_bytes()), coded);
        }
        assert_eq!(*base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }
}
