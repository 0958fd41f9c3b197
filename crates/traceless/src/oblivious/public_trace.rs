//! The public part of the trace of an Oblivious array in a store. All pages count as equal, and the
//! writes of a sync must follow from the pages that were read before it.

use crate::oblivious::ArrayGeometry;
use std::collections::BTreeSet;
use traceless_core::trace::{Event, Op};

/// The syncs and states of a trace, without the events that follow from the paths read. Panics at
/// any other write.
pub fn template(geometry: &ArrayGeometry, events: &[Event]) -> Vec<Event> {
    let end_of_pages = geometry.areas()[2].1;
    let (page_len, state_len) = (geometry.page_len() as u64, geometry.state_len());
    let (mut unsaved, mut known, mut log) = (BTreeSet::new(), BTreeSet::new(), 0);
    let mut out = vec![];
    for event in events {
        let (is_page, len) = (event.at < end_of_pages, u64::from(event.len));
        match event.op {
            Op::Sync => out.push(*event),
            Op::Read if is_page => {
                assert_eq!(len, page_len, "pages are read one by one");
                unsaved.insert(event.at);
                known.insert(event.at);
            }
            // An opening discards the pages that were read since the last sync.
            Op::Read => unsaved.clear(),
            Op::Write if is_page => {
                let pages = (event.at..event.at + len).step_by(page_len as usize);
                assert!({ pages }.all(|at| known.contains(&at)), "a page that was not read");
            }
            Op::Write if log > 0 => {
                assert_eq!(len, log, "a log of other pages");
                log = 0;
            }
            Op::Write => {
                let pages = (len - state_len) / 8;
                let is_rebuilt = pages == 0;
                assert!(is_rebuilt || pages == unsaved.len() as u64, "a table of other pages");
                log = pages * page_len;
                unsaved.clear();
                out.push(Event { len: state_len as u32, ..*event });
            }
        }
    }
    assert_eq!(log, 0, "a state without its log");
    out
}
