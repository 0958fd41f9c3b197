//! The key that a broker's answer is encrypted to: JSON Web Encryption (RFC 7516) with
//! ECDH-ES+A256KW on P-256 and AES-256-GCM (RFC 7518).

use crate::error::{Error, Result};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::key_wrap::{AES_256, AesKek, KeyWrap};
use base64_simd::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

const KEY_AGREEMENT: &str = "ECDH-ES+A256KW";
const ENCRYPTION: &str = "A256GCM";
const CURVE: &str = "P-256";
/// Bytes of each coordinate of a point.
const COORDINATE_LEN: usize = 32;
/// The first byte of a point that is written with both coordinates.
const UNCOMPRESSED: u8 = 4;
/// Bits of the key that wraps, as the derivation hashes them.
const WRAPPING_KEY_BITS: u32 = 256;

/// A key pair for one session with a broker.
pub struct SessionKey {
    private: PrivateKey,
    x: String,
    y: String,
}

impl SessionKey {
    /// A new key pair.
    pub fn random() -> Result<Self> {
        Self::new(PrivateKey::generate(&ECDH_P256))
    }

    /// The key pair of a private key on P-256, most significant byte first.
    pub fn from_private(bytes: &[u8; COORDINATE_LEN]) -> Result<Self> {
        Self::new(PrivateKey::from_private_key(&ECDH_P256, bytes))
    }

    fn new<E>(private: std::result::Result<PrivateKey, E>) -> Result<Self> {
        let unusable = || Error::Machine("there is no randomness for a key".into());
        let private = private.map_err(|_| unusable())?;
        let public = private.compute_public_key().map_err(|_| unusable())?;
        let (x, y) = public.as_ref()[1..].split_at(COORDINATE_LEN);
        let [x, y] = [x, y].map(|each| URL_SAFE_NO_PAD.encode_to_string(each));
        Ok(Self { private, x, y })
    }

    /// The public key as a JSON Web Key (RFC 7517).
    pub fn public_jwk(&self) -> Value {
        json!({"kty": "EC", "crv": CURVE, "alg": KEY_AGREEMENT, "x": self.x, "y": self.y})
    }

    /// Opens what is encrypted to this key, in the flattened form of JSON.
    pub fn open(&self, sealed: &Value) -> Result<Zeroizing<Vec<u8>>> {
        let refused = |reason: &str| Error::Broker(format!("its answer: {reason}"));
        let text = |name: &str| {
            sealed[name].as_str().ok_or_else(|| refused(&format!("it has no field {name}")))
        };
        let decode = |text: &str| {
            URL_SAFE_NO_PAD.decode_to_vec(text).map_err(|_| refused("it is no base64url"))
        };
        let protected = text("protected")?;
        let head: Value = serde_json::from_slice(&decode(protected)?)
            .map_err(|_| refused("its protected header is no JSON"))?;
        if head["alg"] != KEY_AGREEMENT || head["enc"] != ENCRYPTION || head["epk"]["crv"] != CURVE
        {
            return Err(refused("it is encrypted in another way than was asked for"));
        }
        let coordinate = |name: &str| decode(head["epk"][name].as_str().unwrap_or_default());
        let point = [vec![UNCOMPRESSED], coordinate("x")?, coordinate("y")?].concat();
        let unauthentic = || refused("it is not encrypted to this session's key, or was changed");
        let wrapping = self.wrapping_key(&point).ok_or_else(unauthentic)?;

        let mut key = Zeroizing::new([0; 32]);
        let wrap = AesKek::new(&AES_256, &wrapping[..]).map_err(|_| unauthentic())?;
        let unwrapped = wrap.unwrap(&decode(text("encrypted_key")?)?, &mut key[..]);
        if unwrapped.map_err(|_| unauthentic())?.len() != 32 {
            return Err(unauthentic());
        }
        let key = UnboundKey::new(&AES_256_GCM, &key[..]).map_err(|_| unauthentic())?;
        let nonce = Nonce::try_assume_unique_for_key(&decode(text("iv")?)?);
        let nonce = nonce.map_err(|_| unauthentic())?;
        let bytes = [decode(text("ciphertext")?)?, decode(text("tag")?)?].concat();
        let mut bytes = Zeroizing::new(bytes);
        let opened = LessSafeKey::new(key)
            .open_in_place(nonce, Aad::from(protected.as_bytes()), &mut bytes)
            .map_err(|_| unauthentic())?
            .len();
        bytes.truncate(opened);
        Ok(bytes)
    }

    /// The key that wraps the content's key (RFC 7518, 4.6.2: one round of Concat KDF).
    fn wrapping_key(&self, point: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
        let point = UnparsedPublicKey::new(&ECDH_P256, point);
        agree(&self.private, point, (), |shared| Ok(derive(shared))).ok()
    }
}

fn derive(shared: &[u8]) -> Zeroizing<[u8; 32]> {
    let mut hash = Sha256::new();
    hash.update(1_u32.to_be_bytes());
    hash.update(shared);
    hash.update((KEY_AGREEMENT.len() as u32).to_be_bytes());
    hash.update(KEY_AGREEMENT);
    // Neither party has a name.
    hash.update([0; 8]);
    hash.update(WRAPPING_KEY_BITS.to_be_bytes());
    Zeroizing::new(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encrypts as a broker does.
    fn seal(to: &SessionKey, plain: &[u8]) -> Value {
        let own = SessionKey::random().unwrap();
        let decode = |text: &str| URL_SAFE_NO_PAD.decode_to_vec(text).unwrap();
        let point = [vec![UNCOMPRESSED], decode(&to.x), decode(&to.y)].concat();
        let wrapping = own.wrapping_key(&point).unwrap();
        let (key, iv) = ([5; 32], [6; 12]);
        let mut wrapped = [0; 40];
        AesKek::new(&AES_256, &wrapping[..]).unwrap().wrap(&key, &mut wrapped).unwrap();
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode_to_string(bytes);
        let head = json!({"alg": KEY_AGREEMENT, "enc": ENCRYPTION, "epk": own.public_jwk()});
        let protected = encode(head.to_string().as_bytes());
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).unwrap());
        let mut bytes = plain.to_vec();
        let aad = Aad::from(protected.as_bytes());
        let nonce = Nonce::assume_unique_for_key(iv);
        let tag = key.seal_in_place_separate_tag(nonce, aad, &mut bytes).unwrap();
        json!({
            "protected": protected, "encrypted_key": encode(&wrapped), "iv": encode(&iv),
            "ciphertext": encode(&bytes), "tag": encode(tag.as_ref()),
        })
    }

    #[test]
    fn only_the_sessions_key_opens_and_only_what_is_unchanged() {
        let key = SessionKey::random().unwrap();
        for plain in [&b""[..], b"a key of a gateway"] {
            let sealed = seal(&key, plain);
            assert_eq!(**key.open(&sealed).unwrap(), *plain);
            assert!(SessionKey::random().unwrap().open(&sealed).is_err());
            for name in ["protected", "encrypted_key", "iv", "ciphertext", "tag"] {
                let mut cut = sealed.clone();
                cut.as_object_mut().unwrap().remove(name);
                assert!(key.open(&cut).is_err(), "{name}");
                let text = sealed[name].as_str().unwrap();
                for at in 0..text.len() {
                    let mut changed = text.as_bytes().to_vec();
                    changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
                    let mut altered = sealed.clone();
                    altered[name] = String::from_utf8(changed).unwrap().into();
                    assert!(key.open(&altered).is_err(), "{name} {at}");
                }
            }
        }
    }

    #[test]
    fn weaker_ways_to_encrypt_are_refused() {
        let key = SessionKey::random().unwrap();
        for (name, value) in [("alg", "RSA1_5"), ("alg", "dir"), ("enc", "A128CBC-HS256")] {
            let mut head =
                json!({"alg": KEY_AGREEMENT, "enc": ENCRYPTION, "epk": key.public_jwk()});
            head[name] = value.into();
            let protected = URL_SAFE_NO_PAD.encode_to_string(head.to_string());
            let error = key.open(&json!({"protected": protected})).unwrap_err().to_string();
            assert!(error.contains("in another way"), "{error}");
        }
    }

    /// RFC 7518, appendix C: the point is Bob's and the private key Alice's.
    #[test]
    fn keys_agree_as_in_the_standard() {
        let decode = |text: &str| URL_SAFE_NO_PAD.decode_to_vec(text).unwrap();
        let alice = decode("0_NxaRPUMQoAJt50Gz8YiTr8gRTwyEaCumd-MToTmIo");
        let alice = SessionKey::from_private(&alice.try_into().unwrap()).unwrap();
        assert_eq!(alice.x, "gI0GAILBdu7T53akrFmMyGcsF3n5dO7MmwNBHKW5SV0");
        assert_eq!(alice.y, "SLW_xSffzlPWrHEVI30DHM_4egVwt3NQqeUD7nMFpps");
        let x = decode("weNJy2HscCSM6AEDTDg04biOvhFhyyWvOHQfeF_PxMQ");
        let y = decode("e8lnCO-AlStT-NJVX-crhB7QRYhiix03illJOVAOyck");
        let shared = [
            158, 86, 217, 29, 129, 113, 53, 211, 114, 131, 66, 131, 191, 132, 38, 156, 251, 49,
            110, 163, 218, 128, 106, 72, 246, 218, 167, 121, 140, 254, 144, 196,
        ];
        let agreed = alice.wrapping_key(&[vec![UNCOMPRESSED], x, y].concat()).unwrap();
        assert_eq!(agreed, derive(&shared));
    }
}
