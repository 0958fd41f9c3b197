//! Keys from a key broker: the KBS protocol of Trustee (Confidential Containers), version 0.4.0.
//!
//! The broker sends a nonce, the machine answers with evidence that is bound to the nonce and to a
//! new public key, and a broker that accepts the evidence encrypts the resource to that key.

mod attester;
mod session_key;
mod snp_evidence;

pub use attester::{Attester, MachineAttester, SampleAttester};
pub use session_key::SessionKey;

use crate::error::{Error, Result};
use rustls::crypto::aws_lc_rs;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha384};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use ureq::http::Response;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Body};
use zeroize::Zeroizing;

/// The version of the protocol. A broker of another version refuses.
const VERSION: &str = "0.4.0";
/// The cookie that names a session.
const COOKIE: &str = "kbs-session-id";
/// How long one request may take.
const REQUEST_TIME: Duration = Duration::from_secs(30);
/// Bytes of a broker's answer, at most.
const ANSWER_LEN_MAX: u64 = 1 << 20;

/// A key broker.
pub struct Broker {
    agent: Agent,
    /// The address, without a slash at the end.
    url: String,
}

/// The name of what a broker keeps: a repository, a type and a tag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceName(String);

#[derive(Deserialize)]
struct Challenge {
    nonce: String,
}

impl Broker {
    /// The broker at an address. Over `https`, one of the certificates `trusted` must sign its own.
    /// Without a certificate, every machine on the way could choose the key: `http` reaches only
    /// this machine.
    pub fn new(url: &str, trusted: &[Vec<u8>]) -> Result<Self> {
        let refused = |reason: &str| Err(Error::Broker(format!("{url}: {reason}")));
        let Ok(parsed) = url.parse::<ureq::http::Uri>() else {
            return refused("it is no address: https://HOST:PORT");
        };
        let host = parsed.host().unwrap_or_default();
        if url.contains(['@', '?', '#']) {
            return Err(Error::Broker("its address has neither a password nor a query".into()));
        }
        match parsed.scheme_str() {
            Some("https") if trusted.is_empty() => {
                return refused("--broker-cert is needed, with the certificate that signs its own");
            }
            Some("https") => {}
            Some("http") if is_this_machine(host) => {}
            Some("http") => {
                return refused("over http, machines on the way could choose the key: use https");
            }
            _ => return refused("it is no address: https://HOST:PORT"),
        }
        let trusted = trusted.iter().map(|each| Certificate::from_der(each).to_owned());
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()))
            .root_certs(RootCerts::from(trusted.collect::<Vec<_>>()))
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .timeout_global(Some(REQUEST_TIME))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("traceless-attest/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Self { agent: config.new_agent(), url: url.trim_end_matches('/').to_owned() })
    }

    /// What the broker keeps under a name, for the machine that `attester` speaks for. `key` is
    /// used for this session only.
    pub fn resource(
        &self,
        name: &ResourceName,
        attester: &dyn Attester,
        key: &SessionKey,
    ) -> Result<Zeroizing<Vec<u8>>> {
        let hello = json!({"version": VERSION, "tee": attester.kind(), "extra-params": {}});
        let answer = self.post("auth", None, &hello)?;
        let cookie = session_cookie(&answer)?;
        let challenge: Challenge = self.parse(answer, "challenge")?;

        // The broker computes the same text: names in their order, and no spaces.
        let bound = json!({
            "additional-evidence": "", "nonce": challenge.nonce, "tee-pubkey": key.public_jwk(),
        });
        let evidence = attester.evidence(&Sha384::digest(bound.to_string()))?;
        let proof = json!({
            "runtime-data": {"nonce": challenge.nonce, "tee-pubkey": key.public_jwk()},
            "tee-evidence": {"primary_evidence": evidence, "additional_evidence": ""},
        });
        self.post("attest", Some(&cookie), &proof)?;

        let request = self.agent.get(self.address(&format!("resource/{name}")));
        let answer = request.header("cookie", &cookie).call();
        let sealed: Value = self.parse(self.accepted(answer)?, "resource")?;
        key.open(&sealed)
    }

    fn post(&self, what: &str, cookie: Option<&str>, body: &Value) -> Result<Response<Body>> {
        let request =
            self.agent.post(self.address(what)).header("content-type", "application/json");
        let request = match cookie {
            Some(cookie) => request.header("cookie", cookie),
            None => request,
        };
        self.accepted(request.send(body.to_string()))
    }

    /// The answer, if it is one of success.
    fn accepted(
        &self,
        answer: std::result::Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>> {
        let mut answer = answer.map_err(|error| Error::unreachable(&self.url, error))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        // Problem details of RFC 9457.
        let reason = self.body(&mut answer).ok().and_then(|body| {
            let problem: Value = serde_json::from_slice(&body).ok()?;
            Some(printable(problem["detail"].as_str()?))
        });
        let reason = reason.unwrap_or_else(|| "it gives no reason".into());
        let reason = format!("it answers {status}: {reason}");
        Err(if status.is_server_error() {
            Error::unreachable(&self.url, reason)
        } else {
            Error::Broker(reason)
        })
    }

    fn parse<T: DeserializeOwned>(&self, mut answer: Response<Body>, what: &str) -> Result<T> {
        let body = self.body(&mut answer)?;
        serde_json::from_slice(&body)
            .map_err(|error| Error::Broker(format!("its {what} cannot be read: {error}")))
    }

    fn body(&self, answer: &mut Response<Body>) -> Result<Vec<u8>> {
        let read = answer.body_mut().with_config().limit(ANSWER_LEN_MAX).read_to_vec();
        read.map_err(|error| Error::unreachable(&self.url, error))
    }

    fn address(&self, what: &str) -> String {
        format!("{}/kbs/v0/{what}", self.url)
    }
}

impl FromStr for ResourceName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let name = text.strip_prefix("kbs:///").unwrap_or(text);
        let parts: Vec<_> = name.split('/').collect();
        let is_plain = |part: &&str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            !part.is_empty() && !part.starts_with('.') && part.chars().all(plain)
        };
        if parts.len() == 3 && parts.iter().all(is_plain) {
            Ok(Self(name.to_owned()))
        } else {
            Err("a name is REPOSITORY/TYPE/TAG, of letters, digits, - _ and .".into())
        }
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a host, as it is written in an address, is this machine.
fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A text of the broker as one line, without what a terminal would obey.
fn printable(text: &str) -> String {
    let is_plain = |c: &char| !c.is_control();
    text.chars().filter(is_plain).take(500).collect()
}

fn session_cookie(answer: &Response<Body>) -> Result<String> {
    let cookies = answer.headers().get_all("set-cookie").iter();
    let found = cookies
        .filter_map(|cookie| cookie.to_str().ok()?.split(';').next())
        .find(|cookie| cookie.split_once('=').is_some_and(|(name, _)| name.trim() == COOKIE));
    let found = found.ok_or_else(|| Error::Broker("it names no session".into()))?;
    Ok(found.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_on_which_a_key_could_be_chosen_are_refused() {
        for url in ["http://127.0.0.1:8080", "http://localhost", "http://[::1]:8080/"] {
            assert!(Broker::new(url, &[]).is_ok(), "{url}");
        }
        for (url, reason) in [
            ("http://broker:8080", "use https"),
            ("http://127.0.0.1.example", "use https"),
            ("https://broker:8080", "--broker-cert"),
            ("broker:8080", "no address"),
            ("http://127.0.0.1@broker/", "neither a password"),
            ("http://127.0.0.1:80/?x=", "neither a password"),
            ("", "no address"),
        ] {
            let error = Broker::new(url, &[]).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }

    #[test]
    fn names_have_three_plain_parts() {
        for text in ["default/traceless/key-1", "kbs:///default/traceless/key-1"] {
            assert_eq!(
                text.parse::<ResourceName>().unwrap().to_string(),
                "default/traceless/key-1"
            );
        }
        for wrong in ["", "a/b", "a/b/c/d", "a//c", "a/../c", "a/b/c?d", "a/b/c d", "a/b/é"] {
            assert!(wrong.parse::<ResourceName>().is_err(), "{wrong}");
        }
    }
}
