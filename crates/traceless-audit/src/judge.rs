//! Judges two traces of any scheme by statistics.
//!
//! The trace is all that is known of the scheme. So the tests need no further knowledge: is each
//! access like every other except for its place, is its place drawn anew each time, and are both
//! users' accesses alike?

use crate::access::{Access, PLACES};
use crate::accesses::Accesses;
use crate::classifier::are_indistinguishable;
use crate::columns::{Column, DRAWS_PER_PLACE, columns, recurrence_of};
use crate::distance::Distance;
use crate::draws::{Draws, secret_classes};
use crate::leaves::leaves;
use crate::order::dependence_beyond_shifts;
use crate::report::{Claim, Verdict};
use crate::schedule::{Kind, Schedule, last_drawn_before, schedule};
use crate::stats::{claim_from_p, distance_found, smallest_of, worst_of};
use crate::table::{PAIR_CLASSES, Table};
use crate::template::Template;
use std::collections::HashMap;

/// Fewer accesses are no evidence that anything is drawn at random.
pub const ACCESSES_MIN: usize = 1000;

/// If a kind has a share of 1 / `RARE` of all accesses or less, the verdict does not depend on the
/// number of its accesses.
const RARE: usize = 100;

/// Kinds of accesses that are counted separately; further ones are counted together.
const KINDS: usize = 64;

/// The result of judging two traces by statistics.
#[derive(Debug)]
pub struct Judgement {
    /// Claims about each trace by itself. If one fails, the accessed places are not drawn at
    /// random.
    pub alone: Vec<Claim>,
    /// Claims about both traces.
    pub together: Vec<Claim>,
    /// Properties that may differ without a leak: how many accesses there are, and when.
    pub rate: Claim,
    /// Why passing claims do not suffice to say that two users are indistinguishable, and what
    /// would suffice; nothing if they do.
    pub too_few: Option<String>,
}

/// The place of each access of two traces, numbered in order.
///
/// ```
/// use traceless_audit::{Accesses, places_of};
/// use traceless_core::trace::{Event, Op, Surface};
///
/// let user = |places: [u64; 3]| {
///     let event = |at| Event { time: 0, surface: Surface::Dram, op: Op::Read, at, len: 64 };
///     let read = || Ok(places.into_iter().map(event).map(Ok::<_, std::convert::Infallible>));
///     let Ok(accesses) = Accesses::segment(read);
///     accesses
/// };
/// let [a, b] = places_of(&user([640, 0, 640]), &user([0, 128, 0]));
/// assert_eq!((a, b), (vec![2, 0, 2], vec![0, 1, 0]));
/// ```
pub fn places_of(a: &Accesses, b: &Accesses) -> [Vec<u64>; 2] {
    place_pair(a, b).draws.map(|draws| draws.drawn)
}

/// Judges the traces of two users: all accesses in a row or, if these do not look drawn at random,
/// the drawn accesses of each kind, if there are any.
///
/// Both schemes read and write one of 64 places in each access. The first draws the place; the
/// second follows its user:
///
/// ```
/// use traceless_audit::{Accesses, Judgement, Verdict, judge};
/// use traceless_core::rng::{Rng, SeededRng};
/// use traceless_core::trace::{Event, Op, Surface};
///
/// /// The accesses of a trace in which `next` is the place of each.
/// fn accesses(mut next: impl FnMut() -> u64) -> Accesses {
///     let event = |op, at| Event { time: 0, surface: Surface::Storage, op, at, len: 4096 };
///     let places = (0..2000).map(|_| next() * 4096);
///     let trace: Vec<Event> =
///         places.flat_map(|at| [event(Op::Read, at), event(Op::Write, at)]).collect();
///     let read = || Ok(trace.iter().copied().map(Ok::<_, std::convert::Infallible>));
///     let Ok(accesses) = Accesses::segment(read);
///     accesses
/// }
///
/// let leaks = |judged: &Judgement| {
///     judged.alone.iter().chain(&judged.together).any(|claim| claim.verdict == Verdict::Leak)
/// };
/// let (mut a, mut b) = (SeededRng::new(1), SeededRng::new(2));
/// let sound = judge(&accesses(|| a.below(64)), &accesses(|| b.below(64)));
/// assert!(!leaks(&sound) && sound.too_few.is_none());
/// let broken = judge(&accesses(|| a.below(64)), &accesses(|| b.below(4)));
/// assert!(leaks(&broken));
/// ```
pub fn judge(a: &Accesses, b: &Accesses) -> Judgement {
    let (mut alone, mut together, mut too_few) = judge_in_a_row(a, b);
    if !all_pass(&alone)
        && let Some(schedule) = schedule(a, b)
    {
        (alone, together, too_few) = judge_kinds(&schedule);
    }
    for (user, what) in [(a, "A"), (b, "B")] {
        together.extend(user.request_counts.map(|counts| counts.are_all_observable(what)));
    }
    Judgement { alone, together, rate: rate_claim(a, b), too_few }
}

fn all_pass(claims: &[Claim]) -> bool {
    claims.iter().all(|claim| claim.verdict == Verdict::Pass)
}

/// Claims about each trace and about both, and whether there are too few accesses for them.
type Claims = (Vec<Claim>, Vec<Claim>, Option<String>);

/// Judges all accesses in a row.
fn judge_in_a_row(a: &Accesses, b: &Accesses) -> Claims {
    let (alone, of_both) = judge_draws([a, b], "");
    let together =
        [vec![have_equal_kinds(a, b, "")], of_both, kinds_are_independent_of_secrets(a, b)]
            .concat();
    (alone, together, too_few(a.len().min(b.len()), ""))
}

fn too_few(accesses: usize, kind: &str) -> Option<String> {
    let few = || format!("{accesses} accesses{kind} are seen of one, and it takes {ACCESSES_MIN}");
    (accesses < ACCESSES_MIN).then(few)
}

/// Claims about the places of each user, and about both; `kind` names the accesses.
fn judge_draws(users: [&Accesses; 2], kind: &str) -> (Vec<Claim>, Vec<Claim>) {
    let [a, b] = users;
    let PlacePair { draws: [mut of_a, mut of_b], is_complete, place, distinct } = place_pair(a, b);
    let names = ["A", "B", "A and B"].map(|user| format!("{user}{kind}"));
    let mut alone = vec![];
    for (draws, what) in [&of_a, &of_b].into_iter().zip(&names) {
        if is_complete {
            alone.extend(draws.claims(what));
        } else {
            alone.push(draws.are_serially_independent(what));
            alone.push(draws.are_not_near_each_other(what));
            alone.push(draws.do_not_recur_sooner(what));
            alone.push(draws.are_not_autocorrelated(what));
            alone.push(draws.recur_by_chance_at_any_distance(what));
        }
    }
    let leaves = if is_complete {
        Some([of_a.clone(), of_b.clone()])
    } else {
        leaves(users, place, &distinct)
    };
    if let Some([leaves_a, leaves_b]) = leaves.as_ref().filter(|_| !is_complete) {
        for (draws, what) in [leaves_a, leaves_b].into_iter().zip(&names) {
            alone.push(draws.are_from_both_halves(what));
            alone.push(draws.are_from_both_halves_at_each_level(what));
            alone.push(draws.are_independent_of_several_before(what));
        }
    }
    let mut together = vec![
        of_a.have_distribution_of(&of_b, &names[2]),
        are_indistinguishable(&of_a, &of_b, &names[2]),
    ];
    for ((draws, accesses), what) in [(&mut of_a, a), (&mut of_b, b)].into_iter().zip(&names) {
        if !accesses.secrets.is_empty() {
            draws.secrets.clone_from(&accesses.secrets);
            together.push(draws.are_independent_of_secrets(what));
        }
    }
    if let Some([leaves_a, leaves_b]) = &leaves {
        together.push(leaves_a.are_from_both_halves_with(leaves_b, &names[2]));
    }
    for (nth, accesses) in
        users.into_iter().enumerate().filter(|(_, user)| !user.request_bits.is_empty())
    {
        let all = [&of_a, &of_b];
        let mut draws = leaves.as_ref().map_or(all[nth], |leaves| &leaves[nth]).clone();
        draws.secrets.clone_from(&accesses.secrets);
        draws.request_bits.clone_from(&accesses.request_bits);
        together.push(draws.are_independent_of_secrets_given_earlier(&names[nth]));
    }
    if let Some((of_each, of_both)) = judge_columns(users, kind, true) {
        alone.extend(of_each);
        together.push(of_both);
    }
    (alone, together)
}

/// Claims about single events of accesses of one kind, if these show more than their place.
fn judge_columns(
    [a, b]: [&Accesses; 2],
    kind: &str,
    is_fresh: bool,
) -> Option<(Option<Claim>, Claim)> {
    let first = a.all.first()?.kind;
    if a.all.iter().chain(&b.all).any(|access| access.kind != first) {
        return None;
    }
    let columns = columns(a, b, &place_pair(a, b).draws);
    let alone = columns.iter().filter(|_| is_fresh).flat_map(|column| column.alone(kind));
    let name = format!("each event is at a place drawn anew{kind}");
    let alone = worst_of(name, alone.collect());
    let together = columns.iter().flat_map(|column: &Column| column.together(kind, is_fresh));
    let name = format!("places of each event are alike and tell nothing{kind}");
    Some((alone, worst_of(name, together.collect())?))
}

/// Judges traces with accesses of several kinds: the drawn accesses of each kind, which must not
/// depend on the draws of another kind.
fn judge_kinds(Schedule { kinds, order }: &Schedule) -> Claims {
    let (mut alone, mut together) = (order.claims.clone(), vec![]);
    let mut few = vec![];
    let accesses: usize = kinds.iter().map(|kind| kind.all[0].len()).sum();
    let draws: Vec<[Draws; 2]> =
        kinds.iter().map(|Kind { drawn: [a, b], .. }| place_pair(a, b).draws).collect();
    let (mut across, mut shapes) = (vec![], vec![]);
    for (nth, of_kind) in kinds.iter().enumerate() {
        let kind = format!(", kind {}", of_kind.nth);
        let [all_a, all_b] = &of_kind.all;
        shapes.push(have_equal_kinds(all_a, all_b, &kind));
        let [a, b] = &of_kind.drawn;
        if !of_kind.is_regular || a.is_empty() {
            let [of_a, of_b] = place_pair(all_a, all_b).draws;
            if of_a.drawn.len().min(of_b.drawn.len()) > 0 {
                together.push(of_a.have_distribution_of(&of_b, &format!("A and B{kind}")));
            }
            let of_columns = judge_columns([all_a, all_b], &kind, false);
            together.extend(of_columns.map(|(_, of_both)| of_both));
            continue;
        }
        if a.len() * RARE >= accesses {
            few.extend(too_few(a.len(), &kind.replace(", ", " of ")));
        }
        let (of_each, of_both) = judge_draws([a, b], &kind);
        alone.extend(of_each);
        together.extend(of_both);
        for (other, drawn) in kinds.iter().zip(&draws).filter(|(other, _)| other.nth != of_kind.nth)
        {
            across.extend(["A", "B"].into_iter().enumerate().flat_map(|(user, what)| {
                let mut of_user = draws[nth][user].clone();
                let places = &drawn[user].drawn;
                of_user.secrets =
                    last_drawn_before(&of_kind.drawn[user], &other.drawn[user], places);
                let what = format!("{what}{kind} after {}", other.nth);
                [
                    of_user.are_independent_of_earlier(&what),
                    of_user.are_independent_of_secrets_given_last(&what),
                ]
            }));
        }
    }
    alone.extend(worst_of("places do not depend on those of other kinds".to_owned(), across));
    together.extend(worst_of("accesses of a kind look alike".to_owned(), shapes));
    together.extend(order_is_independent_of_secrets(kinds));
    let private: usize =
        kinds.iter().map(|kind| kind.drawn[0].len().min(kind.drawn[1].len())).sum();
    alone.push(schedule_claim(kinds));
    (alone, together, few.into_iter().next().or_else(|| too_few_private(private, accesses)))
}

/// Two users that make the same accesses, except for a few, are equal or not: few draws show
/// nothing.
fn too_few_private(private: usize, accesses: usize) -> Option<String> {
    let required = ACCESSES_MIN.max(accesses / RARE);
    let few = || format!("{private} of {accesses} accesses are drawn, and it takes {required}");
    (private < required).then(few)
}

/// Reports how many accesses are drawn.
fn schedule_claim(kinds: &[Kind]) -> Claim {
    let accesses: usize = kinds.iter().map(|kind| kind.all[0].len()).sum();
    let private: usize = kinds.iter().map(|kind| kind.drawn[0].len()).sum();
    let by_chance = kinds.iter().filter(|kind| !kind.is_regular).count();
    let evidence = format!(
        "{private} of {accesses} accesses are drawn, of {} kinds; {by_chance} kinds come by chance",
        kinds.len()
    );
    let power = "one access at another place is found";
    Claim::exact("both follow a schedule: A and B", Verdict::Pass, private as u64, power, evidence)
}

/// The claim that accesses that come by chance are no more likely after one secret than after
/// another.
fn order_is_independent_of_secrets(kinds: &[Kind]) -> Option<Claim> {
    /// More accesses of a kind than this between two of the main kind count as this many.
    const AFTER_MAX: u8 = 3;
    let main = kinds.iter().filter(|kind| kind.is_regular).max_by_key(|kind| kind.all[0].len())?;
    let mut claims = vec![];
    for kind in kinds.iter().filter(|kind| !kind.is_regular) {
        for (user, what) in ["A", "B"].into_iter().enumerate() {
            let main_accesses = &main.all[user];
            if main_accesses.secrets.is_empty() {
                continue;
            }
            let mut after = vec![0u8; main_accesses.len()];
            for access in &kind.all[user].all {
                let before = main_accesses
                    .all
                    .partition_point(|main| main.events_before < access.events_before);
                if let Some(after) = before.checked_sub(1).map(|nth| &mut after[nth]) {
                    *after = AFTER_MAX.min(*after + 1);
                }
            }
            let secrets = secret_classes(&main_accesses.secrets);
            let classes = [PAIR_CLASSES as usize, usize::from(AFTER_MAX) + 1];
            let p =
                secrets.iter().map(|secrets| dependence_beyond_shifts(secrets, &after, classes));
            let p = smallest_of(secrets.len(), p.fold(1.0, f64::min));
            let name = format!("what comes by chance tells nothing: {what}, kind {}", kind.nth);
            let power = distance_found(16.0, main_accesses.len() as u64);
            let evidence = format!("{} of {} accesses", kind.all[user].len(), main_accesses.len());
            claims.push(claim_from_p(name, p, p, power, &evidence));
        }
    }
    worst_of("what comes by chance tells nothing of secrets".to_owned(), claims)
}

/// The claim that the look of an access does not depend on its secret. It is tested if looks change
/// from access to access as if by chance: a public schedule of looks is independent of secrets.
fn kinds_are_independent_of_secrets(a: &Accesses, b: &Accesses) -> Vec<Claim> {
    let numbers = kinds(a, b);
    let kinds = numbers.len().min(KINDS) as u64;
    let claim = |(accesses, what): (&Accesses, &str)| {
        let number = |access: &Access| numbers[&access.template].min(KINDS - 1) as u64;
        let drawn = Draws {
            noun: "kinds",
            places: kinds,
            drawn: accesses.all.iter().map(number).collect(),
            secrets: accesses.secrets.clone(),
            request_bits: accesses.request_bits.clone(),
            ..Draws::default()
        };
        let is_tested = kinds > 1
            && !drawn.secrets.is_empty()
            && drawn.are_serially_independent(what).verdict == Verdict::Pass;
        let claims = || {
            let given_earlier = drawn.uneven_are_independent_given_earlier(what);
            [drawn.are_independent_of_secrets(what), given_earlier]
        };
        is_tested.then(claims).into_iter().flatten()
    };
    [(a, "A"), (b, "B")].into_iter().flat_map(claim).collect()
}

/// The kinds of accesses of both, numbered from the most common one.
fn kinds(a: &Accesses, b: &Accesses) -> HashMap<Template, usize> {
    let mut kinds: HashMap<Template, u64> = HashMap::new();
    a.all.iter().chain(&b.all).for_each(|access| *kinds.entry(access.template).or_default() += 1);
    let mut common: Vec<(Template, u64)> = kinds.into_iter().collect();
    common.sort_unstable_by_key(|&(template, times)| (core::cmp::Reverse(times), template));
    common.iter().enumerate().map(|(nth, (template, _))| (*template, nth)).collect()
}

/// Reports how many accesses there are, and how far apart: without a fixed rate, both depend on the
/// user.
fn rate_claim(a: &Accesses, b: &Accesses) -> Claim {
    let (gaps_a, gaps_b) = (a.gaps(), b.gaps());
    let times = if gaps_a.is_empty() || gaps_b.is_empty() {
        "no times are known".to_owned()
    } else {
        let Distance { greatest, p } = Distance::of_samples(&gaps_a, &gaps_b);
        format!("times between them are {greatest:.3} apart, p = {p:.2e}")
    };
    let evidence = format!("not judged: {} and {} accesses; {times}", a.len(), b.len());
    let name = "what shows without a fixed rate: A and B";
    Claim::exact(
        name,
        Verdict::Pass,
        a.len().abs_diff(b.len()) as u64,
        "reported, not judged",
        evidence,
    )
}

/// The places of two users' accesses.
struct PlacePair {
    draws: [Draws; 2],
    /// Whether the scheme has no other places.
    is_complete: bool,
    /// The index in [`Access::places`] of the place that is used, and its values in all accesses.
    place: usize,
    distinct: Vec<u64>,
}

/// The place of each access with the most different values, numbered in order.
fn place_pair(a: &Accesses, b: &Accesses) -> PlacePair {
    let (nth, distinct) = most_varying_place(a, b);
    let number = |access: &Access| {
        distinct.binary_search(&access.places[nth]).expect("all are there") as u64
    };
    let recurrence = recurrence_of([a, b], nth);
    let draws = |accesses: &Accesses| Draws {
        places: distinct.len().max(1) as u64,
        drawn: accesses.all.iter().map(number).collect(),
        recurrence,
        ..Draws::default()
    };
    let is_complete = distinct.len() * DRAWS_PER_PLACE <= a.len().min(b.len());
    PlacePair { draws: [draws(a), draws(b)], is_complete, place: nth, distinct }
}

/// The index of the place with the most different values, and these values in order.
fn most_varying_place(a: &Accesses, b: &Accesses) -> (usize, Vec<u64>) {
    let sorted = |nth: usize| {
        let both = a.all.iter().chain(&b.all);
        let mut places: Vec<u64> = both.map(|access| access.places[nth]).collect();
        places.sort_unstable();
        places.dedup();
        places
    };
    let all = (0..PLACES).map(|nth| (nth, sorted(nth)));
    all.max_by_key(|(_, places)| places.len()).expect("some")
}

/// The claim that accesses of both users are of the same kinds: equally many reads and writes, of
/// the same lengths, on the same surfaces.
fn have_equal_kinds(a: &Accesses, b: &Accesses, kind: &str) -> Claim {
    let numbers = kinds(a, b);
    let mut table = Table::new(2, KINDS);
    for (side, accesses) in [a, b].into_iter().enumerate() {
        for access in &accesses.all {
            table.add(side, numbers[&access.template].min(KINDS - 1));
        }
    }
    let (statistic, df, p) = table.dependence();
    let evidence = format!(
        "{} and {} accesses of {} kinds; chi-square {statistic:.1} of {df} degrees of freedom",
        a.len(),
        b.len(),
        numbers.len()
    );
    let fewer = a.len().min(b.len()) as u64;
    let power = distance_found(df.max(1.0), fewer / 2);
    let name = format!("accesses of two users look alike: A and B{kind}");
    claim_from_p(name, statistic, p, power, &evidence)
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "detector_tests.rs"]
mod detector_tests;
