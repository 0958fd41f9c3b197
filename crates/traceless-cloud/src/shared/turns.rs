//! Turns: first come, first served.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Lets one thread at a time go on, in the order in which they came.
#[derive(Default)]
pub struct Turns {
    numbers: Mutex<Numbers>,
    changed: Condvar,
}

#[derive(Default)]
struct Numbers {
    /// The number that the next thread gets.
    next: u64,
    /// The number of the thread that has its turn.
    now: u64,
}

/// A turn, until this is dropped.
pub struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits for the own turn.
    pub fn wait(&self) -> Turn<'_> {
        let mut numbers = self.lock();
        let own = numbers.next;
        numbers.next += 1;
        drop(
            self.changed
                .wait_while(numbers, |numbers| numbers.now != own)
                .unwrap_or_else(PoisonError::into_inner),
        );
        Turn(self)
    }

    /// Whether a thread has its turn.
    #[cfg(test)]
    pub fn is_taken(&self) -> bool {
        let numbers = self.lock();
        numbers.now < numbers.next
    }

    fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().now += 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    #[test]
    fn threads_go_on_one_at_a_time_in_the_order_of_their_coming() {
        let (turns, inside) = (Turns::default(), AtomicUsize::new(0));
        let order = Mutex::new(Vec::new());
        let first = turns.wait();
        thread::scope(|scope| {
            for nth in 0..8 {
                let (turns, order, inside) = (&turns, &order, &inside);
                scope.spawn(move || {
                    let _turn = turns.wait();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    order.lock().unwrap().push(nth);
                    thread::sleep(Duration::from_millis(1));
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
                // Until it waits.
                while turns.lock().next < nth + 2 {
                    thread::yield_now();
                }
            }
            assert!(order.lock().unwrap().is_empty(), "nobody has its turn yet");
            drop(first);
        });
        assert_eq!(order.into_inner().unwrap(), (0..8).collect::<Vec<u64>>());
    }
}
