//! What audits of many schemes share, each with a list of planted faults.

use super::Outcome;
use super::report::{self, AuditResult, Progress, clean_claim, detection_claim, with_second_run};
use crate::args::audit::{Level, RunArgs};
use std::error::Error;
use traceless_audit::Claim;
use traceless_audit::Picture;
use traceless_sim::parallel::{cores, in_parallel};

/// Schemes that are audited for the same claims.
pub trait Suite: 'static {
    type Scheme: Sync + 'static;
    /// How much an audit runs.
    type Size: Copy + Sync + 'static;

    /// The suite's name on the command line.
    const TARGET: &'static str;
    /// Schemes with a planted fault, and sound twins of them.
    const PLANTED: &'static [SelfTestCase<Self>];

    /// All schemes without a known fault.
    fn honest() -> &'static [Self::Scheme];

    fn size(level: Level) -> Self::Size;

    /// What the claims about these schemes do not cover.
    fn not_hidden(schemes: &[&Self::Scheme]) -> &'static str;

    /// The scheme's name on the command line.
    fn name(scheme: &Self::Scheme) -> &'static str;

    /// The scheme's name in a list with schemes of other suites.
    fn title(scheme: &Self::Scheme) -> String {
        Self::name(scheme).to_owned()
    }

    /// How many schemes are run at a time.
    fn at_once() -> usize {
        cores()
    }

    /// By how much [`claims`](Self::claims) advances the progress: about as much as it runs, so
    /// that a small planted fault counts little beside a scheme at level release.
    fn work(scheme: &Self::Scheme, size: Self::Size) -> u64;

    /// All claims about a scheme, from one run.
    fn claims(
        scheme: &Self::Scheme,
        size: Self::Size,
        seed: u64,
        progress: &Progress,
    ) -> Result<Vec<Claim>, AuditError>;

    /// The claim that `claims` find the planted fault, or nothing in a sound twin.
    fn detection(case: &SelfTestCase<Self>, claims: &[Claim]) -> Claim {
        detection_claim(Self::name(&case.scheme), case.kind.fault(), claims)
    }

    /// Pictures of what the adversary observes of users of a scheme.
    fn pictures(scheme: &Self::Scheme, seed: u64) -> Result<Vec<Picture>, AuditError>;
}

/// The reason why an audit could not run.
pub type AuditError = Box<dyn Error + Send + Sync>;

/// A scheme that tests the audit itself. The command line calls most of them `mutant:...`, sound
/// twins too.
pub struct SelfTestCase<S: Suite + ?Sized> {
    pub scheme: S::Scheme,
    pub kind: CaseKind,
    /// A size at which the audit finds the fault.
    pub size: S::Size,
}

/// What the audit must find in a case of its self-test.
#[derive(Clone, Copy, Debug)]
pub enum CaseKind {
    /// This planted fault, in words.
    Fault(&'static str),
    /// Nothing: the scheme is made like faulty ones, without the fault. So what the audit finds in
    /// a faulty scheme is its fault.
    SoundTwin,
}

impl CaseKind {
    /// The fault in words, if there is one.
    fn fault(self) -> Option<&'static str> {
        match self {
            Self::Fault(fault) => Some(fault),
            Self::SoundTwin => None,
        }
    }
}

pub fn run<S: Suite>(args: &RunArgs, scheme: Option<&str>) -> Outcome {
    report::to_outcome(audit::<S>(args, scheme), &args.output)
}

fn audit<S: Suite>(args: &RunArgs, scheme: Option<&str>) -> Result<AuditResult, AuditError> {
    if args.self_test {
        let progress = Progress::new(planted_work::<S>());
        return Ok(AuditResult::of_planted(planted_claims::<S>(&progress)?));
    }
    let schemes: Vec<&S::Scheme> = match scheme {
        Some(name) => vec![find_scheme::<S>(name).ok_or("there is no scheme of this name here")?],
        None => S::honest().iter().collect(),
    };
    let size = S::size(args.level);
    let work: u64 = schemes.iter().map(|scheme| S::work(scheme, size)).sum();
    let with_planted = !args.schemes_only;
    let progress = Progress::new(work + if with_planted { planted_work::<S>() } else { 0 });
    let claims = in_parallel(&schemes, S::at_once(), |scheme| {
        claims_of::<S>(scheme, size, args.seed, &progress)
    });
    let with_pictures = if args.output.html.is_some() { &schemes[..] } else { &[] };
    let pictures =
        in_parallel(with_pictures, S::at_once(), |scheme| S::pictures(scheme, args.seed));
    Ok(AuditResult {
        target: S::TARGET,
        scheme: scheme.unwrap_or("all").to_owned(),
        level: args.level.name(),
        claims: claims.into_iter().collect::<Result<Vec<_>, _>>()?.concat(),
        planted: if with_planted { planted_claims::<S>(&progress)? } else { vec![] },
        not_hidden: S::not_hidden(&schemes),
        pictures: pictures
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .flatten()
            .collect(),
    })
}

/// The scheme, sound or not, that the command line calls `name`.
pub fn find_scheme<S: Suite>(name: &str) -> Option<&'static S::Scheme> {
    all::<S>().find(|scheme| S::name(scheme) == name)
}

fn all<S: Suite>() -> impl Iterator<Item = &'static S::Scheme> {
    S::honest().iter().chain(S::PLANTED.iter().map(|case| &case.scheme))
}

/// By how much the self-test advances the progress.
pub fn self_test_work<S: Suite>() -> u64 {
    let honest = S::honest().iter().map(|scheme| S::work(scheme, S::size(Level::Quick)));
    honest.sum::<u64>() + planted_work::<S>()
}

fn planted_work<S: Suite>() -> u64 {
    S::PLANTED.iter().map(|case| S::work(&case.scheme, case.size)).sum()
}

/// One claim for each scheme without a fault: the audit finds nothing in it.
pub fn honest_claims<S: Suite>(progress: &Progress) -> Result<Vec<Claim>, AuditError> {
    let audit = |scheme: &S::Scheme| {
        let claims = claims_of::<S>(scheme, S::size(Level::Quick), 1, progress)?;
        Ok(clean_claim(&S::title(scheme), &claims))
    };
    in_parallel(S::honest(), S::at_once(), audit).into_iter().collect()
}

/// One claim for each case of the self-test: the audit finds the planted fault, or nothing in a
/// sound twin.
pub fn planted_claims<S: Suite>(progress: &Progress) -> Result<Vec<Claim>, AuditError> {
    let audit = |case: &SelfTestCase<S>| {
        let claims = S::claims(&case.scheme, case.size, 1, progress)?;
        Ok(S::detection(case, &claims))
    };
    in_parallel(S::PLANTED, S::at_once(), audit).into_iter().collect()
}

/// All claims about a scheme. Suspicious ones are run a second time.
pub fn claims_of<S: Suite>(
    scheme: &S::Scheme,
    size: S::Size,
    seed: u64,
    progress: &Progress,
) -> Result<Vec<Claim>, AuditError> {
    let first = seed;
    with_second_run(first, |seed| {
        if seed != first {
            progress.extend(S::work(scheme, size));
        }
        S::claims(scheme, size, seed, progress)
    })
}

#[cfg(test)]
mod tests {
    use super::super::{
        cloud::Clouds, deniable::DeniableImages, pager::Pagers, sim::Processors, timing::Timings,
        tree::Trees, volume::Volumes,
    };
    use super::*;
    use crate::args::audit::{
        CLOUD_PARTS, DENIABLE_USERS, PAGER_SCHEMES, SIM_SCHEMES, TIMED, TREE_SCHEMES,
        volume_schemes,
    };

    #[test]
    fn every_name_on_the_command_line_is_known() {
        fn names<S: Suite>() -> Vec<&'static str> {
            all::<S>().map(S::name).collect()
        }
        assert_eq!(names::<Trees>(), TREE_SCHEMES);
        assert_eq!(names::<Pagers>(), PAGER_SCHEMES);
        assert_eq!(names::<Clouds>(), CLOUD_PARTS);
        assert_eq!(names::<DeniableImages>(), DENIABLE_USERS);
        assert_eq!(names::<Processors>(), SIM_SCHEMES);
        assert_eq!(names::<Timings>(), TIMED);
        for name in volume_schemes() {
            assert!(find_scheme::<Volumes>(name).is_some(), "{name}");
        }
        assert_eq!(names::<Volumes>().len(), volume_schemes().len());
        assert!(find_scheme::<Trees>("none").is_none());
    }

    /// Also where a fault ends some checks early.
    #[test]
    fn the_progress_is_complete_when_the_claims_are() {
        fn check<S: Suite>() {
            let SelfTestCase { scheme, size, .. } = &S::PLANTED[0];
            let progress = Progress::new(S::work(scheme, *size));
            S::claims(scheme, *size, 1, &progress).unwrap();
            let (done, all) = progress.work();
            assert_eq!(done, all, "{}", S::TARGET);
            assert!(done > 0, "{}", S::TARGET);
        }
        check::<Volumes>();
        check::<Trees>();
        check::<Pagers>();
        check::<Clouds>();
        check::<DeniableImages>();
        check::<Processors>();
        check::<Timings>();
    }
}
