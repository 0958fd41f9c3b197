//! The attestation report of SEV-SNP (AMD 56860, "SEV Secure Nested Paging Firmware ABI", table
//! `ATTESTATION_REPORT`).

use crate::claims::{AmdTcb, Claims, Tcb, Tee};
use crate::error::{Error, Result};
use crate::hex_bytes::HexBytes;

/// Bytes of a report.
pub const REPORT_LEN: usize = 0x4a0;
/// Bytes of a report before its signature, all of which are signed.
pub const SIGNED_LEN: usize = 0x2a0;
/// Bytes of each half of a signature, least significant byte first.
const SIGNATURE_HALF_LEN: usize = 72;
/// Bytes of a number modulo the order of the curve P-384.
const SCALAR_LEN: usize = 48;
/// `SIGNATURE_ALGO`: ECDSA with P-384 and SHA-384.
const ECDSA_P384_SHA384: u32 = 1;
/// The version from which on a report names the processor, and the family of Turin.
pub const NAMES_PROCESSOR: u32 = 3;
const FAMILY_TURIN: u8 = 0x1a;
/// Bits of the guest's policy.
const POLICY_MIGRATABLE: u64 = 1 << 18;
const POLICY_DEBUG: u64 = 1 << 19;

/// Generations of processors, which differ in how a report writes security versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Generation {
    /// Milan, Genoa, Bergamo and Siena.
    BeforeTurin,
    /// Turin.
    Turin,
}

impl Generation {
    /// Decodes `TCB_VERSION`.
    pub fn decode_tcb(self, bytes: [u8; 8]) -> AmdTcb {
        let microcode = bytes[7];
        match self {
            Self::BeforeTurin => {
                let [bootloader, tee, .., snp, _] = bytes;
                AmdTcb { bootloader, tee, snp, microcode, fmc: 0 }
            }
            Self::Turin => {
                let [fmc, bootloader, tee, snp, ..] = bytes;
                AmdTcb { bootloader, tee, snp, microcode, fmc }
            }
        }
    }
}

/// The kind of key that signed a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SigningKey {
    /// Derived from a chip's secret and its security versions.
    Vcek,
    /// Lent by AMD to a cloud provider.
    Vlek,
}

/// A report of the right form. Its signature was not checked.
pub struct Report<'a> {
    bytes: &'a [u8; REPORT_LEN],
}

impl<'a> Report<'a> {
    /// A report and the bytes that follow it.
    pub fn parse(evidence: &'a [u8]) -> Result<(Self, &'a [u8])> {
        let malformed = |reason: &str| Error::Malformed(reason.into());
        let (bytes, rest) = evidence
            .split_first_chunk()
            .ok_or_else(|| malformed("a report of SEV-SNP has 1,184 bytes"))?;
        let report = Self { bytes };
        if report.u32(0x34) != ECDSA_P384_SHA384 {
            return Err(malformed("its signature is not of ECDSA with P-384"));
        }
        report.signing_key()?;
        Ok((report, rest))
    }

    /// All its bytes.
    pub fn bytes(&self) -> &'a [u8; REPORT_LEN] {
        self.bytes
    }

    /// The version of its layout.
    pub fn version(&self) -> u32 {
        self.u32(0)
    }

    /// The generation of the processor, as the report has it. Only a certificate proves it.
    pub fn generation(&self) -> Generation {
        let is_turin = if self.version() >= NAMES_PROCESSOR {
            self.bytes[0x188] == FAMILY_TURIN
        } else {
            // Numbers of chips are shorter since Turin.
            self.chip_id().is_some_and(|chip| chip[8..].iter().all(|byte| *byte == 0))
        };
        if is_turin { Generation::Turin } else { Generation::BeforeTurin }
    }

    /// The signed bytes.
    pub fn signed(&self) -> &'a [u8] {
        &self.bytes[..SIGNED_LEN]
    }

    /// The halves r and s of the signature, most significant byte first.
    pub fn signature(&self) -> Result<([u8; SCALAR_LEN], [u8; SCALAR_LEN])> {
        let half = |at: usize| {
            let (number, rest) = self.bytes[at..at + SIGNATURE_HALF_LEN].split_at(SCALAR_LEN);
            if rest.iter().any(|byte| *byte != 0) {
                return Err(Error::Malformed("its signature is no number of P-384".into()));
            }
            let mut number: [u8; SCALAR_LEN] = number.try_into().expect("so many bytes");
            number.reverse();
            Ok(number)
        };
        Ok((half(SIGNED_LEN)?, half(SIGNED_LEN + SIGNATURE_HALF_LEN)?))
    }

    /// The kind of the signing key.
    pub fn signing_key(&self) -> Result<SigningKey> {
        match self.u32(0x48) >> 2 & 7 {
            0 => Ok(SigningKey::Vcek),
            1 => Ok(SigningKey::Vlek),
            _ => Err(Error::Malformed("it is signed with no key".into())),
        }
    }

    /// The security versions that the signing key is derived from.
    pub fn reported_tcb(&self, generation: Generation) -> AmdTcb {
        generation.decode_tcb(self.array(0x180))
    }

    /// The chip, if it is not masked.
    pub fn chip_id(&self) -> Option<[u8; 64]> {
        Some(self.array(0x1a0)).filter(|id| *id != [0; 64])
    }

    /// The report in the terms of all makers.
    pub fn claims(&self, generation: Generation) -> Claims {
        let policy = u64::from_le_bytes(self.array(0x08));
        let bytes = |at: usize, len: usize| HexBytes(self.bytes[at..at + len].to_vec());
        Claims {
            tee: Tee::Snp,
            report_data: bytes(0x50, 64),
            measurement: bytes(0x90, 48),
            signer: Some(bytes(0xe0, 48)).filter(|digest| !digest.is_zero()),
            registers: Vec::new(),
            host_data: Some(bytes(0xc0, 32)),
            product: None,
            svn: self.u32(0x04),
            debug: policy & POLICY_DEBUG != 0,
            migratable: policy & POLICY_MIGRATABLE != 0,
            privilege_level: self.u32(0x30),
            tcb: Tcb::Amd(self.reported_tcb(generation)),
            platform: self.chip_id().map(|id| HexBytes(id.to_vec())),
            collateral_issued: None,
        }
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.bytes[at..at + N].try_into().expect("a field within the report")
    }
}
