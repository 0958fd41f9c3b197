//! The leaves that accesses of a scheme with hidden reads draw, taken from its events, and the
//! claims about them.

use super::runner::Session;
use super::slot_draws::WORKLOADS;
use super::target::{AuditTarget, BLOCK_LEN};
use super::workload::{Pattern, mix};
use traceless::{Addr, Result};
use traceless_audit::{Claim, Draws, Verdict, are_indistinguishable};

/// Accesses of a user, at most: all their events are kept.
const ACCESSES_MAX: u64 = 100_000;

/// Accesses of each user, where the size of the audit gives `wanted`.
pub fn accesses(wanted: u64) -> u64 {
    wanted.min(ACCESSES_MAX)
}

/// The claims about the leaves of every target.
pub fn claims(targets: &[AuditTarget], wanted: u64, seed: u64) -> Result<Vec<Claim>> {
    let mut claims = vec![];
    for target in targets {
        let mut all = vec![];
        for (nth, (pattern, what)) in (51..).zip(WORKLOADS) {
            match sample(target, pattern, accesses(wanted), mix(seed, nth))? {
                Ok(draws) => all.push((draws, what)),
                Err(why) => {
                    let name = format!("an access reads one slot of each level: {what}");
                    let evidence = format!("{}: {why}", target.name);
                    claims.push(Claim::exact(name, Verdict::Leak, 0, "one access", evidence));
                }
            }
        }
        for (draws, what) in &all {
            claims.extend(draws.claims(&format!("{what}, {}", target.name)));
        }
        if let [(one, _), (random, _), ..] = &all[..] {
            let what = format!("one address, random addresses, {}", target.name);
            claims.push(one.have_distribution_of(random, &what));
            claims.push(are_indistinguishable(one, random, &what));
        }
    }
    Ok(claims)
}

/// Fills the target, then reads and writes block after block, and collects the leaf of each access.
fn sample(
    target: &AuditTarget,
    pattern: Pattern,
    accesses: u64,
    seed: u64,
) -> Result<std::result::Result<Draws, &'static str>> {
    let mut session = Session::new(target, true, mix(seed, 21));
    let mut open = session.create()?;
    let (n, mut secrets, mut block) = (target.blocks(), vec![], vec![0x5a; BLOCK_LEN]);
    for i in 0..n + accesses {
        let address = if i < n { i } else { pattern.address(i, n, seed) };
        if i % 3 == 0 {
            open.oram().read(Addr(address), &mut block)?;
        } else {
            open.oram().write(Addr(address), &block)?;
        }
        secrets.push(address);
    }
    let trace = target.read_trace(&session.witness.events.take()).expect("it hides reads");
    Ok(trace.and_then(|trace| {
        if trace.drawn.len() != secrets.len() {
            return Err("an access does not show");
        }
        // A few leaves do not show, where another access had read their bucket whole.
        let shown = trace.drawn.into_iter().zip(secrets).skip(n as usize);
        let (drawn, secrets) = shown.filter_map(|(leaf, of)| Some((leaf?, of))).unzip();
        Ok(Draws { noun: "leaves", places: trace.places, drawn, secrets, ..Draws::default() })
    }))
}
