//! `traceless-lab audit --self-test`: does this audit detect anything? It must find all planted
//! faults of all targets, and in the same run nothing in any scheme without a fault.

use super::audited::{AuditResult, Progress, told};
use super::cloud::Clouds;
use super::pager::Pagers;
use super::sim::Processors;
use super::suite::{Failed, clean, planted, self_test_steps};
use super::timing::Timings;
use super::tree::Trees;
use super::{Outcome, volume};
use traceless_cli::args::audit::ShownArgs;

pub fn run(shown: &ShownArgs) -> Outcome {
    told(audited(), shown)
}

fn audited() -> Result<AuditResult, Failed> {
    let steps = [
        volume::self_test_steps(),
        self_test_steps::<Trees>(),
        self_test_steps::<Pagers>(),
        self_test_steps::<Clouds>(),
        self_test_steps::<Processors>(),
        self_test_steps::<Timings>(),
    ];
    let progress = Progress::new(steps.iter().sum());
    let clean = [
        volume::clean(&progress)?,
        clean::<Trees>(&progress)?,
        clean::<Pagers>(&progress)?,
        clean::<Clouds>(&progress)?,
        clean::<Processors>(&progress)?,
        clean::<Timings>(&progress)?,
    ];
    let planted = [
        volume::planted(&progress)?,
        planted::<Trees>(&progress)?,
        planted::<Pagers>(&progress)?,
        planted::<Clouds>(&progress)?,
        planted::<Processors>(&progress)?,
        planted::<Timings>(&progress)?,
    ];
    Ok(AuditResult {
        target: "self-test",
        scheme: "all, and planted faults".to_owned(),
        level: "quick",
        claims: clean.concat(),
        planted: planted.concat(),
        not_hidden: "",
        pictures: vec![],
    })
}
