//! Advice on paged programs: which scheme, how much it refreshes, and how many pages are resident.

use super::answer::{Candidate, CommandLine, Cost, Proposal};
use super::leakage::{PAGER_TREES, PAGER_WRITES};
use super::requirements::{AdviseError, Requirements};
use crate::args::size_text;
use traceless_block::detwo::Refresh;
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::{Error, FRAMES_MIN, Scheme, Settings};

/// Schemes that hide writes, the one to choose first.
const FOR_WRITES: [Scheme; 4] =
    [Scheme::DetWo, Scheme::Eager, Scheme::Parallel, Scheme::EagerParallel];
/// Schemes that hide reads, too.
const FOR_READS: [Scheme; 3] = [Scheme::PathFused, Scheme::Ring, Scheme::Path];
/// Refresh ratios: each writes more than the one before, and takes less space.
const REFRESHES: [u32; 5] = [1, 3, 7, 15, 31];
/// Space that a scheme may take for each byte unless a limit is given: that of a Path ORAM.
const USUAL_SPACE: f64 = 4.0;

/// Settings of a scheme, with their cost.
struct PagingTrial {
    settings: Settings,
    cost: Cost,
}

/// The scheme that fits, or why none does.
pub fn propose(required: &Requirements) -> Result<Proposal, AdviseError> {
    let pages = usize::try_from(required.size.div_ceil(PAGE_LEN as u64)).unwrap_or(usize::MAX);
    if pages <= FRAMES_MIN {
        let why = format!("--size: a paged program has more than {FRAMES_MIN} pages");
        return Err(AdviseError::Parameters(why));
    }
    let suitable: &[Scheme] = if required.hide_reads { &FOR_READS } else { &FOR_WRITES[..1] };
    let mut trials = Vec::new();
    for &scheme in suitable {
        trials.extend(trials_of(scheme, pages, required)?);
    }
    let allowed = trials.iter().filter(|trial| trial.is_allowed(required));
    let chosen = if required.hide_reads {
        allowed.min_by(|a, b| a.pages_moved().total_cmp(&b.pages_moved()))
    } else {
        allowed.into_iter().next()
    };
    let Some(chosen) = chosen else { return Err(refusal(&trials, required)) };
    let leakage = if required.hide_reads { PAGER_TREES } else { PAGER_WRITES };
    let candidates = candidates(chosen, pages, required);
    Ok(Proposal { leakage, notes: notes(required), commands: commands(chosen), candidates })
}

/// The settings of a scheme to try, in the order of preference.
fn trials_of(
    scheme: Scheme,
    pages: usize,
    required: &Requirements,
) -> Result<Vec<PagingTrial>, AdviseError> {
    let default = Settings::default();
    let refreshes = match scheme {
        Scheme::Path | Scheme::PathFused | Scheme::Ring => vec![default.refresh],
        _ => {
            let ladder = REFRESHES.map(|k| Refresh::new(k, 1).expect("it is a ratio"));
            // The least writing takes twice the space: it is for users that allow it.
            let first = usize::from(required.space_factor.is_none());
            ladder[first..].to_vec()
        }
    };
    let fits = |refresh: &Refresh| pages as u64 >= refresh.at_most(1);
    let settings = refreshes.into_iter().filter(fits);
    settings
        .map(|refresh| trial(Settings { scheme, pages, refresh, ..default.clone() }, required))
        .collect()
}

/// Settings with as many resident pages as the memory allows, and their cost.
fn trial(settings: Settings, required: &Requirements) -> Result<PagingTrial, AdviseError> {
    let failed = |e: Error| AdviseError::Parameters(e.to_string());
    let of_scheme = settings.scheme_memory().map_err(failed)?;
    let resident = match required.memory {
        None => settings.resident.min(settings.pages / 2),
        Some(memory) => (memory.saturating_sub(of_scheme as u64) / PAGE_LEN as u64)
            .try_into()
            .unwrap_or(usize::MAX),
    };
    if resident >= settings.pages {
        return Err(AdviseError::NothingLeaves(required.memory.unwrap_or(0)));
    }
    let settings = Settings { resident: resident.max(FRAMES_MIN), ..settings };
    let moved = settings.pages_moved().map_err(failed)?;
    let store_bytes = settings.store_len().map_err(failed)?;
    let cost = Cost {
        store_bytes,
        space_factor: store_bytes as f64 / (settings.pages * PAGE_LEN) as f64,
        memory_bytes: (of_scheme + settings.resident * PAGE_LEN) as u64,
        written: Some(moved.written),
        read: Some(moved.read),
        queries: None,
    };
    Ok(PagingTrial { settings, cost })
}

impl PagingTrial {
    fn is_allowed(&self, required: &Requirements) -> bool {
        let most = required.space_factor.unwrap_or(USUAL_SPACE);
        required.allows_memory(self.cost.memory_bytes) && self.cost.space_factor <= most
    }

    fn pages_moved(&self) -> f64 {
        self.cost.written.unwrap_or(0.0) + self.cost.read.unwrap_or(0.0)
    }

    fn name(&self) -> &'static str {
        self.settings.scheme.name()
    }

    /// The options of `traceless run`.
    fn options(&self) -> Vec<String> {
        let settings = &self.settings;
        let mut words = Vec::new();
        if FOR_WRITES.contains(&settings.scheme) {
            words.extend(["--refresh".to_owned(), settings.refresh.to_string()]);
        }
        words.extend(["--resident".to_owned(), settings.resident.to_string()]);
        words
    }
}

fn refusal(trials: &[PagingTrial], required: &Requirements) -> AdviseError {
    let costs: Vec<_> =
        trials.iter().map(|trial| (trial.cost.memory_bytes, trial.cost.space_factor)).collect();
    let limit = required.space_factor.unwrap_or(USUAL_SPACE);
    Requirements { space_factor: Some(limit), ..required.clone() }.refusal(&costs)
}

/// All schemes with their reasons, the chosen one first.
fn candidates(chosen: &PagingTrial, pages: usize, required: &Requirements) -> Vec<Candidate> {
    let row = |trial: &PagingTrial, reason: &str| Candidate {
        product: "run",
        scheme: trial.name().to_owned(),
        options: trial.options(),
        cost: trial.cost.clone(),
        reason: reason.to_owned(),
    };
    let merit = if required.hide_reads {
        "chosen: moves the fewest pages of the schemes that hide reads"
    } else {
        "chosen: hides writes, at the least cost"
    };
    let mut rows = vec![row(chosen, merit)];
    let refresh = chosen.settings.refresh;
    for scheme in Scheme::ALL.into_iter().filter(|scheme| *scheme != chosen.settings.scheme) {
        let settings = Settings { scheme, pages, refresh, ..Settings::default() };
        let Ok(trial) = trial(settings, required) else { continue };
        rows.push(row(&trial, fault(&trial, required)));
    }
    rows
}

/// Why a scheme was not chosen.
fn fault(trial: &PagingTrial, required: &Requirements) -> &'static str {
    let scheme = trial.settings.scheme;
    let hides_reads = FOR_READS.contains(&scheme);
    if scheme == Scheme::Plain {
        "hides contents only: every access shows its page"
    } else if scheme == Scheme::Opam {
        "insecure: which visits of a page belong together is visible"
    } else if required.hide_reads && !hides_reads {
        "hides writes only"
    } else if !required.allows_memory(trial.cost.memory_bytes) {
        "takes more memory than is allowed"
    } else if hides_reads && !trial.is_allowed(required) {
        "takes more space than is allowed; a larger --space-factor allows it"
    } else if hides_reads && required.hide_reads {
        "moves more pages"
    } else if hides_reads {
        "hides reads, too, and moves more pages: --hide-reads yes"
    } else {
        "the same writes, with helper processes: for processors that idle"
    }
}

fn notes(required: &Requirements) -> Vec<String> {
    let reads = "Reads of the store are not hidden: if they are observed, give --hide-reads yes.";
    let mut notes = Vec::new();
    notes.extend((!required.hide_reads).then(|| reads.to_owned()));
    notes.push(
        "The kernel knows every page fault: nothing is hidden from it. Stacks, static data and \
         mapped files are not paged."
            .to_owned(),
    );
    notes.push(
        "With --lock strict a program whose resident pages may not be locked is not run; with \
         --lock auto they may reach the swap file in the clear."
            .to_owned(),
    );
    notes
}

fn commands(chosen: &PagingTrial) -> Vec<CommandLine> {
    let memory = size_text((chosen.settings.pages * PAGE_LEN) as u64);
    let words = ["run", "--scheme", chosen.name(), "--memory", &memory].map(str::to_owned);
    let words = words.into_iter().chain(chosen.options());
    let rest = ["--lock", "strict", "--", "PROGRAM"].map(str::to_owned);
    vec![CommandLine::new("run a program, with its arguments", words.chain(rest))]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{parsed, required};
    use super::*;
    use crate::args::Product;
    use crate::run;
    use std::path::Path;

    fn chosen(options: &str) -> String {
        let proposal = propose(&required(&format!("--watcher swap {options}"))).unwrap();
        let first = &proposal.candidates[0];
        format!("{} {}", first.scheme, first.options.join(" "))
    }

    #[test]
    fn schemes_turn_at_the_documented_points() {
        for (options, expected) in [
            ("--size 256M", "detwo --refresh 3 --resident 256"),
            ("--size 256M --hide-reads no", "detwo --refresh 3 --resident 256"),
            ("--size 1M", "detwo --refresh 3 --resident 128"),
            ("--size 256M --space-factor 2.1", "detwo --refresh 1 --resident 256"),
            ("--size 256M --space-factor 1.4", "detwo --refresh 3 --resident 256"),
            ("--size 256M --space-factor 1.2", "detwo --refresh 7 --resident 256"),
            // 8 bytes a page, and two numbers.
            ("--size 256M --memory 1M", "detwo --refresh 3 --resident 127"),
            ("--size 256M --hide-reads yes", "path-fused --resident 256"),
            ("--size 256M --hide-reads yes --space-factor 3", "path-fused --resident 256"),
            ("--size 256M --hide-reads yes --space-factor 20", "ring --resident 256"),
        ] {
            assert_eq!(chosen(options), expected, "{options}");
        }
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        let refused =
            |options: &str| propose(&required(&format!("--watcher swap {options}"))).unwrap_err();
        let AdviseError::Memory { least, .. } = refused("--size 256M --memory 500K") else {
            panic!("it is too little")
        };
        let enough = Requirements { memory: Some(least), ..required("--watcher swap --size 256M") };
        let memory = propose(&enough).unwrap().candidates[0].cost.memory_bytes;
        assert_eq!(memory.next_multiple_of(1024), least);
        let space = refused("--size 256M --space-factor 1.01");
        assert!(matches!(space, AdviseError::Space { .. }), "{space}");
        let reads = refused("--size 256M --space-factor 1.5 --hide-reads yes");
        assert!(matches!(reads, AdviseError::Space { .. }), "{reads}");
        assert_eq!(refused("--size 64K --memory 1M"), AdviseError::NothingLeaves(1 << 20));
        assert!(matches!(refused("--size 32K"), AdviseError::Parameters(_)));
    }

    #[test]
    fn the_command_runs_the_scheme_that_was_priced() {
        for options in ["", "--hide-reads yes", "--memory 2M --space-factor 1.3"] {
            let required = required(&format!("--watcher swap --size 64M {options}"));
            let proposal = propose(&required).unwrap();
            let Product::Run(args) = parsed(&proposal.commands[0]) else {
                panic!("{:?}", proposal.commands[0])
            };
            let settings = run::settings(&args, Path::new("counters")).unwrap();
            settings.check().unwrap();
            let cost = &proposal.candidates[0].cost;
            assert_eq!(settings.store_len().unwrap(), cost.store_bytes, "{options}");
            assert_eq!(Some(settings.pages_moved().unwrap().written), cost.written);
        }
    }

    #[test]
    fn schemes_that_show_reads_are_not_chosen_where_reads_must_be_hidden() {
        let proposal = propose(&required("--watcher swap --size 64M --hide-reads yes")).unwrap();
        let detwo = proposal.candidates.iter().find(|c| c.scheme == "detwo").unwrap();
        assert_eq!(detwo.reason, "hides writes only");
        assert_eq!(proposal.leakage.learns, PAGER_TREES.learns);
        assert_eq!(proposal.candidates.len(), Scheme::ALL.len());
    }
}
