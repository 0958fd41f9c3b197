//! `traceless audit --self-test`: does this audit see anything? All planted faults of all targets
//! must be found, and in the same run nothing in any scheme that has none.

use super::audited::{Audited, Progress};
use super::{FAILED, Outcome, tree, volume};
use traceless::Result;

pub fn run(as_json: bool) -> Outcome {
    match audited() {
        Ok(audited) => audited.outcome(as_json),
        Err(error) => Outcome::error(FAILED, &format!("the audit could not be run: {error}")),
    }
}

fn audited() -> Result<Audited> {
    let progress = Progress::new(volume::self_test_steps() + tree::self_test_steps());
    Ok(Audited {
        target: "self-test",
        scheme: "all, and planted faults".to_owned(),
        level: "quick",
        claims: [volume::clean(&progress)?, tree::clean(&progress)?].concat(),
        planted: [volume::planted(&progress)?, tree::planted(&progress)?].concat(),
        not_hidden: "",
    })
}
