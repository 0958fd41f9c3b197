//! Two recorded traces, compared and judged.

use crate::accesses::Accesses;
use crate::compare::{Compare, Comparison, try_compare};
use crate::judge::{Judgement, judge};
use crate::recording::{ReadOptions, Recording, RecordingError, secrets};
use crate::report::{Claim, Verdict};
use serde::Serialize;
use std::path::{Path, PathBuf};
use traceless_core::trace::Op;

/// Two files of recorded events, and how they are compared.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option by itself")]
pub struct FileComparison {
    /// The first trace.
    pub a: PathBuf,
    /// The second trace.
    pub b: PathBuf,
    /// How to read both of them.
    pub options: ReadOptions,
    /// The requests behind the first trace.
    pub secret_a: Option<PathBuf>,
    /// The requests behind the second trace.
    pub secret_b: Option<PathBuf>,
    /// Whether differences are not judged by statistics: the traces must be equal.
    pub equal: bool,
    /// Whether reads are compared, too; the traces must then be equal.
    pub reads: bool,
    /// Whether times are compared, too; the traces must then be equal.
    pub times: bool,
    /// Whether the order between two syncs counts, too; the traces must then be equal.
    pub exact_order: bool,
}

/// The outcome of a comparison, as JSON in the schema `traceless.audit.compare.v1`.
#[derive(Serialize)]
pub struct CompareReport {
    schema: &'static str,
    /// Whether two users can be distinguished.
    pub verdict: Verdict,
    /// `equality`, or `statistics` where each trace by itself looks drawn at random.
    pub judged_by: &'static str,
    /// Why there is no judgement, and how many accesses one would take.
    pub not_judged: Option<String>,
    /// The exact comparison.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// What statistics say; of traces that would have to be equal the claims that fail.
    pub claims: Vec<Claim>,
}

impl CompareReport {
    /// The verdict as text, with what it rests on.
    pub fn text(&self) -> String {
        let exact = self.comparison.text();
        if self.claims.is_empty() {
            return exact;
        }
        let claims: String = self.claims.iter().map(Claim::text).collect();
        let not_judged = self.not_judged.as_ref().map_or(String::new(), |why| {
            format!("not judged: {why}. Nothing was found in those: record longer runs\n")
        });
        let (why, verdict) = (self.why(), self.verdict.word());
        format!("{exact}\n{why}:\n\n{claims}\n{not_judged}verdict: {verdict}\n")
    }

    /// The exact comparison as text, and why there are claims, if there are any.
    pub fn summary(&self) -> String {
        format!("{}{}", self.comparison.text(), self.why())
    }

    /// Why there are claims; empty without any.
    fn why(&self) -> &'static str {
        match (self.claims.is_empty(), self.judged_by) {
            (true, _) => "",
            (false, "statistics") => {
                "each by itself looks drawn at random, so both are judged by statistics"
            }
            _ => "not each by itself looks drawn at random, so they would have to be equal",
        }
    }
}

/// Compared where neither trace has a sync: without syncs it is unknown which accesses a cache may
/// have reordered, and whether reads are meant to be observed. So every event counts.
const EVERY_EVENT: Compare = Compare { reads: true, times: false, exact_order: true };

impl FileComparison {
    /// Reads both files, and judges them.
    pub fn judge(&self) -> Result<CompareReport, RecordingError> {
        let Self { reads, times, exact_order, .. } = *self;
        let options = Compare { reads, times, exact_order };
        let has_options = reads || times || exact_order;
        let wants_equal = self.equal || has_options;
        let has_syncs = self.has_syncs()?;
        let rules = if has_options || has_syncs { options } else { EVERY_EVENT };
        let comparison = try_compare(self.recording(&self.a)?, self.recording(&self.b)?, rules)?;
        let knows_secrets = self.secret_a.is_some() || self.secret_b.is_some();
        let draws = (!comparison.equal || knows_secrets) && !wants_equal;
        let judgement = if draws { Some(self.judge_by_statistics()?) } else { None };
        Ok(CompareReport::of(comparison, judgement, has_syncs))
    }

    /// The accesses of both traces, without their secrets.
    pub fn accesses(&self) -> Result<[Accesses; 2], RecordingError> {
        Ok([self.accesses_of(&self.a, None)?, self.accesses_of(&self.b, None)?])
    }

    fn recording(&self, path: &Path) -> Result<Recording, RecordingError> {
        Recording::open(path, self.options)
    }

    fn has_syncs(&self) -> Result<bool, RecordingError> {
        for path in [&self.a, &self.b] {
            for event in self.recording(path)? {
                if event?.op == Op::Sync {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn judge_by_statistics(&self) -> Result<Judgement, RecordingError> {
        let a = self.accesses_of(&self.a, self.secret_a.as_deref())?;
        let b = self.accesses_of(&self.b, self.secret_b.as_deref())?;
        Ok(judge(&a, &b))
    }

    fn accesses_of(&self, path: &Path, secret: Option<&Path>) -> Result<Accesses, RecordingError> {
        let accesses = Accesses::segment(|| self.recording(path))?;
        match secret {
            None => Ok(accesses),
            Some(secret) => accesses.with_secrets(secrets(secret)?),
        }
    }
}

impl CompareReport {
    /// Two traces that differ, or that come with secrets, are judged by statistics if each by
    /// itself looks drawn at random. Otherwise the verdict is whether they are equal, and the
    /// report lists the claims that do not hold for a trace by itself.
    ///
    /// With too few accesses a leak that is found counts, but finding none proves nothing. On a
    /// disk, where there are syncs, a difference is a leak unless there are enough accesses.
    fn of(comparison: Comparison, judgement: Option<Judgement>, has_syncs: bool) -> Self {
        let holds = |claim: &Claim| claim.verdict == Verdict::Pass;
        let (judged_by, verdict, claims, not_judged) = match judgement {
            Some(Judgement { alone, together, rate, too_few })
                if alone.iter().all(holds) && !(has_syncs && too_few.is_some()) =>
            {
                let verdict = match (together.iter().all(holds), &too_few) {
                    (false, _) => Verdict::Leak,
                    (true, Some(_)) if !comparison.equal => Verdict::Unknown,
                    (true, _) => Verdict::Pass,
                };
                ("statistics", verdict, [alone, together, vec![rate]].concat(), too_few)
            }
            other => {
                let verdict = if comparison.equal { Verdict::Pass } else { Verdict::Leak };
                let alone = other.map_or(vec![], |judgement| judgement.alone);
                let fails = alone.into_iter().filter(|claim| !holds(claim));
                ("equality", verdict, fails.collect(), None)
            }
        };
        let not_judged = not_judged.filter(|_| verdict == Verdict::Unknown);
        let schema = "traceless.audit.compare.v1";
        Self { schema, verdict, judged_by, not_judged, comparison, claims }
    }
}
