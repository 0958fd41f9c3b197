//! A volume with repeated power failures at any request, also during recovery.

use crate::check::any_fate;
use crate::disk::{Event, Fate, Piece};
use crate::subjects::Family;
use crate::world::{Failure, How, Open, World, Write};
use traceless_core::rng::{Rng, SeededRng};

/// A client and its volume through many crashes.
pub struct Life {
    pub world: World,
    pub rng: SeededRng,
    /// The least number of writes that recovery must find.
    promised: u64,
    /// Whether there were so many interrupted openings that each further one may write dummies.
    pub dummies: bool,
}

impl Life {
    pub fn random(family: &Family, seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let subject = (family.any)(&mut rng);
        let unit = [512, 4096][rng.below(2) as usize];
        Self::new(World::create(subject, unit, 100 + seed), rng)
    }

    pub fn new(world: World, rng: SeededRng) -> Self {
        world.disk.set_settling();
        Self { world, rng, promised: 0, dummies: false }
    }

    /// Runs through `crashes` crashes, then recovers and verifies.
    pub fn live(&mut self, crashes: u64) -> Result<(), String> {
        for _ in 0..crashes {
            // A close of a volume with hidden ones makes many requests.
            let most = if self.world.subject.close_writes() > 0 { 400 } else { 45 };
            let requests = self.rng.below(most + self.world.subject.requests_of_opening);
            self.world.disk.set_fuse(Some(requests));
            match self.until_the_power_goes() {
                Err(Failure::Power) => {}
                Err(Failure::Wrong(what)) => return Err(what),
                Ok(()) => return Err("so many steps, and so few requests".into()),
            }
            self.crash();
        }
        self.recover()?.verify()
    }

    fn until_the_power_goes(&mut self) -> Result<(), Failure> {
        let mut open = self.recover()?;
        let steps = self.world.subject.script(self.rng.next_u64(), 200);
        for step in steps {
            let done = self.world.step(&mut open, step, &mut self.rng);
            self.world.record()?;
            done?;
        }
        Ok(())
    }

    /// Opens the volume. It must hold a prefix of the writes, with all promised ones.
    pub fn recover(&mut self) -> Result<Open, Failure> {
        let promised = self.promised;
        let open = self.world.open(How { expect_writes: promised, read_only: false })?;
        let count = open.oram.writes();
        // Dummies were promised to no client.
        let known = count.min(self.world.history.len() as u64);
        if count > known && !self.dummies {
            return Err(format!("{count} writes, so many were never made").into());
        }
        if count < promised {
            return Err(format!("{count} writes, {promised} were promised").into());
        }
        self.world.history.resize(count as usize, Write::DUMMY);
        // If the power goes meanwhile, any number of these reads may be found afterwards.
        self.world.note_reads();
        let checked = self.world.check(&open, &self.world.history[..count as usize]);
        checked.and_then(|()| self.world.check_hidden(&open)).map_err(|what| {
            if self.world.disk.is_dead() { Failure::Power } else { Failure::Wrong(what) }
        })?;
        self.world.disk.note(Event::Promised(known));
        self.world.record()?;
        Ok(open)
    }

    /// The power fails: any part of the unsynced data may have arrived.
    pub fn crash(&mut self) {
        let disk = &self.world.disk;
        let mut flight: Vec<Piece> = vec![];
        // Writes of an interrupted opening are still in the disk's log.
        for event in std::mem::take(&mut self.world.log).into_iter().chain(disk.take_log()) {
            match event {
                Event::Write(pieces, _) | Event::Discard(pieces) => flight.extend(pieces),
                Event::Sync => flight.clear(),
                Event::Promised(count) => self.promised = count,
                Event::Submitted(_) | Event::Hidden(_) => {}
            }
        }
        disk.set_fuse(None);
        disk.roll_back(0);
        let merciful = self.rng.below(4) == 0;
        for piece in flight {
            disk.put(&piece, if merciful { Fate::Kept } else { any_fate(&mut self.rng) });
        }
        disk.settle();
    }
}
