//! A trace cut into accesses, of whatever scheme it is, and two of them judged by statistics.
//!
//! Nothing is known of the scheme but what the trace shows. So only what needs no knowledge is
//! asked: is an access like every other but for its place, is its place drawn anew each time, and
//! are both users' accesses alike?

use crate::distance::Distance;
use crate::draws::Draws;
use crate::learned::cannot_be_told_apart;
use crate::odds::{judged, worst_of};
use crate::report::{Claim, Verdict};
use crate::streams::{Stream, drawn_before, streams};
use crate::table::Table;
use crate::template::Template;
use std::collections::HashMap;
use traceless::trace::{Asked, Event, Op};

/// Fewer accesses are no evidence of anything being drawn at random.
pub const ACCESSES_MIN: usize = 1000;

/// Places that are seen so often each are all there are.
const SEEN_EACH: usize = 8;

/// Events of an access, at most: more are another one. What reads once and then writes for good has
/// no accesses.
const ACCESS_EVENTS_MAX: usize = 1 << 20;

/// Kinds of accesses that are counted by themselves.
const KINDS: usize = 64;

/// What is seen of one access.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Access {
    /// Operations, surfaces and lengths in order; of places, whether each lies above the one
    /// before, and which of the reads a write is at.
    pub template: Template,
    /// Where it begins, where its reads end, and the least and the greatest byte that it touches:
    /// one of these tells its place.
    pub places: [u64; 4],
    /// Events before it, and when it began.
    pub seen: u64,
    began: u64,
}

/// The accesses of a trace: each is a row of reads and the writes after them. Where a trace has
/// only reads or only writes, it is what was seen at one time; without times, each event.
#[derive(Debug)]
pub struct Accesses {
    pub(crate) all: Vec<Access>,
    /// What was asked for when each began, numbered in order; 0 for nothing. Empty if it is not
    /// known.
    pub(crate) secrets: Vec<u64>,
}

impl Accesses {
    /// Cuts a trace, which is read twice: how accesses begin is known at its end only. A sync
    /// belongs to the access before it. So no more is held than what is kept of each access (64
    /// bytes), and the events of one.
    ///
    /// # Errors
    /// The first failure of `read`, or of what it returns.
    pub fn cut<E, I>(mut read: impl FnMut() -> Result<I, E>) -> Result<Self, E>
    where
        I: Iterator<Item = Result<Event, E>>,
    {
        let begins = Begins::of(read()?)?;
        let (mut all, mut events, mut seen) = (vec![], Vec::<Event>::new(), 0);
        for event in read()? {
            let event = event?;
            let is_next = |before| begins.before(before, &event);
            if events.last().is_some_and(is_next) || events.len() == ACCESS_EVENTS_MAX {
                all.push(Access { seen, ..Access::of(&events) });
                seen += events.len() as u64;
                events.clear();
            }
            events.push(event);
        }
        if !events.is_empty() {
            all.push(Access { seen, ..Access::of(&events) });
        }
        Ok(Self { all, secrets: vec![] })
    }

    /// The same with what was asked for, in the order in which it was. Each access belongs to what
    /// was asked for last when it began.
    ///
    /// # Errors
    /// The first failure of the reader.
    pub fn with_secrets<E>(
        mut self,
        asked: impl Iterator<Item = Result<Asked, E>>,
    ) -> Result<Self, E> {
        let asked: Vec<Asked> = asked.collect::<Result<_, E>>()?;
        let mut known: Vec<(u64, Op)> = asked.iter().map(|asked| (asked.at, asked.op)).collect();
        known.retain(|(_, op)| *op != Op::Sync);
        known.sort_unstable_by_key(|&(at, op)| (at, op as u8));
        known.dedup();
        let number = |asked: &Asked| match asked.op {
            Op::Sync => 0,
            op => {
                let key = (asked.at, op as u8);
                let place = known.binary_search_by_key(&key, |&(at, op)| (at, op as u8));
                place.expect("all are there") as u64 + 1
            }
        };
        let (mut next, mut current) = (asked.iter().peekable(), 0);
        let secret = |access: &Access| {
            while let Some(asked) = next.next_if(|asked| asked.seen <= access.seen) {
                current = number(asked);
            }
            current
        };
        self.secrets = self.all.iter().map(secret).collect();
        Ok(self)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The time from each to the next; none without times.
    pub fn gaps(&self) -> Vec<u64> {
        let gaps = self.all.windows(2).map(|two| two[1].began.saturating_sub(two[0].began));
        if self.all.iter().any(|access| access.began != 0) { gaps.collect() } else { vec![] }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// Where an access begins, which the whole trace tells.
struct Begins {
    /// Whether it both reads and writes.
    has_both: bool,
    has_times: bool,
}

impl Begins {
    fn of<E>(events: impl Iterator<Item = Result<Event, E>>) -> Result<Self, E> {
        let (mut reads, mut writes, mut has_times) = (false, false, false);
        for event in events {
            let Event { op, time, .. } = event?;
            reads |= op == Op::Read;
            writes |= op == Op::Write;
            has_times |= time != 0;
        }
        Ok(Self { has_both: reads && writes, has_times })
    }

    /// Whether one begins with `event`, which comes after `before`.
    fn before(&self, before: &Event, event: &Event) -> bool {
        if self.has_both {
            before.op != Op::Read && event.op == Op::Read
        } else {
            event.op != Op::Sync && (!self.has_times || before.time != event.time)
        }
    }
}

impl Access {
    fn of(events: &[Event]) -> Self {
        let Event { at, time, .. } = events[0];
        let mut access = Self { places: [at, 0, u64::MAX, 0], began: time, ..Self::default() };
        let mut reads: HashMap<u64, u64> = HashMap::new();
        let mut before = 0;
        for event in events {
            let op = event.op as u64;
            access.template.see(u64::from(event.len) << 5 | (event.surface as u64) << 3 | op << 1);
            if event.op == Op::Sync {
                continue;
            }
            access.template.see(u64::from(event.at > before));
            before = event.at;
            let nth = reads.len() as u64;
            if event.op == Op::Read {
                reads.insert(event.at, nth);
            } else if has_reads(events) {
                access.template.see(reads.get(&event.at).copied().unwrap_or(u64::MAX));
            }
            let [_, end, low, high] = &mut access.places;
            if event.op == Op::Read || *end == 0 {
                *end = event.at;
            }
            *low = event.at.min(*low);
            *high = event.at.max(*high);
        }
        access
    }
}

fn has_reads(events: &[Event]) -> bool {
    events[0].op == Op::Read
}

/// What two traces show, judged by statistics.
#[derive(Debug)]
pub struct Judged {
    /// Claims about each trace by itself. Where one fails, what is accessed is not drawn at random.
    pub alone: Vec<Claim>,
    /// Claims about both.
    pub together: Vec<Claim>,
    /// What is told of both that nothing is claimed of: how many accesses there are, and when.
    pub told: Claim,
}

/// The place of each access of two traces, numbered in order.
pub fn places_of(a: &Accesses, b: &Accesses) -> [Vec<u64>; 2] {
    numbered(a, b).0.map(|draws| draws.drawn)
}

/// Judges what two users show: all accesses in a row or, if these do not look drawn at random, what
/// is drawn of each kind, if that does.
pub fn judge(a: &Accesses, b: &Accesses) -> Judged {
    let (alone, drawn_together) = judge_draws(a, b, "");
    let mut together = vec![look_alike(a, b)];
    let holds = |claim: &Claim| claim.verdict == Verdict::Pass;
    if !alone.iter().all(holds)
        && let Some(streams) = streams(a, b)
    {
        let (of_streams, drawn_together) = judge_streams(&streams, a.len().min(b.len()));
        if of_streams.iter().all(holds) {
            together.extend(drawn_together);
            return Judged { alone: of_streams, together, told: told(a, b) };
        }
    }
    together.extend(drawn_together);
    together.extend(kinds_tell_nothing_of_secrets(a, b));
    Judged { alone, together, told: told(a, b) }
}

/// Claims about the places of each user, and about both; `kind` says of which accesses.
fn judge_draws(a: &Accesses, b: &Accesses, kind: &str) -> (Vec<Claim>, Vec<Claim>) {
    let ([mut of_a, mut of_b], all_seen) = numbered(a, b);
    let names = ["A", "B", "A and B"].map(|user| format!("{user}{kind}"));
    let mut alone = vec![];
    for (draws, what) in [&of_a, &of_b].into_iter().zip(&names) {
        if all_seen {
            alone.extend(draws.claims(what));
        } else {
            alone.push(draws.are_serially_independent(what));
            alone.push(draws.are_not_near_each_other(what));
            alone.push(draws.do_not_come_again_sooner(what));
        }
    }
    let mut together =
        vec![of_a.are_spread_as(&of_b, &names[2]), cannot_be_told_apart(&of_a, &of_b, &names[2])];
    for ((draws, accesses), what) in [(&mut of_a, a), (&mut of_b, b)].into_iter().zip(&names) {
        if !accesses.secrets.is_empty() {
            draws.secrets.clone_from(&accesses.secrets);
            together.push(draws.tell_nothing_of_secrets(what));
        }
    }
    (alone, together)
}

/// The same of two traces with a schedule, of so many accesses: what is drawn of each kind, which
/// must not hang on what is drawn of another.
fn judge_streams(streams: &[Stream], accesses: usize) -> (Vec<Claim>, Vec<Claim>) {
    let left: usize = streams.iter().map(|stream| stream.users[0].len()).sum();
    let evidence = format!("{left} of {accesses} accesses are drawn, of {} kinds", streams.len());
    let power = "one access of another kind, or at another place, is found";
    let name = "both follow a schedule: A and B";
    let mut alone = vec![Claim::exact(name, Verdict::Pass, left as u64, power, evidence)];
    let (mut together, mut across) = (vec![], vec![]);
    let draws: Vec<[Draws; 2]> =
        streams.iter().map(|Stream { users: [a, b], .. }| numbered(a, b).0).collect();
    for (nth, Stream { kind, users: [a, b] }) in streams.iter().enumerate() {
        let (of_each, of_both) = judge_draws(a, b, &format!(", kind {kind}"));
        alone.extend(of_each);
        together.extend(of_both);
        let others = streams.iter().zip(&draws).filter(|(other, _)| other.kind != *kind);
        for (other, drawn) in others {
            for (user, what) in ["A", "B"].into_iter().enumerate() {
                let mut of_kind = draws[nth][user].clone();
                let (of, beside) = (&streams[nth].users[user], &other.users[user]);
                of_kind.secrets = drawn_before(of, beside, &drawn[user].drawn);
                let what = format!("{what}, kind {kind} after {}", other.kind);
                across.push(of_kind.tell_nothing_of_secrets(&what));
            }
        }
    }
    alone.extend(worst_of("places do not depend on those of other kinds".to_owned(), across));
    (alone, together)
}

/// That how accesses look tells nothing of what was asked for, if it changes from one to the next
/// as if by chance: a schedule that all the world knows is no secret's.
fn kinds_tell_nothing_of_secrets(a: &Accesses, b: &Accesses) -> Vec<Claim> {
    let numbers = kinds(a, b);
    let kinds = numbers.len().min(KINDS) as u64;
    let claim = |(accesses, what): (&Accesses, &str)| {
        let number = |access: &Access| numbers[&access.template].min(KINDS - 1) as u64;
        let drawn = Draws {
            noun: "kinds",
            places: kinds,
            each: 1,
            drawn: accesses.all.iter().map(number).collect(),
            secrets: accesses.secrets.clone(),
        };
        let is_tested = kinds > 1
            && !drawn.secrets.is_empty()
            && drawn.are_serially_independent(what).verdict == Verdict::Pass;
        is_tested.then(|| drawn.tell_nothing_of_secrets(what))
    };
    [(a, "A"), (b, "B")].into_iter().filter_map(claim).collect()
}

/// The kinds of accesses of both, numbered from the most common one.
fn kinds(a: &Accesses, b: &Accesses) -> HashMap<Template, usize> {
    let mut kinds: HashMap<Template, u64> = HashMap::new();
    a.all.iter().chain(&b.all).for_each(|access| *kinds.entry(access.template).or_default() += 1);
    let mut common: Vec<(Template, u64)> = kinds.into_iter().collect();
    common.sort_unstable_by_key(|&(template, times)| (core::cmp::Reverse(times), template));
    common.iter().enumerate().map(|(nth, (template, _))| (*template, nth)).collect()
}

/// How many accesses there are, and how far apart: whoever asks as he likes tells that.
fn told(a: &Accesses, b: &Accesses) -> Claim {
    let (gaps_a, gaps_b) = (a.gaps(), b.gaps());
    let times = if gaps_a.is_empty() || gaps_b.is_empty() {
        "no times are known".to_owned()
    } else {
        let Distance { greatest, p } = Distance::of_samples(&gaps_a, &gaps_b);
        format!("times between them are {greatest:.3} apart, p = {p:.2e}")
    };
    let evidence = format!("not judged: {} and {} accesses; {times}", a.len(), b.len());
    let name = "what is told without a fixed rate: A and B";
    Claim::exact(name, Verdict::Pass, a.len().abs_diff(b.len()) as u64, "told only", evidence)
}

/// The place of each access, whichever of its four tells most, numbered in order; and whether there
/// are no others.
fn numbered(a: &Accesses, b: &Accesses) -> ([Draws; 2], bool) {
    let sorted = |nth: usize| {
        let both = a.all.iter().chain(&b.all);
        let mut places: Vec<u64> = both.map(|access| access.places[nth]).collect();
        places.sort_unstable();
        places.dedup();
        places
    };
    let (nth, known) =
        (0..4).map(|nth| (nth, sorted(nth))).max_by_key(|(_, places)| places.len()).expect("four");
    let number =
        |access: &Access| known.binary_search(&access.places[nth]).expect("all are there") as u64;
    let draws = |accesses: &Accesses| Draws {
        noun: "places",
        places: known.len().max(1) as u64,
        each: 1,
        drawn: accesses.all.iter().map(number).collect(),
        secrets: vec![],
    };
    let all_seen = known.len() * SEEN_EACH <= a.len().min(b.len());
    ([draws(a), draws(b)], all_seen)
}

/// That accesses of both are of the same kinds: as many reads and writes, as long, on the same
/// surfaces.
fn look_alike(a: &Accesses, b: &Accesses) -> Claim {
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
    let power = crate::odds::distance_found(df.max(1.0), fewer / 2);
    judged("accesses of two users look alike: A and B".to_owned(), statistic, p, power, &evidence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mixer::Mixer;
    use crate::odds::ALPHA;
    use core::convert::Infallible;
    use traceless::trace::Surface;

    /// The trace of a Path ORAM of other people: eleven levels in heap order, one bucket of 256
    /// bytes a level; `remaps` now and then fails.
    fn path_oram(seed: u64, hot: u64, forgets: u64) -> Accesses {
        let mut rng = Mixer(seed << 32);
        let mut position: Vec<u64> = (0..512).map(|_| rng.below(1024)).collect();
        let mut events = vec![];
        for _ in 0..20_000 {
            let block = rng.below(hot) as usize;
            let leaf = position[block];
            if forgets == 0 || rng.below(forgets) > 0 {
                position[block] = rng.below(1024);
            }
            events.extend(path_events(leaf));
        }
        cut(&events)
    }

    fn cut(events: &[Event]) -> Accesses {
        Accesses::cut(|| Ok(events.iter().copied().map(Ok::<_, Infallible>))).unwrap()
    }

    /// A path is read, and written.
    fn path_events(leaf: u64) -> impl Iterator<Item = Event> {
        let event = move |op, level: u64| {
            let bucket = (1u64 << level) - 1 + (leaf >> (10 - level));
            Event { time: 0, surface: Surface::Storage, op, at: bucket * 256, len: 256 }
        };
        let ops = [Op::Read, Op::Write].into_iter();
        ops.flat_map(move |op| (0..=10).map(move |level| event(op, level)))
    }

    fn fails(claims: &[Claim]) -> usize {
        claims.iter().filter(|claim| claim.p.unwrap() < ALPHA).count()
    }

    #[test]
    fn a_sound_library_passes_and_a_broken_one_does_not() {
        let sound = judge(&path_oram(1, 512, 0), &path_oram(2, 4, 0));
        assert_eq!((fails(&sound.alone), fails(&sound.together)), (0, 0), "{sound:?}");
        let broken = judge(&path_oram(3, 512, 0), &path_oram(4, 4, 20));
        assert!(fails(&broken.alone) > 0 && fails(&broken.together) > 0, "{broken:?}");
    }

    /// Each happens in one access of ten.
    #[test]
    fn what_is_written_elsewhere_or_in_another_order_is_found() {
        let honest = path_oram(1, 512, 0);
        let changed = |change: fn(&mut Vec<Event>)| {
            let mut rng = Mixer(7);
            let mut all = vec![];
            for _ in 0..4000 {
                let leaf = rng.below(1024);
                let mut events: Vec<Event> = path_events(leaf).collect();
                if rng.below(10) == 0 {
                    change(&mut events);
                }
                all.extend(events);
            }
            cut(&all)
        };
        assert_eq!(fails(&judge(&honest, &changed(|_| ())).together), 0);
        let faults: [fn(&mut Vec<Event>); 4] = [
            |events| events[21].at ^= 256,
            |events| events[11..].reverse(),
            |events| events[..11].reverse(),
            |events| events.push(Event { op: Op::Sync, at: 0, len: 0, ..events[0] }),
        ];
        for (nth, fault) in faults.into_iter().enumerate() {
            let judged = judge(&honest, &changed(fault));
            assert!(fails(&judged.together) > 0, "{nth}: {judged:?}");
        }
    }

    /// Accesses to random paths, one in `tells` of which is where the secret says; and before each
    /// the secret, but for every third, for which nobody asked.
    fn with_secrets(seed: u64, tells: u64) -> Accesses {
        let mut rng = Mixer(seed << 32);
        let (mut events, mut asked) = (vec![], vec![]);
        for access in 0..6000u64 {
            let (leaf, block) = (rng.below(1024), rng.below(512));
            let op = if access % 3 == 0 { Op::Sync } else { Op::Read };
            asked.push(Asked { seen: events.len() as u64, op, at: block * 64, len: 64 });
            let shows = tells > 0 && op == Op::Read && rng.below(tells) == 0;
            events.extend(path_events(if shows { 2 * block } else { leaf }));
        }
        let cut = cut(&events);
        assert_eq!(cut.len(), 6000);
        cut.with_secrets(asked.into_iter().map(Ok::<_, Infallible>)).unwrap()
    }

    #[test]
    fn what_tells_of_a_known_secret_is_found_and_else_nothing() {
        let honest = with_secrets(1, 0);
        assert!(honest.secrets.contains(&0));
        assert!(honest.secrets.iter().any(|&secret| secret > 500));
        let judged = judge(&honest, &with_secrets(2, 0));
        assert_eq!((fails(&judged.alone), fails(&judged.together)), (0, 0), "{judged:?}");
        assert_eq!(judged.together.len(), 5);
        let judged = judge(&honest, &with_secrets(3, 10));
        assert_eq!((fails(&judged.alone), fails(&judged.together)), (0, 1), "{judged:?}");
        let told = &judged.together[4];
        assert!(told.name.contains("secrets: B") && told.p.unwrap() < ALPHA, "{told:?}");
    }

    #[test]
    fn an_access_ends_somewhere() {
        let event = |op| Event { time: 0, surface: Surface::Storage, op, at: 0, len: 1 };
        let mut events = vec![event(Op::Write); 2 * ACCESS_EVENTS_MAX];
        events[0].op = Op::Read;
        assert_eq!(cut(&events).len(), 2);
        assert_eq!(cut(&events).all[1].seen, ACCESS_EVENTS_MAX as u64);
    }

    #[test]
    fn a_reader_that_fails_is_told_of() {
        for fails in [1, 2] {
            let mut reads = 0;
            let read = || {
                reads += 1;
                if reads == fails { Err("gone") } else { Ok(std::iter::once(Err("broken"))) }
            };
            let found = Accesses::cut::<&str, std::iter::Once<Result<Event, &str>>>(read);
            assert_eq!(found.unwrap_err(), if fails == 1 { "gone" } else { "broken" });
        }
    }

    #[test]
    fn accesses_of_other_kinds_do_not_look_alike() {
        let event = |i: u64, len| Event {
            time: i / 2,
            surface: Surface::Wire,
            op: Op::Write,
            at: Mixer(i).below(1 << 40),
            len,
        };
        let cut = |events: Vec<Event>| cut(&events);
        let same = cut((0..8000).map(|i| event(i, 64)).collect());
        let other = cut((9000..17_000).map(|i| event(i, 64 + (i % 9 / 8) as u32)).collect());
        assert_eq!(same.len(), 4000, "two events at a time");
        let judged = judge(&same, &other);
        assert_eq!(fails(&judged.alone), 0, "{judged:?}");
        assert!(judged.together[0].p.unwrap() < ALPHA);
        assert_eq!(fails(&judged.together[1..]), 0, "{judged:?}");
        assert!(judged.told.evidence.contains("4000 and 4000 accesses; times"), "{judged:?}");
        let slower =
            cut((9000..17_000).map(|i| Event { time: i / 2 * 3, ..event(i, 64) }).collect());
        let told = judge(&same, &slower).told;
        assert!(told.evidence.contains("1.000 apart, p = 0"), "{told:?}");
        let moved = |i| Event { surface: Surface::Dram, ..event(i, 64) };
        let judged = judge(&same, &cut((9000..17_000).map(moved).collect()));
        assert!(judged.together[0].p.unwrap() < ALPHA);
        assert!(cut(vec![]).is_empty());
        assert_eq!(fails(&judge(&cut(vec![]), &same).together), 0);
    }
}
