//! The places that a randomised scheme writes, read off its events, and the claims about them.

use super::runner::Session;
use super::target::{BLOCK_LEN, Target};
use super::workload::{Pattern, mix};
use traceless::store::Layout;
use traceless::trace::{Event, Op};
use traceless::{Addr, Result};
use traceless_audit::{Claim, Places};

/// What is written, and what it is called.
const WORKLOADS: [(Pattern, &str); 3] = [
    (Pattern::Same, "one address"),
    (Pattern::Random, "random addresses"),
    (Pattern::Hot, "a few hot blocks"),
];

/// The claims about the places of every target.
pub fn claims(targets: &[Target], writes: u64) -> Result<Vec<Claim>> {
    let mut claims = vec![];
    for target in targets {
        let mut all = vec![];
        for (seed, (pattern, what)) in (31..).zip(WORKLOADS) {
            let what = format!("{what}, {}", target.name);
            let places = places_of(target, pattern, writes, seed)?;
            claims.push(places.are_uniform(&what));
            claims.push(places.are_serially_independent(&what, 1));
            claims.push(places.are_serially_independent(&format!("{what}, two apart"), 2));
            claims.push(places.do_not_come_again(&what));
            if pattern != Pattern::Same {
                claims.push(places.are_independent_of_addresses(&what));
            }
            all.push(places);
        }
        let what = format!("one address, random addresses, {}", target.name);
        claims.push(all[0].are_spread_as(&all[1], &what));
    }
    Ok(claims)
}

/// Fills the target, then writes block after block, each with a sync, and reads off what places
/// each write has taken.
fn places_of(target: &Target, pattern: Pattern, writes: u64, seed: u64) -> Result<Places> {
    let layout = target.drawn_slots().expect("its places are drawn");
    let mut session = Session::new(target, false, mix(seed, 21));
    let mut open = session.create()?;
    let n = target.blocks();
    let mut places = Places { slots: layout.slots, writes: vec![], addresses: vec![] };
    let block = vec![0x5a; BLOCK_LEN];
    for i in 0..n + writes {
        let address = if i < n { i } else { pattern.address(i, n, seed) };
        open.oram().write(Addr(address), &block)?;
        open.oram().sync()?;
        places.addresses.push(address);
        // So that events do not pile up.
        places.writes.extend(drawn(&session.witness.events.take(), &layout));
    }
    open.oram().close()?;
    places.writes.extend(drawn(&session.witness.events.take(), &layout));
    places.writes.drain(..n as usize);
    places.addresses.drain(..n as usize);
    assert_eq!(places.writes.len(), places.addresses.len(), "each write takes places once");
    Ok(places)
}

/// The slots whose bodies are written, between each two syncs; of syncs with none, nothing.
fn drawn(events: &[Event], layout: &Layout) -> Vec<Vec<u64>> {
    let epochs = events.split(|e| e.op == Op::Sync);
    epochs
        .map(|epoch| epoch.iter().filter_map(|e| slot_of(e, layout)).collect::<Vec<_>>())
        .filter(|slots| !slots.is_empty())
        .collect()
}

/// The slot whose body an event writes, if it does.
fn slot_of(event: &Event, layout: &Layout) -> Option<u64> {
    // The last body of a stripe may be written together with the first entry of the next.
    let has_body = event.op == Op::Write && event.len as usize >= layout.body_len;
    if !has_body || event.at >= layout.len() {
        return None;
    }
    let within = event.at % layout.stripe_len();
    let nth = within.checked_sub(layout.header_len() as u64)? / layout.body_len as u64;
    Some(event.at / layout.stripe_len() * layout.stripe_slots + nth)
}
