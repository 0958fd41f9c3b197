//! Signatures of version 4, with which S3 knows its clients.

use crate::error::{Error, Result};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use zeroize::Zeroizing;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SECONDS_PER_DAY: u64 = 86400;

/// A header of a request: its name in small letters, and its value.
pub(super) type Header = (&'static str, String);

/// What signs requests.
pub(super) struct S3Signer {
    key_id: String,
    secret: Zeroizing<String>,
    /// Of credentials that hold for a while only.
    token: Option<String>,
    region: String,
}

impl S3Signer {
    /// The signer with the keys of the environment, under the names that programs for S3 use.
    pub fn from_environment(region: &str) -> Result<Self> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let keys = variable("AWS_ACCESS_KEY_ID").zip(variable("AWS_SECRET_ACCESS_KEY"));
        let (key_id, secret) = keys.ok_or(Error::AnchorAddress {
            why: "s3:// needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
        })?;
        let token = variable("AWS_SESSION_TOKEN");
        Ok(Self { key_id, secret: Zeroizing::new(secret), token, region: region.into() })
    }

    /// Adds what a signed request has to `headers`, with its signature.
    pub fn sign(
        &self,
        unix_seconds: u64,
        (method, path): (&str, &str),
        headers: &mut Vec<Header>,
        body: &[u8],
    ) {
        let time = timestamp(unix_seconds);
        let body_hash = hex(&Sha256::digest(body));
        headers.push(("x-amz-content-sha256", body_hash.clone()));
        headers.push(("x-amz-date", time.clone()));
        headers.extend(self.token.clone().map(|token| ("x-amz-security-token", token)));
        headers.sort_unstable();
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let lines: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let request = format!("{method}\n{path}\n\n{}\n{names}\n{body_hash}", lines.concat());
        let (date, region) = (&time[..8], &self.region);
        let scope = format!("{date}/{region}/s3/aws4_request");
        let text = format!("{ALGORITHM}\n{time}\n{scope}\n{}", hex(&Sha256::digest(request)));
        let secret = Zeroizing::new(format!("AWS4{}", *self.secret).into_bytes());
        let parts = [date, region, "s3", "aws4_request"];
        let key = parts.iter().fold(secret, |key, part| mac(&key, part.as_bytes()));
        let signature = hex(&mac(&key, text.as_bytes()));
        let id = &self.key_id;
        let value = format!(
            "{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}"
        );
        headers.push(("authorization", value));
    }
}

fn mac(key: &[u8], text: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("any length is a key");
    mac.update(text);
    Zeroizing::new(mac.finalize().into_bytes().to_vec())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

/// A time of the calendar in UTC, as `20130524T000000Z`.
fn timestamp(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / SECONDS_PER_DAY, unix_seconds % SECONDS_PER_DAY);
    // Years that begin in March have their leap day last. Day 0 is the first of March of year 0.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_the_calendar() {
        for (seconds, text) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_369_353_600, "20130524T000000Z"),
            (1_735_689_599, "20241231T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(timestamp(seconds), text);
        }
    }

    /// The example of the specification.
    #[test]
    fn a_request_is_signed_as_specified() {
        let signer = S3Signer {
            key_id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret: Zeroizing::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into()),
            token: None,
            region: "us-east-1".into(),
        };
        let mut headers =
            vec![("range", "bytes=0-9".into()), ("host", "examplebucket.s3.amazonaws.com".into())];
        signer.sign(1_369_353_600, ("GET", "/test.txt"), &mut headers, b"");
        let (name, value) = headers.pop().unwrap();
        assert_eq!(name, "authorization");
        let wanted = "AWS4-HMAC-SHA256 \
            Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
            SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, \
            Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        assert_eq!(value, wanted);
    }
}
