//! Main areas that grow, in every scheme that has one.

use super::*;
use crate::scheme::{Growth, MainArea};

const PAGES: u64 = 2000;

/// How a scheme does its refreshes.
type Make = fn(Areas) -> Box<dyn PageScheme>;

const MAKES: [Make; 3] = [
    |areas| Box::new(DetWo::new(areas)),
    |areas| Box::new(DetWo::with_few_requests(areas)),
    |areas| Box::new(DeferredDetWo::new(areas)),
];

fn main_area(growth: Growth, (p, q): (u32, u32)) -> MainArea {
    MainArea { pages: PAGES, refresh: Refresh::new(p, q).unwrap(), growth }
}

fn areas(store: Arc<dyn Store>, growth: Growth, ratio: (u32, u32)) -> Areas {
    let main = main_area(growth, ratio);
    Areas::growing(store, main, Cipher::default(), &key(), Box::new(System)).unwrap()
}

fn store(ratio: (u32, u32)) -> MemStore {
    MemStore::new(len(PAGES, ratio))
}

#[test]
fn pages_come_back_while_the_main_area_grows() {
    for ratio in RATIOS {
        for growth in [Growth::Evictions, Growth::Pages] {
            for make in MAKES {
                let areas = areas(Arc::new(store(ratio)), growth, ratio);
                let memory = Areas::memory_for(main_area(growth, ratio)).unwrap();
                assert_eq!(areas.trusted_bytes(), memory);
                check_contents(make(areas), 5000);
            }
        }
    }
}

/// All that leaves, of a program that uses so many pages, and frees one after so many writes.
fn events_of((pages, writes): (u64, u64), growth: Growth, make: Make) -> Vec<Event> {
    let recorder = Arc::new(Recorder::default());
    let store = Arc::new(WatchedStore::new(store((3, 1)), recorder.clone()));
    let mut scheme = make(areas(store, growth, (3, 1)));
    for nth in 0..1500 {
        // The highest pages, so that places differ from pages.
        let page = PAGES - 1 - nth % pages;
        scheme.swap(Some(page), None, &mut [7; PAGE_LEN]).unwrap();
        scheme.settle().unwrap();
        if nth % writes == 0 {
            scheme.forget(page);
        }
    }
    recorder.take().into_iter().filter(|event| event.op == Op::Write).collect()
}

#[test]
fn writes_depend_on_the_pages_only_if_the_growth_does() {
    for make in MAKES {
        for growth in Growth::ALL {
            let [few, many] = [(100, 50), (1400, 7)].map(|user| events_of(user, growth, make));
            assert_eq!(few == many, growth != Growth::Pages, "{growth:?}");
            let end = few.iter().filter(|event| event.len as usize == PAGE_LEN);
            let slots: std::collections::BTreeSet<u64> = end.map(|event| event.at).collect();
            let expected = match growth {
                Growth::Whole => 2500..2668,
                Growth::Evictions => 1500..2667,
                Growth::Pages => 300..400,
            };
            assert!(expected.contains(&slots.len()), "{growth:?}: {}", slots.len());
        }
    }
}

#[test]
fn a_changed_slot_of_an_area_that_grew_is_an_error_or_has_no_effect() {
    let store = Arc::new(store((3, 1)));
    let mut model = Model::new(MAKES[0](areas(store.clone(), Growth::Pages, (3, 1))), 2);
    let mut rng = SeededRng::new(2);
    for step in 0..2500 {
        model.touch(step % 900, &mut rng, step).unwrap();
    }
    // Pages left in their order first, so each has its own number's place.
    let mut refused = 0;
    for page in 0..900 {
        let at = Extent::new(page * PAGE_LEN as u64, 1);
        let mut byte = [0];
        store.read(&[at], &mut byte).unwrap();
        store.write(&[at], &[byte[0] ^ 1]).unwrap();
        let mut frame = [0; PAGE_LEN];
        match model.scheme.look(page, &mut frame) {
            Ok(()) if model.resident.contains_key(&page) => {}
            Ok(()) => assert!(model.truth[&page] == frame, "page {page}"),
            Err(Error::Tampered { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
        store.write(&[at], &byte).unwrap();
    }
    assert!(refused > 100, "{refused}");
}

/// Once they are no longer pinned, many pages leave in one fault: more than the first holding area
/// has slots.
#[test]
fn many_pages_leave_in_one_fault() {
    for make in MAKES {
        let mut scheme = make(areas(Arc::new(store((3, 1))), Growth::Evictions, (3, 1)));
        for page in 0..900 {
            scheme.swap(Some(page), None, &mut page_of(page)).unwrap();
        }
        scheme.settle().unwrap();
        let mut frame = [0; PAGE_LEN];
        for page in 0..900 {
            scheme.swap(None, Some(page), &mut frame).unwrap();
            assert!(frame == page_of(page), "page {page}");
        }
    }
}
