use super::*;
use std::collections::HashMap;
use traceless_core::local_rig;
use traceless_core::rng::SeededRng;
use traceless_core::store::{MemStore, Run, WatchedStore};
use traceless_core::suite::rig::{Forgetful, Rig, damage, put_back};
use traceless_core::trace::{Event, Op, Recorder};
use traceless_core::types::{Extent, Slot};

const BLOCK: usize = 512;

/// Blocks of the public volume.
const BLOCKS: u64 = 1700;

/// Blocks of each hidden volume.
const HIDDEN: u64 = 40;

local_rig!(DeniableRig, DeniableGeometry);

impl DeniableRig {
    /// A store of random bytes, with a public volume.
    fn new() -> Self {
        let geometry = DeniableGeometry::new(BLOCKS, BLOCK).unwrap();
        let mut rig = Self(Rig::with_room(geometry, geometry.store_len()));
        let mut bytes = vec![0; geometry.store_len() as usize];
        SeededRng::new(1).fill(&mut bytes);
        rig.store = Arc::new(MemStore::from_bytes(&bytes));
        let store = rig.store.clone();
        let context = rig.context(store, false);
        Deniable::create(geometry, context).unwrap().close().unwrap();
        rig
    }

    fn try_open(
        &mut self,
        store: Arc<dyn Store>,
        hidden: usize,
        policy: LanePolicy,
    ) -> Result<Deniable> {
        let keys: Vec<_> = (0..hidden).map(key).collect();
        let (context, state) = (self.context(store, false), self.vault.kept());
        Deniable::open(self.geometry, context, &state, (&keys, policy), &mut |_, _| {})
    }

    fn open(&mut self, hidden: usize) -> Deniable {
        self.try_open(self.store.clone(), hidden, LanePolicy::Refuse).unwrap()
    }

    /// Adds the volumes below `hidden`, which are durable then.
    fn add_hidden(&mut self, hidden: usize) -> Deniable {
        let mut open = self.open(0);
        for number in 0..hidden {
            add(&mut open, number);
        }
        open.write_dummies(40).unwrap();
        open.sync().unwrap();
        assert!(!open.hidden().has_waiting());
        open
    }

    fn lane(&self) -> Area {
        let (name, at, _) = self.geometry.lane_area();
        Area::new(self.store.clone(), at, self.geometry.lane(), name)
    }
}

fn key(number: usize) -> HiddenKey {
    HiddenKey { secret: Secret::from_bytes([100 + number as u8; 32]), blocks: HIDDEN }
}

fn add(open: &mut Deniable, number: usize) -> HiddenVolume {
    open.hidden().add(&key(number).secret, HIDDEN, &[number as u8; BLOCK]).unwrap()
}

fn block(value: u64) -> Vec<u8> {
    let mut block = vec![value as u8; BLOCK];
    block[..8].copy_from_slice(&value.to_le_bytes());
    block
}

fn read(volume: &HiddenVolume, addr: u64) -> u64 {
    let mut plain = vec![0; BLOCK];
    volume.read(&[Addr(addr)], &mut plain).unwrap();
    let value = u64::from_le_bytes(plain[..8].try_into().unwrap());
    assert_eq!(plain, block(value));
    value
}

fn read_public(open: &Deniable, addr: u64) -> u64 {
    let mut plain = vec![0; BLOCK];
    open.read_shared(&[Addr(addr)], &mut plain).unwrap();
    u64::from_le_bytes(plain[..8].try_into().unwrap())
}

/// What each block of the public volume (number 0) and of the hidden ones (from 1 on) may hold: its
/// value at the last sync that covers it, or any written since.
#[derive(Default)]
struct Model {
    allowed: HashMap<(usize, u64), Vec<u64>>,
    next: u64,
}

impl Model {
    fn write(&mut self, volume: usize, addr: u64) -> Vec<u8> {
        self.next += 1;
        self.allowed.entry((volume, addr)).or_insert_with(|| vec![0]).push(self.next);
        block(self.next)
    }

    fn settle(&mut self, is_settled: impl Fn(usize) -> bool) {
        for ((volume, _), values) in &mut self.allowed {
            if is_settled(*volume) {
                values.drain(..values.len() - 1);
            }
        }
    }

    /// Checks all blocks. What a new opening holds is what they must hold from then on.
    fn check(&mut self, open: &Deniable, is_new: bool) {
        for (&(volume, addr), values) in &mut self.allowed {
            let value = match volume.checked_sub(1) {
                None => read_public(open, addr),
                Some(number) => match open.hidden().volume(number) {
                    Some(hidden) => read(&hidden, addr),
                    None => continue,
                },
            };
            assert!(values.contains(&value), "volume {volume} block {addr}: {value} {values:?}");
            if is_new {
                *values = vec![value];
            }
        }
    }
}

/// One step of a life: a public request, and before it some hidden ones of `hidden` volumes.
fn step(open: &mut Deniable, model: &mut Model, rng: &mut SeededRng, hidden: usize) -> Result {
    for _ in 0..rng.below(3).min(hidden as u64) {
        let number = rng.below(hidden as u64) as usize;
        let addr = rng.below(HIDDEN);
        if open.lane.lock().waits() < lane::WAITING_MAX {
            let plain = model.write(1 + number, addr);
            open.hidden().volume(number).unwrap().write(&[Addr(addr)], &plain)?;
        }
    }
    if rng.below(12) == 0 {
        open.sync()?;
        let is_flushed =
            |number| open.hidden().volume(number).is_none_or(|h: HiddenVolume| h.is_flushed());
        model.settle(|volume| volume == 0 || is_flushed(volume - 1));
        return Ok(());
    }
    let addrs: Vec<_> = (0..=rng.below(5)).map(|_| Addr(rng.below(BLOCKS))).collect();
    let plain: Vec<u8> = addrs.iter().flat_map(|addr| model.write(0, addr.0)).collect();
    open.write_many(&addrs, &plain)
}

#[test]
fn all_volumes_agree_with_arrays_over_many_laps() {
    let mut rig = DeniableRig::new();
    let mut open = rig.add_hidden(3);
    let (mut model, mut rng) = (Model::default(), SeededRng::new(2));
    for round in 0..12 {
        for _ in 0..700 {
            step(&mut open, &mut model, &mut rng, 3).unwrap();
        }
        model.check(&open, false);
        if round % 3 == 0 {
            while open.hidden().has_waiting() {
                open.write_dummy().unwrap();
            }
            open.close().unwrap();
        } else {
            open.sync().unwrap();
        }
        drop(open);
        open = rig.open(3);
        model.check(&open, true);
    }
    assert!(open.writes() > 8 * rig.geometry.lane_slots, "many laps");
}

/// Full of hidden blocks, the lane still takes hidden writes: they get half of the slots.
#[test]
fn a_full_lane_gives_hidden_writes_their_share() {
    let mut rig = DeniableRig::new();
    let mut open = rig.open(0);
    let blocks = rig.geometry.hidden_blocks() - 1;
    assert!(open.hidden().add(&key(0).secret, blocks + 1, &[0; BLOCK]).is_err());
    let hidden = open.hidden().add(&key(0).secret, blocks, &[0; BLOCK]).unwrap();
    assert!(open.hidden().add(&key(1).secret, 1, &[0; BLOCK]).is_err());
    let mut written = 0;
    let mut rng = SeededRng::new(3);
    let mut model = HashMap::new();
    let from = |open: &Deniable| open.writes();
    let begin = from(&open);
    while from(&open) < begin + 4 * rig.geometry.lane_slots {
        while open.lane.lock().waits() < 64 {
            let addr = if written < blocks { written } else { rng.below(blocks) };
            written += 1;
            model.insert(addr, written);
            hidden.write(&[Addr(addr)], &block(written)).unwrap();
        }
        open.write_dummies(10).unwrap();
    }
    let share = written as f64 / (4 * rig.geometry.lane_slots) as f64;
    assert!(share > 0.45, "{share}");
    for (&addr, &value) in &model {
        assert_eq!(read(&hidden, addr), value);
    }
}

/// The events that an adversary observes, without reads, of a user with `hidden` hidden volumes.
fn trace_of(hidden: usize, writes: u64) -> Vec<Event> {
    let mut rig = DeniableRig::new();
    let witness = Arc::new(Recorder::default());
    let store: Arc<dyn Store> = Arc::new(WatchedStore::new(rig.store.clone(), witness.clone()));
    let mut open = rig.try_open(store.clone(), 0, LanePolicy::Refuse).unwrap();
    for number in 0..hidden {
        add(&mut open, number);
    }
    let (mut public, mut secret) = (SeededRng::new(4), SeededRng::new(5));
    let mut session = 0;
    while open.writes() < writes {
        if hidden > 0 {
            for _ in 0..secret.below(4) {
                if open.lane.lock().waits() < lane::WAITING_MAX {
                    let volume =
                        open.hidden().volume(secret.below(hidden as u64) as usize).unwrap();
                    let addr = Addr(secret.below(HIDDEN));
                    volume.write(&[addr], &block(secret.next_u64())).unwrap();
                    volume.read(&[addr], &mut [0; BLOCK]).unwrap();
                }
            }
        }
        match public.below(1000) {
            0..4 => {
                session += 1;
                if session % 2 == 0 {
                    open.close().unwrap();
                }
                drop(open);
                open = rig.try_open(store.clone(), hidden, LanePolicy::Refuse).unwrap();
            }
            4..40 => open.sync().unwrap(),
            40..60 => open.write_dummy().unwrap(),
            60..62 => open.verify(&mut |_, _| {}, &mut |place| panic!("{place:?}")).unwrap(),
            _ => {
                let addrs: Vec<_> = (0..=public.below(100)).map(|_| public.below(BLOCKS)).collect();
                let addrs: Vec<_> = addrs.into_iter().map(Addr).collect();
                open.write_many(&addrs, &vec![1; addrs.len() * BLOCK]).unwrap();
            }
        }
    }
    drop(open);
    witness.take().into_iter().filter(|event| event.op != Op::Read).collect()
}

#[test]
fn traces_are_equal_with_any_number_of_hidden_volumes() {
    let writes = match std::env::var("TRACELESS_MODEL_OPERATIONS") {
        Ok(more) => more.parse().unwrap(),
        Err(_) => 200_000,
    };
    let without = trace_of(0, writes);
    assert!(without.len() as u64 > writes / 10);
    for hidden in [1, 3, 15] {
        let with = trace_of(hidden, writes);
        let differ = with.iter().zip(&without).position(|(a, b)| a != b);
        assert_eq!((differ, with.len()), (None, without.len()), "{hidden} hidden volumes");
    }
}

/// Runs from crash to crash, with a disk that loses or tears what was not synced.
fn live_through_crashes(seed: u64, fuses: impl Iterator<Item = u64>) {
    let mut rig = DeniableRig::new();
    rig.add_hidden(2).close().unwrap();
    let (mut model, mut rng) = (Model::default(), SeededRng::new(seed));
    for fuse in fuses {
        let disk = Arc::new(Forgetful::new(&rig.store.snapshot(), fuse));
        if let Ok(mut open) = rig.try_open(disk.clone(), 2, LanePolicy::Refuse) {
            model.check(&open, true);
            while step(&mut open, &mut model, &mut rng, 2).is_ok() {}
        }
        rig.store = Arc::new(MemStore::from_bytes(&disk.crash(&mut rng)));
        let open = rig.open(2);
        model.check(&open, true);
    }
}

#[test]
fn nothing_flushed_is_lost_at_any_crash() {
    live_through_crashes(6, 4..80);
    let mut lives = SeededRng::new(7);
    live_through_crashes(8, std::iter::repeat_with(move || 4 + lives.below(1500)).take(50));
}

/// In each session one or a few writes: the live part of the lane comes to the writer again and
/// again just after a crash.
#[test]
fn crashes_in_a_row_use_up_no_live_slot() {
    let mut lives = SeededRng::new(9);
    let mut fuses = std::iter::repeat_with(move || 16 + lives.below(60)).take(500);
    live_through_crashes(10, &mut fuses);
}

#[test]
fn what_was_put_back_or_damaged_is_refused() {
    let mut rig = DeniableRig::new();
    let mut open = rig.add_hidden(1);
    let hidden = open.hidden().volume(0).unwrap();
    for addr in 0..HIDDEN {
        hidden.write(&[Addr(addr)], &block(1 + addr)).unwrap();
    }
    open.write_dummies(100).unwrap();
    open.close().unwrap();
    let old = rig.store.snapshot();
    let mut open = rig.open(1);
    let hidden = open.hidden().volume(0).unwrap();
    for addr in 0..HIDDEN {
        hidden.write(&[Addr(addr)], &block(1000 + addr)).unwrap();
    }
    let first = open.writes() % rig.geometry.lane_slots;
    open.write_dummies(100).unwrap();
    open.sync().unwrap();
    assert!(hidden.is_flushed());
    open.close().unwrap();
    let whole = rig.store.snapshot();
    let lane = rig.lane();
    // Each of the newest blocks is put back to what was there before, or damaged in its entry.
    for slot in (first..first + HIDDEN).step_by(7) {
        put_back(&*rig.store, &old, &lane, Slot(slot));
        let opened = rig.try_open(rig.store.clone(), 1, LanePolicy::Refuse);
        assert!(matches!(opened, Err(Error::WrongMap { area: "lane" })), "slot {slot}");
        rig.open(0);
        rig.try_open(rig.store.clone(), 1, LanePolicy::Accept).unwrap();
        rig.store = Arc::new(MemStore::from_bytes(&whole));
    }
    // A damaged body is found when it is read, and stays lost when it moves.
    let lane = rig.lane();
    damage(&*rig.store, &lane, Slot(first + 3));
    let mut open = rig.open(1);
    let hidden = open.hidden().volume(0).unwrap();
    let lost = |hidden: &HiddenVolume| {
        let lost = |addr: &u64| {
            let found = hidden.read(&[Addr(*addr)], &mut [0; BLOCK]);
            matches!(found, Err(Error::Tampered { .. }))
        };
        (0..HIDDEN).filter(lost).collect::<Vec<_>>()
    };
    let before = lost(&hidden);
    assert_eq!(before.len(), 1);
    open.write_dummies(2 * rig.geometry.lane_slots as usize).unwrap();
    assert_eq!(lost(&hidden), before);
    open.close().unwrap();
    let mut open = rig.open(1);
    let hidden = open.hidden().volume(0).unwrap();
    assert_eq!(lost(&hidden), before);
    hidden.write(&[Addr(before[0])], &block(5)).unwrap();
    open.write_dummy().unwrap();
    assert_eq!((lost(&hidden), read(&hidden, before[0])), (vec![], 5));
}

#[test]
fn a_closed_hidden_volume_is_overwritten_in_turn_and_then_refused() {
    let mut rig = DeniableRig::new();
    let mut open = rig.add_hidden(2);
    for number in 0..2 {
        open.hidden().volume(number).unwrap().write(&[Addr(3)], &block(7)).unwrap();
    }
    open.write_dummies(10).unwrap();
    open.close().unwrap();
    // The stretch ahead of the writer takes a short session with the public volume alone.
    let mut open = rig.open(0);
    open.write_dummies(rig.geometry.margin() as usize / 2).unwrap();
    open.close().unwrap();
    let mut open = rig.open(2);
    assert_eq!(read(&open.hidden().volume(1).unwrap(), 3), 7);
    open.close().unwrap();
    // A long one with the less secret volume keeps that one only.
    let mut open = rig.open(1);
    open.write_dummies(rig.geometry.lane_slots as usize).unwrap();
    open.close().unwrap();
    drop(open);
    let open = rig.open(2);
    assert_eq!(read(&open.hidden().volume(0).unwrap(), 3), 7);
    assert_eq!(open.hidden().record(1).unwrap(), [0; BLOCK], "nothing is left of it");
}

#[test]
fn a_record_is_found_by_its_key_alone() {
    let mut rig = DeniableRig::new();
    let mut open = rig.add_hidden(3);
    open.hidden().write_record(1, &[77; BLOCK]).unwrap();
    open.write_dummies(3).unwrap();
    assert_eq!(open.hidden().record(1).unwrap(), [77; BLOCK]);
    open.close().unwrap();
    let store: Arc<dyn Store> = rig.store.clone();
    let find = |secret: &Secret| {
        Deniable::find_records(rig.geometry, (&store, 0), secret, &mut |_, _| {}).unwrap()
    };
    assert_eq!(find(&key(1).secret), [vec![77; BLOCK], vec![1; BLOCK]]);
    assert_eq!(find(&key(2).secret), [vec![2; BLOCK]]);
    assert!(find(&key(9).secret).is_empty());
}

#[test]
fn a_forgotten_volume_makes_room() {
    let mut rig = DeniableRig::new();
    let mut open = rig.add_hidden(2);
    let hidden = open.hidden().volume(0).unwrap();
    let room = open.hidden().room();
    hidden.write(&[Addr(1)], &block(1)).unwrap();
    open.hidden().forget(0);
    assert!(open.hidden().volume(0).is_none() && !open.hidden().has_waiting());
    assert_eq!(open.hidden().room(), room + HIDDEN + 1);
    assert!(hidden.write(&[Addr(1)], &block(1)).is_err());
    open.write_dummies(rig.geometry.lane_slots as usize).unwrap();
    let other = open.hidden().volume(1).unwrap();
    other.write(&[Addr(1)], &block(2)).unwrap();
    open.write_dummy().unwrap();
    open.sync().unwrap();
    other.flush().unwrap();
    assert_eq!(read(&other, 1), 2);
}

#[test]
fn a_flush_waits_for_slots_and_a_sync() {
    let mut rig = DeniableRig::new();
    let mut open = rig.add_hidden(1);
    let hidden = open.hidden().volume(0).unwrap();
    hidden.write(&[Addr(1)], &block(1)).unwrap();
    assert!(!hidden.is_flushed());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| hidden.flush());
        open.write_dummy().unwrap();
        assert!(!hidden.is_flushed(), "it has its slot and is not synced");
        open.sync().unwrap();
        waiter.join().unwrap().unwrap();
    });
    hidden.write(&[Addr(1)], &block(2)).unwrap();
    open.close().unwrap();
    assert!(hidden.is_flushed(), "a close places some blocks");
    assert!(hidden.write(&[Addr(1)], &block(3)).is_err());
}

/// The sum over all byte values of (found - expected)^2 / expected: about 256.
fn chi_square(bytes: impl Iterator<Item = u8>) -> f64 {
    let mut counts = [0u64; 256];
    bytes.for_each(|byte| counts[usize::from(byte)] += 1);
    let expected = counts.iter().sum::<u64>() as f64 / 256.0;
    counts.iter().map(|&n| (n as f64 - expected).powi(2) / expected).sum()
}

#[test]
fn a_lane_is_random_bytes_with_any_number_of_hidden_volumes() {
    for hidden in [0, 1, 15] {
        let mut rig = DeniableRig::new();
        let mut open = rig.add_hidden(hidden);
        let (mut model, mut rng) = (Model::default(), SeededRng::new(11));
        for _ in 0..2000 {
            step(&mut open, &mut model, &mut rng, hidden).unwrap();
        }
        let lane = rig.lane();
        let (mut run, slots) = (Run::default(), lane.slots());
        run.add(&lane, Slot(0), slots);
        run.read(&*rig.store).unwrap();
        let entries = (0..slots as usize).flat_map(|nth| run.slot(nth).0.to_vec());
        let first = (0..slots as usize).map(|nth| run.slot(nth).0[..8].to_vec());
        let distinct: std::collections::HashSet<_> = first.collect();
        assert_eq!(distinct.len() as u64, slots, "no salt is there twice");
        for (what, found) in [
            ("entries", chi_square(entries)),
            ("all", {
                let (_, at, len) = rig.geometry.lane_area();
                let mut bytes = vec![0; len as usize];
                rig.store.read(&[Extent::new(at, len as usize)], &mut bytes).unwrap();
                chi_square(bytes.into_iter())
            }),
        ] {
            // Six standard deviations.
            assert!((120.0..392.0).contains(&found), "{hidden} {what}: {found}");
        }
    }
}
