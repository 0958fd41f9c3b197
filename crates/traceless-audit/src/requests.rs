//! Tests whether each request is observable: a request without an access reveals that its block was
//! cached.

use crate::access::Access;
use crate::report::{Claim, Verdict};
use crate::template::Template;
use std::collections::HashMap;
use traceless_core::trace::{Op, Request};

/// The requests of a trace, and the accesses that they caused.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct RequestCounts {
    /// The number of requests, without the last one, during which a recording may have ended.
    requests: u64,
    /// Requests with no event before the next request.
    silent: u64,
    /// Accesses of the most common kind: how many most requests cause, of the requests that cause
    /// any, and how many there are in all.
    usual: u64,
    accesses: u64,
}

impl RequestCounts {
    /// Counts the accesses that each request caused.
    pub fn of(accesses: &[Access], requests: &[Request]) -> Self {
        let mut counts = Self::default();
        let mut of_kinds: HashMap<Template, u64> = HashMap::new();
        for access in accesses {
            *of_kinds.entry(access.kind).or_default() += 1;
        }
        let most_common = of_kinds.into_iter().max_by_key(|&(kind, number)| (number, kind));
        let is_common = |kind| most_common.is_some_and(|(common, _)| common == kind);
        let mut next = accesses.iter().peekable();
        let mut caused: HashMap<u64, u64> = HashMap::new();
        for two in requests.windows(2) {
            let until = two[1].events_before;
            let mut of_request = 0;
            while let Some(access) = next.next_if(|access| access.events_before < until) {
                let is_counted =
                    access.events_before >= two[0].events_before && is_common(access.kind);
                of_request += u64::from(is_counted);
            }
            if two[0].op != Op::Sync {
                counts.requests += 1;
                counts.silent += u64::from(two[0].events_before == until);
                *caused.entry(of_request).or_default() += 1;
            }
            counts.accesses += of_request;
        }
        let usual = caused.into_iter().filter(|(accesses, _)| *accesses > 0);
        counts.usual = usual.max_by_key(|&(each, number)| (number, each)).map_or(0, |two| two.0);
        counts
    }

    /// The claim that no request went without an access for good. The access of a request that
    /// waits comes later: then there are as many accesses as requests.
    pub fn are_all_observable(&self, what: &str) -> Claim {
        let Self { requests, silent, usual, accesses } = *self;
        // Doubled, to stay in whole numbers: at least half of the silent requests were not made up
        // for.
        let is_leak = silent > 0 && 2 * accesses + silent * usual <= 2 * requests * usual;
        let verdict = if is_leak { Verdict::Leak } else { Verdict::Pass };
        let evidence = format!(
            "{silent} of {requests} requests were followed by nothing; {accesses} accesses of the \
             most common kind in all, {usual} for most requests"
        );
        let name = format!("requests cannot be distinguished by whether they cause events: {what}");
        Claim::exact(name, verdict, silent, "one request without an access is found", evidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accesses::Accesses;
    use core::convert::Infallible;
    use traceless_core::trace::{Event, Surface};

    /// A trace with the given number of accesses for each request.
    fn counts(of_each: &[u64]) -> RequestCounts {
        let event = |op, at| Event { time: 0, surface: Surface::Storage, op, at, len: 1 };
        let (mut events, mut requests) = (vec![], vec![]);
        for &accesses in of_each {
            requests.push(Request {
                events_before: events.len() as u64,
                op: Op::Read,
                at: 0,
                len: 1,
            });
            events
                .extend((0..accesses).flat_map(|at| [Op::Read, Op::Write].map(|op| event(op, at))));
        }
        let trace = || Ok::<_, Infallible>(events.iter().copied().map(Ok));
        let requests = requests.into_iter().map(Ok::<_, Infallible>);
        Accesses::segment(trace).unwrap().with_secrets(requests).unwrap().request_counts.unwrap()
    }

    #[test]
    fn a_request_without_an_access_is_found() {
        let leaks =
            |of_each: &[u64]| counts(of_each).are_all_observable("A").verdict == Verdict::Leak;
        assert!(!leaks(&[1; 1000]) && !leaks(&[3; 1000]) && !leaks(&[]));
        let mut one = [1; 1000];
        one[500] = 0;
        assert!(leaks(&one));
        assert!(leaks(&one.map(|accesses| 3 * accesses)));
        // The request before waited for this one's turn.
        one[501] = 2;
        assert!(!leaks(&one));
        assert_eq!(
            counts(&one),
            RequestCounts { requests: 999, silent: 1, usual: 1, accesses: 999 }
        );
        // More than half of the requests are for cached blocks.
        let mut few = [0; 1000];
        few[..300].fill(1);
        assert!(leaks(&few));
    }
}
