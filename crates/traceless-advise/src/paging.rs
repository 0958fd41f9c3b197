//! Advice on paged programs: which scheme, how much it refreshes, and how many pages are resident.

use super::answer::{Candidate, CommandLine, Cost, Proposal};
use super::leakage::{PAGER_TREES, PAGER_WRITES};
use super::requirements::{AdviseError, Requirements};
use super::sizes::size_text;
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
    Requirements { space_factor: Some(limit), ..*required }.refusal(&costs)
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
    use super::super::requirements::Watcher;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn swap(size: u64) -> Requirements {
        Requirements::new(Watcher::Swap, size)
    }

    fn hides_reads(of: Requirements) -> Requirements {
        Requirements { hide_reads: true, ..of }
    }

    fn with_space(most: f64, of: Requirements) -> Requirements {
        Requirements { space_factor: Some(most), ..of }
    }

    #[test]
    fn schemes_turn_at_the_documented_points() {
        let large = swap(256 * MIB);
        for (required, expected) in [
            (large, "detwo --refresh 3 --resident 256"),
            (swap(MIB), "detwo --refresh 3 --resident 128"),
            (with_space(2.1, large), "detwo --refresh 1 --resident 256"),
            (with_space(1.4, large), "detwo --refresh 3 --resident 256"),
            (with_space(1.2, large), "detwo --refresh 7 --resident 256"),
            // 8 bytes a page, and two numbers.
            (Requirements { memory: Some(MIB), ..large }, "detwo --refresh 3 --resident 127"),
            (hides_reads(large), "path-fused --resident 256"),
            (hides_reads(with_space(3.0, large)), "path-fused --resident 256"),
            (hides_reads(with_space(20.0, large)), "ring --resident 256"),
        ] {
            let proposal = propose(&required).unwrap();
            let first = &proposal.candidates[0];
            let chosen = format!("{} {}", first.scheme, first.options.join(" "));
            assert_eq!(chosen, expected, "{required:?}");
        }
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        let refused = |required: Requirements| propose(&required).unwrap_err();
        let large = swap(256 * MIB);
        let AdviseError::Memory { least, .. } =
            refused(Requirements { memory: Some(500 << 10), ..large })
        else {
            panic!("it is too little")
        };
        let enough = Requirements { memory: Some(least), ..large };
        let memory = propose(&enough).unwrap().candidates[0].cost.memory_bytes;
        assert_eq!(memory.next_multiple_of(1024), least);
        for required in [with_space(1.01, large), hides_reads(with_space(1.5, large))] {
            let error = refused(required);
            assert!(matches!(error, AdviseError::Space { .. }), "{error}");
        }
        let all = Requirements { memory: Some(MIB), ..swap(64 << 10) };
        assert_eq!(refused(all), AdviseError::NothingLeaves(MIB));
        assert!(matches!(refused(swap(32 << 10)), AdviseError::Parameters(_)));
    }

    #[test]
    fn schemes_that_show_reads_are_not_chosen_where_reads_must_be_hidden() {
        let proposal = propose(&hides_reads(swap(64 * MIB))).unwrap();
        let detwo = proposal.candidates.iter().find(|c| c.scheme == "detwo").unwrap();
        assert_eq!(detwo.reason, "hides writes only");
        assert_eq!(proposal.leakage.learns, PAGER_TREES.learns);
        assert_eq!(proposal.candidates.len(), Scheme::ALL.len());
    }
}
