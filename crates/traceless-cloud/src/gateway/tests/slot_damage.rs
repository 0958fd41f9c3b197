//! Damaged slots of the store: as many blocks are lost at most, everything else is served, and the
//! host observes the same for live blocks and dummies.

use super::*;
use crate::geometry::{Geometry, Node};
use crate::store::{BoxedStore, CopyableStore, MirroredStore, OpenStore, Opening};
use std::collections::{BTreeMap, BTreeSet};

/// A store in memory with damaged slots.
struct DamagedStore {
    store: MemStore,
    damage: Arc<Damage>,
}

/// The damaged slots. A new version of a node is sound.
#[derive(Default)]
struct Damage {
    slots: Mutex<BTreeMap<(NodeVersion, u32), Kind>>,
    /// The slots that the last query has read.
    last: Mutex<Vec<(NodeVersion, u32)>>,
    /// The current version of each node.
    current: Mutex<BTreeMap<u32, u64>>,
    reads: AtomicU64,
}

#[derive(Clone, Copy)]
enum Kind {
    Lasting,
    /// The first read is wrong, and later ones are right.
    Passing,
}

impl Damage {
    fn apply(&self, version: NodeVersion, slot: u32, bytes: &mut [u8]) {
        let key = (version, slot);
        let mut slots = self.slots.lock().unwrap();
        if let Some(kind) = slots.get(&key).copied() {
            bytes[slot as usize % bytes.len()] ^= 0x40;
            if let Kind::Passing = kind {
                slots.remove(&key);
            }
        }
    }

    fn add(&self, version: NodeVersion, slot: u32, kind: Kind) {
        self.slots.lock().unwrap().insert((version, slot), kind);
    }

    /// Damages `count` random slots of current versions.
    fn add_random(&self, params: &Params, count: usize, rng: &mut SeededRng) {
        let g = params.geometry;
        let current = self.current.lock().unwrap().clone();
        let written: Vec<(&u32, &u64)> = current.iter().collect();
        let before = self.slots.lock().unwrap().len();
        while self.slots.lock().unwrap().len() < before + count {
            let (node, attempt) = written[rng.below(written.len() as u64) as usize];
            let node = Node(*node);
            let slot = rng.below(g.slots(g.layer_of(node)) as u64) as u32;
            self.add(NodeVersion { node, attempt: *attempt }, slot, Kind::Lasting);
        }
    }

    /// Damaged slots of current versions.
    fn found_by_now(&self) -> BTreeSet<(u32, u32)> {
        let current = self.current.lock().unwrap();
        let slots = self.slots.lock().unwrap();
        let is_current = |(version, _): &&(NodeVersion, u32)| {
            current.get(&version.node.0) == Some(&version.attempt)
        };
        slots.keys().filter(is_current).map(|(version, slot)| (version.node.0, *slot)).collect()
    }
}

impl NodeStore for DamagedStore {
    async fn read_slots(&self, reads: &mut [SlotRead<'_>]) -> Result {
        self.store.read_slots(reads).await?;
        self.damage.reads.fetch_add(1, Ordering::Relaxed);
        *self.damage.last.lock().unwrap() =
            reads.iter().map(|read| (read.version, read.slot)).collect();
        for SlotRead { version, slot, into } in reads {
            self.damage.apply(*version, *slot, into);
        }
        Ok(())
    }

    async fn read_node(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        self.store.read_node(version, into).await?;
        let len = params(1).geometry.slot_len();
        for (slot, bytes) in into.chunks_exact_mut(len).enumerate() {
            self.damage.apply(version, slot as u32, bytes);
        }
        Ok(())
    }

    async fn stage(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        self.store.stage(version, bytes).await
    }

    async fn abandon(&self) -> Result {
        self.store.abandon().await
    }

    async fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.store.commit(sequence, versions).await?;
        let mut current = self.damage.current.lock().unwrap();
        current.extend(versions.iter().map(|version| (version.node.0, version.attempt)));
        Ok(())
    }

    async fn sequence(&self) -> Result<u64> {
        self.store.sequence().await
    }
}

impl CopyableStore for DamagedStore {
    fn current(&self) -> Result<Vec<NodeVersion>> {
        self.store.current()
    }

    async fn restore(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.store.restore(sequence, versions).await?;
        let mut current = self.damage.current.lock().unwrap();
        current.extend(versions.iter().map(|version| (version.node.0, version.attempt)));
        // The same version may have been written anew.
        let mut slots = self.damage.slots.lock().unwrap();
        slots.retain(|(version, _), _| !versions.contains(version));
        Ok(())
    }
}

fn damaged_gateway(blocks: u64, seed: u64) -> (Gateway, Arc<Damage>) {
    let params = params(blocks);
    let damage = Arc::new(Damage::default());
    let store = DamagedStore { store: MemStore::new(params.geometry), damage: damage.clone() };
    (gateway_over(params, store, Choice::Benes, seed), damage)
}

/// A gateway with every block written, most of them in the tree.
fn filled(blocks: u64, seed: u64) -> (Gateway, Arc<Damage>) {
    let (mut gateway, damage) = damaged_gateway(blocks, seed);
    for id in 0..blocks {
        gateway.put(id, &block(id, 1)).unwrap();
    }
    gateway.save().unwrap();
    (gateway, damage)
}

/// The lost blocks; every other block must be right.
fn lost(gateway: &mut Gateway) -> BTreeSet<u64> {
    (0..gateway.params().blocks)
        .filter(|&id| match gateway.get(id) {
            Ok(bytes) => {
                assert!(bytes == block(id, 1), "{id}");
                false
            }
            Err(Error::Lost { id: other }) => {
                assert_eq!(id, other);
                true
            }
            Err(other) => panic!("{other}"),
        })
        .collect()
}

#[test]
fn as_many_blocks_are_lost_as_slots_at_most() {
    for (count, seed) in [(1, 1), (10, 2), (100, 3), (1000, 4)] {
        let (mut gateway, damage) = filled(1500, seed);
        if count == 1000 {
            gateway.accept_loss();
        }
        if count == 10 {
            gateway.keep_copies(1 << 20);
        }
        let params = *gateway.params();
        damage.add_random(&params, count, &mut SeededRng::new(seed));
        let first = lost(&mut gateway);
        assert!(first.len() <= count, "{} for {count}", first.len());
        assert!(count < 100 || first.len() > count / 10, "{} for {count}", first.len());
        // They stay lost while they move through the tree, and until they are written.
        for _ in 0..2 {
            assert_eq!(lost(&mut gateway), first);
        }
        assert!(gateway.counts().damaged >= first.len() as u64);
        for &id in &first {
            gateway.put(id, &block(id, 1)).unwrap();
        }
        assert!(lost(&mut gateway).is_empty() && gateway.lost_blocks() == 0);
    }
}

#[test]
fn a_scrub_finds_all_damage_and_writes_its_nodes_anew() {
    for (count, seed) in [(0, 11), (1, 12), (100, 13)] {
        let (mut gateway, damage) = filled(1500, seed);
        let params = *gateway.params();
        damage.add_random(&params, count, &mut SeededRng::new(seed));
        let wanted = damage.found_by_now();
        let mut found = BTreeSet::new();
        for node in (0..params.geometry.nodes()).map(Node) {
            let slots = gateway.scrub(node).unwrap().lost;
            found.extend(slots.iter().map(|one| (one.node.0, one.slot)));
        }
        assert_eq!(found, wanted);
        assert!(damage.found_by_now().is_empty(), "all of it was replaced");
        let known = gateway.lost_blocks();
        assert!(known <= count && (count < 100 || known > 10), "{known}");
        // What the scrub did not find to be lost is there.
        assert_eq!(lost(&mut gateway).len(), known);
        for node in (0..params.geometry.nodes()).map(Node) {
            assert_eq!(gateway.scrub(node).unwrap(), NodeVerdict::default());
        }
    }
}

/// A disk or a line that fails for a moment loses nothing.
#[test]
fn damage_that_passes_loses_nothing() {
    let (mut gateway, damage) = filled(1500, 21);
    let params = *gateway.params();
    let mut rng = SeededRng::new(22);
    for _ in 0..20 {
        let current = damage.current.lock().unwrap().clone();
        for (node, attempt) in current {
            let node = Node(node);
            let slots = params.geometry.slots(params.geometry.layer_of(node)) as u64;
            let slot = rng.below(slots) as u32;
            damage.add(NodeVersion { node, attempt }, slot, Kind::Passing);
        }
        assert!(lost(&mut gateway).is_empty());
        let node = Node(rng.below(u64::from(params.geometry.nodes())) as u32);
        assert!(gateway.scrub(node).unwrap().lost.is_empty());
    }
    assert_eq!(gateway.lost_blocks(), 0);
}

/// Each access reads slots once, and twice if one of them is damaged, whichever it is.
#[test]
fn damage_of_blocks_and_of_dummies_looks_alike() {
    let (mut gateway, damage) = filled(6000, 31);
    let layers = gateway.params().geometry.layers;
    assert!(layers > 1, "a query reads dummies, too");
    let mut per_access = BTreeMap::<(bool, bool), BTreeSet<u64>>::new();
    let mut lost = 0;
    for id in 0..600 {
        // No round is under way, and the next access begins none: it would find the damage, too.
        if gateway.state.queries + 1 >= gateway.params().round_blocks {
            gateway.dummies(2).unwrap();
        }
        while gateway.state.is_any_running() {
            gateway.finish_all(Wait::Long).unwrap();
        }
        let BlockPlace::Tree { leaf, layer, slot } = gateway.state.index.place(id as u32) else {
            continue;
        };
        let g = gateway.params().geometry;
        // A renewal would find the damage, too.
        let is_read_out = |layer: usize| {
            let reads = gateway.state.index.reads(g.node(layer, leaf));
            reads >= gateway.state.params.reads_max(layer)
        };
        if (0..layers).any(is_read_out) {
            continue;
        }
        // Either the block's own slot, or the one of a dummy that happens to be read, or neither.
        let is_own = id % 3 == 0;
        if is_own {
            let node = g.node(layer, leaf);
            let attempt = gateway.state.index.attempt(node);
            damage.add(NodeVersion { node, attempt }, slot, Kind::Lasting);
        } else if id % 3 == 1 {
            let other = g.node((layer + 1) % layers, leaf);
            let attempt = gateway.state.index.attempt(other);
            let real: HashSet<u32> =
                gateway.state.index.blocks_of(other).map(|(slot, _)| slot).collect();
            for slot in (0..g.slots((layer + 1) % layers) as u32).filter(|at| !real.contains(at)) {
                damage.add(NodeVersion { node: other, attempt }, slot, Kind::Lasting);
            }
        }
        let before = damage.reads.load(Ordering::Relaxed);
        let outcome = gateway.get(id);
        let reads = damage.reads.load(Ordering::Relaxed) - before;
        assert_eq!(outcome.is_err(), is_own, "{id}");
        lost += u64::from(is_own);
        let was_damaged = id % 3 < 2 && attempt_is_written(&gateway, leaf);
        per_access.entry((is_own, was_damaged)).or_default().insert(reads);
        damage.slots.lock().unwrap().clear();
    }
    assert!(lost > 50, "{lost}");
    assert_eq!(per_access[&(true, true)], BTreeSet::from([2]));
    assert_eq!(per_access[&(false, true)], BTreeSet::from([2]));
    assert_eq!(per_access[&(false, false)], BTreeSet::from([1]));
}

/// Whether all nodes of a path were written: a node that was not has no damage.
fn attempt_is_written(gateway: &Gateway, leaf: u32) -> bool {
    let g = gateway.params().geometry;
    (0..g.layers).all(|layer| gateway.state.index.attempt(g.node(layer, leaf)) != 0)
}

#[test]
fn lost_blocks_are_remembered_and_their_names_removed() {
    let mut state = State::new(params(50));
    let object =
        |ids: &[u32]| Object { pieces: vec![64; ids.len()], ids: ids.into(), note: vec![] };
    let bind = |namespace, name: &[u8], ids| Record::Bind {
        namespace,
        name: name.to_vec(),
        object: object(ids),
    };
    for record in [
        bind(Namespace::Values, b"whole", &[1, 2]),
        bind(Namespace::Values, b"torn", &[3, 4, 5]),
        bind(Namespace::Objects, b"b/torn", &[6]),
        Record::Lost { ids: vec![4, 5, 6, 9] },
    ] {
        state.apply(record).unwrap();
    }
    assert!(state.apply(Record::Lost { ids: vec![50] }).is_err(), "no such block");
    assert!(state.apply(Record::Damage { node: u32::MAX, slots: vec![] }).is_err());
    let mut saved = crate::codec::Writer::default();
    state.save(&mut saved);
    let mut reader = crate::codec::Reader::of_state(saved.as_bytes(), "the state");
    let mut state = State::load(params(50), &mut reader).unwrap();
    assert_eq!(state.lost, BTreeSet::from([4, 5, 6, 9]));
    let names: Vec<_> =
        state.lost_names().into_iter().map(|lost| (lost.name, lost.blocks)).collect();
    assert_eq!(names, [(b"torn".to_vec(), 2), (b"b/torn".to_vec(), 1)]);
    state.apply(Record::Stash { id: 4, leaf: 0, bytes: vec![1; BLOCK] }).unwrap();
    assert_eq!(state.lost_names()[0].blocks, 1, "it was written again");
}

/// At a constant rate, a query that is sent again takes the next tick.
#[test]
fn damage_takes_no_query_outside_of_ticks() {
    let (mut gateway, damage) = filled(1500, 41);
    let timer = Arc::new(traceless_core::clock::SimulatedClock::default());
    gateway.start_constant_rate(1000, timer).unwrap();
    let params = *gateway.params();
    damage.add_random(&params, 400, &mut SeededRng::new(42));
    let before = damage.reads.load(Ordering::Relaxed);
    let lost = lost(&mut gateway);
    assert!(lost.len() > 20 && lost.len() <= 400, "{}", lost.len());
    let counts = gateway.counts();
    let reads = damage.reads.load(Ordering::Relaxed) - before;
    assert_eq!(counts.ticks_used + counts.ticks_unused, reads);
}

/// A store that is away, or another one, costs nothing that comes back with it.
#[test]
fn much_damage_at_once_is_an_error_and_loses_little() {
    let (mut gateway, damage) = filled(6000, 51);
    let params = *gateway.params();
    let g = params.geometry;
    let current = damage.current.lock().unwrap().clone();
    for (node, attempt) in current {
        let version = NodeVersion { node: Node(node), attempt };
        for slot in 0..g.slots(g.layer_of(version.node)) as u32 {
            damage.add(version, slot, Kind::Lasting);
        }
    }
    let mut refused = 0;
    for id in 0..600 {
        match gateway.get(id) {
            Err(Error::Tampered { .. }) => refused += 1,
            Ok(_) | Err(Error::Lost { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 500, "{refused}");
    assert!(matches!(gateway.scrub(Node(g.nodes() - 1)), Err(Error::Tampered { .. })));
    damage.slots.lock().unwrap().clear();
    // What was confirmed is refused once more, and then verified anew.
    for _ in 0..100 {
        let _ = gateway.dummies(8);
    }
    let known = gateway.lost_blocks();
    assert!(known <= 16, "{known}");
    assert_eq!(lost(&mut gateway).len(), known);
}

#[test]
fn a_report_of_slots_that_were_not_sent_changes_nothing() {
    let params = params(1500);
    let lie: Arc<Mutex<Option<DamagedSlot>>> = Arc::default();
    let shared = lie.clone();
    let mut gateway = gateway_behind(params, 61, |host| {
        HookedHost::new(host).at_stages(move |host, stage| match *shared.lock().unwrap() {
            Some(lie) => Ok(vec![lie]),
            None => host.stage(stage),
        })
    });
    for id in 0..1500 {
        gateway.put(id, &block(id, 1)).unwrap();
    }
    gateway.save().unwrap();
    let slots = params.geometry.slots(0) as u32;
    for (node, slot) in [(Node(u32::MAX), 0), (Node(0), slots), (Node(0), u32::MAX)] {
        *lie.lock().unwrap() = Some(DamagedSlot { node, slot });
        assert!(matches!(gateway.scrub(Node(0)), Err(Error::Malformed(_))));
        let mut refused = 0;
        for id in 0..2 * params.round_blocks as u64 {
            match gateway.get(id % 1500) {
                Err(Error::Malformed(_)) => refused += 1,
                read => assert!(read.unwrap() == block(id % 1500, 1)),
            }
        }
        assert!(refused > 0);
        *lie.lock().unwrap() = None;
        assert!(lost(&mut gateway).is_empty() && gateway.lost_blocks() == 0);
    }
}

/// At a constant rate, a query that waits for the next tick is not sent with a cache hit.
#[test]
fn a_hit_sends_nothing_that_waits_for_a_tick() {
    let (mut gateway, damage) = filled(1500, 71);
    let timer = Arc::new(traceless_core::clock::SimulatedClock::default());
    gateway.start_constant_rate(1000, timer).unwrap();
    gateway.store(b"a", b"1", b"").unwrap();
    let mut rng = SeededRng::new(72);
    gateway.accept_loss();
    let mut waited = 0;
    // How often a query waits while no round is in progress depends on how fast rounds are.
    for tick in 0.. {
        assert!(tick < 20_000, "{waited}");
        if tick % 200 == 0 {
            // Rounds have taken most of the last damage away.
            damage.slots.lock().unwrap().clear();
            damage.add_random(&params(1500), 1000, &mut rng);
        }
        gateway.fill_tick().unwrap();
        let id = gateway.find(Namespace::Values, b"a").unwrap().ids[0];
        if !gateway.state.stash.is_cached(id) {
            gateway.store(b"a", b"1", b"").unwrap();
        } else if !gateway.state.pending.is_empty() && !gateway.state.is_any_running() {
            let before = damage.reads.load(Ordering::Relaxed);
            assert_eq!(gateway.load(b"a").unwrap().unwrap(), b"1");
            assert_eq!(damage.reads.load(Ordering::Relaxed), before);
            waited += 1;
            if waited == 5 {
                break;
            }
        }
    }
}

/// Exchanged replies are refused for dummies as for blocks, and nothing is lost.
#[test]
fn exchanged_replies_are_refused() {
    let exchanges = Arc::new(AtomicBool::new(false));
    let flag = exchanges.clone();
    let mut gateway = gateway_behind(params(1500), 81, |host| {
        HookedHost::new(host).at_queries(move |host, requests| {
            let mut replies = host.query_many(requests);
            if flag.load(Ordering::Relaxed) && replies.len() > 1 {
                replies.swap(0, 1);
            }
            replies
        })
    });
    for id in 0..1500 {
        gateway.put(id, &block(id, 1)).unwrap();
    }
    gateway.save().unwrap();
    let mut all_refused = 0;
    for nth in 0..20 {
        exchanges.store(true, Ordering::Relaxed);
        let refused = match nth % 2 {
            0 => gateway.dummies(2),
            _ => gateway.get_many(&[nth * 2, nth * 2 + 1]).map(drop),
        };
        match refused {
            Err(Error::Unauthentic) => all_refused += 1,
            // A round came between the two, so that they were sent one by one.
            other => other.unwrap(),
        }
        exchanges.store(false, Ordering::Relaxed);
        gateway.dummy().unwrap();
    }
    assert!(all_refused > 15 && lost(&mut gateway).is_empty(), "{all_refused}");
}

/// Opens a second copy with damaged slots, once.
struct DamagedCopy(Arc<Damage>);

impl OpenStore for DamagedCopy {
    fn open(&self, geometry: Geometry, _: Opening) -> Result<BoxedStore> {
        let (store, damage) = (MemStore::new(geometry), self.0.clone());
        Ok(BoxedStore::new(DamagedStore { store, damage }))
    }
}

/// Slots, as numbers of nodes and of slots in them.
type Slots = BTreeSet<(u32, u32)>;

/// A gateway with every block written to two stores.
struct Mirrored {
    gateway: Gateway,
    store: Arc<MirroredStore<DamagedStore>>,
    /// Of the store, and of its copy.
    damage: [Arc<Damage>; 2],
}

impl Mirrored {
    fn filled(blocks: u64, seed: u64) -> Self {
        let params = params(blocks);
        let damage: [Arc<Damage>; 2] = Default::default();
        let first =
            DamagedStore { store: MemStore::new(params.geometry), damage: damage[0].clone() };
        let copy = Arc::new(DamagedCopy(damage[1].clone()));
        let opening = Opening { number: 1, instance: [1; 16] };
        let store = MirroredStore::open(first, copy, params.geometry, opening).unwrap();
        let store = Arc::new(store);
        let mut gateway = gateway_over(params, store.clone(), Choice::Benes, seed);
        for id in 0..blocks {
            gateway.put(id, &block(id, 1)).unwrap();
        }
        gateway.save().unwrap();
        let mirrored = Self { gateway, store, damage };
        mirrored.wait_until_whole();
        mirrored
    }

    fn wait_until_whole(&self) {
        while !self.store.is_whole() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Verifies all nodes, until no copy is damaged. Returns the lost and the healed slots.
    fn scrub(&mut self) -> (Slots, Slots) {
        let (mut lost, mut healed) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..2 {
            for node in (0..self.gateway.params().geometry.nodes()).map(Node) {
                let found = self.gateway.scrub(node).unwrap();
                lost.extend(found.lost.iter().map(|one| (one.node.0, one.slot)));
                healed.extend(found.healed.iter().map(|one| (one.node.0, one.slot)));
                self.wait_until_whole();
            }
        }
        (lost, healed)
    }

    fn damaged(&self) -> [Slots; 2] {
        self.damage.each_ref().map(|damage| damage.found_by_now())
    }
}

#[test]
fn damage_of_a_store_with_a_copy_loses_nothing() {
    for (count, seed) in [(1, 61), (100, 62), (1000, 63)] {
        let mut mirrored = Mirrored::filled(1500, seed);
        let params = *mirrored.gateway.params();
        mirrored.damage[0].add_random(&params, count, &mut SeededRng::new(seed));
        assert!(lost(&mut mirrored.gateway).is_empty());
        assert_eq!(mirrored.gateway.lost_blocks(), 0);
        assert!(count == 1 || mirrored.gateway.counts().damaged == 0);
        let wanted = mirrored.damaged()[0].clone();
        assert_eq!(mirrored.scrub(), (BTreeSet::new(), wanted));
        assert_eq!(mirrored.damaged(), [BTreeSet::new(), BTreeSet::new()]);
    }
}

/// Damage of the copy is found by a scrub, too, and the copy is written anew.
#[test]
fn a_scrub_heals_each_copy_from_the_other_one() {
    let mut mirrored = Mirrored::filled(1500, 71);
    let params = *mirrored.gateway.params();
    let mut rng = SeededRng::new(71);
    for damage in &mirrored.damage {
        damage.add_random(&params, 100, &mut rng);
    }
    let [first, copy] = mirrored.damaged();
    let both: Slots = first.intersection(&copy).copied().collect();
    let of_first = first.difference(&both).copied().collect();
    assert_eq!(mirrored.scrub(), (both.clone(), of_first));
    assert_eq!(mirrored.damaged(), [BTreeSet::new(), BTreeSet::new()]);
    assert!(lost(&mut mirrored.gateway).len() <= both.len());
}

/// Only what is damaged in both copies is lost.
#[test]
fn damage_of_both_copies_of_a_slot_loses_its_block() {
    let mut mirrored = Mirrored::filled(1500, 81);
    let params = *mirrored.gateway.params();
    for damage in &mirrored.damage {
        damage.add_random(&params, 100, &mut SeededRng::new(81));
    }
    let [first, copy] = mirrored.damaged();
    assert_eq!(first, copy);
    let lost = lost(&mut mirrored.gateway);
    assert!(lost.len() <= 100 && lost.len() > 10, "{}", lost.len());
}

/// A copy that is damaged takes nothing from a sound store, also where queries are sent again.
#[test]
fn a_damaged_copy_loses_no_block_of_the_store() {
    let mut mirrored = Mirrored::filled(1500, 91);
    let params = *mirrored.gateway.params();
    mirrored.damage[1].add_random(&params, 600, &mut SeededRng::new(91));
    // Some queries are sent again because of damage of the store beside them.
    mirrored.damage[0].add_random(&params, 30, &mut SeededRng::new(92));
    let both = {
        let [first, copy] = mirrored.damaged();
        first.intersection(&copy).count()
    };
    for ids in (0..1500_u64).collect::<Vec<_>>().chunks(40) {
        let found = mirrored
            .gateway
            .access(&ids.iter().map(|id| Access::Read(*id as u32)).collect::<Vec<_>>());
        drop(found.unwrap());
    }
    assert!(mirrored.gateway.lost_blocks() <= both, "{both}");
    assert!(lost(&mut mirrored.gateway).len() <= both, "{both}");
}
