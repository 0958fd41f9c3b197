//! Authenticates the client that has signed the policy of a form.
//!
//! A form has a signature of version 4 or of version 2. Both cover the policy alone: it says when
//! the form expires and which fields it may have, and no signature covers the file.

use super::access::AccessKeys;
use super::form_parser::FormFields;
use super::signature::{ALGORITHM, check_scope};
use aws_lc_rs::hmac;
use s3s::auth::SecretKey;
use s3s::{S3ErrorCode, S3Result, s3_error};
use zeroize::Zeroizing;

/// Length of a signature of version 4, in bytes.
const SIGNATURE_LEN: usize = 32;

/// The access key that has signed a form.
pub fn signer_of<'a>(fields: &'a FormFields, keys: &AccessKeys) -> S3Result<&'a str> {
    let Some(policy) = fields.get("policy") else {
        return Err(s3_error!(AccessDenied, "the form has no policy, so it is not signed"));
    };
    match (fields.get("x-amz-signature"), fields.get("signature")) {
        (Some(signature), None) => check_version_4(fields, policy, signature, keys),
        (None, Some(signature)) => check_version_2(fields, policy, signature, keys),
        (None, None) => Err(missing("x-amz-signature")),
        (Some(_), Some(_)) => Err(s3_error!(InvalidArgument, "only one signature is allowed")),
    }
}

fn check_version_4<'a>(
    fields: &'a FormFields,
    policy: &str,
    signature: &str,
    keys: &AccessKeys,
) -> S3Result<&'a str> {
    let one = |name| fields.get(name).ok_or_else(|| missing(name));
    if one("x-amz-algorithm")? != ALGORITHM {
        return Err(s3_error!(InvalidArgument, "x-amz-algorithm only supports {ALGORITHM}"));
    }
    let scope = one("x-amz-credential")?;
    check_scope(scope, S3ErrorCode::InvalidArgument)?;
    let mut words = scope.split('/');
    let (id, day) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if day.len() != "20260131".len() || !one("x-amz-date")?.starts_with(day) {
        return Err(s3_error!(InvalidArgument, "x-amz-date is of the day in x-amz-credential"));
    }
    let secret = secret_of(id, keys)?;
    let first = Zeroizing::new(format!("AWS4{}", secret.expose()));
    let mut key = hmac::Key::new(hmac::HMAC_SHA256, first.as_bytes());
    for word in scope.split('/').skip(1) {
        key = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, word.as_bytes()).as_ref());
    }
    let signature = unhex(signature).unwrap_or_default();
    verify(&key, policy, &signature)?;
    Ok(id)
}

fn check_version_2<'a>(
    fields: &'a FormFields,
    policy: &str,
    signature: &str,
    keys: &AccessKeys,
) -> S3Result<&'a str> {
    let name = "awsaccesskeyid";
    let id = fields.get(name).ok_or_else(|| missing(name))?;
    let secret = secret_of(id, keys)?;
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.expose().as_bytes());
    let signature = base64_simd::STANDARD.decode_to_vec(signature).unwrap_or_default();
    verify(&key, policy, &signature)?;
    Ok(id)
}

/// Compares in constant time.
fn verify(key: &hmac::Key, policy: &str, signature: &[u8]) -> S3Result<()> {
    hmac::verify(key, policy.as_bytes(), signature)
        .map_err(|_| s3_error!(SignatureDoesNotMatch, "the policy was signed in another way"))
}

fn secret_of<'a>(id: &str, keys: &'a AccessKeys) -> S3Result<&'a SecretKey> {
    keys.secret(id).ok_or_else(|| s3_error!(InvalidAccessKeyId))
}

fn missing(name: &str) -> s3s::S3Error {
    s3_error!(InvalidArgument, "Bucket POST must contain a field named '{name}'")
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect();
    let digits = digits.filter(|digits| digits.len() == 2 * SIGNATURE_LEN)?;
    Some(digits.as_chunks().0.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> AccessKeys {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        // The keys of AWS's example of a form.
        let text = "AKIAIOSFODNN7EXAMPLE wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\n";
        std::fs::write(&path, text).unwrap();
        AccessKeys::read(&path).unwrap()
    }

    fn signed(pairs: &[(&str, &str)]) -> Result<String, String> {
        let signer = signer_of(&FormFields::of(pairs), &keys()).map(str::to_owned);
        signer.map_err(|error| error.code().as_str().to_owned())
    }

    const ID: &str = "AKIAIOSFODNN7EXAMPLE";
    const POLICY: &str = "eyJleHBpcmF0aW9uIjogIjIwMzAifQ==";

    #[test]
    fn a_form_is_signed_with_version_4() {
        let scope = format!("{ID}/20151229/us-east-1/s3/aws4_request");
        let signature = "5548e3829e4ad3aceb6b76fc09f1086404eb5d09f915f127eb9bac48766fc9bb";
        let right = [
            ("policy", POLICY),
            ("x-amz-algorithm", ALGORITHM),
            ("x-amz-credential", &scope),
            ("x-amz-date", "20151229T000000Z"),
            ("x-amz-signature", signature),
        ];
        assert_eq!(signed(&right).unwrap(), ID);
        let but = |name: &str, value: &str| {
            let mut form: Vec<_> = right.into_iter().filter(|(own, _)| *own != name).collect();
            form.push((name, value));
            signed(&form).unwrap_err()
        };
        let mismatch = "SignatureDoesNotMatch";
        assert_eq!(but("policy", &POLICY.replace('I', "J")), mismatch);
        for other in ["", &signature[1..], &signature.replace(&signature[..1], "x")] {
            assert_eq!(but("x-amz-signature", other), mismatch, "{other}");
        }
        assert_eq!(but("x-amz-credential", &scope.replace("us-east", "us-west")), mismatch);
        assert_eq!(but("x-amz-credential", &scope.replace("AKIA", "")), "InvalidAccessKeyId");
        let invalid = "InvalidArgument";
        for other in [scope.replace("/s3/", "/sts/"), scope.replace("1229", ""), ID.to_owned()] {
            assert_eq!(but("x-amz-credential", &other), invalid, "{other}");
        }
        assert_eq!(but("x-amz-date", "20151230T000000Z"), invalid);
        assert_eq!(but("x-amz-algorithm", "AWS4-ECDSA-P256-SHA256"), invalid);
        assert_eq!(but("signature", "x"), invalid);
        assert_eq!(signed(&right[1..]).unwrap_err(), "AccessDenied");
        for missing in 1..right.len() {
            let form = [&right[..missing], &right[missing + 1..]].concat();
            assert_eq!(signed(&form).unwrap_err(), invalid);
        }
    }

    #[test]
    fn a_form_is_signed_with_version_2() {
        let right = [
            ("policy", POLICY),
            ("awsaccesskeyid", ID),
            ("signature", "2OwwkHKlF5UcqHWwg0cD6FhVjyQ="),
        ];
        assert_eq!(signed(&right).unwrap(), ID);
        for other in ["", "!", "AAAA", "gz8nxeBjqyzWOz9k6ee/pE7ikn4="] {
            let form = [right[0], right[1], ("signature", other)];
            assert_eq!(signed(&form).unwrap_err(), "SignatureDoesNotMatch", "{other}");
        }
        let unknown = [right[0], ("awsaccesskeyid", "nobody"), right[2]];
        assert_eq!(signed(&unknown).unwrap_err(), "InvalidAccessKeyId");
        assert_eq!(signed(&[right[0], right[2]]).unwrap_err(), "InvalidArgument");
    }
}
