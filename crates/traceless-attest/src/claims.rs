use crate::hex_bytes::HexBytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A kind of enclave or confidential virtual machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tee {
    /// An enclave of Intel SGX.
    Sgx,
    /// A trust domain of Intel TDX.
    Tdx,
    /// A guest of AMD SEV-SNP.
    Snp,
}

/// A maker of processors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Maker {
    /// AMD.
    Amd,
    /// Intel.
    Intel,
}

impl Tee {
    /// The maker of its processors.
    pub fn maker(self) -> Maker {
        match self {
            Self::Sgx | Self::Tdx => Maker::Intel,
            Self::Snp => Maker::Amd,
        }
    }

    /// Bytes of what the host passes at the start.
    pub fn host_data_len(self) -> usize {
        match self {
            Self::Sgx | Self::Snp => 32,
            Self::Tdx => 48,
        }
    }

    /// Bytes of the measurement of a program.
    pub fn measurement_len(self) -> usize {
        match self {
            Self::Sgx => 32,
            Self::Tdx | Self::Snp => 48,
        }
    }
}

impl fmt::Display for Tee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sgx => "sgx",
            Self::Tdx => "tdx",
            Self::Snp => "snp",
        })
    }
}

/// The statements of a piece of evidence, in the same terms for all makers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Claims {
    /// The kind of enclave.
    pub tee: Tee,
    /// 64 bytes that the program chose: the hash of its public key and of the challenge.
    pub report_data: HexBytes,
    /// The program as it was started: MRENCLAVE, MRTD, or the launch measurement.
    pub measurement: HexBytes,
    /// The key that vouches for the program: MRSIGNER, or the digest of the ID key. MROWNER of TDX,
    /// which the host chooses.
    pub signer: Option<HexBytes>,
    /// What was measured after the start: RTMR0 to RTMR3 of TDX.
    pub registers: Vec<HexBytes>,
    /// What the host passed at the start: MRCONFIGID of TDX, `HOST_DATA` of SEV-SNP.
    pub host_data: Option<HexBytes>,
    /// The product number that the signer gave: ISVPRODID of SGX.
    pub product: Option<u16>,
    /// The program's security version: ISVSVN of SGX, the guest's SVN of SEV-SNP.
    pub svn: u32,
    /// Whether the host may read the program's memory, so that nothing is protected.
    pub debug: bool,
    /// Whether the host may move the program to another machine.
    pub migratable: bool,
    /// The privilege level at which the evidence was requested: VMPL of SEV-SNP, otherwise 0.
    pub privilege_level: u32,
    /// The security version of processor and firmware.
    pub tcb: Tcb,
    /// The processor: its PPID or chip id. `None` if it is masked.
    pub platform: Option<HexBytes>,
    /// When the maker issued the oldest statement about revocation and security versions, in
    /// seconds since 1970. `None` if there is none.
    pub collateral_issued: Option<u64>,
}

/// The security version of processor and firmware.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum Tcb {
    /// Intel's judgement.
    Intel {
        /// For example `UpToDate`.
        status: String,
        /// Names of security advisories that apply.
        advisories: Vec<String>,
    },
    /// AMD's numbers.
    Amd(AmdTcb),
}

/// Security version numbers of the firmware of AMD's processors.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AmdTcb {
    /// The boot loader.
    pub bootloader: u8,
    /// The operating system of the secure processor.
    pub tee: u8,
    /// The firmware of SEV-SNP.
    pub snp: u8,
    /// The lowest microcode of all cores.
    pub microcode: u8,
    /// The FMC, from Turin on.
    pub fmc: u8,
}

impl AmdTcb {
    /// The first component that is below that of `least`, with its numbers.
    pub fn component_below(&self, least: &Self) -> Option<(&'static str, u8, u8)> {
        let components = [
            ("bootloader", self.bootloader, least.bootloader),
            ("tee", self.tee, least.tee),
            ("snp", self.snp, least.snp),
            ("microcode", self.microcode, least.microcode),
            ("fmc", self.fmc, least.fmc),
        ];
        components.into_iter().find(|(_, own, least)| own < least)
    }
}
