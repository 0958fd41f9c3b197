//! The header: public parameters that never change and are needed before the key. 4096 bytes at 0.

use super::{AREAS_AT, Keys, MasterKey, u16_at, u32_at, u64_at};
use crate::error::{Error, Result};
use std::path::PathBuf;
use std::sync::Arc;
use traceless_block::registry;
use traceless_core::scheme::contract::{BlockScheme, PARAMETERS_LEN};
use traceless_core::seal::Cipher;

/// Bytes of the header.
pub const HEADER_LEN: usize = 4096;

const MAGIC: [u8; 8] = *b"TLVOLUME";
/// Version 1 had nonces without salts; no release made it.
const VERSION: u16 = 2;
const UUID_AT: usize = 16;
const INCOMPATIBLE_AT: usize = 48;
const SCHEME_AT: usize = 80;
const SCHEME_LEN: usize = 64;
/// Offset of the cipher's code, inside the scheme record.
const CIPHER_AT: usize = SCHEME_AT + 4;
const SALT_AT: usize = SCHEME_AT + SCHEME_LEN;
const TAG_AT: usize = HEADER_LEN - 32;

/// Feature bits. A program may ignore a compatible bit that it does not know; with an unknown
/// read-only bit it may only read, and with an unknown incompatible bit it must not open the
/// volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// Bits that a program may ignore.
    pub compatible: u64,
    /// Bits with which a program that does not know them may only read.
    pub read_only: u64,
    /// Bits with which a program that does not know them must not open the volume.
    pub incompatible: u64,
}

impl Features {
    /// Incompatible: the image was not filled with ciphertext, so its holes reveal which blocks
    /// were never written. For tests.
    pub const UNFILLED: u64 = 1;

    /// Incompatible: the volume was rebuilt, and its keys depend on the header's salt.
    pub const REBUILT: u64 = 2;

    /// Incompatible: the scheme keeps a map of discarded blocks, which read as zeros.
    pub const DISCARDS: u64 = 4;

    const KNOWN_INCOMPATIBLE: u64 = Self::UNFILLED | Self::REBUILT | Self::DISCARDS;
}

/// The header's contents. All of it is public.
#[derive(Clone, Debug)]
pub struct Header {
    /// Random, drawn at creation.
    pub uuid: [u8; 16],
    /// Feature bits.
    pub features: Features,
    /// The scheme and its parameters.
    pub scheme: Arc<dyn BlockScheme>,
    /// The cipher that seals the scheme's areas.
    pub cipher: Cipher,
    /// Bytes of the whole image.
    pub image_len: u64,
    /// Random, drawn when the volume was grown or re-encrypted. All keys except the ones of the key
    /// slots depend on it, so no part of the earlier image can pass for a part of this one.
    pub salt: Option<[u8; 16]>,
}

impl PartialEq for Header {
    fn eq(&self, other: &Self) -> bool {
        let rest = |h: &Self| (h.uuid, h.features, h.cipher, h.image_len, h.salt);
        rest(self) == rest(other) && *self.scheme == *other.scheme
    }
}

impl Eq for Header {}

impl Header {
    /// The header of a new volume.
    pub fn new(
        uuid: [u8; 16],
        features: Features,
        scheme: Arc<dyn BlockScheme>,
        cipher: Cipher,
    ) -> Self {
        let image_len = AREAS_AT + scheme.store_len();
        let discards = if scheme.keeps_discards() { Features::DISCARDS } else { 0 };
        let incompatible = features.incompatible & !Features::DISCARDS | discards;
        let features = Features { incompatible, ..features };
        Self { uuid, features, scheme, cipher, image_len, salt: None }
    }

    /// The header of the rebuilt volume that replaces this one.
    #[must_use]
    pub fn rebuilt(&self, scheme: Arc<dyn BlockScheme>, salt: [u8; 16]) -> Self {
        let incompatible = self.features.incompatible | Features::REBUILT;
        let features = Features { incompatible, ..self.features };
        Self { salt: Some(salt), ..Self::new(self.uuid, features, scheme, self.cipher) }
    }

    /// The bytes of the header, with a tag: only a holder of the key can make it.
    pub fn encode(&self, keys: &Keys) -> Vec<u8> {
        let mut out = vec![0; HEADER_LEN];
        out[..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&VERSION.to_le_bytes());
        out[UUID_AT..UUID_AT + 16].copy_from_slice(&self.uuid);
        out[32..40].copy_from_slice(&self.features.compatible.to_le_bytes());
        out[40..48].copy_from_slice(&self.features.read_only.to_le_bytes());
        let incompatible = self.features.incompatible.to_le_bytes();
        out[INCOMPATIBLE_AT..INCOMPATIBLE_AT + 8].copy_from_slice(&incompatible);
        out[56..64].copy_from_slice(&self.image_len.to_le_bytes());
        out[64..72].copy_from_slice(&AREAS_AT.to_le_bytes());
        encode_scheme(&*self.scheme, &mut out[SCHEME_AT..SCHEME_AT + SCHEME_LEN]);
        out[CIPHER_AT] = self.cipher.code();
        if let Some(salt) = &self.salt {
            out[SALT_AT..SALT_AT + 16].copy_from_slice(salt);
        }
        let tag = keys.header().mac(&out[..TAG_AT]);
        out[TAG_AT..].copy_from_slice(tag.bytes());
        out
    }

    /// Reads the header without a key: nothing in it is authenticated yet.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        if bytes.len() < HEADER_LEN || bytes[..8] != MAGIC {
            return Err(Error::NotAVolume(PathBuf::new()));
        }
        if u16_at(bytes, 8) != VERSION {
            return Err(Error::Version(u16_at(bytes, 8)));
        }
        let features = Features {
            compatible: u64_at(bytes, 32),
            read_only: u64_at(bytes, 40),
            incompatible: u64_at(bytes, INCOMPATIBLE_AT),
        };
        let unknown = features.incompatible & !Features::KNOWN_INCOMPATIBLE;
        if unknown != 0 {
            return Err(Error::Features(unknown));
        }
        let scheme = decode_scheme(&bytes[SCHEME_AT..SCHEME_AT + SCHEME_LEN])?;
        let cipher = Cipher::of_code(bytes[CIPHER_AT]).ok_or(Error::Cipher(bytes[CIPHER_AT]))?;
        let new = Self::new(Self::uuid_in(bytes), features, scheme, cipher);
        let header = Self { salt: salt_in(bytes), ..new };
        let sizes = (u64_at(bytes, 56), u64_at(bytes, 64));
        if sizes != (header.image_len, AREAS_AT) || header.features != features {
            return Err(Error::HeaderDamaged);
        }
        Ok(header)
    }

    /// The id in a header, even if the rest of the header is not valid.
    pub fn uuid_in(bytes: &[u8]) -> [u8; 16] {
        *bytes[UUID_AT..].first_chunk().expect("a header is longer")
    }

    /// The keys of the volume with this header under `master`.
    pub fn keys(&self, master: MasterKey) -> Keys {
        Keys::salted(master, self.uuid, self.salt)
    }

    /// The keys that the header in `bytes` was written with, if `master` is its volume's master
    /// key. They do not depend on version, features, scheme and cipher, so they can show that one
    /// of these fields is damaged. A later format must keep it so.
    pub fn keys_in(bytes: &[u8], master: MasterKey) -> Keys {
        Keys::salted(master, Self::uuid_in(bytes), salt_in(bytes))
    }

    /// Checks the tag of a header that was decoded from `bytes`.
    pub fn verify(bytes: &[u8], keys: &Keys) -> Result {
        if keys.header().mac(&bytes[..TAG_AT]).fits(&bytes[TAG_AT..HEADER_LEN]) {
            Ok(())
        } else {
            Err(Error::HeaderDamaged)
        }
    }
}

/// The salt of a rebuilt volume.
fn salt_in(bytes: &[u8]) -> Option<[u8; 16]> {
    let is_rebuilt = u64_at(bytes, INCOMPATIBLE_AT) & Features::REBUILT != 0;
    is_rebuilt.then(|| *bytes[SALT_AT..].first_chunk().expect("a header is longer"))
}

/// In the scheme record, behind kind, length, cipher, and number and length of blocks.
const PARAMETERS_AT: usize = SCHEME_LEN - PARAMETERS_LEN;

fn encode_scheme(scheme: &dyn BlockScheme, out: &mut [u8]) {
    let parameters = scheme.parameters();
    let len = u16::try_from(PARAMETERS_AT + parameters.len()).expect("at most 64");
    let block_len = u32::try_from(scheme.block_len()).expect("at most 1 MiB");
    out[..2].copy_from_slice(&scheme.kind().code.to_le_bytes());
    out[2..4].copy_from_slice(&len.to_le_bytes());
    out[8..16].copy_from_slice(&scheme.blocks().to_le_bytes());
    out[16..20].copy_from_slice(&block_len.to_le_bytes());
    out[PARAMETERS_AT..usize::from(len)].copy_from_slice(&parameters);
}

fn decode_scheme(record: &[u8]) -> Result<Arc<dyn BlockScheme>> {
    let (blocks, block_len) = (u64_at(record, 8), u32_at(record, 16) as usize);
    let code = u16_at(record, 0);
    let kind = registry::with_code(code).ok_or(Error::Features(u64::from(code) << 32))?;
    // No program makes a volume of parameters that its scheme refuses.
    (kind.decode)(blocks, block_len, &record[PARAMETERS_AT..]).map_err(|_| Error::HeaderDamaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_block::detwo::{DetWoGeometry, Refresh};
    use traceless_block::plain::PlainScheme;
    use traceless_block::ring::RingGeometry;
    use traceless_block::sq;

    fn plain() -> Arc<dyn BlockScheme> {
        Arc::new(PlainScheme { blocks: 9, block_len: 4096 })
    }

    fn any_master() -> MasterKey {
        MasterKey::from_bytes(&[1; 32]).unwrap()
    }

    /// A damaged field can look like one that a newer program wrote; the tag distinguishes the two.
    #[test]
    fn what_is_damaged_does_not_verify_and_what_is_newer_does() {
        let scheme = plain();
        let new = Header::new([5; 16], Features::default(), scheme.clone(), Cipher::AesGcm);
        for header in [new.clone(), new.rebuilt(scheme, [6; 16])] {
            let keys = || header.keys(any_master());
            let bytes = header.encode(&keys());
            let (mut newer, bits) = (0, bytes.len() * 8);
            for bit in 0..bits {
                let mut bytes = bytes.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let unknown = Header::decode(&bytes).is_err_and(|error| error.may_be_newer());
                newer += usize::from(unknown);
                if !unknown {
                    continue;
                }
                let found = Header::keys_in(&bytes, any_master());
                assert!(matches!(Header::verify(&bytes, &found), Err(Error::HeaderDamaged)));
                let tag = keys().header().mac(&bytes[..TAG_AT]);
                bytes[TAG_AT..].copy_from_slice(tag.bytes());
                Header::verify(&bytes, &found).unwrap();
            }
            assert!(newer > 16 + 62 + 8, "version, features and cipher: {newer}");
        }
    }

    #[test]
    fn comes_back_as_it_went_and_refuses_any_flip() {
        let on_disk = sq::SqPreferences { map_on_disk: true, ..sq::SqPreferences::default() };
        let disk = sq::SqGeometry::new(1000, 4096, on_disk).unwrap();
        let paper = sq::SqGeometry { cadence: sq::Cadence::Paper, amortized: true, ..disk };
        let samples = registry::KINDS.iter().flat_map(|k| (k.samples)(900, 1000, 4096).unwrap());
        let samples = samples.map(|(_, scheme)| scheme).chain([Arc::new(paper) as Arc<_>]);
        for scheme in samples {
            let keys = Keys::for_fuzzing();
            let new = Header::new([5; 16], Features::default(), scheme.clone(), Cipher::Aegis256);
            let is_plain = scheme.name() == "plain";
            let header = if is_plain { new.rebuilt(scheme, [6; 16]) } else { new };
            let bytes = header.encode(&keys);
            assert_eq!(Header::decode(&bytes).unwrap(), header);
            Header::verify(&bytes, &keys).unwrap();
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                let opened = Header::decode(&flipped).and_then(|_| Header::verify(&flipped, &keys));
                assert!(opened.is_err(), "bit {bit}");
            }
        }
    }

    /// Volumes that were made by earlier versions have these records.
    #[test]
    fn records_of_schemes_stay_what_they_are() {
        let record = |scheme: &dyn BlockScheme| {
            let mut out = [0; SCHEME_LEN];
            encode_scheme(scheme, &mut out);
            (out[..4].to_vec(), out[PARAMETERS_AT..].to_vec())
        };
        let (head, parameters) = record(&*plain());
        assert_eq!((head, &parameters[..]), (vec![1, 0, 20, 0], &[0; PARAMETERS_LEN][..]));
        let detwo = DetWoGeometry {
            unsynced_max: 0x0102,
            ..DetWoGeometry::new(40_000, 4096, Refresh::new(3, 2).unwrap(), 1).unwrap()
        };
        let (head, parameters) = record(&detwo);
        assert_eq!(head, [2, 0, 44, 0]);
        assert_eq!(parameters[..14], [3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 1]);
        let (head, parameters) = record(&detwo.with_discards().unwrap());
        assert_eq!(head, [2, 0, 48, 0]);
        assert_eq!(parameters[20..28], [0, 0, 0, 0, 1, 0, 0, 0]);
        let sq = sq::SqGeometry {
            map: sq::MapPlace::Disk,
            amortized: true,
            unsynced_max: 0x0304,
            ..sq::SqGeometry::with_shape(5000, 4096, 8, 5, 3).unwrap()
        };
        let (head, parameters) = record(&sq);
        assert_eq!(head, [3, 0, 40, 0]);
        assert_eq!(parameters[..14], [8, 0, 0, 0, 5, 0, 0, 0, 3, 1, 0, 1, 4, 3]);
        let ring = RingGeometry::with_buckets(500, 4096, 6, &[2, 4]).unwrap();
        let (head, parameters) = record(&ring);
        assert_eq!(head, [6, 0, 44, 0]);
        assert_eq!(parameters[..12], [6, 0, 0, 0, 2, 0, 2, 0, 2, 0, 0, 0]);
        assert_eq!(parameters[16..20], [4, 0, 0, 0]);
        for (name, code) in [("hive", 4), ("datalair", 5)] {
            let kind = registry::named(name).unwrap();
            let (_, scheme) = (kind.samples)(900, 1000, 4096).unwrap().remove(1);
            let (head, parameters) = record(&*scheme);
            assert_eq!(head, [code, 0, 40, 0]);
            assert_eq!(parameters[..13], [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 31]);
        }
    }

    /// A program that knows no discard map refuses the volume by its feature bit.
    #[test]
    fn a_discard_map_is_a_feature() {
        let without = DetWoGeometry::new(1000, 4096, Refresh::ONE, 0).unwrap();
        let with = without.with_discards().unwrap();
        for (geometry, incompatible) in [(without, 0), (with, Features::DISCARDS)] {
            let scheme: Arc<dyn BlockScheme> = Arc::new(geometry);
            let header = Header::new([5; 16], Features::default(), scheme, Cipher::AesGcm);
            let mut bytes = header.encode(&header.keys(any_master()));
            assert_eq!(u64_at(&bytes, INCOMPATIBLE_AT), incompatible);
            assert_eq!(Header::decode(&bytes).unwrap(), header);
            bytes[INCOMPATIBLE_AT] ^= 4;
            assert!(matches!(Header::decode(&bytes), Err(Error::HeaderDamaged)));
        }
    }

    #[test]
    fn a_scheme_of_a_newer_program_is_named() {
        let scheme = plain();
        let header = Header::new([5; 16], Features::default(), scheme, Cipher::AesGcm);
        let mut newer = header.encode(&header.keys(any_master()));
        newer[SCHEME_AT] = 99;
        let refused = Header::decode(&newer);
        assert!(matches!(refused, Err(Error::Features(bits)) if bits == 99 << 32), "{refused:?}");
    }

    #[test]
    fn the_parts_of_an_image_lie_one_behind_the_other() {
        let geometry = DetWoGeometry::new(1000, 4096, Refresh::ONE, 0).unwrap();
        let scheme = Arc::new(geometry);
        let header = Header::new([5; 16], Features::default(), scheme, Cipher::AesGcm);
        let parts = crate::format::parts(&header);
        let first = ["header", "key slots", "superblock A", "superblock B"];
        assert_eq!(parts.iter().map(|part| part.0).take(4).collect::<Vec<_>>(), first);
        let mut end = 0;
        for (name, at, len) in &parts[..4] {
            assert!(*at >= end && *len > 0, "{name}");
            end = at + len;
        }
        assert_eq!(end, crate::format::AREAS_AT);
        let areas: Vec<_> = header
            .scheme
            .areas()
            .into_iter()
            .map(|(name, at, len)| (name, end + at, len))
            .collect();
        assert_eq!(&parts[4..], areas);
        assert_eq!(areas.len(), 2);
        assert!(areas[1].1 > end, "behind the first");
    }
}
