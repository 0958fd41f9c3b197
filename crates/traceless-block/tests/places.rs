//! Every kind of scheme writes where its public description says, and an auditor that has the
//! description notices when it does not.

use std::sync::Arc;
use traceless_block::registry;
use traceless_core::activity::{AuditCounts, AuditReading, EventAudit};
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::scheme::SchemeContext;
use traceless_core::scheme::contract::{BlockScheme, Samples};
use traceless_core::store::{DrawnPlaces, DrawnSlots, MemStore, PlaceAudit, Store, WatchedStore};
use traceless_core::trace::{Event, Op, Recorder};
use traceless_core::types::Addr;

fn audit_of(scheme: &dyn BlockScheme) -> PlaceAudit {
    let unit = MemStore::new(0).unit();
    let audit = PlaceAudit::default().with_turns(scheme.slots_in_turn(), unit);
    match scheme.drawn_slots() {
        Some(layout) => audit.with_draws(Box::new(DrawnSlots { first: 0, layout })),
        None => audit,
    }
}

fn audited(scheme: &dyn BlockScheme, events: &[Event]) -> AuditReading {
    let (mut audit, counts) = (audit_of(scheme), AuditCounts::default());
    for event in events {
        audit.record(event, &counts);
    }
    counts.read()
}

/// Small schemes of the kinds with these names.
fn samples(kinds: &[&str]) -> Samples {
    let of_kind = |name: &&str| (registry::named(name).unwrap().samples)(700, 1500, 512).unwrap();
    kinds.iter().flat_map(of_kind).collect()
}

/// The events of writes to skewed and random blocks, in batches of random length.
fn events(scheme: &dyn BlockScheme) -> Vec<Event> {
    let witness = Arc::new(Recorder::default());
    let store = MemStore::new(scheme.store_len());
    let store: Arc<dyn Store> = Arc::new(WatchedStore::new(store, witness.clone()));
    let context = SchemeContext::over(store, Box::new(SeededRng::new(1)));
    let mut oram = scheme.create_block(context).unwrap();
    witness.take();
    let mut rng = SeededRng::new(2);
    for _ in 0..600 {
        let count = 1 + rng.below(20);
        let hot = rng.below(2) * (scheme.blocks() - 3) + 3;
        let addrs: Vec<_> = (0..count).map(|_| Addr(rng.below(hot))).collect();
        let data = vec![7; addrs.len() * scheme.block_len()];
        oram.write_many(&addrs, &data).unwrap();
        if rng.below(3) == 0 {
            oram.sync().unwrap();
        }
        if rng.below(5) == 0 {
            oram.write_dummy().unwrap();
        }
    }
    witness.take()
}

/// By how many standard deviations the part with the most draws exceeds its share.
fn excess(found: &AuditReading) -> f64 {
    let (draws, places) =
        found.draws.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let of_part = |&(here, of): &(u64, u64)| {
        let expected = draws as f64 * of as f64 / places as f64;
        (here as f64 - expected) / expected.sqrt()
    };
    found.draws.iter().map(of_part).fold(0.0, f64::max)
}

#[test]
fn every_kind_writes_where_it_says() {
    for kind in registry::KINDS {
        for (name, scheme) in (kind.samples)(700, 1500, 512).unwrap() {
            let found = audited(&*scheme, &events(&*scheme));
            assert!(found.out_of_turn == 0 && excess(&found) < 6.0, "{name}: {found:?}");
            let draws: u64 = found.draws.iter().map(|(draws, _)| draws).sum();
            assert_eq!(draws > 1000, scheme.drawn_slots().is_some(), "{name}: {found:?}");
            assert_eq!(found.in_turn > 500, kind.name != "plain", "{name}: {found:?}");
        }
    }
}

/// The planted fault: now and then a write goes elsewhere than due.
#[test]
fn a_write_out_of_turn_is_noticed() {
    for (name, scheme) in samples(&["detwo", "sq"]) {
        let mut events = events(&*scheme);
        let writes = events.iter_mut().filter(|event| event.op == Op::Write);
        writes.skip(100).step_by(100).for_each(|event| event.at += 512);
        let found = audited(&*scheme, &events);
        assert!(found.out_of_turn > 0, "{name}: {found:?}");
        assert!(found.first_out_of_turn.is_some());
    }
}

/// The planted fault: one draw in twenty goes to one slot, as if a block had a favourite place.
#[test]
fn a_favourite_slot_is_noticed() {
    for (name, scheme) in samples(&["hive", "datalair"]) {
        let mut events = events(&*scheme);
        let slots = DrawnSlots { first: 0, layout: scheme.drawn_slots().unwrap() };
        let drawn: Vec<usize> = (0..events.len())
            .filter(|&nth| events[nth].op == Op::Write && slots.drawn(&events[nth]).is_some())
            .collect();
        let favourite = events[drawn[9]].at;
        drawn.iter().step_by(20).for_each(|&nth| events[nth].at = favourite);
        let found = audited(&*scheme, &events);
        assert!(excess(&found) > 8.0, "{name}: {found:?}");
    }
}
