//! A public volume, and hidden ones that no number of copies of the store reveals.
//!
//! The public volume is a [`detwo`](super::detwo). Beside it lies the *lane*, a ring of slots: each
//! public write fills the next one, with a block of a hidden volume or with random bytes. Without
//! the key of a hidden volume the two cannot be distinguished, and hidden requests cause no write:
//! their blocks wait in memory for the slots of public writes. So what is written, where and when
//! follows from the public requests alone, whether 0 or 15 hidden volumes are in use.
//!
//! Nothing live is overwritten. Ahead of the writer lies a stretch of the lane that holds nothing
//! live; the block at its end moves to the writer before the stretch gets too short. At any crash
//! the lane is as old as the last sync, or newer. At first each write after an opening is synced
//! before the public write that it goes with, then more and more may wait, so that crashes in a row
//! use up no more of that stretch than the writes between them win.
//!
//! The map of a hidden volume is rebuilt from the entries on the lane, which all are tried with its
//! key: the newest entry of each block counts. Each entry has, sealed, a sum over the map at the
//! last sync; what was overwritten or put back changes the sum, and the opening is refused.
//!
//! **If a hidden volume is not open, its blocks are overwritten** as the writer comes to them.
//!
//! Not hidden: reads, the number of public writes, and the times of syncs. Hidden volumes read the
//! lane when they are opened, when they are read, and when their blocks move.
//!
//! ```
//! use traceless_block::deniable::{Deniable, DeniableGeometry};
//! use traceless_core::oram::{BlockOram, Oram};
//! use traceless_core::rng::System;
//! use traceless_core::scheme::SchemeContext;
//! use traceless_core::seal::Secret;
//! use traceless_core::Addr;
//!
//! # fn main() -> traceless_core::Result {
//! let geometry = DeniableGeometry::new(2000, 512)?;
//! let context = SchemeContext::in_memory(geometry.store_len(), Box::new(System))?;
//! let mut public = Deniable::create(geometry, context)?;
//! let hidden = public.hidden().add(&Secret::random(&mut System), 100, &[0; 512])?;
//!
//! hidden.write(&[Addr(7)], &[1; 512])?;
//! public.write(Addr(3), &[2; 512])?;
//! public.write(Addr(3), &[3; 512])?;
//! public.sync()?;
//! hidden.flush()?;
//! let mut block = [0; 512];
//! hidden.read(&[Addr(7)], &mut block)?;
//! assert_eq!(block, [1; 512]);
//! # Ok(())
//! # }
//! ```

mod entry;
mod geometry;
mod hidden;
mod lane;
mod scan;
mod scheme;

pub use geometry::{DeniableGeometry, HIDDEN_MAX};
pub use hidden::{HiddenLane, HiddenVolume};
pub use scan::LanePolicy;

use crate::detwo::DetWo;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use entry::LaneKeys;
use geometry::RAMP;
use hidden::SharedLane;
use lane::{Lane, LaneVolume};
use traceless_core::error::{Error, Place, Result};
use traceless_core::oram::{BlockOram, Hides, Oram, check_request};
use traceless_core::rng::Rng;
use traceless_core::scheme::SchemeContext;
use traceless_core::seal::Secret;
use traceless_core::store::{Area, Store};
use traceless_core::types::Addr;

/// Dummy writes at a close that place what waits.
const LAST_PLACES: usize = 48;

/// Dummy writes at the end of a close, after its sync: each hidden volume has one that states the
/// sum over its whole map.
const LAST_BEACONS: usize = HIDDEN_MAX + 1;

/// The key and the size of a hidden volume, as its record has them.
#[derive(Clone)]
pub struct HiddenKey {
    /// The key; nothing else is sealed under it.
    pub secret: Secret,
    /// Its blocks.
    pub blocks: u64,
}

/// The scheme. See the [module](self).
pub struct Deniable {
    geometry: DeniableGeometry,
    public: DetWo,
    lane: Arc<SharedLane>,
    hidden: HiddenLane,
    /// Public writes since the opening.
    steps: u64,
}

impl Deniable {
    /// Creates the scheme on a store of random bytes. Every block reads as zeros, and there is no
    /// hidden volume.
    pub fn create(geometry: DeniableGeometry, mut context: SchemeContext) -> Result<Self> {
        context.check(geometry.store_len())?;
        let (store, rng) = (context.store.clone(), context.rng.fork());
        let area = context.area(geometry.lane_area(), geometry.lane());
        let public = DetWo::create(geometry.public, context)?;
        Self::assemble(geometry, public, area, (store, rng))
    }

    /// Opens the scheme from the last `state` in its vault, with these hidden volumes; any further
    /// one counts as not there. `progress` gets how much of the entries was read, and the total.
    pub fn open(
        geometry: DeniableGeometry,
        mut context: SchemeContext,
        state: &[u8],
        (hidden, policy): (&[HiddenKey], LanePolicy),
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        context.check(geometry.store_len())?;
        let (store, rng) = (context.store.clone(), context.rng.fork());
        let area = context.area(geometry.lane_area(), geometry.lane());
        let public = DetWo::open_alone(geometry.public, context, state, progress)?;
        let mut opened = Self::assemble(geometry, public, area, (store, rng))?;
        opened.load_hidden(hidden, policy, progress)?;
        for _ in 0..opened.public.dummies_due() {
            opened.write_dummy()?;
        }
        Ok(opened)
    }

    /// The contents of all copies of the record of the hidden volume with this key, the newest
    /// first. Writes nothing, and needs neither the public volume's key nor its state.
    pub fn find_records(
        geometry: DeniableGeometry,
        (store, first): (&Arc<dyn Store>, u64),
        secret: &Secret,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<Vec<u8>>> {
        let (name, at, _) = geometry.lane_area();
        let area = Area::new(store.clone(), first + at, geometry.lane(), name);
        let keys = LaneKeys::new(secret, geometry.lane_slots);
        scan::find_records(&area, &**store, &keys, progress)
    }

    fn assemble(
        geometry: DeniableGeometry,
        public: DetWo,
        area: Area,
        (store, rng): (Arc<dyn Store>, Box<dyn Rng>),
    ) -> Result<Self> {
        let lane = Lane::new(&geometry, area, public.writes(), rng)?;
        let lane = Arc::new(SharedLane::new(lane, store));
        let read_only = !public.takes_writes();
        let hidden = HiddenLane { lane: lane.clone(), geometry, read_only };
        Ok(Self { geometry, public, lane, hidden, steps: 0 })
    }

    fn load_hidden(
        &mut self,
        hidden: &[HiddenKey],
        policy: LanePolicy,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result {
        if hidden.is_empty() {
            return Ok(());
        }
        if hidden.len() > HIDDEN_MAX {
            return Err(Error::State("it names too many hidden volumes"));
        }
        let slots = self.geometry.lane_slots;
        let new = |key: &HiddenKey| LaneVolume::new(&key.secret, key.blocks, slots);
        let mut volumes = hidden.iter().map(new).collect::<Result<Vec<_>>>()?;
        let mut lane = self.lane.lock();
        let now = (self.public.writes(), &*self.public.openings());
        let hidden = (&mut volumes[..], policy);
        scan::load_volumes(lane.area(), &*self.lane.store, now, hidden, progress)?;
        for volume in volumes {
            lane.add(volume);
        }
        Ok(())
    }

    /// The parameters of the scheme.
    pub fn geometry(&self) -> &DeniableGeometry {
        &self.geometry
    }

    /// The hidden volumes.
    pub fn hidden(&self) -> &HiddenLane {
        &self.hidden
    }

    /// Number of the `wanted` writes that can go out in one trip now; syncs first if there is no
    /// room. Depends on the number of writes since the opening and since the last sync only.
    fn begin_trip(&mut self, wanted: usize) -> Result<usize> {
        if self.public.takes_writes() && self.lane.lock().is_ended() {
            return Err(Error::Poisoned);
        }
        let allowed = (self.steps / RAMP).clamp(1, self.geometry.public.unsynced_max);
        let mut unsynced = self.public.writes() - self.public.synced();
        if unsynced >= allowed {
            self.sync_shared()?;
            unsynced = 0;
        }
        let left = self.lane.lock().stripe_left();
        self.public.begin_chunk((wanted as u64).min(left).min(allowed - unsynced))
    }

    /// Fills the slots of the next `n` writes, then makes them.
    fn make_trip(&mut self, n: usize, write: impl FnOnce(&mut DetWo) -> Result) -> Result {
        let made = self.fill_slots(n).and_then(|()| write(&mut self.public));
        // The lane's maps are ahead of what is written then.
        made.inspect_err(|_| self.lane.end())?;
        self.steps += n as u64;
        self.lane.notify();
        Ok(())
    }

    fn fill_slots(&mut self, n: usize) -> Result {
        let mut lane = self.lane.lock();
        lane.begin(&self.public.opening());
        lane.write(&*self.lane.store, n)?;
        if self.steps < RAMP {
            self.lane.store.sync()?;
        }
        Ok(())
    }

    fn write_dummies(&mut self, n: usize) -> Result {
        (0..n).try_for_each(|_| self.write_dummy())
    }
}

impl Oram for Deniable {
    fn blocks(&self) -> u64 {
        self.geometry.public.blocks
    }

    fn block_len(&self) -> usize {
        self.geometry.public.block_len
    }

    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        self.read_shared(addrs, into)
    }

    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        let len = self.block_len();
        check_request(self.blocks(), len, addrs, from.len())?;
        let (mut addrs, mut from) = (addrs, from);
        while !addrs.is_empty() {
            let n = self.begin_trip(addrs.len())?;
            let (now, later) = (addrs.split_at(n), from.split_at(n * len));
            self.make_trip(n, |public| public.write_many(now.0, later.0))?;
            (addrs, from) = (now.1, later.1);
        }
        Ok(())
    }

    fn sync(&mut self) -> Result {
        self.sync_shared()
    }

    fn hides(&self) -> Hides {
        Hides::WritesOnly
    }

    fn close(&mut self) -> Result {
        if !self.public.takes_writes() {
            return Ok(());
        }
        self.write_dummies(LAST_PLACES)?;
        self.sync_shared()?;
        self.lane.lock().be_quiet();
        self.write_dummies(LAST_BEACONS)?;
        let closed = self.sync_shared().and_then(|()| self.public.close());
        self.lane.end();
        closed
    }
}

impl BlockOram for Deniable {
    fn read_shared(&self, addrs: &[Addr], into: &mut [u8]) -> Result {
        self.public.read_shared(addrs, into)
    }

    fn sync_shared(&self) -> Result {
        if !self.public.takes_writes() {
            return self.public.sync_shared();
        }
        let begun = {
            let lane = self.lane.lock();
            if lane.is_ended() {
                return Err(Error::Poisoned);
            }
            lane.begin_sync()
        };
        self.public.sync_shared().inspect_err(|_| self.lane.end())?;
        self.lane.lock().end_sync(&begun);
        self.lane.notify();
        Ok(())
    }

    fn writes(&self) -> u64 {
        self.public.writes()
    }

    fn write_dummy(&mut self) -> Result {
        self.begin_trip(1)?;
        self.make_trip(1, DetWo::write_dummy)
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64), damaged: &mut dyn FnMut(Place)) -> Result {
        self.public.verify(progress, damaged)?;
        self.hidden.verify(progress, damaged)
    }
}

#[cfg(test)]
mod tests;
