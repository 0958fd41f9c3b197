//! A volume whose power goes again and again, at any request, also while it recovers.

use crate::check::any_fate;
use crate::disk::{Event, Fate, Piece};
use crate::world::{Failure, How, Open, World, Write, script};
use traceless::rng::{Rng, Seeded};
use traceless::scheme::detwo::{Geometry, MapEntries, Refresh};

/// A random small geometry that works.
fn any_geometry(rng: &mut Seeded) -> Geometry {
    loop {
        let ratio = ["1", "3", "3.5", "1/3", "2/3", "7", "15"][rng.below(7) as usize];
        let map_tiers = u8::from(rng.below(3) == 0);
        let geometry = Geometry {
            blocks: 2 + rng.below(if map_tiers == 1 { 600 } else { 80 }),
            block_len: [64, 512, 512, 4096][rng.below(4) as usize],
            refresh: Refresh::parse(ratio).expect("a ratio"),
            map_tiers,
            map_entries: [MapEntries::Counts, MapEntries::Pointers][rng.below(2) as usize],
            unsynced_max: 1 + rng.below(9),
        };
        if geometry.check().is_ok() {
            return geometry;
        }
    }
}

/// A client and its volume, through `crashes` crashes.
pub struct Life {
    pub world: World,
    pub rng: Seeded,
    /// The least that must be found.
    promised: u64,
    /// The longest list of openings so far.
    pub openings_max: usize,
}

impl Life {
    pub fn random(seed: u64) -> Self {
        let mut rng = Seeded::new(seed);
        let geometry = any_geometry(&mut rng);
        let unit = [512, 4096][rng.below(2) as usize];
        Self::new(World::create(geometry, unit, 100 + seed), rng)
    }

    pub fn new(world: World, rng: Seeded) -> Self {
        world.disk.set_settling();
        Self { world, rng, promised: 0, openings_max: 0 }
    }

    /// Lives on for `crashes` crashes, and ends in peace.
    pub fn live(&mut self, crashes: u64) -> Result<(), String> {
        for _ in 0..crashes {
            let requests = self.rng.below(45);
            self.world.disk.set_fuse(Some(requests));
            match self.until_the_power_goes() {
                Err(Failure::Power) => {}
                Err(Failure::Wrong(what)) => return Err(what),
                Ok(()) => return Err("so many steps, and so few requests".into()),
            }
            self.crash();
        }
        let open = self.recover()?;
        let mut damaged = vec![];
        let verified = open.oram.verify(&mut |_, _| {}, &mut |place| damaged.push(place));
        verified.map_err(|e| e.to_string())?;
        if damaged.is_empty() { Ok(()) } else { Err(format!("damaged at the end: {damaged:?}")) }
    }

    fn until_the_power_goes(&mut self) -> Result<(), Failure> {
        let mut open = self.recover()?;
        let steps = script(self.rng.next_u64(), 200, self.world.geometry.unsynced_max);
        for step in steps {
            let done = self.world.step(&mut open, step, &mut self.rng);
            self.world.record(&open)?;
            done?;
        }
        Ok(())
    }

    /// Opens it. It must hold what a prefix of the writes made, all promised ones among them.
    pub fn recover(&mut self) -> Result<Open, Failure> {
        let promised = self.promised;
        let open = self.world.open(How { expect_writes: promised, read_only: false })?;
        self.openings_max = self.openings_max.max(open.openings().len());
        let count = open.oram.writes();
        // With very many openings each makes some dummies; nobody was promised those.
        let known = count.min(self.world.history.len() as u64);
        if open.openings().len() < 1000 && count > known {
            return Err(format!("{count} writes, so many were never made").into());
        }
        if count < promised {
            return Err(format!("{count} writes, {promised} were promised").into());
        }
        self.world.history.resize(count as usize, Write { block: None, fill: 0 });
        self.world.check(&open, &self.world.history)?;
        self.world.disk.note(Event::Promised(known));
        self.world.record(&open)?;
        Ok(open)
    }

    /// The power is gone: of what was not synced anything may be there.
    pub fn crash(&mut self) {
        let disk = &self.world.disk;
        let mut flight: Vec<Piece> = vec![];
        // What an opening wrote that was cut short is still with the disk.
        for event in std::mem::take(&mut self.world.log).into_iter().chain(disk.take_log()) {
            match event {
                Event::Write(pieces) => flight.extend(pieces),
                Event::Sync => flight.clear(),
                Event::Promised(count) => self.promised = count,
                Event::Submitted(_) => {}
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
