//! The places of a server, one for each connection.
//!
//! A client that has shown who it is keeps its place. One that has not, a stranger, has until a
//! deadline, and gives its place up when all are taken and another connection comes: the oldest
//! stranger first. So whoever opens connections and says nothing, or says it slowly, keeps nobody
//! out.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a client may take to show who it is, from the connection on.
pub const STRANGER_TIME: Duration = Duration::from_secs(30);
/// How long nobody is let in when the system has no room for one more.
pub const REST: Duration = Duration::from_millis(50);

/// A connection that others can end.
pub trait Cutter: Send + 'static {
    /// Ends it, wherever it is.
    fn cut(&self);
}

/// The places of one server.
pub struct ConnectionPlaces<C> {
    limit: usize,
    state: Mutex<PlacesState<C>>,
    left: Condvar,
}

struct PlacesState<C> {
    next: u64,
    /// By number, so in the order of their coming.
    connections: BTreeMap<u64, PlaceHolder<C>>,
}

struct PlaceHolder<C> {
    is_stranger: bool,
    handle: C,
}

/// A connection's place. It is free again when this is dropped.
pub struct Place<C> {
    places: Arc<ConnectionPlaces<C>>,
    number: u64,
}

impl<C: Cutter> ConnectionPlaces<C> {
    /// So many places, all free.
    pub fn new(limit: usize) -> Arc<Self> {
        let state = Mutex::new(PlacesState { next: 0, connections: BTreeMap::new() });
        Arc::new(Self { limit, state, left: Condvar::new() })
    }

    /// Takes a place for a stranger: a free one, or that of the oldest stranger, who is cut off.
    /// None if clients that have shown who they are have all of them.
    pub fn enter(self: &Arc<Self>, handle: C) -> Option<Place<C>> {
        let mut state = self.lock();
        if state.connections.len() >= self.limit && !state.cut_oldest_stranger() {
            return None;
        }
        let number = state.next;
        state.next += 1;
        state.connections.insert(number, PlaceHolder { is_stranger: true, handle });
        Some(Place { places: self.clone(), number })
    }

    /// Cuts the oldest stranger off: the system has no room for another connection.
    pub fn make_room(&self) {
        self.lock().cut_oldest_stranger();
    }

    /// Does something with each connection.
    pub fn for_each(&self, work: impl FnMut(&C)) {
        self.lock().connections.values().map(|one| &one.handle).for_each(work);
    }

    /// Waits until all have left, or so long.
    pub fn wait(&self, longest: Duration) {
        let state = self.lock();
        let some_left = |state: &mut PlacesState<C>| !state.connections.is_empty();
        drop(self.left.wait_timeout_while(state, longest, some_left));
    }

    fn lock(&self) -> MutexGuard<'_, PlacesState<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Cutter> PlacesState<C> {
    /// Whether there was one.
    fn cut_oldest_stranger(&mut self) -> bool {
        let oldest = self.connections.iter().find(|(_, one)| one.is_stranger);
        let oldest = oldest.map(|(&number, _)| number);
        let removed = oldest.and_then(|number| self.connections.remove(&number));
        if let Some(removed) = &removed {
            removed.handle.cut();
        }
        removed.is_some()
    }
}

impl<C: Cutter> Place<C> {
    /// The client has shown who it is, and keeps its place.
    pub fn keep(&self) {
        if let Some(own) = self.places.lock().connections.get_mut(&self.number) {
            own.is_stranger = false;
        }
    }
}

#[cfg(feature = "http")]
impl<C: Cutter> Place<C> {
    /// Whether the client has not shown who it is.
    pub fn is_strangers(&self) -> bool {
        self.places.lock().connections.get(&self.number).is_none_or(|own| own.is_stranger)
    }
}

impl<C> Drop for Place<C> {
    fn drop(&mut self) {
        let mut state = self.places.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.connections.remove(&self.number);
        drop(state);
        self.places.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use traceless::clock::{Clock as _, Monotonic};

    #[derive(Clone, Default)]
    struct Counted(Arc<AtomicU32>);

    impl Cutter for Counted {
        fn cut(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn strangers_give_way_in_the_order_of_their_coming() {
        let places = ConnectionPlaces::new(3);
        let handles: [Counted; 4] = Default::default();
        let enter = |at: usize| places.enter(handles[at].clone());
        let cuts = || [0, 1, 2, 3].map(|at: usize| handles[at].0.load(Ordering::Relaxed));
        let first = enter(0).unwrap();
        first.keep();
        let (second, third) = (enter(1).unwrap(), enter(2).unwrap());
        let fourth = enter(3).unwrap();
        assert_eq!(cuts(), [0, 1, 0, 0]);
        third.keep();
        fourth.keep();
        assert!(enter(0).is_none(), "all have shown who they are");
        // One that was cut off neither comes back nor frees a place of another.
        second.keep();
        drop(second);
        assert!(enter(0).is_none());
        drop(third);
        assert!(enter(0).is_some());
        assert_eq!(cuts(), [0, 1, 0, 0]);
        drop(fourth);
        let stranger = enter(2).unwrap();
        places.make_room();
        places.make_room();
        assert_eq!(cuts(), [0, 1, 1, 0], "of those that were kept none");
        drop((first, stranger));
        places.wait(Duration::ZERO);
    }

    #[test]
    fn all_are_waited_for_and_can_be_ended() {
        let places = ConnectionPlaces::new(2);
        let handles: [Counted; 2] = Default::default();
        let stays = [0, 1].map(|at: usize| places.enter(handles[at].clone()).unwrap());
        places.for_each(Cutter::cut);
        assert_eq!([0, 1].map(|at: usize| handles[at].0.load(Ordering::Relaxed)), [1, 1]);
        // Until the longest time has passed, or the last has left.
        let (clock, short, long) = (Monotonic::start(), REST, STRANGER_TIME);
        let elapsed = || Duration::from_nanos(clock.now());
        places.wait(short);
        assert!(elapsed() >= short);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(short);
                drop(stays);
            });
            places.wait(long);
        });
        assert!((2 * short..long / 2).contains(&elapsed()), "{:?}", elapsed());
    }

    #[test]
    #[cfg(feature = "http")]
    fn who_has_shown_nothing_is_a_stranger() {
        let places = ConnectionPlaces::new(2);
        let stays = [0, 1].map(|_| places.enter(Counted::default()).unwrap());
        stays[0].keep();
        assert_eq!(stays.each_ref().map(Place::is_strangers), [false, true]);
    }
}
