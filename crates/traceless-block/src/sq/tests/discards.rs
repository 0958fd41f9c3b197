//! Dead runs that are given back: what is live stays, and which runs they are is public.

use super::*;
use core::sync::atomic::AtomicBool;

/// A store that spoils what is discarded. Its witness is below the fault, if one is planted.
struct Discarding {
    inner: WatchedStore<Spoiling, Arc<Recorder>>,
    /// Whether a discard is dropped after a write to an odd address.
    drops_some: bool,
    last_is_odd: AtomicBool,
}

struct Spoiling(Arc<MemStore>);

impl Store for Spoiling {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn unit(&self) -> usize {
        self.0.unit()
    }
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        self.0.read(extents, into)
    }
    fn takes_discards(&self) -> bool {
        true
    }
    fn discard(&self, extents: &[Extent]) {
        for extent in extents {
            self.0.write(&[*extent], &vec![0xa5; extent.len]).unwrap();
        }
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        self.0.write(extents, from)
    }
    fn sync(&self) -> Result {
        self.0.sync()
    }
}

impl Discarding {
    fn new(rig: &Rig, witness: &Arc<Recorder>, drops_some: bool) -> Arc<Self> {
        let inner = WatchedStore::new(Spoiling(rig.store.clone()), witness.clone());
        Arc::new(Self { inner, drops_some, last_is_odd: AtomicBool::new(false) })
    }
}

impl Store for Discarding {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn unit(&self) -> usize {
        self.inner.unit()
    }
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        self.inner.read(extents, into)
    }
    fn takes_discards(&self) -> bool {
        self.inner.takes_discards()
    }
    fn discard(&self, extents: &[Extent]) {
        if !self.drops_some || !self.last_is_odd.load(Ordering::Relaxed) {
            self.inner.discard(extents);
        }
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        self.inner.write(extents, from)
    }
    fn sync(&self) -> Result {
        self.inner.sync()
    }
}

fn geometries() -> [SqGeometry; 5] {
    let shape = |bucket, fanout, levels| {
        let shape = SqGeometry::with_shape(300, 64, bucket, fanout, levels).unwrap();
        SqGeometry { unsynced_max: 16, ..shape }
    };
    let disk = SqGeometry { map: MapPlace::Disk, ..shape(4, 3, 3) };
    let amortized = SqGeometry { amortized: true, ..shape(8, 3, 2) };
    [
        shape(4, 4, 2),
        shape(16, 2, 3),
        disk,
        SqGeometry { cadence: Cadence::Paper, ..disk },
        amortized,
    ]
}

/// Writes with closes, crashes and openings in between, by random draws of this seed. Returns the
/// writes and discards that the store made, and how many were discards. Checks all contents.
fn events_of(geometry: SqGeometry, seed: u64, drops_some: bool) -> (Vec<Event>, u64) {
    let witness = Arc::new(Recorder::default());
    let mut rig = Rig::new(geometry);
    rig.create().close().unwrap();
    let (mut rng, mut draws) = (SeededRng::new(7), SeededRng::new(seed));
    let mut holds = vec![0; 300];
    let before = [0xa5; 64];
    for _ in 0..12 {
        let store = Discarding::new(&rig, &witness, drops_some);
        let mut oram = rig.open_on(store.clone(), false).unwrap();
        for _ in 0..100 + rng.below(200) {
            let (addr, byte) = (draws.below(300), draws.next_u64() as u8);
            store.last_is_odd.store(addr % 2 == 1, Ordering::Relaxed);
            write(&mut oram, addr, byte);
            holds[addr as usize] = byte;
        }
        for (addr, &byte) in (0..).zip(&holds) {
            assert_eq!(byte_at(&oram, addr).unwrap(), byte, "block {addr} of {geometry:?}");
        }
        oram.verify(&mut |_, _| {}, &mut |place| panic!("{place}")).unwrap();
        if rng.below(2) == 0 { oram.close() } else { oram.sync() }.unwrap();
    }
    let spoilt = rig.store.snapshot().chunks(64).filter(|bytes| **bytes == before).count() as u64;
    (witness.take().into_iter().filter(|event| event.op == Op::Write).collect(), spoilt)
}

#[test]
fn what_is_discarded_is_dead_and_follows_from_the_number_of_writes() {
    for geometry in geometries() {
        let (events, spoilt) = events_of(geometry, 1, false);
        assert!(spoilt > 64, "{spoilt} slots are given back of {geometry:?}");
        // The paper's cadence shows how near addresses are.
        if geometry.cadence == Cadence::Strict {
            assert_eq!((events.len(), spoilt), {
                let (others, spoilt) = events_of(geometry, 2, false);
                assert!(events == others, "{geometry:?}");
                (others.len(), spoilt)
            });
        }
    }
}

#[test]
fn discards_that_depend_on_addresses_are_found() {
    for geometry in geometries().into_iter().filter(|g| g.cadence == Cadence::Strict) {
        let [(one, _), (other, _)] = [1, 2].map(|seed| events_of(geometry, seed, true));
        assert!(one != other, "{geometry:?}");
    }
}

#[test]
fn an_opening_for_reading_discards_nothing_and_no_store_is_made_to() {
    let witness = Arc::new(Recorder::default());
    let mut rig = Rig::small();
    rig.create().close().unwrap();
    let store = Discarding::new(&rig, &witness, false);
    drop(rig.open_on(store.clone(), true).unwrap());
    assert!(witness.take().iter().all(|event| event.op == Op::Read));
    let discards = |witness: &Recorder| {
        let events = witness.take();
        events.iter().filter(|e| e.op == Op::Write && e.len as usize > 64 * 128).count()
    };
    drop(rig.open_on(store, false).unwrap());
    assert!(discards(&witness) > 0);
    let plain = WatchedStore::new(rig.store.clone(), witness.clone());
    drop(rig.open_on(Arc::new(plain), false).unwrap());
    assert_eq!(discards(&witness), 0);
}

/// Zeros in the place of a needed stripe, as a discard at the wrong time would leave them.
#[test]
fn a_hole_where_something_is_needed_is_refused() {
    let mut rig = Rig::small();
    let mut oram = rig.create();
    (0..600).for_each(|i| write(&mut oram, i * 7 % 200, i as u8));
    oram.close().unwrap();
    let holds: Vec<u8> = (0..200).map(|addr| byte_at(&oram, addr).unwrap()).collect();
    let whole = rig.store.snapshot();
    let areas = [oram.log.clone(), oram.levels[0].area.clone(), oram.main.clone()];
    drop(oram);
    let mut refused = 0;
    for area in areas {
        let stripe = area.layout().stripe_slots;
        for first in (0..area.slots()).step_by(stripe as usize) {
            let mut hole = vec![];
            area.add_stretch(Slot(first), stripe.min(area.slots() - first), &mut hole);
            for extent in hole {
                rig.store.write(&[extent], &vec![0; extent.len]).unwrap();
            }
            let mut is_right = |oram: &Sq, addr: u64| match byte_at(oram, addr) {
                Err(Error::Tampered { .. }) => {
                    refused += 1;
                    true
                }
                other => other.unwrap() == holds[addr as usize],
            };
            match rig.open_on(rig.store.clone(), true) {
                Ok(oram) => assert!((0..200).all(|addr| is_right(&oram, addr)), "{}", area.name()),
                Err(Error::Tampered { .. } | Error::RolledBack { .. }) => refused += 1,
                Err(other) => panic!("{other}"),
            }
            rig.store.write(&[Extent::new(0, whole.len())], &whole).unwrap();
        }
    }
    assert!(refused > 50, "{refused}");
}
