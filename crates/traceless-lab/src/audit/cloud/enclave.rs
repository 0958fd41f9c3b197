//! What the enclave's answers and page accesses reveal, and enclaves with one fault each.

use super::linker::{self, shuffled};
use crate::audit::suite::AuditError;
use std::collections::BTreeSet;
use traceless::rng::{SeededRng, System};
use traceless::seal::Secret;
use traceless_audit::{Claim, Verdict};
use traceless_cloud::Result;
use traceless_cloud::channel::{Receiver, Sender};
use traceless_cloud::enclave::{Querier, QueryReply, Session, Shared};
use traceless_cloud::enclave_orders::{Location, Query};
use traceless_cloud::geometry::{Geometry, PIECE_LEN};
use traceless_cloud::kernel::{Choice, Nibbles, Slab, Touch};
use traceless_cloud::transport_seal::{Stream, TransportKeys, Vector};

/// The enclave of an audit. Each variant with a fault is sound in all other respects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Enclave {
    /// The enclave of the product.
    Product,
    /// The enclave of this module, without a fault.
    Sound,
    /// The enclave of this module, which verifies only the slot that is meant, as the paper prints
    /// it.
    ChecksChosen,
    /// The enclave of this module, which answers a query again when it is sent again.
    TakesReplays,
    /// The enclave of the product, beside a kernel that moves each row straight to its page. Only
    /// the list of pages shows the fault: queries move no rows.
    MovesStraight,
    /// The enclave of the product, beside evictions with the key stream that the paper prints. Only
    /// the server's attack on evictions ([`linker`]) shows the fault: queries do not use that
    /// stream.
    PrintedStream,
}

/// All claims about an enclave. They run equally much at every level.
pub fn claims(name: &str, enclave: Enclave, seed: u64) -> Result<Vec<Claim>, AuditError> {
    let mut fixture = Fixture::new(enclave, seed);
    let is_literal = enclave == Enclave::PrintedStream;
    Ok(vec![
        damage_claim(name, &mut fixture)?,
        replay_claim(name, &mut fixture)?,
        pages(name, enclave, seed)?,
        linker::claim(name, is_literal, seed)?,
    ])
}

/// The claim that what follows a damaged slot does not depend on which slot is meant: the length of
/// the reply, and the damage that it reports, after which the gateway sends the query again.
fn damage_claim(name: &str, fixture: &mut Fixture) -> Result<Claim> {
    let name = format!("{name}: a damaged slot does not tell which one is meant");
    let power = "every layer is damaged, and meant";
    let layers = fixture.shared.geometry.layers;
    let mut queries = 0;
    for damaged in 0..layers {
        let mut outcomes = BTreeSet::new();
        for target in 0..layers {
            let (mut order, mut slots) = fixture.query(target as u32);
            let slot_len = fixture.shared.geometry.slot_len();
            slots[damaged * slot_len + 5] ^= 1;
            let mut reply = fixture.enclave.query(&mut order, &slots)?;
            let len = reply.len();
            let reported = QueryReply::decode(fixture.replies.open(&mut reply)?)?.damaged;
            outcomes.insert(format!("{len} bytes, damaged layers {reported:#b}"));
            queries += 1;
        }
        if outcomes.len() > 1 {
            let outcomes: Vec<String> = outcomes.into_iter().collect();
            let evidence = format!("with layer {damaged} damaged: {}", outcomes.join("; "));
            return Ok(Claim::exact(name, Verdict::Leak, queries, power, evidence));
        }
    }
    // An intact query must still be answered: an enclave that fails for good would be broken.
    let (mut order, slots) = fixture.query(0);
    fixture.enclave.query(&mut order, &slots)?;
    Ok(Claim::exact(name, Verdict::Pass, queries, power, format!("{queries} damaged queries")))
}

/// The claim that no query is answered twice.
fn replay_claim(name: &str, fixture: &mut Fixture) -> Result<Claim> {
    let name = format!("{name}: a query is answered once");
    let power = "each of 100 is sent again, at once and later";
    let mut answered = 0;
    let queries: Vec<_> = (0..100).map(|i| fixture.query(i % 3)).collect();
    for (order, slots) in &queries {
        fixture.enclave.query(&mut order.clone(), slots)?;
        answered += u64::from(fixture.enclave.query(&mut order.clone(), slots).is_ok());
    }
    for (order, slots) in &queries {
        answered += u64::from(fixture.enclave.query(&mut order.clone(), slots).is_ok());
    }
    let verdict = if answered == 0 { Verdict::Pass } else { Verdict::Leak };
    let evidence = format!("{answered} of 200 replays were answered");
    Ok(Claim::exact(name, verdict, if answered == 0 { 200 } else { answered }, power, evidence))
}

/// The claim that the paper's kernel touches the same pages in the same order for every permutation
/// of rows. For the network, `./test memcheck` compares every address.
fn pages(name: &str, enclave: Enclave, seed: u64) -> Result<Claim> {
    const ROWS: usize = 512;
    let name = format!("{name}: pages do not tell where rows go");
    let power = "rows in order, backwards, and in three random orders";
    let mut rng = SeededRng::new(seed);
    let mut orders: Vec<Vec<u32>> =
        vec![(0..ROWS as u32).collect(), (0..ROWS as u32).rev().collect()];
    orders.extend((0..3).map(|_| shuffled(ROWS, &mut rng)));
    let pages = orders.iter().map(|order| pages_of(enclave, order)).collect::<Result<Vec<_>>>()?;
    let (first, rest) = pages.split_first().expect("several orders");
    for pages in rest {
        let equal = pages.iter().zip(first).take_while(|(a, b)| a == b).count() as u64;
        if equal < first.len().max(pages.len()) as u64 {
            let evidence = format!("page {equal} of two orders differs");
            return Ok(Claim::exact(name, Verdict::Leak, equal, power, evidence));
        }
    }
    let count = first.len() as u64;
    Ok(Claim::exact(name, Verdict::Pass, count, power, format!("{count} pages of each")))
}

#[derive(Default)]
struct PageLog(Vec<usize>);

impl Touch for PageLog {
    fn page(&mut self, page: usize) {
        self.0.push(page);
    }
}

fn pages_of(enclave: Enclave, dest: &[u32]) -> Result<Vec<usize>> {
    let mut pages = PageLog::default();
    if enclave == Enclave::MovesStraight {
        for to in dest {
            pages.page(*to as usize * PIECE_LEN / 4096);
        }
        return Ok(pages.0);
    }
    let stream = Stream::new(&Secret::from_bytes([1; 32]));
    let new: Vec<Vector> = (0..dest.len()).map(|row| [row as u8; PIECE_LEN]).collect();
    let old: Vec<Option<Vector>> = new.iter().copied().map(Some).collect();
    let mut slab = Slab::new(dest.len())?;
    Nibbles::default().permute(dest, (0, 1), &stream, (&old, &new), &mut slab, &mut pages);
    Ok(pages.0)
}

/// An enclave together with the gateway's side of its session.
struct Fixture {
    shared: Shared,
    outer: TransportKeys,
    sender: Sender,
    replies: Receiver,
    enclave: Box<dyn Answers>,
}

impl Fixture {
    fn new(enclave: Enclave, seed: u64) -> Self {
        let geometry = Geometry {
            roots: 1,
            arity: 3,
            layers: 4,
            round_slots: 10,
            inner_slots: 20,
            leaf_slots: 25,
            block_len: 64,
            partition: 0,
        };
        let key = Secret::random(&mut SeededRng::new(seed));
        let shared = Shared::new(geometry, Choice::Benes, &key);
        let session = shared.session(&[1; 16], &[2; 16]);
        let enclave: Box<dyn Answers> = match enclave {
            Enclave::Product | Enclave::MovesStraight | Enclave::PrintedStream => {
                Box::new(Querier::new(&shared, &session, Box::new(SeededRng::new(seed + 1))))
            }
            Enclave::Sound | Enclave::ChecksChosen | Enclave::TakesReplays => {
                Box::new(FaultyEnclave::new(enclave, &shared, session))
            }
        };
        let session = shared.session(&[1; 16], &[2; 16]);
        Self {
            outer: TransportKeys::new(&shared.transport, Choice::Benes),
            sender: Sender::new(&session.query, Box::new(SeededRng::new(seed + 2))),
            replies: Receiver::new(&session.reply),
            shared,
            enclave,
        }
    }

    /// A query for the slot of layer `target`, and the slots of its path.
    fn query(&mut self, target: u32) -> (Vec<u8>, Vec<u8>) {
        let g = &self.shared.geometry;
        let mut query = Query { round: 7, leaf: 5, locations: Default::default(), target };
        let mut slots = vec![0; g.layers * g.slot_len()];
        for (layer, slot) in slots.chunks_exact_mut(g.slot_len()).enumerate() {
            query.locations[layer] = Location { slot: 3, attempt: 11 };
            let seal = self.outer.seal(query.version(g, layer));
            seal.seal_slot(g, 3, &vec![layer as u8; g.sealed_len()], slot);
        }
        (self.sender.seal(&query.encode(g)), slots)
    }
}

/// Answers queries.
trait Answers {
    fn query(&mut self, order: &mut [u8], slots: &[u8]) -> Result<Vec<u8>>;
}

impl Answers for Querier {
    fn query(&mut self, order: &mut [u8], slots: &[u8]) -> Result<Vec<u8>> {
        self.query(order, slots)
    }
}

/// An enclave that hides no memory access. It answers correctly, or with one fault.
struct FaultyEnclave {
    enclave: Enclave,
    geometry: Geometry,
    outer: TransportKeys,
    session: Session,
    receiver: Receiver,
    replies: Sender,
}

impl FaultyEnclave {
    fn new(enclave: Enclave, shared: &Shared, session: Session) -> Self {
        Self {
            enclave,
            geometry: shared.geometry,
            outer: TransportKeys::new(&shared.transport, shared.choice),
            receiver: Receiver::new(&session.query),
            replies: Sender::new(&session.reply, Box::new(System)),
            session,
        }
    }
}

impl Answers for FaultyEnclave {
    fn query(&mut self, order: &mut [u8], slots: &[u8]) -> Result<Vec<u8>> {
        if self.enclave == Enclave::TakesReplays {
            self.receiver = Receiver::new(&self.session.query);
        }
        let g = &self.geometry;
        let (number, order) = self.receiver.open_numbered(order)?;
        let query = Query::decode(order, g)?;
        let (mut answer, mut damaged) = (Vec::new(), 0_u16);
        for (layer, sealed) in slots.chunks_exact(g.slot_len()).enumerate() {
            let is_target = layer as u32 == query.target;
            if self.enclave == Enclave::ChecksChosen && !is_target {
                continue;
            }
            let (version, slot) = (query.version(g, layer), query.locations[layer].slot);
            let mut plain = vec![0; g.part_len(0)];
            let opened =
                self.outer.seal(version).open((slot, 0), &sealed[..g.part_end(0)], &mut plain);
            if opened.is_err() {
                damaged |= 1 << layer;
                plain.fill(0);
            }
            if is_target {
                answer = plain;
            }
        }
        let reply = QueryReply { order: number, block: &answer, damaged };
        Ok(self.replies.seal(&reply.encode()))
    }
}
