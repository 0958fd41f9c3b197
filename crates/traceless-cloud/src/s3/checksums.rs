//! Checksums that are kept with objects and parts.

use crc_fast::{CrcAlgorithm, checksum_combine};
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
use s3s::dto::{Checksum, ChecksumAlgorithm, ChecksumType};
use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};

/// A kind of checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Algorithm {
    Crc32,
    Crc32c,
    Crc64nvme,
    Sha1,
    Sha256,
}

impl Algorithm {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Crc32, Self::Crc32c, Self::Crc64nvme, Self::Sha1, Self::Sha256];

    /// The kind with this word.
    pub fn parse(word: &str) -> S3Result<Self> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.word() == word);
        found.ok_or_else(|| s3_error!(InvalidRequest, "there is no such checksum algorithm"))
    }

    /// The word that S3 has for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Crc32 => ChecksumAlgorithm::CRC32,
            Self::Crc32c => ChecksumAlgorithm::CRC32C,
            Self::Crc64nvme => ChecksumAlgorithm::CRC64NVME,
            Self::Sha1 => ChecksumAlgorithm::SHA1,
            Self::Sha256 => ChecksumAlgorithm::SHA256,
        }
    }

    /// Adds a hasher of this kind.
    pub fn add_to(self, hasher: &mut ChecksumHasher) {
        match self {
            Self::Crc32 => hasher.crc32 = Some(Crc32::new()),
            Self::Crc32c => hasher.crc32c = Some(Crc32c::new()),
            Self::Crc64nvme => hasher.crc64nvme = Some(Crc64Nvme::new()),
            Self::Sha1 => hasher.sha1 = Some(Sha1::new()),
            Self::Sha256 => hasher.sha256 = Some(Sha256::new()),
        }
    }

    /// The field of this kind.
    pub fn field(self, of: &mut Checksum) -> &mut Option<String> {
        match self {
            Self::Crc32 => &mut of.checksum_crc32,
            Self::Crc32c => &mut of.checksum_crc32c,
            Self::Crc64nvme => &mut of.checksum_crc64nvme,
            Self::Sha1 => &mut of.checksum_sha1,
            Self::Sha256 => &mut of.checksum_sha256,
        }
    }

    /// For checksums of parts that give that of the whole.
    fn crc(self) -> Option<(CrcAlgorithm, usize)> {
        match self {
            Self::Crc32 => Some((CrcAlgorithm::Crc32IsoHdlc, 4)),
            Self::Crc32c => Some((CrcAlgorithm::Crc32Iscsi, 4)),
            Self::Crc64nvme => Some((CrcAlgorithm::Crc64Nvme, 8)),
            Self::Sha1 | Self::Sha256 => None,
        }
    }
}

/// The checksum of an object or a part.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredChecksum {
    pub algorithm: Algorithm,
    /// In base64. A composite one ends with `-` and the number of parts.
    pub value: String,
}

impl StoredChecksum {
    /// The first of computed checksums.
    pub fn first_of(computed: &Checksum) -> Option<Self> {
        Algorithm::ALL.into_iter().find_map(|algorithm| Self::of(computed, algorithm))
    }

    /// The checksum of this kind, if it was computed.
    pub fn of(computed: &Checksum, algorithm: Algorithm) -> Option<Self> {
        let value = algorithm.field(&mut computed.clone()).take()?;
        Some(Self { algorithm, value })
    }

    /// Whether it is one of the checksums of the parts.
    pub fn is_composite(&self) -> bool {
        self.value.contains('-')
    }

    /// As the protocol's library has it.
    pub fn field(&self) -> Checksum {
        let mut checksum = Checksum { checksum_type: Some(self.kind()), ..Checksum::default() };
        *self.algorithm.field(&mut checksum) = Some(self.value.clone());
        checksum
    }

    /// Whether it is of the whole object, or of the checksums of parts.
    pub fn kind(&self) -> ChecksumType {
        ChecksumType::from_static(if self.is_composite() {
            ChecksumType::COMPOSITE
        } else {
            ChecksumType::FULL_OBJECT
        })
    }

    /// The algorithm, as the protocol's library has it.
    pub fn algorithm(&self) -> ChecksumAlgorithm {
        ChecksumAlgorithm::from_static(self.algorithm.word())
    }
}

/// The checksum that an upload gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UploadChecksum {
    pub algorithm: Algorithm,
    /// Whether it is one of the checksums of the parts, and not of the whole.
    pub is_composite: bool,
}

impl UploadChecksum {
    /// The checksum that a request is for, if it names one.
    pub fn of_request(algorithm: Option<&str>, kind: Option<&str>) -> S3Result<Option<Self>> {
        let Some(algorithm) = algorithm else {
            return match kind {
                None => Ok(None),
                Some(_) => {
                    Err(s3_error!(InvalidRequest, "a checksum type needs a checksum algorithm"))
                }
            };
        };
        let algorithm = Algorithm::parse(algorithm)?;
        let is_composite = match kind {
            None => algorithm != Algorithm::Crc64nvme,
            Some(ChecksumType::COMPOSITE) if algorithm != Algorithm::Crc64nvme => true,
            Some(ChecksumType::FULL_OBJECT) if algorithm.crc().is_some() => false,
            _ => {
                return Err(s3_error!(
                    InvalidRequest,
                    "this checksum algorithm has no such checksum type"
                ));
            }
        };
        Ok(Some(Self { algorithm, is_composite }))
    }

    /// The checksum of an object from the checksums and lengths of its parts; `None` if one of them
    /// lacks it.
    pub fn join(self, parts: &[(Option<StoredChecksum>, u64)]) -> Option<StoredChecksum> {
        let Self { algorithm, is_composite } = self;
        let mut sums = Vec::new();
        for (checksum, len) in parts {
            let checksum = checksum.as_ref().filter(|one| one.algorithm == algorithm)?;
            sums.push((base64_simd::STANDARD.decode_to_vec(&checksum.value).ok()?, *len));
        }
        let value = if is_composite {
            let mut hasher = ChecksumHasher::default();
            algorithm.add_to(&mut hasher);
            for (sum, _) in &sums {
                hasher.update(sum);
            }
            let value = algorithm.field(&mut hasher.finalize()).take()?;
            format!("{value}-{}", parts.len())
        } else {
            let (crc, len) = algorithm.crc()?;
            let number =
                |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            let mut all = sums.iter().map(|(sum, len)| (number(sum), *len));
            let (first, _) = all.next()?;
            let whole = all.fold(first, |sum, (next, len)| checksum_combine(crc, sum, next, len));
            base64_simd::STANDARD.encode_to_string(&whole.to_be_bytes()[8 - len..])
        };
        Some(StoredChecksum { algorithm, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(algorithm: Algorithm, bytes: &[u8]) -> StoredChecksum {
        let mut hasher = ChecksumHasher::default();
        algorithm.add_to(&mut hasher);
        hasher.update(bytes);
        StoredChecksum::first_of(&hasher.finalize()).unwrap()
    }

    #[test]
    fn checksums_of_parts_give_that_of_the_whole() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|n| (n * n / 7) as u8).collect();
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64nvme] {
            for cuts in [&[10_000][..], &[1, 9_999], &[5000, 0, 4999, 1]] {
                let (mut rest, mut parts) = (&bytes[..], Vec::new());
                for cut in cuts {
                    let (part, behind) = rest.split_at(*cut);
                    parts.push((Some(sum(algorithm, part)), *cut as u64));
                    rest = behind;
                }
                let whole = UploadChecksum { algorithm, is_composite: false }.join(&parts);
                assert_eq!(whole.unwrap(), sum(algorithm, &bytes), "{algorithm:?} {cuts:?}");
            }
        }
    }

    #[test]
    fn a_composite_checksum_is_made_of_the_checksums_of_the_parts() {
        let algorithm = Algorithm::Sha256;
        let upload = UploadChecksum { algorithm, is_composite: true };
        let parts = [(Some(sum(algorithm, b"a")), 1), (Some(sum(algorithm, b"b")), 1)];
        let joined = upload.join(&parts).unwrap();
        // Computed with Python's hashlib.
        assert_eq!(joined.value, "5aAf7hTg7VxIcU8iGA8lrYNltT+XefedxKPX6Tlj+Uo=-2");
        assert!(joined.is_composite() && joined.kind().as_str() == "COMPOSITE");
        let without = [parts[0].clone(), (None, 1)];
        assert!(upload.join(&without).is_none());
        let foreign = [(Some(sum(Algorithm::Sha1, b"a")), 1)];
        assert!(upload.join(&foreign).is_none());
    }

    #[test]
    fn algorithms_have_their_types() {
        let read = |algorithm, kind| match UploadChecksum::of_request(algorithm, kind) {
            Ok(Some(upload)) => format!("{:?} {}", upload.algorithm, upload.is_composite),
            Ok(None) => "none".to_owned(),
            Err(error) => error.code().as_str().to_owned(),
        };
        assert_eq!(read(None, None), "none");
        assert_eq!(read(Some("CRC32"), None), "Crc32 true");
        assert_eq!(read(Some("CRC64NVME"), None), "Crc64nvme false");
        assert_eq!(read(Some("CRC32C"), Some("FULL_OBJECT")), "Crc32c false");
        assert_eq!(read(Some("SHA1"), Some("COMPOSITE")), "Sha1 true");
        for (algorithm, kind) in [
            (None, Some("COMPOSITE")),
            (Some("MD4"), None),
            (Some("SHA1"), Some("FULL_OBJECT")),
            (Some("CRC64NVME"), Some("COMPOSITE")),
            (Some("CRC32"), Some("HALF")),
        ] {
            assert_eq!(read(algorithm, kind), "InvalidRequest", "{algorithm:?} {kind:?}");
        }
    }
}
