use crate::amd_report::Generation;
use crate::hex_bytes::HexBytes;
use sha2::{Digest, Sha256};

/// SHA-256 of the certificate "Intel SGX Root CA", in DER.
const INTEL_ROOT: &str = "44a0196b2b99f889b8e149e95b807a350e7424964399e885a7cbb8ccfab674d3";
/// SHA-256 of AMD's root certificates, in DER: ARK-Milan, ARK-Genoa and ARK-Turin.
const AMD_ROOTS: [(Generation, &str); 3] = [
    (Generation::BeforeTurin, "69d063b45344d26a2e94e1f4210de49ef555308287d4c174445c95639a540bcd"),
    (Generation::BeforeTurin, "4c6598d19c18719c5dfd4a7d335f674e5bfe1d8f800cea2cf270c10d103db2f1"),
    (Generation::Turin, "1f084161a44bb6d93778a904877d4819cafa5d05ef4193b2ded9dd9c73dd3f6a"),
];

/// The keys that are trusted to speak for processors: by default the makers' own.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    /// Certificates in DER that take the place of the makers'.
    made_up: Option<Vec<Vec<u8>>>,
}

impl Roots {
    /// Trusts these certificates (DER) in place of the makers': for simulators and tests. Evidence
    /// then proves nothing about a processor.
    pub fn made_up(certificates: Vec<Vec<u8>>) -> Self {
        Self { made_up: Some(certificates) }
    }

    /// Whether the roots are not the makers'.
    pub fn are_made_up(&self) -> bool {
        self.made_up.is_some()
    }

    /// Whether Intel's root has this certificate (DER).
    pub(crate) fn is_intel(&self, certificate: &[u8]) -> bool {
        match &self.made_up {
            Some(made_up) => made_up.iter().any(|root| root == certificate),
            None => fingerprint(certificate) == INTEL_ROOT,
        }
    }

    /// The generation of processors that a certificate (DER) is the root of, if it is one.
    pub(crate) fn amd_generation(&self, certificate: &[u8]) -> Option<Generation> {
        if let Some(made_up) = &self.made_up {
            let known = made_up.iter().any(|root| root == certificate);
            return known.then_some(Generation::BeforeTurin);
        }
        let fingerprint = fingerprint(certificate);
        AMD_ROOTS.iter().find(|(_, root)| *root == fingerprint).map(|(generation, _)| *generation)
    }
}

fn fingerprint(certificate: &[u8]) -> String {
    HexBytes(Sha256::digest(certificate).to_vec()).to_string()
}
