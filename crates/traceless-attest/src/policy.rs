use crate::claims::{AmdTcb, Claims, Tcb, Tee};
use crate::error::{Error, Result};
use crate::hex_bytes::HexBytes;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

const SECONDS_A_DAY: u64 = 24 * 3600;
/// Registers of TDX that hold measurements after the start.
const REGISTERS: u8 = 4;

/// Which evidence is accepted.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Policy {
    /// Makers of processors that must vouch, each with a piece of evidence of its own: with 2, a
    /// break of one maker's processors is not enough.
    #[serde(default = "one")]
    makers: usize,
    /// Days since the makers issued what they sign about revocation and security versions, at
    /// most. By default their own dates decide.
    collateral_age_days: Option<u64>,
    /// Programs, of which one must be that of the evidence.
    accept: Vec<Program>,
}

/// A program, and what its processor must be like.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Program {
    tee: Tee,
    /// Measurements of which one must be that of the evidence. None: any that the signer signed.
    #[serde(default)]
    measurement: Vec<HexBytes>,
    /// Keys, of which one must vouch for the program. None: any. A host chooses that of TDX.
    #[serde(default)]
    signer: Vec<HexBytes>,
    /// Values of registers of TDX, by their numbers. They hold what its measurement does not cover:
    /// the kernel, its command line, and what these vouch for.
    registers: Option<BTreeMap<String, Vec<HexBytes>>>,
    /// What the host may have passed at the start. None: anything.
    #[serde(default)]
    host_data: Vec<HexBytes>,
    /// The product number of SGX.
    product: Option<u16>,
    /// The least security version of the program.
    #[serde(default)]
    svn_min: u32,
    /// What Intel may say of the processor.
    #[serde(default = "up_to_date")]
    tcb: Vec<String>,
    /// Security advisories that are accepted though they apply.
    #[serde(default)]
    advisories: Vec<String>,
    /// The least security versions of AMD's firmware.
    tcb_min: Option<AmdTcb>,
    /// The host may move the program to another machine.
    #[serde(default)]
    allow_migration: bool,
    /// The last privilege level of SEV-SNP at which evidence may be requested.
    #[serde(default)]
    privilege_level_max: u32,
}

fn one() -> usize {
    1
}

fn up_to_date() -> Vec<String> {
    vec!["UpToDate".into()]
}

/// Why a policy does not accept evidence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Policy {
    /// A policy of a file in TOML.
    pub fn parse(text: &str) -> Result<Self> {
        let policy: Self =
            toml::from_str(text).map_err(|error| Error::Policy(error.message().into()))?;
        policy.check().map_err(Error::Policy)?;
        Ok(policy)
    }

    /// Judges pieces of genuine evidence, of which each must be accepted, and which together must
    /// come from enough makers. `report_data` is the value that they are bound to. Programs under
    /// debugging are never accepted.
    pub fn appraise(
        &self,
        claims: &[Claims],
        report_data: Option<&[u8; 64]>,
        now: u64,
    ) -> std::result::Result<(), Refusal> {
        for each in claims {
            self.appraise_one(each, report_data, now)?;
        }
        self.check_makers(&claims.iter().collect::<Vec<_>>())
    }

    /// Whether pieces of evidence, each of them accepted, come from enough makers together.
    pub fn check_makers(&self, claims: &[&Claims]) -> std::result::Result<(), Refusal> {
        let makers: BTreeSet<_> = claims.iter().map(|each| each.tee.maker()).collect();
        if makers.len() < self.makers {
            return Err(Refusal(format!(
                "it is from processors of {} makers, and {} are required",
                makers.len(),
                self.makers
            )));
        }
        Ok(())
    }

    /// Judges one piece of genuine evidence, without the number of makers.
    pub fn appraise_one(
        &self,
        claims: &Claims,
        report_data: Option<&[u8; 64]>,
        now: u64,
    ) -> std::result::Result<(), Refusal> {
        if claims.debug {
            return Err(Refusal("the program is under debugging: its host reads all of it".into()));
        }
        if report_data.is_some_and(|expected| claims.report_data.0 != expected) {
            return Err(Refusal("it is not bound to this challenge and key".into()));
        }
        self.check_age(claims, now)?;
        let mut reason = format!("the policy accepts no program of {}", claims.tee);
        for program in self.accept.iter().filter(|program| program.tee == claims.tee) {
            match program.appraise(claims) {
                Ok(()) => return Ok(()),
                // That it is another program says less than what is wrong with a known one.
                Err(refusal) => reason = refusal,
            }
        }
        Err(Refusal(reason))
    }

    fn check_age(&self, claims: &Claims, now: u64) -> std::result::Result<(), Refusal> {
        let Some(days) = self.collateral_age_days else { return Ok(()) };
        let Some(issued) = claims.collateral_issued else {
            return Err(Refusal("there is no revocation list of its root certificate".into()));
        };
        let age = now.saturating_sub(issued) / SECONDS_A_DAY;
        if age > days {
            let reason =
                format!("its collateral was issued {age} days ago, and {days} are allowed");
            return Err(Refusal(reason));
        }
        Ok(())
    }

    fn check(&self) -> std::result::Result<(), String> {
        if self.accept.is_empty() {
            return Err("it accepts nothing: add [[accept]]".into());
        }
        if !(1..=2).contains(&self.makers) {
            return Err("makers is 1 or 2".into());
        }
        let known: BTreeSet<_> = self.accept.iter().map(|each| each.tee.maker()).collect();
        if known.len() < self.makers {
            return Err("it requires more makers than it accepts programs of".into());
        }
        self.accept.iter().enumerate().try_for_each(|(number, program)| {
            program.check().map_err(|reason| format!("accept {}: {reason}", number + 1))
        })
    }
}

impl Program {
    fn appraise(&self, claims: &Claims) -> std::result::Result<(), String> {
        let one_of = |accepted: &[HexBytes], found: Option<&HexBytes>| {
            accepted.is_empty() || found.is_some_and(|found| accepted.contains(found))
        };
        if !one_of(&self.measurement, Some(&claims.measurement)) {
            return Err(format!("its measurement is {}", claims.measurement));
        }
        if !one_of(&self.signer, claims.signer.as_ref()) {
            let signer = claims.signer.as_ref().map_or("none".into(), HexBytes::to_string);
            return Err(format!("its signer is {signer}"));
        }
        for (number, accepted) in self.registers.iter().flatten() {
            let found = number.parse().ok().and_then(|number: usize| claims.registers.get(number));
            if !one_of(accepted, found) {
                let found = found.map_or("absent".into(), HexBytes::to_string);
                return Err(format!("its register {number} is {found}"));
            }
        }
        if !one_of(&self.host_data, claims.host_data.as_ref()) {
            let found = claims.host_data.as_ref().map_or("none".into(), HexBytes::to_string);
            return Err(format!("its host data is {found}"));
        }
        if self.product.is_some() && self.product != claims.product {
            return Err("it is another product of its signer".into());
        }
        if claims.svn < self.svn_min {
            return Err(format!("its version {} is below {}", claims.svn, self.svn_min));
        }
        if claims.migratable && !self.allow_migration {
            return Err("its host may move it to another machine".into());
        }
        if claims.privilege_level > self.privilege_level_max {
            return Err(format!("the privilege level {} asked for it", claims.privilege_level));
        }
        self.appraise_tcb(&claims.tcb)
    }

    fn appraise_tcb(&self, tcb: &Tcb) -> std::result::Result<(), String> {
        match tcb {
            Tcb::Intel { status, advisories } => {
                if !self.tcb.contains(status) {
                    return Err(format!("its processor's state is {status} ({advisories:?})"));
                }
                match advisories.iter().find(|each| !self.advisories.contains(each)) {
                    Some(advisory) => Err(format!("the advisory {advisory} applies to it")),
                    None => Ok(()),
                }
            }
            Tcb::Amd(tcb) => {
                let below = self.tcb_min.and_then(|least| tcb.component_below(&least));
                match below {
                    Some((component, own, least)) => {
                        Err(format!("its firmware is old: {component} {own} is below {least}"))
                    }
                    None => Ok(()),
                }
            }
        }
    }

    /// What only TDX has, and needs.
    fn check_tdx(&self) -> std::result::Result<(), String> {
        match &self.registers {
            Some(registers) if self.tee == Tee::Tdx => {
                let is_register =
                    |name: &String| name.parse().is_ok_and(|number: u8| number < REGISTERS);
                if let Some(wrong) = registers.keys().find(|name| !is_register(name)) {
                    return Err(format!("there is no register {wrong}: TDX has 0 to 3"));
                }
                if registers.values().any(Vec::is_empty) {
                    return Err("a register without values accepts nothing: leave it out".into());
                }
            }
            Some(_) => return Err("only TDX has registers".into()),
            None if self.tee == Tee::Tdx => {
                return Err("TDX needs registers: its measurement is of the firmware alone. \
                            `registers = {}` accepts any kernel"
                    .into());
            }
            None => {}
        }
        if self.tee == Tee::Tdx && self.measurement.is_empty() {
            return Err("TDX needs a measurement: its host chooses the signer".into());
        }
        Ok(())
    }

    fn check(&self) -> std::result::Result<(), String> {
        if self.measurement.is_empty() && self.signer.is_empty() {
            return Err("without measurement or signer, anybody's program is accepted".into());
        }
        let len = self.tee.measurement_len();
        if let Some(wrong) = self.measurement.iter().find(|each| each.0.len() != len) {
            return Err(format!(
                "a measurement of {} has {len} bytes, and {wrong} has {}",
                self.tee,
                wrong.0.len()
            ));
        }
        if let Some(wrong) = self.signer.iter().find(|each| each.0.len() != len) {
            return Err(format!("a signer of {} has {len} bytes, unlike {wrong}", self.tee));
        }
        self.check_tdx()?;
        if let Some(wrong) =
            self.host_data.iter().find(|each| each.0.len() != self.tee.host_data_len())
        {
            return Err(format!("host-data of {} has another length than {wrong}", self.tee));
        }
        if self.allow_migration && self.tee != Tee::Snp {
            return Err("allow-migration is for SEV-SNP: of TDX no such machine is accepted".into());
        }
        if self.tee == Tee::Snp && self.tcb_min.is_none() {
            return Err("SEV-SNP needs tcb-min: AMD does not say which firmware is old".into());
        }
        if self.tee != Tee::Snp && self.tcb_min.is_some() {
            return Err("tcb-min is for SEV-SNP; for Intel there is tcb".into());
        }
        Ok(())
    }
}
