//! URLs of servers that keep anchors.

use std::fmt;
use zeroize::Zeroizing;

/// Name of the variable with the password of a URL that has none.
pub(super) const PASSWORD_VARIABLE: &str = "TRACELESS_ANCHOR_PASSWORD";

/// A URL: `SCHEME://[USER[:PASSWORD]@]HOST[:PORT]/PATH[?OPTIONS]`. It is shown without its user
/// and password.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl {
    scheme: String,
    /// As in the URL.
    login_name: String,
    user: String,
    password: Option<Zeroizing<String>>,
    /// A name or an address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// As in the URL, from the first slash on, without options.
    pub(super) path: String,
    /// What follows the question mark.
    pub(super) options: String,
}

impl ServerUrl {
    /// Reads a URL with `default_port`.
    pub(super) fn parse(text: &str, default_port: u16) -> Result<Self, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("a URL has :// after its scheme")?;
        if text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) || text.contains('#') {
            return Err("a URL has no blanks and no #");
        }
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, server) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(Zeroizing::new(decoded(password)?))),
            None => (login, None),
        };
        let (host, port) = match server.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or("an IPv6 address ends with ]")?,
            None => server.find(':').map_or((server, ""), |at| server.split_at(at)),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| "the port is no number up to 65535")?,
            None if port.is_empty() => default_port,
            None => return Err("after the address there is something that is no port"),
        };
        if host.is_empty() {
            return Err("the URL names no host");
        }
        Ok(Self {
            scheme: scheme.into(),
            login_name: user.into(),
            user: decoded(user)?,
            password,
            host: host.into(),
            port,
            path: format!("/{path}"),
            options: options.into(),
        })
    }

    /// Whether the connection has TLS.
    pub(super) fn has_tls(&self) -> bool {
        matches!(self.scheme.as_str(), "rediss" | "https")
    }

    /// User and password, if there is a password: that of the URL, or of the environment.
    pub(super) fn login(&self) -> Option<(&str, Zeroizing<String>)> {
        let of_environment = || std::env::var(PASSWORD_VARIABLE).ok().map(Zeroizing::new);
        let password = self.password.clone().or_else(of_environment)?;
        Some((&self.user, password))
    }

    /// The URL's own password.
    pub(super) fn password(&self) -> Option<&Zeroizing<String>> {
        self.password.as_ref()
    }

    /// The URL without its password.
    pub(super) fn without_password(&self) -> String {
        let name = if self.login_name.is_empty() { "" } else { &format!("{}@", self.login_name) };
        let mark = if self.options.is_empty() { "" } else { "?" };
        let Self { scheme, path, options, .. } = self;
        format!("{scheme}://{name}{}{path}{mark}{options}", self.authority())
    }

    /// Host and port as HTTP names them.
    pub(super) fn authority(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let default_port = if self.has_tls() { 443 } else { 80 };
        if self.port == default_port { host } else { format!("{host}:{}", self.port) }
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority(), self.path)
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text with each `%XX` as the byte that it stands for.
pub(super) fn decoded(text: &str) -> Result<String, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, next)) = rest.split_first() {
        rest = next;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let value = digits.filter(|two| two.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let value = value.and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(value.ok_or("after % come two hexadecimal digits")?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| "what %XX stand for is no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_all_their_parts() {
        let url = ServerUrl::parse("rediss://me:p%40ss%3a@[::1]:7000/a/b?db=3", 6379).unwrap();
        let parts = (&*url.host, url.port, &*url.path, &*url.options, url.has_tls());
        assert_eq!(parts, ("::1", 7000, "/a/b", "db=3", true));
        let (user, password) = url.login().unwrap();
        assert_eq!((user, &**password), ("me", "p@ss:"));
        assert_eq!(url.to_string(), "rediss://[::1]:7000/a/b");
        assert_eq!(format!("{url:?}"), url.to_string());
        assert_eq!(url.without_password(), "rediss://me@[::1]:7000/a/b?db=3");
        let url = ServerUrl::parse("https://host", 443).unwrap();
        assert_eq!((url.port, url.to_string()), (443, "https://host/".into()));
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for text in [
            "redis:/host/key",
            "redis:///key",
            "redis://host:70000/key",
            "redis://host:/key",
            "redis://[::1/key",
            "redis://[::1]x/key",
            "redis://ho st/key",
            "redis://h/k#part",
            "redis://:%zz@host/key",
            "redis://:%1@host/key",
            "redis://:%+1@host/key",
            "redis://:%ff@host/key",
            "redis://host/a\nb",
        ] {
            assert!(ServerUrl::parse(text, 6379).is_err(), "{text}");
        }
    }
}
