//! The header: what must be known before a key is, and never changes. 4096 bytes at 0.

use super::{AREAS_AT, Keys, u16_at, u32_at, u64_at};
use crate::error::{Error, Result};
use std::path::PathBuf;
use traceless::build::SchemeConfig;
use traceless::scheme::detwo::{Geometry, Refresh};
use traceless::scheme::random;

/// Bytes of the header.
pub const HEADER_LEN: usize = 4096;

const MAGIC: [u8; 8] = *b"TLVOLUME";
const VERSION: u16 = 1;
const SCHEME_AT: usize = 80;
const SCHEME_LEN: usize = 64;
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

    const KNOWN_INCOMPATIBLE: u64 = Self::UNFILLED;
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
    /// Bytes of the whole image.
    pub image_len: u64,
}

impl Header {
    /// The header of a new volume.
    pub fn new(uuid: [u8; 16], features: Features, scheme: SchemeConfig) -> Self {
        Self { uuid, features, scheme, image_len: AREAS_AT + scheme.store_len() }
    }

    /// The bytes of the header, with a tag that proves that whoever has the key wrote it.
    pub fn encode(&self, keys: &Keys) -> Vec<u8> {
        let mut out = vec![0; HEADER_LEN];
        out[..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&self.uuid);
        out[32..40].copy_from_slice(&self.features.compatible.to_le_bytes());
        out[40..48].copy_from_slice(&self.features.read_only.to_le_bytes());
        out[48..56].copy_from_slice(&self.features.incompatible.to_le_bytes());
        out[56..64].copy_from_slice(&self.image_len.to_le_bytes());
        out[64..72].copy_from_slice(&AREAS_AT.to_le_bytes());
        encode_scheme(&self.scheme, &mut out[SCHEME_AT..SCHEME_AT + SCHEME_LEN]);
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
            incompatible: u64_at(bytes, 48),
        };
        let unknown = features.incompatible & !Features::KNOWN_INCOMPATIBLE;
        if unknown != 0 {
            return Err(Error::Features(unknown));
        }
        let scheme = decode_scheme(&bytes[SCHEME_AT..SCHEME_AT + SCHEME_LEN])?;
        let uuid = bytes[16..32].try_into().expect("16 bytes");
        let header = Self::new(uuid, features, scheme);
        if u64_at(bytes, 56) != header.image_len || u64_at(bytes, 64) != AREAS_AT {
            return Err(Error::HeaderDamaged);
        }
        Ok(header)
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

const KIND_PLAIN: u16 = 1;
const KIND_DETWO: u16 = 2;
const KIND_HIVE: u16 = 4;
const KIND_DATALAIR: u16 = 5;

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
            put(KIND_DETWO, 40);
            out[20..24].copy_from_slice(&g.refresh.p().to_le_bytes());
            out[24..28].copy_from_slice(&g.refresh.q().to_le_bytes());
            out[28..32].copy_from_slice(&u32::from(g.map_tiers).to_le_bytes());
            out[32..40].copy_from_slice(&g.unsynced_max.to_le_bytes());
        }
        SchemeConfig::Hive(g) | SchemeConfig::DataLair(g) => {
            let hive = matches!(scheme, SchemeConfig::Hive(_));
            put(if hive { KIND_HIVE } else { KIND_DATALAIR }, 40);
            out[28..32].copy_from_slice(&u32::from(g.map_tiers).to_le_bytes());
            out[32..40].copy_from_slice(&g.unsynced_max.to_le_bytes());
        }
        SchemeConfig::Linear { .. } => unreachable!("no volume is made of it"),
    }
}

fn decode_scheme(record: &[u8]) -> Result<SchemeConfig> {
    // Nobody makes a volume of such a geometry.
    let damaged = |_| Error::HeaderDamaged;
    let (blocks, block_len) = (u64_at(record, 8), u32_at(record, 16) as usize);
    match u16_at(record, 0) {
        KIND_PLAIN => {
            // The limits of a geometry hold for the control too.
            Geometry::new(blocks.max(2), block_len, Refresh::ONE, 0).map_err(damaged)?;
            if blocks == 0 {
                return Err(Error::HeaderDamaged);
            }
            Ok(SchemeConfig::Plain { blocks, block_len })
        }
        KIND_DETWO => {
            let geometry = Geometry {
                blocks,
                block_len,
                refresh: Refresh::new(u32_at(record, 20), u32_at(record, 24)).map_err(damaged)?,
                map_tiers: u8::try_from(u32_at(record, 28)).map_err(|_| Error::HeaderDamaged)?,
                unsynced_max: u64_at(record, 32),
            };
            geometry.check().map_err(damaged)?;
            Ok(SchemeConfig::DetWo(geometry))
        }
        kind @ (KIND_HIVE | KIND_DATALAIR) => {
            let geometry = random::Geometry {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_as_it_went_and_refuses_any_flip() {
        let geometry = Geometry::new(1000, 4096, Refresh::new(3, 2).unwrap(), 1).unwrap();
        let random = random::Geometry::new(1000, 4096, 1).unwrap();
        for scheme in [
            SchemeConfig::DetWo(geometry),
            SchemeConfig::Plain { blocks: 9, block_len: 4096 },
            SchemeConfig::Hive(random),
            SchemeConfig::DataLair(random),
        ] {
            let keys = Keys::for_fuzzing();
            let header = Header::new([5; 16], Features::default(), scheme);
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
}
