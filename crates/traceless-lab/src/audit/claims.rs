//! The claims of a volume's scheme, each with the runs that check it.

use super::grouped;
use super::leaf_draws;
use super::report::Progress;
use super::runner::{Length, Session, trace_of};
use super::slot_draws::{self, WORKLOADS};
use super::target::{AuditSubject, AuditTarget, BLOCK_LEN};
use super::workload::{Interruption, Pattern, WorkloadPair, mix, pairs};
use traceless::rng::{Rng, SeededRng};
use traceless::scheme::contract::Timetable;
use traceless::scheme::openings::OPENINGS_MAX;
use traceless::trace::{Event, Op};
use traceless::{Addr, Hides, Result};
use traceless_audit::{Claim, Compare, Counts, Verdict, compare, normalise};
use traceless_audit::{Picture, UserPoints};

/// How much an audit runs.
#[derive(Clone, Copy, Debug)]
pub struct VolumeSize {
    /// Blocks of a geometry with its map in memory.
    pub blocks: u64,
    /// Blocks of a geometry with its map on the store.
    pub map_blocks: u64,
    /// A run writes as much as this many cycles of the holding area.
    pub cycles: u64,
    /// An upper bound on the writes of a run.
    pub writes_max: u64,
    /// Runs of each pair, each with other addresses and contents.
    pub seeds: u64,
    /// Openings after the first.
    pub openings: u64,
    /// Whether to crash also until a scheme has to forget old openings.
    pub many_openings: bool,
    /// Judged writes, for a scheme that draws slots at random.
    pub drawn_writes: u64,
}

/// Openings with one write each: a scheme remembers fewer than this.
const MANY_OPENINGS: u64 = OPENINGS_MAX as u64 * 3 / 4;

impl VolumeSize {
    fn length(&self, target: &AuditTarget) -> Length {
        let writes = (self.cycles * target.timetable().cycle).min(self.writes_max);
        Length { writes, openings: self.openings }
    }
}

/// By how much [`claims`] advances the progress: about the writes of all runs.
pub fn work(subject: AuditSubject, size: VolumeSize) -> u64 {
    // Without targets there are no claims, either.
    let targets = subject.targets(size.blocks, size.map_blocks).unwrap_or_default();
    let of_pair = |pair: &WorkloadPair| pair_work(pair, &targets, size);
    let of_pairs: u64 = pairs(subject.hides()).iter().map(of_pair).sum();
    let of_openings = if size.many_openings { MANY_OPENINGS } else { 0 };
    of_pairs + of_openings + slots_work(&targets, size) + array_work(&targets)
}

/// Every claim of `subject`; all seeds derive from `seed`.
pub fn claims(
    subject: AuditSubject,
    size: VolumeSize,
    seed: u64,
    progress: &Progress,
) -> Result<Vec<Claim>> {
    let targets = subject.targets(size.blocks, size.map_blocks)?;
    // A scheme that hides reads must show the same reads, too.
    let reads = subject.hides() == Hides::ReadsAndWrites;
    let mut claims = vec![];
    for pair in pairs(subject.hides()) {
        claims.extend(equal_traces(&pair, &targets, size, seed, reads));
        progress.advance(pair_work(&pair, &targets, size));
    }
    if size.many_openings {
        claims.extend(many_openings(subject, reads)?);
        progress.advance(MANY_OPENINGS);
    }
    if targets.iter().all(AuditTarget::draws_reads) {
        claims.extend(leaf_draws::claims(&targets, size.drawn_writes, seed)?);
    }
    if all_drawn(&targets) {
        claims.extend(slot_draws::claims(&targets, size.drawn_writes, seed)?);
    } else {
        claims.push(covers_the_schedule(&targets, subject.hides()));
    }
    progress.advance(slots_work(&targets, size));
    claims.push(is_an_array(&targets));
    progress.advance(array_work(&targets));
    Ok(claims)
}

fn pair_work(pair: &WorkloadPair, targets: &[AuditTarget], size: VolumeSize) -> u64 {
    able(pair, targets).iter().map(|target| size.length(target).writes * size.seeds).sum()
}

fn slots_work(targets: &[AuditTarget], size: VolumeSize) -> u64 {
    if all_drawn(targets) {
        return (targets.len() * WORKLOADS.len()) as u64 * size.drawn_writes;
    }
    let of_leaves = |target: &AuditTarget| {
        let accesses = WORKLOADS.len() as u64 * leaf_draws::accesses(size.drawn_writes);
        if target.draws_reads() { accesses } else { 0 }
    };
    let of = |target: &AuditTarget| {
        target.timetable().warm_up + target.timetable().whole_cycle + of_leaves(target)
    };
    targets.iter().map(of).sum()
}

fn array_work(targets: &[AuditTarget]) -> u64 {
    targets.iter().map(|target| target.blocks() + 2 * target.timetable().cycle).sum()
}

fn all_drawn(targets: &[AuditTarget]) -> bool {
    targets.iter().all(|target| target.drawn_slots().is_some())
}

/// The targets that support a pair.
fn able<'a>(pair: &WorkloadPair, targets: &'a [AuditTarget]) -> Vec<&'a AuditTarget> {
    let able = |target: &&AuditTarget| {
        let opens = pair.interruption == Interruption::Nothing || target.can_reopen();
        let for_disks = pair.a.dummies || pair.a.discards.is_some();
        opens && (!for_disks || target.is_for_disks())
    };
    targets.iter().filter(able).collect()
}

/// The writes of two users in the first geometry: one writes one address, the other random ones.
pub fn pictures(subject: AuditSubject, seed: u64) -> Result<Vec<Picture>> {
    let pairs = pairs(subject.hides());
    let targets = subject.targets(256, 1024)?;
    let (Some(pair), Some(target)) = (pairs.first(), targets.first()) else { return Ok(vec![]) };
    let length = PLANTED_SIZE.length(target);
    let points_of = |name: &str, workload, seed| -> Result<UserPoints> {
        let events = trace_of(target, pair, workload, length, false, (mix(seed, 1), mix(seed, 2)))?;
        let written = events.into_iter().filter(|event| event.op == Op::Write);
        let points = (0..).zip(written.map(|event| event.at)).collect();
        Ok(UserPoints { name: name.trim().to_owned(), points })
    };
    let (a, b) = pair.name.split_once(',').unwrap_or((pair.name, "the other"));
    let users = [points_of(a, pair.a, seed)?, points_of(b, pair.b, seed.wrapping_add(1))?];
    let title = format!("what is written: {}", target.name);
    Ok(vec![Picture { title, across: "write", up: "byte", users }])
}

/// Runs both sides of a pair on every target. `None`, if no target supports the pair.
fn equal_traces(
    pair: &WorkloadPair,
    targets: &[AuditTarget],
    size: VolumeSize,
    seed: u64,
    reads: bool,
) -> Option<Claim> {
    let drawn = targets.iter().any(|target| target.drawn_slots().is_some());
    let traces = if drawn { "write traces of equal length and equal draws" } else { EQUAL_LENGTH };
    let name = format!("{traces} are equal: {}", pair.name);
    let targets = able(pair, targets);
    let mut all = Counts::default();
    for (target, seed) in
        targets.iter().flat_map(|t| (0..size.seeds).map(move |s| (t, mix(seed, s))))
    {
        match compare_sides(target, pair, size.length(target), seed, reads) {
            Err(error) => return Some(fault(name, target, &error)),
            Ok((claim, _)) if claim.verdict != Verdict::Pass => {
                let evidence = format!("{}: {}", target.name, claim.evidence);
                return Some(Claim { name, evidence, ..claim });
            }
            Ok((_, counts)) => {
                all.writes += counts.writes;
                all.syncs += counts.syncs;
                all.reads += counts.reads;
            }
        }
    }
    let geometries = match targets.len() {
        0 => return None,
        1 => "in one geometry".to_owned(),
        n => format!("in {n} geometries"),
    };
    let (events, writes) = (grouped(all.events()), grouped(all.writes));
    let evidence = format!("{events} events equal, {writes} of them writes, {geometries}");
    Some(Claim::exact(name, Verdict::Pass, all.events(), ONE_EVENT, evidence))
}

/// A scheme with more openings than it can remember writes dummies to drop the oldest.
fn many_openings(subject: AuditSubject, reads: bool) -> Result<Option<Claim>> {
    let all = pairs(subject.hides());
    let Some(pair) = all.iter().find(|pair| pair.interruption == Interruption::Crash) else {
        return Ok(None);
    };
    let name = "one address, random addresses, through more openings than are remembered";
    // With fewer blocks than openings, ordinary writes would drop the oldest openings.
    let targets = targets_of_many_openings(subject)?;
    let (writes, openings) = (MANY_OPENINGS, MANY_OPENINGS - 1);
    let size = VolumeSize { writes_max: writes, openings, seeds: 1, ..PLANTED_SIZE };
    Ok(equal_traces(&WorkloadPair { name, ..*pair }, &targets[..1], size, 1, reads))
}

/// Targets for `many_openings`.
pub fn targets_of_many_openings(subject: AuditSubject) -> Result<Vec<AuditTarget>> {
    subject.targets(MANY_OPENINGS * 2, MANY_OPENINGS * 2)
}

const EQUAL_LENGTH: &str = "write traces of equal length";

const ONE_EVENT: &str = "one differing event is found";

fn compare_sides(
    target: &AuditTarget,
    pair: &WorkloadPair,
    length: Length,
    seed: u64,
    reads: bool,
) -> Result<(Claim, Counts)> {
    let seeds = [mix(seed, 11), mix(seed, 12)];
    // If the scheme draws slots, equal draws must give equal slots. Otherwise draws differ between
    // the users, so equal traces are not due to equal draws.
    let draws = if target.drawn_slots().is_some() { [mix(seed, 13); 2] } else { seeds };
    // In a trace that was cut short drawn reads are not known from the rest.
    let reads = reads && !(target.draws_reads() && pair.interruption == Interruption::CutWrite);
    let a = trace_of(target, pair, pair.a, length, reads, (seeds[0], draws[0]))?;
    let b = trace_of(target, pair, pair.b, length, reads, (seeds[1], draws[1]))?;
    let (a, b) = match [a, b].map(|trace| public_part(target, trace, reads)) {
        [Ok(a), Ok(b)] => (a, b),
        [Err(why), _] | [_, Err(why)] => {
            let claim = Claim::exact("", Verdict::Leak, 0, ONE_EVENT, why);
            return Ok((claim, Counts::default()));
        }
    };
    let comparison = compare(a, b, Compare { reads, times: false, exact_order: true });
    Ok((Claim::equal_traces("", &comparison), comparison.counts_a))
}

/// The part of a trace that does not follow from draws.
fn public_part(
    target: &AuditTarget,
    trace: Vec<Event>,
    reads: bool,
) -> Result<Vec<Event>, &'static str> {
    // Without reads there is nothing to split.
    match reads.then(|| target.read_trace(&trace)).flatten() {
        Some(split) => split.map(|split| split.public),
        None => Ok(trace),
    }
}

fn fault(name: impl Into<String>, target: &AuditTarget, error: &traceless::Error) -> Claim {
    let evidence = format!("{}: it failed on a sound store: {error}", target.name);
    Claim::exact(name, Verdict::Fault, 0, "an error is an error", evidence)
}

/// Bytes of the largest header that the scheme writes with a block.
const HEADER_LEN: u64 = 4096;

/// The claim that traces are not equal for lack of writes: one address is written until the
/// schedule must have covered the whole store, and the written bytes are counted.
fn covers_the_schedule(targets: &[AuditTarget], hides: Hides) -> Claim {
    let name = "written slots cover the schedule";
    let power = match hides {
        Hides::WritesOnly => "one slot that is left out is found",
        _ => "three blocks that are left out are found",
    };
    let mut bytes = 0;
    let mut evidence = vec![];
    for target in targets {
        match coverage(target, hides) {
            Err(error) => return fault(name, target, &error),
            Ok(Err(why)) => {
                let why = format!("{}: {why}", target.name);
                return Claim::exact(name, Verdict::Fault, 0, power, why);
            }
            Ok(Ok(coverage)) => {
                bytes += coverage.bytes;
                evidence.push(format!("{} {:.2}", target.name, coverage.ratio));
            }
        }
    }
    let evidence = format!("bytes written per byte of the user: {}", evidence.join(", "));
    Claim::exact(name, Verdict::Pass, bytes, power, evidence)
}

struct Coverage {
    bytes: u64,
    ratio: f64,
}

fn coverage(target: &AuditTarget, hides: Hides) -> Result<Result<Coverage, String>> {
    let mut session = Session::new(target, false, 3);
    let mut open = session.create()?;
    let batch = target.timetable().unsynced_max.min(32);
    let batches = target.timetable().whole_cycle.div_ceil(batch);
    let addrs = vec![Addr(Pattern::Same.address(0, target.blocks(), 0)); batch as usize];
    let data = vec![0xa5; addrs.len() * BLOCK_LEN];
    for _ in 0..target.timetable().warm_up.div_ceil(batch) {
        open.oram().write_many(&addrs, &data)?;
        open.oram().sync()?;
    }
    // Drop the events of the warm-up: they are not part of the schedule.
    session.witness.events.take();
    for _ in 0..batches {
        open.oram().write_many(&addrs, &data)?;
        open.oram().sync()?;
    }
    let written = session.witness.events.take().into_iter().filter(|e| e.op == Op::Write);
    let epoch = normalise(written, false).next();
    let bytes = epoch.as_ref().map_or(0, |e| e.counts.bytes_written);
    let covered: u64 = epoch.iter().flat_map(|e| &e.stretches).map(|s| s.len).sum();
    let by_user = batches * batch * BLOCK_LEN as u64;
    let Timetable { areas, gaps, .. } = target.timetable();
    // A fraction of a refresh may still be due, and each area adds headers: up to three for a batch
    // that crosses into another stripe and around the ring.
    let least = target.write_amplification() * by_user as f64 - 2.0 * BLOCK_LEN as f64;
    let most = least + (batches * areas * 3 * HEADER_LEN) as f64 + 4.0 * BLOCK_LEN as f64;
    if (bytes as f64) < least || bytes as f64 > most {
        let bytes = grouped(bytes);
        return Ok(Err(format!("{bytes} bytes were written, not {least:.0} to {most:.0}")));
    }
    let missing = target.store_len() - covered;
    if hides == Hides::WritesOnly && missing >= (gaps * HEADER_LEN).max(1) {
        let missing = grouped(missing);
        return Ok(Err(format!("{missing} bytes of the store were never written")));
    }
    Ok(Ok(Coverage { bytes, ratio: bytes as f64 / by_user as f64 }))
}

pub const ARRAY: &str = "every block reads as it was last written";

/// The claim that reads return the last write: a scheme that loses data can look very safe.
fn is_an_array(targets: &[AuditTarget]) -> Claim {
    let name = ARRAY;
    let power = "one wrong byte in a block that is read is found";
    let mut reads = 0;
    for target in targets {
        match check_array(target) {
            Err(error) => return fault(name, target, &error),
            Ok(ArrayCheck { wrong: 0, reads: more, .. }) => reads += more,
            Ok(ArrayCheck { wrong, reads, first: (block, writes) }) => {
                let evidence = format!(
                    "{}: block {block} was wrong after {writes} writes; {wrong} of {reads} reads \
                     were",
                    target.name
                );
                return Claim::exact(name, Verdict::Fault, wrong, power, evidence);
            }
        }
    }
    let evidence = format!("{} reads right", grouped(reads));
    Claim::exact(name, Verdict::Pass, reads, power, evidence)
}

#[derive(Default)]
struct ArrayCheck {
    wrong: u64,
    reads: u64,
    /// The first wrong block, and the number of writes before it.
    first: (u64, u64),
}

/// Writes every block, then for two cycles only blocks of even number: odd blocks must survive
/// every turn of the areas without a write. Halfway the target is closed and opened again.
fn check_array(target: &AuditTarget) -> Result<ArrayCheck> {
    let (n, seed) = (target.blocks(), 4);
    let mut session = Session::new(target, false, seed);
    let mut open = session.create()?;
    let mut rng = SeededRng::new(seed);
    let mut model = vec![0; n as usize * BLOCK_LEN];
    let mut result = ArrayCheck::default();
    let (mut written, all) = (0, n + 2 * target.timetable().cycle);
    let mut closes = target.can_reopen();
    while written < all {
        let address = |i| if i < n { i } else { mix(seed, i) % n / 2 * 2 };
        let addrs: Vec<_> = (written..=written + rng.below(12)).map(address).collect();
        let mut data = vec![0; addrs.len() * BLOCK_LEN];
        rng.fill(&mut data);
        for (&addr, block) in addrs.iter().zip(data.chunks_exact(BLOCK_LEN)) {
            model[addr as usize * BLOCK_LEN..][..BLOCK_LEN].copy_from_slice(block);
        }
        let addrs: Vec<_> = addrs.into_iter().map(Addr).collect();
        open.oram().write_many(&addrs, &data)?;
        written += addrs.len() as u64;
        if closes && written > all / 2 {
            open.oram().close()?;
            drop(open);
            open = session.reopen(false)?;
            closes = false;
        }
        for _ in 0..4 {
            result.check(open.oram(), rng.below(n), &model, written)?;
        }
    }
    for block in 0..n {
        result.check(open.oram(), block, &model, written)?;
    }
    Ok(result)
}

impl ArrayCheck {
    fn check(
        &mut self,
        oram: &mut dyn traceless::oram::Oram,
        block: u64,
        model: &[u8],
        written: u64,
    ) -> Result {
        let mut bytes = vec![0; BLOCK_LEN];
        oram.read(Addr(block), &mut bytes)?;
        self.reads += 1;
        if bytes != model[block as usize * BLOCK_LEN..][..BLOCK_LEN] {
            if self.wrong == 0 {
                self.first = (block, written);
            }
            self.wrong += 1;
        }
        Ok(())
    }
}

/// A size at which every planted fault is found.
pub const PLANTED_SIZE: VolumeSize = VolumeSize {
    blocks: 64,
    map_blocks: 0,
    cycles: 4,
    writes_max: 256,
    seeds: 1,
    openings: 3,
    many_openings: false,
    drawn_writes: 4000,
};

#[cfg(test)]
mod tests {
    use super::super::suite::Suite;
    use super::super::target::MutantKind;
    use super::super::volume::Volumes;
    use super::*;
    use traceless_block::plain::PLAIN;

    const SMALL: VolumeSize = VolumeSize {
        blocks: 64,
        map_blocks: 512,
        cycles: 2,
        writes_max: 300,
        seeds: 1,
        openings: 5,
        many_openings: false,
        drawn_writes: 4000,
    };

    fn verdicts(subject: AuditSubject) -> Vec<(String, Verdict, String)> {
        let claims = claims(subject, SMALL, 1, &Progress::unseen()).unwrap();
        claims.into_iter().map(|c| (c.name, c.verdict, c.evidence)).collect()
    }

    #[test]
    fn sound_schemes_pass_every_check() {
        let twins = [
            MutantKind::Sound,
            MutantKind::SoundSq,
            MutantKind::SoundRandom,
            MutantKind::SoundDiscards,
        ]
        .map(AuditSubject::Mutant);
        for subject in Volumes::honest().iter().map(|scheme| scheme.subject).chain(twins) {
            for (name, verdict, evidence) in verdicts(subject) {
                assert_eq!(verdict, Verdict::Pass, "{subject:?}: {name}: {evidence}");
            }
        }
    }

    #[test]
    fn each_planted_fault_is_found_by_the_checks_that_are_for_it() {
        let finders = |subject, verdict| -> Vec<String> {
            let finders = verdicts(subject).into_iter().filter(|(_, v, _)| *v == verdict);
            finders.map(|(name, ..)| name.rsplit(": ").next().unwrap().to_owned()).collect()
        };
        let leaks = finders(AuditSubject::Block(&PLAIN), Verdict::Leak);
        for pair in ["one address, random addresses", "forwards, backwards"] {
            assert!(leaks.iter().any(|name| name == pair), "{leaks:?}");
        }
        // Even the control hides contents.
        assert!(!leaks.iter().any(|name| name == "zeros, random data"), "{leaks:?}");
        let leaks = finders(AuditSubject::Mutant(MutantKind::SkipsClean), Verdict::Leak);
        assert!(leaks.iter().any(|name| name == "one address, random addresses"), "{leaks:?}");
        let leaks = finders(AuditSubject::Mutant(MutantKind::Coalesces), Verdict::Leak);
        assert!(leaks.iter().any(|name| name.starts_with("duplicates")), "{leaks:?}");
        // What is faulty in discards shows in the pairs with discards, and in no other.
        for kind in [MutantKind::SkipsUnchanged, MutantKind::NotesRewrites] {
            let leaks = finders(AuditSubject::Mutant(kind), Verdict::Leak);
            assert!(!leaks.is_empty(), "{kind:?}");
            assert!(leaks.iter().all(|name| name.starts_with("discards")), "{kind:?}: {leaks:?}");
        }
        let wrap = AuditSubject::Mutant(MutantKind::LiteralWrap);
        assert_eq!(finders(wrap, Verdict::Leak), [] as [&str; 0]);
        let faults = finders(wrap, Verdict::Fault);
        let both = ["written slots cover the schedule", "every block reads as it was last written"];
        assert_eq!(faults, both);
    }

    #[test]
    fn runs_repeat() {
        let run = || claims(AuditSubject::Block(&PLAIN), SMALL, 1, &Progress::unseen()).unwrap();
        assert_eq!(run(), run());
    }
}
