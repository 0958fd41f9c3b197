//! A policy with all that it takes to judge a piece of evidence by it.

use crate::files::{read_certificates, read_text};
use clap::Args;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use traceless_attest::{
    CertificateEvidence, Claims, Collateral, Error, HexBytes, Policy, Result, Roots, verify,
};

#[derive(Args)]
pub struct AppraiserArgs {
    /// The policy (docs/deploy.md)
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// What makers sign: files, or folders of them. JSON as clients of a PCCS write it for Intel;
    /// certificates and revocation lists (PEM or DER) for AMD
    #[arg(long, value_name = "PATH")]
    collateral: Vec<PathBuf>,
    /// Verify as of this time, in seconds since 1970 [default: now]
    #[arg(long, value_name = "SECONDS")]
    at: Option<u64>,
    /// Trust these certificates (PEM) in place of the makers': for simulators, which prove nothing
    #[arg(long, value_name = "FILE")]
    made_up_root: Option<PathBuf>,
}

/// Judges evidence by a policy.
pub struct Appraiser {
    pub policy: Policy,
    pub roots: Roots,
    /// The time as of which it judges, in seconds since 1970.
    pub now: u64,
    collateral: Collateral,
}

/// A piece of evidence, verified and appraised.
pub struct Appraisal {
    /// The claims, if it is genuine.
    pub claims: Option<Claims>,
    /// Why it is refused, if it is.
    pub refusal: Option<String>,
}

impl Appraiser {
    pub fn read(args: &AppraiserArgs) -> Result<Self> {
        let policy = Policy::parse(&read_text(&args.policy)?)?;
        let mut collateral = Collateral::default();
        args.collateral.iter().try_for_each(|path| collateral.add(path))?;
        let roots = match &args.made_up_root {
            Some(file) => Roots::made_up(read_certificates(file)?),
            None => Roots::default(),
        };
        Ok(Self { policy, roots, now: args.at.unwrap_or_else(seconds_since_1970), collateral })
    }

    /// Judges evidence, or a certificate with evidence for its key. With `report_data` it must be
    /// bound to this value.
    pub fn appraise(&self, bytes: &[u8], report_data: Option<&[u8; 64]>) -> Appraisal {
        let genuine = match CertificateEvidence::read(bytes) {
            None => self.genuine(bytes),
            Some(read) => read.and_then(|read| {
                let claims = self.genuine(&read.evidence)?;
                if claims.report_data != HexBytes(read.report_data.to_vec()) {
                    let reason = "its evidence is not bound to the certificate's key";
                    return Err(Error::NotVerified(reason.into()));
                }
                Ok(claims)
            }),
        };
        match genuine {
            Ok(claims) => {
                let refusal = self.policy.appraise_one(&claims, report_data, self.now).err();
                Appraisal { claims: Some(claims), refusal: refusal.map(|each| each.to_string()) }
            }
            Err(error) => Appraisal { claims: None, refusal: Some(error.to_string()) },
        }
    }

    fn genuine(&self, evidence: &[u8]) -> Result<Claims> {
        verify(evidence, &self.collateral, &self.roots, self.now)
    }
}

#[expect(clippy::disallowed_methods, reason = "certificates are valid until a date")]
pub fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
