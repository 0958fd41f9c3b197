//! Evidence of SEV-SNP in the form that Trustee takes: the fields of a report and of its
//! certificate table as JSON, as the crate `sev` (version 7) names them.

use crate::amd_report::{Generation, NAMES_PROCESSOR, REPORT_LEN, Report};
use crate::certificate_table::certificates;
use crate::error::Result;
use serde_json::{Value, json};

/// Identifiers of kinds of certificates (GHCB specification, 4.1.8.1), with their names.
const KINDS: [(&str, &str); 4] = [
    ("c0b406a4a803495297433fb6014cd0ae", "ARK"),
    ("4ab7b379bbac4fe4a02f05aef327c782", "ASK"),
    ("63da758de6644564adc5f4b93be8accd", "VCEK"),
    ("a8074bc2a25a483eaae639c045a0b8a1", "VLEK"),
];
/// The version from which on a report has vectors of mitigations.
const NAMES_MITIGATIONS: u32 = 5;

/// A report, which a certificate table may follow, as JSON.
pub fn for_trustee(evidence: &[u8]) -> Result<Value> {
    let (report, table) = Report::parse(evidence)?;
    let entries = certificates(table)?;
    let chain: Vec<_> = entries
        .iter()
        .filter_map(|entry| {
            let kind = hex::encode(entry.kind);
            let (_, name) = KINDS.iter().find(|(id, _)| *id == kind)?;
            Some(json!({"cert_type": name, "data": entry.certificate}))
        })
        .collect();
    // A chain must have the signing key's certificate; without a chain, the broker looks it up.
    let chain = Some(chain).filter(|chain| !chain.is_empty());
    let fields = Fields { bytes: report.bytes(), generation: report.generation() };
    Ok(json!({"attestation_report": fields.to_json(), "cert_chain": chain}))
}

/// The fields of a report, by their places in table `ATTESTATION_REPORT` of AMD 56860.
struct Fields<'a> {
    bytes: &'a [u8; REPORT_LEN],
    generation: Generation,
}

impl Fields<'_> {
    fn to_json(&self) -> Value {
        let processor = |at: usize| (self.u32(0) >= NAMES_PROCESSOR).then_some(self.bytes[at]);
        let mitigations = |at: usize| (self.u32(0) >= NAMES_MITIGATIONS).then(|| self.u64(at));
        json!({
            "version": self.u32(0),
            "guest_svn": self.u32(0x04),
            "policy": self.u64(0x08),
            "family_id": self.slice(0x10, 16),
            "image_id": self.slice(0x20, 16),
            "vmpl": self.u32(0x30),
            "sig_algo": self.u32(0x34),
            "current_tcb": self.tcb(0x38),
            "plat_info": self.u64(0x40),
            "key_info": self.u32(0x48),
            "report_data": self.slice(0x50, 64),
            "measurement": self.slice(0x90, 48),
            "host_data": self.slice(0xc0, 32),
            "id_key_digest": self.slice(0xe0, 48),
            "author_key_digest": self.slice(0x110, 48),
            "report_id": self.slice(0x140, 32),
            "report_id_ma": self.slice(0x160, 32),
            "reported_tcb": self.tcb(0x180),
            "cpuid_fam_id": processor(0x188),
            "cpuid_mod_id": processor(0x189),
            "cpuid_step": processor(0x18a),
            "chip_id": self.slice(0x1a0, 64),
            "committed_tcb": self.tcb(0x1e0),
            "current": self.firmware(0x1e8),
            "committed": self.firmware(0x1ec),
            "launch_tcb": self.tcb(0x1f0),
            "launch_mit_vector": mitigations(0x1f8),
            "current_mit_vector": mitigations(0x200),
            "signature": {"r": self.slice(0x2a0, 72), "s": self.slice(0x2a0 + 72, 72)},
        })
    }

    fn tcb(&self, at: usize) -> Value {
        let tcb = self.generation.decode_tcb(self.u64(at).to_le_bytes());
        json!({
            "fmc": (self.generation == Generation::Turin).then_some(tcb.fmc),
            "bootloader": tcb.bootloader, "tee": tcb.tee, "snp": tcb.snp,
            "microcode": tcb.microcode,
        })
    }

    fn firmware(&self, at: usize) -> Value {
        json!({"major": self.bytes[at + 2], "minor": self.bytes[at + 1], "build": self.bytes[at]})
    }

    fn slice(&self, at: usize, len: usize) -> &[u8] {
        &self.bytes[at..at + len]
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.slice(at, 4).try_into().expect("four bytes"))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.slice(at, 8).try_into().expect("eight bytes"))
    }
}
