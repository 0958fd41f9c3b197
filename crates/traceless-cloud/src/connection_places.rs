//! The places of a server, one for each connection.
//!
//! An authenticated client keeps its place. An unauthenticated client, a *stranger*, has until a
//! deadline. It loses its place when all are taken and another connection arrives; the oldest
//! stranger goes first. So a client that opens connections and stays silent or slow keeps no other
//! client out.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a client may take from its connection until it is authenticated.
pub const STRANGER_TIME: Duration = Duration::from_secs(30);
/// How long the server pauses when the system has no resources for another connection.
pub const REST: Duration = Duration::from_millis(50);

/// A handle of a connection that another thread can end.
pub trait Cutter: Send + 'static {
    /// Ends the connection.
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
    /// By number, which is the order of arrival.
    connections: BTreeMap<u64, PlaceHolder<C>>,
}

struct PlaceHolder<C> {
    is_stranger: bool,
    handle: C,
}

/// A connection's place, which is freed when this is dropped.
pub struct Place<C> {
    places: Arc<ConnectionPlaces<C>>,
    number: u64,
}

impl<C: Cutter> ConnectionPlaces<C> {
    /// `limit` free places.
    pub fn new(limit: usize) -> Arc<Self> {
        let state = Mutex::new(PlacesState { next: 0, connections: BTreeMap::new() });
        Arc::new(Self { limit, state, left: Condvar::new() })
    }

    /// Takes a place for a stranger: a free one, or that of the oldest stranger, which is cut off.
    /// `None` if authenticated clients hold all places.
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

    /// Cuts the oldest stranger off, because the system has no resources for another connection.
    pub fn make_room(&self) {
        self.lock().cut_oldest_stranger();
    }

    /// Calls `work` with each connection.
    pub fn for_each(&self, work: impl FnMut(&C)) {
        self.lock().connections.values().map(|one| &one.handle).for_each(work);
    }

    /// Waits until all connections have left, for at most `longest`.
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
    /// Returns whether there was a stranger.
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
    /// Marks the client as authenticated, so that it keeps its place.
    pub fn keep(&self) {
        if let Some(own) = self.places.lock().connections.get_mut(&self.number) {
            own.is_stranger = false;
        }
    }
}

#[cfg(feature = "http")]
impl<C: Cutter> Place<C> {
    /// Whether the client is not authenticated, or was cut off.
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
    use traceless_core::clock::{Clock as _, Monotonic};

    #[derive(Clone, Default)]
    struct Counted(Arc<AtomicU32>);

    impl Cutter for Counted {
        fn cut(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_oldest_stranger_is_cut_first() {
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
        // A cut-off connection neither returns nor frees the place of another.
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
    fn all_connections_are_awaited_and_can_be_cut() {
        let places = ConnectionPlaces::new(2);
        let handles: [Counted; 2] = Default::default();
        let stays = [0, 1].map(|at: usize| places.enter(handles[at].clone()).unwrap());
        places.for_each(Cutter::cut);
        assert_eq!([0, 1].map(|at: usize| handles[at].0.load(Ordering::Relaxed)), [1, 1]);
        // A wait ends at its limit, or when the last connection has left.
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
    fn an_unauthenticated_client_is_a_stranger() {
        let places = ConnectionPlaces::new(2);
        let stays = [0, 1].map(|_| places.enter(Counted::default()).unwrap());
        stays[0].keep();
        assert_eq!(stays.each_ref().map(Place::is_strangers), [false, true]);
    }
}
