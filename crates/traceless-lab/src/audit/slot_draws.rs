//! The slots that a randomised scheme writes, taken from its events, and the claims about them.

use super::runner::Session;
use super::target::{AuditTarget, BLOCK_LEN};
use super::workload::{Pattern, mix};
use traceless::store::SlotLayout;
use traceless::trace::{Event, Op};
use traceless::{Addr, Result};
use traceless_audit::{Claim, Draws, are_indistinguishable};

/// Patterns of writes, and their names in claims.
pub const WORKLOADS: [(Pattern, &str); 3] = [
    (Pattern::Same, "one address"),
    (Pattern::Random, "random addresses"),
    (Pattern::Hot, "a few hot blocks"),
];

/// The claims about the slots of every target.
pub fn claims(targets: &[AuditTarget], writes: u64, seed: u64) -> Result<Vec<Claim>> {
    let mut claims = vec![];
    for target in targets {
        let mut all = vec![];
        for (nth, (pattern, what)) in (31..).zip(WORKLOADS) {
            let draws = sample(target, pattern, writes, mix(seed, nth))?;
            claims.extend(draws.claims(&format!("{what}, {}", target.name)));
            all.push(draws);
        }
        let what = format!("one address, random addresses, {}", target.name);
        claims.push(all[0].have_distribution_of(&all[1], &what));
        claims.push(are_indistinguishable(&all[0], &all[1], &what));
    }
    Ok(claims)
}

/// Fills the target, then writes block after block, each with a sync, and collects the slots that
/// each write takes.
fn sample(target: &AuditTarget, pattern: Pattern, writes: u64, seed: u64) -> Result<Draws> {
    let layout = target.drawn_slots().expect("its places are drawn");
    let mut session = Session::new(target, false, mix(seed, 21));
    let mut open = session.create()?;
    let n = target.blocks();
    let (mut of_writes, mut secrets) = (vec![], vec![]);
    let block = vec![0x5a; BLOCK_LEN];
    for i in 0..n + writes {
        let address = if i < n { i } else { pattern.address(i, n, seed) };
        open.oram().write(Addr(address), &block)?;
        open.oram().sync()?;
        secrets.push(address);
        // Taken at every write, to bound the memory that events use.
        of_writes.extend(written_slots(&session.witness.events.take(), &layout));
    }
    open.oram().close()?;
    of_writes.extend(written_slots(&session.witness.events.take(), &layout));
    assert_eq!(of_writes.len(), secrets.len(), "each write takes places once");
    of_writes.drain(..n as usize);
    secrets.drain(..n as usize);
    let each = of_writes.first().map_or(1, Vec::len);
    assert!(of_writes.iter().all(|places| places.len() == each), "each write takes as many places");
    let drawn = of_writes.concat();
    let (noun, places) = ("written slots", layout.slots);
    Ok(Draws { noun, places, each, drawn, secrets, ..Draws::default() })
}

/// The slots with bodies written between each two syncs; intervals without any are left out.
fn written_slots(events: &[Event], layout: &SlotLayout) -> Vec<Vec<u64>> {
    let epochs = events.split(|e| e.op == Op::Sync);
    epochs
        .map(|epoch| epoch.iter().filter_map(|e| slot_of(e, layout)).collect::<Vec<_>>())
        .filter(|slots| !slots.is_empty())
        .collect()
}

/// The slot of the body that an event writes, if it writes one.
fn slot_of(event: &Event, layout: &SlotLayout) -> Option<u64> {
    // The last body of a stripe may be written together with the first entry of the next.
    let has_body = event.op == Op::Write && event.len as usize >= layout.body_len;
    if !has_body || event.at >= layout.len() {
        return None;
    }
    let within = event.at % layout.stripe_len();
    let nth = within.checked_sub(layout.header_len() as u64)? / layout.body_len as u64;
    Some(event.at / layout.stripe_len() * layout.stripe_slots + nth)
}
