//! `traceless-lab audit --self-test`: does this audit detect anything? It must find all planted
//! faults of all targets, and in the same run nothing in any scheme without a fault.

use super::Outcome;
use super::cloud::Clouds;
use super::deniable::DeniableImages;
use super::pager::Pagers;
use super::report::{AuditResult, Progress, to_outcome};
use super::sim::Processors;
use super::suite::{AuditError, Suite, honest_claims, planted_claims, self_test_work};
use super::timing::Timings;
use super::tree::Trees;
use super::volume::Volumes;
use traceless_audit::Claim;
use traceless_cli::args::audit::OutputArgs;

/// One of the suites, without its types.
struct AnySuite {
    work: u64,
    honest: fn(&Progress) -> Result<Vec<Claim>, AuditError>,
    planted: fn(&Progress) -> Result<Vec<Claim>, AuditError>,
}

impl AnySuite {
    fn of<S: Suite>() -> Self {
        let (honest, planted) = (honest_claims::<S>, planted_claims::<S>);
        Self { work: self_test_work::<S>(), honest, planted }
    }
}

pub fn run(output: &OutputArgs) -> Outcome {
    to_outcome(audit(), output)
}

fn audit() -> Result<AuditResult, AuditError> {
    let suites = [
        AnySuite::of::<Volumes>(),
        AnySuite::of::<Trees>(),
        AnySuite::of::<Pagers>(),
        AnySuite::of::<Clouds>(),
        AnySuite::of::<DeniableImages>(),
        AnySuite::of::<Processors>(),
        AnySuite::of::<Timings>(),
    ];
    let progress = Progress::new(suites.iter().map(|suite| suite.work).sum());
    let (mut claims, mut planted) = (vec![], vec![]);
    for suite in &suites {
        claims.extend((suite.honest)(&progress)?);
    }
    for suite in &suites {
        planted.extend((suite.planted)(&progress)?);
    }
    Ok(AuditResult {
        target: "self-test",
        scheme: "all, and planted faults".to_owned(),
        level: "quick",
        claims,
        planted,
        not_hidden: "",
        pictures: vec![],
    })
}
