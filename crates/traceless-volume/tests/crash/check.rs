//! Crashes of a run at every point, and the properties that must hold after each crash.

use crate::disk::{Event, Fate, Fault, Piece, shape};
use crate::effort::Effort;
use crate::fills::mix;
use crate::hidden::HiddenBlocks;
use crate::nonces::Nonces;
use crate::steps::Step;
use crate::world::{How, Open, World};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use traceless_core::rng::{Rng, SeededRng};
use traceless_volume::format::AREAS_AT;

/// Counts of the checks, so that tests can assert that they took place.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    /// Points of runs at which the power failed: before, between and after requests and syncs.
    pub points: u64,
    /// Images after a crash that kept some pieces and lost the rest.
    pub subsets: u64,
    /// Images after a crash that tore pieces.
    pub tears: u64,
    /// Images of either kind after a second crash, during the recovery from the first.
    pub again: u64,
    /// Recoveries that wrote more than a superblock.
    pub redone: u64,
    /// Recoveries that found fewer writes than might have survived.
    pub shorter: u64,
    /// Crashes of random lives.
    pub crashes: u64,
}

impl Tally {
    /// Number of images after a crash.
    pub fn images(&self) -> u64 {
        self.subsets + self.tears
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { points, subsets, tears, again, redone, shorter, crashes } = self;
        write!(
            f,
            "{points} crash points, {subsets} subsets, {tears} tears, {again} of these double \
             crashes; {redone} recoveries wrote, {shorter} found fewer writes than were sent; \
             {crashes} crashes of random lives"
        )
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.points += other.points;
        self.subsets += other.subsets;
        self.tears += other.tears;
        self.again += other.again;
        self.redone += other.redone;
        self.shorter += other.shorter;
        self.crashes += other.crashes;
    }
}

/// The point of a crash in a history.
#[derive(Clone, Copy)]
struct Point<'a> {
    /// The least number of writes that recovery must find.
    promised: u64,
    /// The greatest number of writes that recovery may find.
    submitted: u64,
    /// Number of events of the run before the crash.
    until: usize,
    /// What blocks of hidden volumes may hold, in each workload.
    hidden: [Option<&'a HiddenBlocks>; 2],
    /// The recovery that the crash interrupted; `None` if it interrupted the run itself.
    recovery: Option<&'a Recovery>,
}

/// The outcome of a recovery.
struct Recovery {
    /// The log of each workload.
    logs: [Vec<Event>; 2],
    /// Number of writes that recovery found.
    count: u64,
    /// What it found in hidden volumes, in each workload.
    hidden: [Option<HiddenBlocks>; 2],
    nonces: Nonces,
}

/// Two runs of the same steps on different addresses and data, crashed in the same way.
pub struct Checker {
    worlds: [World; 2],
    effort: Effort,
    rng: SeededRng,
    pub tally: Tally,
}

impl Checker {
    pub fn new(worlds: [World; 2], effort: Effort, seed: u64) -> Self {
        Self { worlds, effort, rng: SeededRng::new(seed), tally: Tally::default() }
    }

    /// Crashes the recorded run at every point, or at the first ones if the effort limits the
    /// images. Returns the first violation and its circumstances.
    pub fn check(&mut self) -> Result<(), String> {
        let logs = [0, 1].map(|w| std::mem::take(&mut self.worlds[w].log));
        if shape(&logs[0]) != shape(&logs[1]) {
            return Err("the two workloads can be distinguished without any crash".into());
        }
        for world in &mut self.worlds {
            world.disk.reset(&world.base);
            // Most faults are in the run only: then recovery after the crash is sound.
            let of_recovery = [Fault::RedoLost, Fault::OpeningLost, Fault::SameDraws];
            if !of_recovery.contains(&world.fault) {
                world.fault = Fault::None;
            }
        }
        let hidden = [None; 2];
        let start = Point { promised: 0, submitted: 0, until: 0, hidden, recovery: None };
        self.crash_everywhere([&logs[0], &logs[1]], start)
    }

    /// Crashes at every point of two logs with the same shape.
    fn crash_everywhere<'a>(
        &mut self,
        logs: [&'a [Event]; 2],
        start: Point<'a>,
    ) -> Result<(), String> {
        let mut point = start;
        let mut epoch = Epoch::default();
        for (i, pair) in logs[0].iter().zip(logs[1]).enumerate() {
            if point.recovery.is_none() {
                point.until = i;
                let is_request =
                    matches!(pair.0, Event::Write(..) | Event::Discard(_) | Event::Sync);
                self.tally.points += u64::from(is_request);
            }
            match pair {
                (Event::Write(a, _), Event::Write(b, _))
                | (Event::Discard(a), Event::Discard(b)) => epoch.add(a, b, point.submitted),
                (Event::Sync, _) => {
                    self.crash_epoch(&epoch, point)?;
                    for (world, pieces) in self.worlds.iter().zip(&epoch.pieces) {
                        for piece in pieces {
                            world.disk.put(piece, Fate::Kept);
                        }
                    }
                    epoch = Epoch { submitted: point.submitted, ..Epoch::default() };
                }
                (&Event::Submitted(n), _) => point.submitted = n,
                (&Event::Promised(n), _) => point.promised = n,
                (Event::Hidden(a), Event::Hidden(b)) => point.hidden = [Some(a), Some(b)],
                (Event::Write(..) | Event::Discard(_) | Event::Hidden(_), _) => {
                    unreachable!("the logs are alike")
                }
            }
        }
        if point.recovery.is_none() {
            point.until = logs[0].len();
            self.tally.points += 1;
        }
        self.crash_epoch(&epoch, point)
    }

    fn crash_epoch(&mut self, epoch: &Epoch, point: Point) -> Result<(), String> {
        for fates in epoch.images(&self.effort, point.recovery.is_some(), &mut self.rng) {
            if self.tally.images() >= self.effort.images_max {
                return Ok(());
            }
            let marks = self.worlds.each_ref().map(|world| world.disk.mark());
            for (world, pieces) in self.worlds.iter().zip(&epoch.pieces) {
                for (piece, &fate) in pieces.iter().zip(&fates) {
                    world.disk.put(piece, fate);
                }
            }
            let torn = fates.iter().any(|fate| fate.is_torn());
            *if torn { &mut self.tally.tears } else { &mut self.tally.subsets } += 1;
            let submitted = epoch.submitted(&fates).max(point.promised);
            self.crashed(Point { submitted, ..point })
                .map_err(|what| format!("{what}\n{}", self.describe(epoch, &fates, point)))?;
            for (world, mark) in self.worlds.iter().zip(marks) {
                world.disk.roll_back(mark);
            }
        }
        Ok(())
    }

    /// Checks the images on the disks, and perhaps crashes their recovery.
    fn crashed(&mut self, point: Point) -> Result<(), String> {
        self.tally.again += u64::from(point.recovery.is_some());
        let checked = catch_unwind(AssertUnwindSafe(|| self.recover_both(point)));
        let recovery = checked.unwrap_or_else(|_| Err("it panicked".into()))?;
        let again = is_chosen(self.tally.images(), self.effort.again_every);
        if point.recovery.is_some() || !again {
            return Ok(());
        }
        // A further crash loses nothing that is durable by now, so the number of writes is fixed.
        let (promised, submitted) = (recovery.count, recovery.count);
        let hidden = recovery.hidden.each_ref().map(Option::as_ref);
        let start = Point { promised, submitted, hidden, recovery: Some(&recovery), ..point };
        let logs = recovery.logs.each_ref().map(|log| &log[..]);
        self.crash_everywhere(logs, start)
            .map_err(|what| format!("{what}\nwhile it recovered from the crash before:"))
    }

    /// Opens both images. Both must have the same number of writes, and be written in the same
    /// places.
    fn recover_both(&mut self, point: Point) -> Result<Recovery, String> {
        let marks = self.worlds.each_ref().map(|world| world.disk.mark());
        for world in &mut self.worlds {
            // Each image gets random ids of its own, which are the same in each run of the test.
            world.draws = 1000 * self.tally.images();
        }
        let mut recovery = self.recover_fully(point)?;
        self.worlds[0].disk.roll_back(marks[0]);
        let twin = &mut self.worlds[1];
        twin.expect_hidden(point.hidden[1]);
        let open = twin.open(How::default()).map_err(|e| in_other(&String::from(e)))?;
        let count = recovery.count;
        recovery.logs[1] = twin.disk.take_log();
        let shapes = recovery.logs.each_ref().map(|log| shape(log));
        if shapes[0] != shapes[1] {
            return Err(format!(
                "recoveries can be distinguished: {:?}, {:?}",
                shapes[0], shapes[1]
            ));
        }
        if open.oram.writes() != count {
            return Err(in_other(&format!("{} writes, not {count}", open.oram.writes())));
        }
        if is_chosen(self.tally.images(), self.effort.reopen_every) {
            twin.check(&open, &twin.history[..count as usize]).map_err(|e| in_other(&e))?;
        }
        twin.check_hidden(&open).map_err(|e| in_other(&e))?;
        recovery.hidden[1] = twin.hidden_blocks();
        twin.disk.take_log();
        twin.disk.roll_back(marks[1]);
        self.tally.redone += u64::from(!places(&recovery.logs[0]).is_empty());
        self.tally.shorter += u64::from(count < point.submitted);
        Ok(recovery)
    }

    /// Checks every property of one image. Leaves the disk changed.
    fn recover_fully(&mut self, point: Point) -> Result<Recovery, String> {
        let (number, world) = (self.tally.images(), &mut self.worlds[0]);
        world.expect_hidden(point.hidden[0]);
        let on = number.is_multiple_of(self.effort.continue_every);
        let again = on || is_chosen(number, self.effort.reopen_every);
        let read_only = number.is_multiple_of(4);
        let shown = if read_only { Some(look(world)?) } else { None };
        let open = world.open(How::default())?;
        let count = open.oram.writes();
        if count < point.promised || count > point.submitted {
            let Point { promised, submitted, .. } = point;
            return Err(format!("{count} writes; {promised} to {submitted} must be there"));
        }
        if shown.is_some_and(|shown| shown != count) {
            return Err(format!("{count} writes, but {shown:?} when opened for reading only"));
        }
        let log = world.disk.take_log();
        world.check(&open, &world.history[..count as usize])?;
        world.check_hidden(&open)?;
        open.verify()?;
        drop(open);
        let tail = world.history.split_off(count as usize);
        world.note_reads();
        let nonces = point.recovery.map_or(Nonces::default(), |r| r.nonces.clone());
        let went = Recovered { world, nonces, point, number }.examine(log, count, (again, on));
        world.history.truncate(count as usize);
        world.history.extend(tail);
        went
    }

    /// Describes the fate of each piece of the epoch.
    fn describe(&self, epoch: &Epoch, fates: &[Fate], point: Point) -> String {
        let mut text = format!(
            "crash at event {} of the log, at least {} writes promised; in flight:",
            point.until, point.promised
        );
        for (i, (piece, fate)) in epoch.pieces[0].iter().zip(fates).enumerate() {
            let what = self.worlds[0].describe(piece);
            let request = epoch.requests[i];
            write!(text, "\n  request {request}: {what}: {fate:?}").expect("a string takes it");
        }
        text
    }
}

/// Whether the image of this number is one in `every`, drawn by a hash, as neighbours are alike.
fn is_chosen(number: u64, every: u64) -> bool {
    mix(number).is_multiple_of(every)
}

fn in_other(what: &str) -> String {
    format!("in the other workload: {what}")
}

/// The places in the areas that a log wrote, for each request. What was given up is left out.
fn places(log: &[Event]) -> Vec<Vec<(u64, usize)>> {
    let is_discard = |event: &&Event| matches!(event, Event::Discard(_));
    let kept: Vec<Event> = log.iter().filter(|event| !is_discard(event)).cloned().collect();
    let mut requests = shape(&kept);
    requests.retain(|request| request.iter().any(|&(at, _)| at >= AREAS_AT));
    requests
}

/// Opens the volume for reading only, which must give the same contents and write nothing. Returns
/// the number of writes.
fn look(world: &mut World) -> Result<u64, String> {
    let open = world.open(How { read_only: true, ..How::default() })?;
    let count = open.oram.writes() as usize;
    if count > world.history.len() {
        return Err(format!("{count} writes, for reading only; so many were never made"));
    }
    let checked = world.check(&open, &world.history[..count]);
    checked
        .and_then(|()| world.check_hidden(&open))
        .map_err(|e| format!("for reading only: {e}"))?;
    if !world.disk.take_log().is_empty() {
        return Err("opened for reading only, and wrote".into());
    }
    Ok(count as u64)
}

/// A volume after the recovery from a crash.
struct Recovered<'a> {
    world: &'a mut World,
    /// Nonces of this recovery, and of the ones before it.
    nonces: Nonces,
    point: Point<'a>,
    /// Number of the image.
    number: u64,
}

impl Recovered<'_> {
    /// Checks the volume after a recovery with this log, which found `count` writes, and returns
    /// the recovery. With `again`, opens the volume once more, and with `on`, writes to it, too.
    fn examine(
        mut self,
        log: Vec<Event>,
        count: u64,
        (again, on): (bool, bool),
    ) -> Result<Recovery, String> {
        self.note(&log)?;
        let (nonces, hidden) = (self.nonces.clone(), self.world.hidden_blocks());
        self.note_next()?;
        if again {
            let open = self.open_again(&places(&log))?;
            if on {
                self.continue_with(open)?;
            }
        }
        Ok(Recovery { logs: [log, vec![]], count, hidden: [hidden, None], nonces })
    }

    /// Opens the volume again. This must either write nothing, or write to the places that the
    /// first opening wrote: `first_places`.
    fn open_again(&mut self, first_places: &[Vec<(u64, usize)>]) -> Result<Open, String> {
        let how = How { expect_writes: self.point.promised, read_only: false };
        let open = self.world.open(how)?;
        let (found, count) = (open.oram.writes(), self.world.history.len() as u64);
        if found != count {
            return Err(format!("{found} writes at the second opening, {count} at the first"));
        }
        let written = places(&self.note_next()?);
        let checked = self.world.check(&open, &self.world.history);
        let checked = checked.and_then(|()| self.world.check_hidden(&open));
        checked.map_err(|e| format!("at the second opening: {e}"))?;
        self.world.note_reads();
        self.note_next()?;
        // If the scheme draws places, an opening after one that was not closed copies a journal
        // again, to places that were written before.
        let copies = self.world.subject.draws_places && first_places.is_empty();
        // Blocks are moved on from where the first opening left them.
        let may_differ = copies || self.world.subject.hides_reads;
        if !written.is_empty() && written != first_places && !may_differ {
            return Err(format!(
                "the first opening wrote {first_places:?}, the second {written:?}"
            ));
        }
        Ok(open)
    }

    /// Writes more, and opens the volume once more.
    fn continue_with(&mut self, mut open: Open) -> Result<(), String> {
        let mut rng = SeededRng::new(mix(self.number));
        let mut steps = vec![Step::Write(1), Step::Write(2), Step::Flush, Step::Write(1)];
        if self.number.is_multiple_of(240) {
            // Enough writes to overwrite all remains of the crash.
            steps.extend((0..=self.world.subject.around / 3).map(|_| Step::Write(3)));
        }
        for step in steps {
            self.world.step(&mut open, step, &mut rng)?;
            self.note_next()?;
        }
        self.world.step(&mut open, Step::Kill, &mut rng)?;
        self.note_next()?;
        let checked = self.world.check(&open, &self.world.history);
        // What reads wrote is in no other log.
        self.note_next()?;
        checked.map_err(|e| format!("after writing on: {e}"))
    }

    /// Takes the log, and checks it for nonces used twice.
    fn note_next(&mut self) -> Result<Vec<Event>, String> {
        let log = self.world.disk.take_log();
        self.note(&log)?;
        Ok(log)
    }

    fn note(&mut self, log: &[Event]) -> Result<(), String> {
        self.nonces.note_after(Some((&self.world.nonces, self.point.until)), log, 0)
    }
}

/// The pieces between two syncs, of both workloads.
#[derive(Default)]
struct Epoch<'a> {
    pieces: [Vec<&'a Piece>; 2],
    /// The number of each piece's request.
    requests: Vec<usize>,
    /// For each piece, the number of writes that may be found if it is kept.
    shows: Vec<u64>,
    /// The number of writes that may be found if all pieces are lost.
    submitted: u64,
}

impl<'a> Epoch<'a> {
    fn add(&mut self, a: &'a [Piece], b: &'a [Piece], submitted: u64) {
        let request = self.requests.last().map_or(0, |r| r + 1);
        self.pieces[0].extend(a);
        self.pieces[1].extend(b);
        self.requests.resize(self.pieces[0].len(), request);
        self.shows.resize(self.pieces[0].len(), submitted);
    }

    fn submitted(&self, fates: &[Fate]) -> u64 {
        let kept = self.shows.iter().zip(fates).filter(|(_, fate)| **fate != Fate::Lost);
        kept.map(|(&shows, _)| shows).max().unwrap_or(0).max(self.submitted)
    }

    /// Possible fates of the pieces: one list for each image to try.
    fn images(&self, effort: &Effort, again: bool, rng: &mut SeededRng) -> Vec<Vec<Fate>> {
        let n = self.requests.len();
        let mut list = vec![];
        let exhaustive = if again { effort.exhaustive_max.min(3) } else { effort.exhaustive_max };
        if n <= exhaustive {
            for mask in 0..1u64 << n {
                list.push((0..n).map(|i| kept(mask >> i & 1 == 1)).collect());
            }
        } else {
            // Prefixes of the pieces: everything sent before a request, or before a piece.
            list.extend((0..=n).map(|sent| (0..n).map(|i| kept(i < sent)).collect()));
            for only in 0..n {
                list.push((0..n).map(|i| kept(i == only)).collect());
                list.push((0..n).map(|i| kept(i != only)).collect());
            }
            for _ in 0..if again { 4 } else { effort.subsets } {
                let odds = 1 + rng.below(7);
                list.push((0..n).map(|_| kept(rng.below(8) < odds)).collect());
            }
        }
        for torn in 0..n {
            for cut in cuts(self.pieces[0][torn].sectors(), if again { 1 } else { effort.cuts }) {
                for half in [Fate::Head(cut), Fate::Tail(cut)] {
                    for others in [Fate::Lost, Fate::Kept] {
                        list.push((0..n).map(|i| if i == torn { half } else { others }).collect());
                    }
                }
            }
        }
        for _ in 0..if again { 4 } else { effort.torn * usize::from(n > 0) } {
            list.push((0..n).map(|_| any_fate(rng)).collect());
        }
        list
    }
}

/// Places to tear a piece of `sectors` sectors: all of them, or `most` evenly spread ones.
fn cuts(sectors: u64, most: u64) -> Vec<u64> {
    let all = sectors - 1;
    let some = all.min(most);
    (0..some).map(|i| 1 + (2 * i + 1) * all / (2 * some)).collect()
}

fn kept(yes: bool) -> Fate {
    if yes { Fate::Kept } else { Fate::Lost }
}

/// A random fate; torn ones are more frequent.
pub fn any_fate(rng: &mut dyn Rng) -> Fate {
    match rng.below(6) {
        0 => Fate::Lost,
        1 | 2 => Fate::Kept,
        3 => [Fate::Head, Fate::Tail][rng.below(2) as usize](1 + rng.below(8)),
        _ => Fate::Sectors(rng.next_u64()),
    }
}
