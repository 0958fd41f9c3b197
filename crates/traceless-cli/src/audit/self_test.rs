//! `traceless audit --self-test`: does this audit see anything? All planted faults of all targets
//! must be found, and in the same run nothing in any scheme that has none.

use super::audited::{Audited, Progress};
use super::{FAILED, Outcome, sim, timing, tree, volume};
use crate::args::audit::ShownArgs;
use std::error::Error;

pub fn run(shown: &ShownArgs) -> Outcome {
    match audited() {
        Ok(audited) => audited.outcome(shown),
        Err(error) => Outcome::error(FAILED, &format!("the audit could not be run: {error}")),
    }
}

fn audited() -> Result<Audited, Box<dyn Error>> {
    let steps = [
        volume::self_test_steps(),
        tree::self_test_steps(),
        sim::self_test_steps(),
        timing::self_test_steps(),
    ];
    let progress = Progress::new(steps.iter().sum());
    let clean = [
        volume::clean(&progress)?,
        tree::clean(&progress)?,
        sim::clean(&progress)?,
        timing::clean(&progress)?,
    ];
    let planted = [
        volume::planted(&progress)?,
        tree::planted(&progress)?,
        sim::planted(&progress)?,
        timing::planted(&progress)?,
    ];
    Ok(Audited {
        target: "self-test",
        scheme: "all, and planted faults".to_owned(),
        level: "quick",
        claims: clean.concat(),
        planted: planted.concat(),
        not_hidden: "",
        pictures: vec![],
    })
}
