//! A chip that does not exist: reports of SEV-SNP with certificates of a root of its own.

// Each test program uses its own part.
#![allow(dead_code)]

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams,
    CustomExtension, DnType, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P384_SHA384, RevocationReason, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The number of the chip.
pub const CHIP: [u8; 64] = [0xc4; 64];
/// The measurement of its guest.
pub const MEASUREMENT: [u8; 48] = [0xa5; 48];
/// The security versions that its key is derived from: boot loader, TEE, SNP, microcode.
pub const TCB: [u8; 4] = [4, 1, 22, 213];
/// A time at which all certificates are valid: 2026-01-01.
pub const NOW: u64 = 1_767_225_600;

/// A maker and its chip.
pub struct Chip {
    root: Certificate,
    root_key: KeyPair,
    root_params: CertificateParams,
    intermediate: Certificate,
    pub key_certificate: Vec<u8>,
    /// Another certificate of the same key, from 2040 on.
    pub reissued_certificate: Vec<u8>,
    key: EcdsaKeyPair,
}

/// Identifiers of the kinds of certificates in a table: VCEK and ASK.
const KINDS: [[u8; 16]; 2] = [
    [
        0x63, 0xda, 0x75, 0x8d, 0xe6, 0x64, 0x45, 0x64, 0xad, 0xc5, 0xf4, 0xb9, 0x3b, 0xe8, 0xac,
        0xcd,
    ],
    [
        0x4a, 0xb7, 0xb3, 0x79, 0xbb, 0xac, 0x4f, 0xe4, 0xa0, 0x2f, 0x05, 0xae, 0xf3, 0x27, 0xc7,
        0x82,
    ],
];

/// The fields of a report that tests change.
#[derive(Clone)]
pub struct Fields {
    pub report_data: [u8; 64],
    pub policy: u64,
    pub privilege_level: u32,
    pub chip: [u8; 64],
    pub tcb: [u8; 4],
}

impl Default for Fields {
    fn default() -> Self {
        let (report_data, policy) = ([7; 64], 0x3_0000);
        Self { report_data, policy, privilege_level: 0, chip: CHIP, tcb: TCB }
    }
}

impl Chip {
    pub fn new() -> Self {
        let root_key = new_key();
        let root_params = authority("ARK-Made-Up", 1);
        let root = root_params.self_signed(&root_key).expect("a certificate");
        let issuer = Issuer::from_params(&root_params, &root_key);
        let (intermediate_key, intermediate_params) = (new_key(), authority("SEV-Made-Up", 2));
        let intermediate =
            intermediate_params.signed_by(&intermediate_key, &issuer).expect("a certificate");
        let issuer = Issuer::from_params(&intermediate_params, &intermediate_key);
        let key = new_key();
        let mut params = named("SEV-VCEK", 3);
        let [bootloader, tee, snp, microcode] = TCB;
        for (last, number) in [(1, bootloader), (2, tee), (3, snp), (8, microcode)] {
            let value = if number < 128 { vec![2, 1, number] } else { vec![2, 2, 0, number] };
            params.custom_extensions.push(extension(&[1, 3, 6, 1, 4, 1, 3704, 1, 3, last], value));
        }
        let chip = extension(&[1, 3, 6, 1, 4, 1, 3704, 1, 4], CHIP.to_vec());
        params.custom_extensions.push(chip);
        let key_certificate = params.signed_by(&key, &issuer).expect("a certificate");
        params.not_before = date_time_ymd(2040, 1, 1);
        let reissued_certificate = params.signed_by(&key, &issuer).expect("a certificate");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, &key.serialize_der());
        Self {
            root,
            root_key,
            root_params,
            intermediate,
            key_certificate: key_certificate.der().to_vec(),
            reissued_certificate: reissued_certificate.der().to_vec(),
            key: pair.expect("a key of P-384"),
        }
    }

    pub fn root_der(&self) -> Vec<u8> {
        self.root.der().to_vec()
    }

    /// Root and intermediate certificate, as the key distribution service serves them.
    pub fn chain_pem(&self) -> String {
        self.intermediate.pem() + &self.root.pem()
    }

    pub fn root_pem(&self) -> String {
        self.root.pem()
    }

    /// A revocation list of the root, issued on the first of a month of 2025, which may name the
    /// intermediate certificate.
    pub fn revocation_list(&self, month: u8, revokes: bool) -> Vec<u8> {
        let entry = RevokedCertParams {
            serial_number: SerialNumber::from(2),
            revocation_time: date_time_ymd(2025, 1, 1),
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2025, month, 1),
            next_update: date_time_ymd(2029, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: if revokes { vec![entry] } else { vec![] },
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let issuer = Issuer::from_params(&self.root_params, &self.root_key);
        list.signed_by(&issuer).expect("a list").der().to_vec()
    }

    /// A report, as `outblob` of configfs-tsm has it.
    pub fn report(&self, fields: &Fields) -> Vec<u8> {
        let mut report = vec![0; 0x4a0];
        let mut put = |at: usize, bytes: &[u8]| report[at..at + bytes.len()].copy_from_slice(bytes);
        put(0x00, &3_u32.to_le_bytes());
        put(0x08, &fields.policy.to_le_bytes());
        put(0x30, &fields.privilege_level.to_le_bytes());
        put(0x34, &1_u32.to_le_bytes());
        put(0x50, &fields.report_data);
        put(0x90, &MEASUREMENT);
        let [bootloader, tee, snp, microcode] = fields.tcb;
        put(0x180, &[bootloader, tee, 0, 0, 0, 0, snp, microcode]);
        put(0x1a0, &fields.chip);
        let signature = self.key.sign(&SystemRandom::new(), &report[..0x2a0]).expect("a signature");
        let (r, s) = signature.as_ref().split_at(48);
        for (at, half) in [(0x2a0, r), (0x2a0 + 72, s)] {
            let half: Vec<u8> = half.iter().rev().copied().collect();
            report[at..at + 48].copy_from_slice(&half);
        }
        report
    }

    /// The certificate table that a host passes, as `auxblob` of configfs-tsm has it.
    pub fn table(&self) -> Vec<u8> {
        let certificates = [&self.key_certificate[..], self.intermediate.der()];
        let head = 24 * (certificates.len() + 1);
        let (mut table, mut bytes) = (Vec::new(), Vec::new());
        for (kind, certificate) in KINDS.iter().zip(certificates) {
            table.extend(kind);
            table.extend(((head + bytes.len()) as u32).to_le_bytes());
            table.extend((certificate.len() as u32).to_le_bytes());
            bytes.extend_from_slice(certificate);
        }
        table.resize(head, 0);
        table.extend(bytes);
        table
    }

    /// Plays the kernel's part of configfs-tsm in a folder: answers requests for ever.
    pub fn serve(&self, entry: &Path) -> io::Result<()> {
        fs::create_dir_all(entry)?;
        fs::write(entry.join("generation"), "1\n")?;
        fs::write(entry.join("auxblob"), self.table())?;
        let reports = entry.join("outblob");
        if !Command::new("mkfifo").arg(&reports).status()?.success() {
            return Err(io::Error::other("mkfifo failed"));
        }
        // The last attribute: when it is there, all are.
        fs::write(entry.join("provider"), "sev_guest\n")?;
        loop {
            // Waits for a reader, which has written what its report is bound to.
            let mut reader = OpenOptions::new().write(true).open(&reports)?;
            let report_data = fs::read(entry.join("inblob"))?;
            let report_data = report_data.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
            reader.write_all(&self.report(&Fields { report_data, ..Fields::default() }))?;
            drop(reader);
            // The reader sees the end before the next report.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn new_key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).expect("a key")
}

fn named(name: &str, serial: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from(serial));
    params.not_before = date_time_ymd(2024, 1, 1);
    params.not_after = date_time_ymd(2049, 1, 1);
    params
}

fn authority(name: &str, serial: u64) -> CertificateParams {
    let mut params = named(name, serial);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn extension(name: &[u64], value: Vec<u8>) -> CustomExtension {
    CustomExtension::from_oid_content(name, value)
}
