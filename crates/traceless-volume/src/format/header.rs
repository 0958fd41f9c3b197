//! The header: what must be known before a key is, and never changes. 4096 bytes at 0.

use super::{AREAS_AT, Keys, MasterKey, u16_at, u32_at, u64_at};
use crate::error::{Error, Result};
use std::path::PathBuf;
use traceless::build::SchemeConfig;
use traceless::scheme::detwo::{DetWoGeometry, MapEntries, Refresh};
use traceless::scheme::{random, sq};
use traceless::seal::Cipher;

/// Bytes of the header.
pub const HEADER_LEN: usize = 4096;

const MAGIC: [u8; 8] = *b"TLVOLUME";
/// Version 1 was before nonces had salts; no release made it.
const VERSION: u16 = 2;
const UUID_AT: usize = 16;
const INCOMPATIBLE_AT: usize = 48;
const SCHEME_AT: usize = 80;
const SCHEME_LEN: usize = 64;
/// In the scheme record.
const CIPHER_AT: usize = SCHEME_AT + 4;
const SALT_AT: usize = SCHEME_AT + SCHEME_LEN;
const TAG_AT: usize = HEADER_LEN - 32;

/// Feature bits. A program that does not know a compatible one may ignore it; a read-only one, may
/// only read; an incompatible one, must not open the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// May be ignored.
    pub compatible: u64,
    /// Allow reading only, if not known.
    pub read_only: u64,
    /// Forbid opening, if not known.
    pub incompatible: u64,
}

impl Features {
    /// Incompatible: the image was not filled with ciphertext, so its holes tell what was never
    /// written. For tests.
    pub const UNFILLED: u64 = 1;

    /// Incompatible: the volume was rebuilt, and its keys hang on the header's salt.
    pub const REBUILT: u64 = 2;

    const KNOWN_INCOMPATIBLE: u64 = Self::UNFILLED | Self::REBUILT;
}

/// The header's contents. All of them are public.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Random, drawn at creation.
    pub uuid: [u8; 16],
    /// Feature bits.
    pub features: Features,
    /// Which scheme, and its parameters.
    pub scheme: SchemeConfig,
    /// What its areas are sealed with.
    pub cipher: Cipher,
    /// Bytes of the whole image.
    pub image_len: u64,
    /// Random, drawn when the volume was grown or re-encrypted. All keys but those of the key slots
    /// hang on it, so nothing of the image before can pass for a part of this one.
    pub salt: Option<[u8; 16]>,
}

impl Header {
    /// The header of a new volume.
    pub fn new(uuid: [u8; 16], features: Features, scheme: SchemeConfig, cipher: Cipher) -> Self {
        let image_len = AREAS_AT + scheme.store_len();
        Self { uuid, features, scheme, cipher, image_len, salt: None }
    }

    /// The header of what takes the place of the volume with this one.
    #[must_use]
    pub fn rebuilt(&self, scheme: SchemeConfig, salt: [u8; 16]) -> Self {
        let incompatible = self.features.incompatible | Features::REBUILT;
        let features = Features { incompatible, ..self.features };
        Self { salt: Some(salt), ..Self::new(self.uuid, features, scheme, self.cipher) }
    }

    /// The bytes of the header, with a tag that proves that whoever has the key wrote it.
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
        encode_scheme(&self.scheme, &mut out[SCHEME_AT..SCHEME_AT + SCHEME_LEN]);
        out[CIPHER_AT] = self.cipher.code();
        if let Some(salt) = &self.salt {
            out[SALT_AT..SALT_AT + 16].copy_from_slice(salt);
        }
        let tag = keys.header().mac(&out[..TAG_AT]);
        out[TAG_AT..].copy_from_slice(tag.bytes());
        out
    }

    /// Reads the header without a key: nothing in it is proven yet.
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
        if u64_at(bytes, 56) != header.image_len || u64_at(bytes, 64) != AREAS_AT {
            return Err(Error::HeaderDamaged);
        }
        Ok(header)
    }

    /// The id in a header that may say anything else.
    pub fn uuid_in(bytes: &[u8]) -> [u8; 16] {
        *bytes[UUID_AT..].first_chunk().expect("a header is longer")
    }

    /// The keys of the volume with this header under `master`.
    pub fn keys(&self, master: MasterKey) -> Keys {
        Keys::salted(master, self.uuid, self.salt)
    }

    /// The keys that a header was written with if `master` is its volume's, whatever version,
    /// features, scheme and cipher it names: to find out whether one of them is damaged. Whoever
    /// adds one leaves that as it is.
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

/// The salt of a volume that was rebuilt.
fn salt_in(bytes: &[u8]) -> Option<[u8; 16]> {
    let is_rebuilt = u64_at(bytes, INCOMPATIBLE_AT) & Features::REBUILT != 0;
    is_rebuilt.then(|| *bytes[SALT_AT..].first_chunk().expect("a header is longer"))
}

const KIND_PLAIN: u16 = 1;
const KIND_DETWO: u16 = 2;
const KIND_SQ: u16 = 3;
const KIND_HIVE: u16 = 4;
const KIND_DATALAIR: u16 = 5;

/// What the map keeps.
const COUNTS: u32 = 0;
const POINTERS: u32 = 1;

fn encode_scheme(scheme: &SchemeConfig, out: &mut [u8]) {
    let mut put = |kind: u16, len: u16| {
        out[..2].copy_from_slice(&kind.to_le_bytes());
        out[2..4].copy_from_slice(&len.to_le_bytes());
        out[8..16].copy_from_slice(&scheme.blocks().to_le_bytes());
        let block_len = u32::try_from(scheme.block_len()).expect("at most 1 MiB");
        out[16..20].copy_from_slice(&block_len.to_le_bytes());
    };
    match scheme {
        SchemeConfig::Plain { .. } => put(KIND_PLAIN, 20),
        SchemeConfig::DetWo(g) => {
            put(KIND_DETWO, 44);
            out[20..24].copy_from_slice(&g.refresh.p().to_le_bytes());
            out[24..28].copy_from_slice(&g.refresh.q().to_le_bytes());
            out[28..32].copy_from_slice(&u32::from(g.map_tiers).to_le_bytes());
            out[32..40].copy_from_slice(&g.unsynced_max.to_le_bytes());
            let entries = match g.map_entries {
                MapEntries::Counts => COUNTS,
                MapEntries::Pointers => POINTERS,
            };
            out[40..44].copy_from_slice(&entries.to_le_bytes());
        }
        SchemeConfig::Sq(g) => {
            put(KIND_SQ, 40);
            out[20..24].copy_from_slice(&g.bucket.to_le_bytes());
            out[24..28].copy_from_slice(&g.fanout.to_le_bytes());
            out[28] = g.levels;
            out[29] = u8::from(g.map == sq::MapPlace::Disk);
            out[30] = u8::from(g.cadence == sq::Cadence::Paper);
            out[31] = u8::from(g.amortized);
            out[32..40].copy_from_slice(&g.unsynced_max.to_le_bytes());
        }
        SchemeConfig::Hive(g) | SchemeConfig::DataLair(g) => {
            let hive = matches!(scheme, SchemeConfig::Hive(_));
            put(if hive { KIND_HIVE } else { KIND_DATALAIR }, 40);
            out[28..32].copy_from_slice(&u32::from(g.map_tiers).to_le_bytes());
            out[32..40].copy_from_slice(&g.unsynced_max.to_le_bytes());
        }
        SchemeConfig::Linear { .. } | SchemeConfig::Path(_) | SchemeConfig::Oblivious(_) => {
            unreachable!("no volume is made of it")
        }
    }
}

fn decode_scheme(record: &[u8]) -> Result<SchemeConfig> {
    // Nobody makes a volume of such a geometry.
    let damaged = |_| Error::HeaderDamaged;
    let (blocks, block_len) = (u64_at(record, 8), u32_at(record, 16) as usize);
    match u16_at(record, 0) {
        KIND_PLAIN => {
            // The limits of a geometry hold for the control too.
            DetWoGeometry::new(blocks.max(2), block_len, Refresh::ONE, 0).map_err(damaged)?;
            if blocks == 0 {
                return Err(Error::HeaderDamaged);
            }
            Ok(SchemeConfig::Plain { blocks, block_len })
        }
        KIND_DETWO => {
            let geometry = DetWoGeometry {
                blocks,
                block_len,
                refresh: Refresh::new(u32_at(record, 20), u32_at(record, 24)).map_err(damaged)?,
                map_tiers: u8::try_from(u32_at(record, 28)).map_err(|_| Error::HeaderDamaged)?,
                map_entries: match u32_at(record, 40) {
                    COUNTS => MapEntries::Counts,
                    POINTERS => MapEntries::Pointers,
                    _ => return Err(Error::HeaderDamaged),
                },
                unsynced_max: u64_at(record, 32),
            };
            geometry.check().map_err(damaged)?;
            Ok(SchemeConfig::DetWo(geometry))
        }
        KIND_SQ => {
            let geometry = decode_sq(record, blocks, block_len)?;
            geometry.check().map_err(damaged)?;
            Ok(SchemeConfig::Sq(geometry))
        }
        kind @ (KIND_HIVE | KIND_DATALAIR) => {
            let geometry = random::RandomGeometry {
                blocks,
                block_len,
                map_tiers: u8::try_from(u32_at(record, 28)).map_err(|_| Error::HeaderDamaged)?,
                unsynced_max: u64_at(record, 32),
            };
            geometry.check().map_err(damaged)?;
            let is_hive = kind == KIND_HIVE;
            let scheme = if is_hive { SchemeConfig::Hive } else { SchemeConfig::DataLair };
            Ok(scheme(geometry))
        }
        kind => Err(Error::Features(u64::from(kind) << 32)),
    }
}

fn decode_sq(record: &[u8], blocks: u64, block_len: usize) -> Result<sq::SqGeometry> {
    let flag = |at: usize| match record[at] {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Error::HeaderDamaged),
    };
    Ok(sq::SqGeometry {
        blocks,
        block_len,
        bucket: u32_at(record, 20),
        fanout: u32_at(record, 24),
        levels: record[28],
        map: if flag(29)? { sq::MapPlace::Disk } else { sq::MapPlace::Memory },
        cadence: if flag(30)? { sq::Cadence::Paper } else { sq::Cadence::Strict },
        amortized: flag(31)?,
        unsynced_max: u64_at(record, 32),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any_master() -> MasterKey {
        MasterKey::from_bytes(&[1; 32]).unwrap()
    }

    /// Damage to what a newer program may write is told from what somebody with the key wrote.
    #[test]
    fn what_is_damaged_does_not_verify_and_what_is_newer_does() {
        let scheme = SchemeConfig::Plain { blocks: 9, block_len: 4096 };
        let new = Header::new([5; 16], Features::default(), scheme, Cipher::AesGcm);
        for header in [new, new.rebuilt(scheme, [6; 16])] {
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
        let geometry = DetWoGeometry::new(1000, 4096, Refresh::new(3, 2).unwrap(), 1).unwrap();
        let pointers = geometry.with_map_entries(MapEntries::Pointers).unwrap();
        let wishes = sq::Wishes { map_on_disk: true, ..sq::Wishes::default() };
        let disk = sq::SqGeometry::new(1000, 4096, wishes).unwrap();
        let paper = sq::SqGeometry { cadence: sq::Cadence::Paper, amortized: true, ..disk };
        let random = random::RandomGeometry::new(1000, 4096, 1).unwrap();
        for scheme in [
            SchemeConfig::DetWo(geometry),
            SchemeConfig::DetWo(pointers),
            SchemeConfig::Plain { blocks: 9, block_len: 4096 },
            SchemeConfig::Sq(sq::SqGeometry::new(1000, 4096, sq::Wishes::default()).unwrap()),
            SchemeConfig::Sq(paper),
            SchemeConfig::Hive(random),
            SchemeConfig::DataLair(random),
        ] {
            let keys = Keys::for_fuzzing();
            let new = Header::new([5; 16], Features::default(), scheme, Cipher::Aegis256);
            let header = if matches!(scheme, SchemeConfig::Plain { .. }) {
                new.rebuilt(scheme, [6; 16])
            } else {
                new
            };
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

    #[test]
    fn a_scheme_of_a_newer_program_is_named() {
        let scheme = SchemeConfig::Plain { blocks: 9, block_len: 4096 };
        let header = Header::new([5; 16], Features::default(), scheme, Cipher::AesGcm);
        let mut newer = header.encode(&header.keys(any_master()));
        newer[SCHEME_AT] = 99;
        let refused = Header::decode(&newer);
        assert!(matches!(refused, Err(Error::Features(bits)) if bits == 99 << 32), "{refused:?}");
    }

    #[test]
    fn the_parts_of_an_image_lie_one_behind_the_other() {
        let geometry = DetWoGeometry::new(1000, 4096, Refresh::ONE, 0).unwrap();
        let scheme = SchemeConfig::DetWo(geometry);
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
