//! Binds a login to the certificate of the connection that it is made on (RFC 5929,
//! `tls-server-end-point`), so that a server in between cannot pass it on.

use sha2::{Digest as _, Sha256, Sha384, Sha512};

/// Identifiers of signatures with SHA-256, or with MD5 or SHA-1, which count as SHA-256: of RSA and
/// of ECDSA.
const OF_SHA256: [&[u8]; 5] = [
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b],
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x04],
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01],
];
/// The same with SHA-384.
const OF_SHA384: [&[u8]; 2] = [
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03],
];
/// The same with SHA-512.
const OF_SHA512: [&[u8]; 2] = [
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04],
];

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;

/// The digest of a certificate in DER, by the hash of its own signature. There is none if the
/// signature has no hash of its own, as Ed25519, or names it in parameters, as RSA-PSS.
pub fn end_point_digest(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = signature_algorithm(certificate)?;
    if OF_SHA256.contains(&algorithm) {
        Some(Sha256::digest(certificate).to_vec())
    } else if OF_SHA384.contains(&algorithm) {
        Some(Sha384::digest(certificate).to_vec())
    } else if OF_SHA512.contains(&algorithm) {
        Some(Sha512::digest(certificate).to_vec())
    } else {
        None
    }
}

/// The identifier of the algorithm that signed a certificate: a certificate is a sequence of what
/// is signed, the algorithm and the signature.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let (parts, _) = element(certificate, SEQUENCE)?;
    let (_signed, rest) = element(parts, SEQUENCE)?;
    let (algorithm, _) = element(rest, SEQUENCE)?;
    element(algorithm, OBJECT_IDENTIFIER).map(|(identifier, _)| identifier)
}

/// The contents of the first element, which must have this tag, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, len], rest) = der.split_first_chunk()?;
    if found != tag {
        return None;
    }
    // A long length says in the lower bits of its first byte how many more there are.
    let (len, rest) = match usize::from(len) {
        short if short < 0x80 => (short, rest),
        long => {
            let (bytes, rest) = rest.split_at_checked(long - 0x80)?;
            (bytes.iter().fold(0, |len: usize, &byte| len << 8 | usize::from(byte)), rest)
        }
    };
    rest.split_at_checked(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sequence of what is signed, an algorithm with this identifier, and a signature.
    fn certificate(identifier: &[u8], signed_len: usize) -> Vec<u8> {
        let with_len = |tag: u8, contents: &[u8]| {
            let len = contents.len() as u16;
            [&[tag, 0x82][..], &len.to_be_bytes(), contents].concat()
        };
        let algorithm = [&[OBJECT_IDENTIFIER, identifier.len() as u8], identifier].concat();
        let parts = [
            with_len(SEQUENCE, &vec![7; signed_len]),
            with_len(SEQUENCE, &algorithm),
            with_len(0x03, &[0; 64]),
        ];
        with_len(SEQUENCE, &parts.concat())
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        let digest = |identifier: &[u8]| end_point_digest(&certificate(identifier, 500));
        assert_eq!(
            digest(OF_SHA256[0]),
            Some(Sha256::digest(certificate(OF_SHA256[0], 500)).to_vec())
        );
        assert_eq!(digest(OF_SHA384[1]).map(|digest| digest.len()), Some(48));
        assert_eq!(digest(OF_SHA512[1]).map(|digest| digest.len()), Some(64));
        let ed25519 = [0x2b, 0x65, 0x70];
        assert_eq!(digest(&ed25519), None);
    }

    #[test]
    fn what_is_no_certificate_has_no_digest() {
        let whole = certificate(OF_SHA256[3], 40);
        for len in 0..whole.len() {
            assert_eq!(end_point_digest(&whole[..len]), None, "{len}");
        }
        for wrong in [&[0x30, 0x80][..], &[0x30, 0x85, 1, 1, 1, 1, 1], &[0x30, 0x84, 255, 255]] {
            assert_eq!(end_point_digest(wrong), None);
        }
    }
}
