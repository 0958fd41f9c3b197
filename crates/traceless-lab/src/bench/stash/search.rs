//! The search for an allocation: ir-oram, section IV-B.

use super::runs::StashSubject;
use super::{above, levels};
use crate::args::StashArgs;
use crate::report::{Hardware, failed};
use serde::Serialize;
use traceless::tree::Shape;
use traceless::tree::ir_alloc::{self, EVICTIONS_MAX, LOSS_MAX, Trial, cached_levels};
use traceless_cli::failure::Failure;
use traceless_cli::output::{print_error, print_json, print_line};

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    machine: Hardware,
    seed: u64,
    levels: usize,
    cached: usize,
    above: usize,
    loss_max: f64,
    evictions_max: f64,
    searches: Vec<Search>,
}

#[derive(Serialize)]
struct Search {
    has_substash: bool,
    /// Candidates in the order of the search; the last is the result.
    tried: Vec<Candidate>,
}

#[derive(Clone, Serialize)]
struct Candidate {
    z: Vec<usize>,
    path_slots: usize,
    loss: f64,
    evictions_per_access: f64,
    slots_per_access: f64,
    gain: f64,
    is_allowed: bool,
}

pub fn run(args: &StashArgs) -> Result<(), Failure> {
    let levels = levels(args);
    let mut report = Report {
        schema: "traceless.bench.stash.search.v1",
        machine: Hardware::here(),
        seed: args.seed,
        levels,
        cached: cached_levels(levels),
        above: above(args, levels),
        loss_max: LOSS_MAX,
        evictions_max: EVICTIONS_MAX,
        searches: vec![],
    };
    for has_substash in [false, true] {
        report.searches.push(search(args, has_substash)?);
    }
    if args.json {
        return print_json(&report);
    }
    print_line(&report.machine.to_string());
    for search in &report.searches {
        let with = if search.has_substash { "with" } else { "without" };
        print_line(&format!("{levels} levels, {} cached, {with} a sub-stash:", report.cached));
        for candidate in &search.tried {
            print_line(&format!("  {}", candidate.line()));
        }
        if let Some(result) = search.tried.last() {
            print_line(&format!("result: {}", result.line()));
        }
    }
    Ok(())
}

fn search(args: &StashArgs, has_substash: bool) -> Result<Search, Failure> {
    let levels = levels(args);
    let measure = |shape: &Shape| {
        let subject = StashSubject::at_steady_state(shape.clone(), above(args, levels), args);
        let evictions = subject.evictions(args.seed, has_substash)?;
        if !args.json {
            print_error(&format!(
                "{}: {evictions:.3} evictions an access",
                allocation_text(&z_of(shape))
            ));
        }
        Ok(evictions)
    };
    let cached = cached_levels(levels);
    let tried = match &args.allocation {
        None => ir_alloc::search(levels, cached, measure).map_err(failed)?,
        Some(text) => {
            let base = Trial::new(ir_alloc::BASE.shape(levels).map_err(failed)?, cached, 0.0);
            let shape = ir_alloc::shape(text, levels).map_err(Failure::usage)?;
            let evictions = measure(&shape).map_err(failed)?;
            vec![base, Trial::new(shape, cached, evictions)]
        }
    };
    let candidates = tried.iter().map(|trial| Candidate::new(trial, &tried[0])).collect();
    Ok(Search { has_substash, tried: candidates })
}

impl Candidate {
    fn new(tried: &Trial, base: &Trial) -> Self {
        Self {
            z: z_of(&tried.shape),
            path_slots: tried.path_slots,
            loss: tried.loss,
            evictions_per_access: tried.evictions,
            slots_per_access: tried.slots_per_access(),
            gain: tried.gain(base),
            is_allowed: tried.is_allowed(),
        }
    }

    fn line(&self) -> String {
        format!(
            "{:<28} path {:>3}, loss {:>5.2} %, evictions {:>6.3}, slots {:>5.1}, gain {:.2}{}",
            allocation_text(&self.z),
            self.path_slots,
            self.loss * 100.0,
            self.evictions_per_access,
            self.slots_per_access,
            self.gain,
            if self.is_allowed { "" } else { ", too many" },
        )
    }
}

fn z_of(shape: &Shape) -> Vec<usize> {
    (0..shape.levels()).map(|level| shape.z(level)).collect()
}

/// The allocation in the form `10-16: 2, 17-19: 3`, without the levels of four.
fn allocation_text(z: &[usize]) -> String {
    let mut ranges = vec![];
    let mut first = 0;
    for run in z.chunk_by(|a, b| a == b) {
        if run[0] != 4 {
            ranges.push(format!("{first}-{}: {}", first + run.len() - 1, run[0]));
        }
        first += run.len();
    }
    if ranges.is_empty() { "all 4".to_owned() } else { ranges.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_written_as_in_the_paper() {
        let shape = ir_alloc::IR_ALLOC1.shape(25).expect("a shape");
        assert_eq!(allocation_text(&z_of(&shape)), "10-16: 2, 17-19: 3");
        assert_eq!(allocation_text(&[4, 4]), "all 4");
    }
}
