//! The properties of single events of accesses of one kind, beside the place of the access: for
//! example, the slot that is read in each bucket.

use crate::accesses::Accesses;
use crate::draws::{Draws, Recurrence};
use crate::footprint::FootprintEvent;
use crate::report::Claim;
use std::collections::{HashMap, HashSet};

/// The most events of an access that are tested: if it has more, events at equal distances.
const COLUMNS_MAX: usize = 48;

/// The most accesses that are tested: the first ones.
const ROWS_MAX: usize = 1 << 16;

/// If each observed place comes up so often on average, no place is missing.
pub(crate) const DRAWS_PER_PLACE: usize = 8;

/// The places that one event of each access touched, for two users.
pub(crate) struct Column {
    /// The number of the event in an access, counted from 1.
    nth: usize,
    users: [Draws; 2],
    is_complete: bool,
}

/// The columns of the accesses of one kind, without columns of places that are always the same or
/// follow from the `place` of the access. Columns are of reads, or of writes if there are no reads.
pub(crate) fn columns(a: &Accesses, b: &Accesses, place: &[Draws; 2]) -> Vec<Column> {
    let Some(first) = footprint_of(a, 0) else { return vec![] };
    let has_reads = first.iter().any(|event| !event.is_write);
    let sampled: Vec<usize> =
        (0..first.len()).filter(|&nth| first[nth].is_write != has_reads).collect();
    let apart = sampled.len().div_ceil(COLUMNS_MAX).max(1);
    let sampled: Vec<usize> = sampled.into_iter().step_by(apart).collect();
    let Some(rows) = rows(a, b, &sampled) else { return vec![] };
    let column = |(of_row, &nth): (usize, &usize)| {
        let at = rows.each_ref().map(|rows| rows.iter().map(|row| row[of_row]).collect::<Vec<_>>());
        let follows = follows(&at, place);
        (!follows).then(|| Column::new(nth + 1, a, b, &at))
    };
    sampled.iter().enumerate().filter_map(column).collect()
}

impl Column {
    fn new(nth: usize, a: &Accesses, b: &Accesses, at: &[Vec<(u64, bool)>; 2]) -> Self {
        let mut distinct: Vec<u64> = at.iter().flatten().map(|(place, _)| *place).collect();
        distinct.sort_unstable();
        distinct.dedup();
        let rereads = at.iter().flatten().any(|(_, is_reread)| *is_reread);
        let number = |place: &u64| distinct.binary_search(place).expect("all are there") as u64;
        let draws = |(user, at): (&Accesses, &Vec<(u64, bool)>)| Draws {
            places: distinct.len().max(1) as u64,
            drawn: at.iter().map(|(place, _)| number(place)).collect(),
            secrets: user.secrets.iter().take(at.len()).copied().collect(),
            request_bits: user.request_bits.iter().take(at.len()).copied().collect(),
            recurrence: if rereads { Recurrence::ByChance } else { Recurrence::Later },
            ..Draws::default()
        };
        let fewer = at.iter().map(Vec::len).min().unwrap_or(0);
        let is_complete = distinct.len() * DRAWS_PER_PLACE <= fewer;
        Self { nth, users: [draws((a, &at[0])), draws((b, &at[1]))], is_complete }
    }

    fn name(&self, user: &str) -> String {
        format!("{user}, event {}", self.nth)
    }

    /// Claims about each user, for places that each access draws anew.
    pub fn alone(&self, kind: &str) -> Vec<Claim> {
        let of_user = |(draws, user): (&Draws, &str)| {
            let what = self.name(&format!("{user}{kind}"));
            let uniform = self.is_complete.then(|| draws.are_uniform(&what));
            [Some(draws.do_not_recur_sooner(&what)), uniform].into_iter().flatten()
        };
        self.users.iter().zip(["A", "B"]).flat_map(of_user).collect()
    }

    /// Claims about both users.
    pub fn together(&self, kind: &str, is_fresh: bool) -> Vec<Claim> {
        let [a, b] = &self.users;
        let mut claims = vec![a.have_distribution_of(b, &self.name(&format!("A and B{kind}")))];
        for (draws, user) in [(a, "A"), (b, "B")] {
            if is_fresh && !draws.secrets.is_empty() {
                let what = self.name(&format!("{user}{kind}"));
                claims.push(draws.are_independent_of_secrets(&what));
                claims.push(draws.are_independent_of_secrets_given_last(&what));
            }
        }
        claims
    }
}

/// How a place that accesses read is drawn again: `Later` if no place is read twice without a write
/// in between, and not every access writes the place that it reads.
pub(crate) fn recurrence_of(users: [&Accesses; 2], place: usize) -> Recurrence {
    let mut waits = false;
    for user in users {
        for nth in 0..user.len() {
            let Some(events) = footprint_of(user, nth) else { return Recurrence::ByChance };
            let at = user.all[nth].places[place];
            let of_place = |event: &&FootprintEvent| user.footprint.place(event.number) == at;
            let mut reads = events.iter().filter(of_place).filter(|event| !event.is_write);
            let mut writes = events.iter().filter(of_place).filter(|event| event.is_write);
            if reads.any(|event| event.is_reread) {
                return Recurrence::ByChance;
            }
            waits |= writes.next().is_none();
        }
    }
    if waits { Recurrence::Later } else { Recurrence::ByChance }
}

fn footprint_of(user: &Accesses, nth: usize) -> Option<Vec<FootprintEvent>> {
    (nth < user.len()).then(|| user.footprint_of(nth))?.map(Iterator::collect)
}

/// For each access, the place of each of some events, and whether it was read before and not
/// written since.
type Rows = Vec<Vec<(u64, bool)>>;

/// The rows of both users; nothing if not all touches are kept.
fn rows(a: &Accesses, b: &Accesses, sampled: &[usize]) -> Option<[Rows; 2]> {
    let of_user = |user: &Accesses| {
        let row = |nth| {
            let events = footprint_of(user, nth)?;
            let at = |&event: &usize| {
                let event = events.get(event)?;
                Some((user.footprint.place(event.number), event.is_reread))
            };
            sampled.iter().map(at).collect::<Option<Vec<_>>>()
        };
        (0..user.len().min(ROWS_MAX)).map(row).collect::<Option<Rows>>()
    };
    Some([of_user(a)?, of_user(b)?])
}

/// Whether the places of a column follow from the places of the accesses, or are always the same.
fn follows(at: &[Vec<(u64, bool)>; 2], place: &[Draws; 2]) -> bool {
    let mut beside: HashMap<u64, u64> = HashMap::new();
    let mut repeats = 0;
    let mut different = HashSet::new();
    for (at, draws) in at.iter().zip(place) {
        for ((at, _), place) in at.iter().zip(&draws.drawn) {
            different.insert(*at);
            match beside.insert(*place, *at) {
                Some(before) if before != *at => return false,
                Some(_) => repeats += 1,
                None => {}
            }
        }
    }
    // If no place of an access came again, there is no evidence that the column depends on more.
    different.len() < 2 || repeats > 0
}
