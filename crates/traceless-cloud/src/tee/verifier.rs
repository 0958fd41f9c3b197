//! The verifier of hardware's evidence: a program of its own, so that no parser of certificates is
//! in a process with keys.

use crate::codec::hex;
use serde_json::Value;
use std::ffi::OsString;
use std::fmt::Debug;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use traceless_sys::machine_evidence::ReportData;

/// Decides whether a machine's evidence is genuine and acceptable.
pub trait EvidenceVerifier: Debug + Send + Sync {
    /// A description of the machine, or why its evidence is refused. It must be bound to
    /// `report_data`.
    fn verify(&self, evidence: &[u8], report_data: &ReportData) -> Result<String, String>;
}

/// The program `traceless-attest`.
#[derive(Clone, Debug)]
pub struct VerifierProgram {
    /// The program's file.
    pub path: PathBuf,
    /// Which evidence is accepted.
    pub policy: PathBuf,
    /// Files, or folders of them, that makers of processors signed.
    pub collateral: Vec<PathBuf>,
    /// Certificates that take the place of the makers', for tests and simulators.
    pub made_up_root: Option<PathBuf>,
}

impl VerifierProgram {
    fn arguments(&self, report_data: &str) -> Vec<OsString> {
        let mut arguments: Vec<OsString> =
            vec!["verify".into(), "-".into(), "--json".into(), "--report-data".into()];
        arguments.extend([report_data.into(), "--policy".into(), self.policy.clone().into()]);
        for path in &self.collateral {
            arguments.extend(["--collateral".into(), path.clone().into()]);
        }
        if let Some(file) = &self.made_up_root {
            arguments.extend(["--made-up-root".into(), file.clone().into()]);
        }
        arguments
    }

    fn run(&self, evidence: &[u8], report_data: &str) -> std::io::Result<Output> {
        let mut child = Command::new(&self.path)
            .args(self.arguments(report_data))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        // A program that ends early says why.
        let _ = child.stdin.take().expect("it is piped").write_all(evidence);
        child.wait_with_output()
    }
}

impl EvidenceVerifier for VerifierProgram {
    fn verify(&self, evidence: &[u8], report_data: &ReportData) -> Result<String, String> {
        let report_data = hex(report_data);
        let output = self
            .run(evidence, &report_data)
            .map_err(|error| format!("the verifier {} cannot run: {error}", self.path.display()))?;
        let Ok(report) = serde_json::from_slice::<Value>(&output.stdout) else {
            let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(if reason.is_empty() {
                "the verifier said nothing".into()
            } else {
                reason
            });
        };
        if let Some(refusal) = report["refusal"].as_str() {
            return Err(refusal.to_owned());
        }
        // What is not clearly accepted is refused.
        let [only] = report["evidence"].as_array().map_or(&[][..], Vec::as_slice) else {
            return Err("the verifier did not judge it".into());
        };
        let is_bound = only["claims"]["report_data"] == report_data;
        if !output.status.success() || report["verdict"] != "accepted" || !is_bound {
            return Err("the verifier did not accept it".into());
        }
        let tee = only["claims"]["tee"].as_str().unwrap_or("an unknown machine");
        let made_up = if report["made_up_root"] == false { "" } else { ", with a made-up root" };
        let measurement = only["claims"]["measurement"].as_str().unwrap_or_default();
        Ok(format!("{tee} {measurement:.16}{made_up}"))
    }
}
