//! Work on all cores.
//!
//! ```
//! use traceless_sim::parallel::{cores, in_parallel};
//!
//! let seeds: Vec<u64> = (0..100).collect();
//! let squares = in_parallel(&seeds, cores(), |seed| seed * seed);
//! assert_eq!(squares[..4], [0, 1, 4, 9]);
//! ```

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Applies `work` to each item, with at most `threads` at a time. Results are in the order of
/// items.
pub fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(nth) else { return };
                    let result = work(item);
                    results.lock().expect("held briefly").push((nth, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no thread holds it");
    results.sort_unstable_by_key(|(nth, _)| *nth);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_from_any_number_of_threads() {
        let items: Vec<u64> = (0..100).collect();
        for threads in [0, 1, 3, 1000] {
            let squares = in_parallel(&items, threads, |item| item * item);
            assert!(squares.iter().zip(&items).all(|(s, i)| *s == i * i), "{threads}");
            assert_eq!(squares.len(), items.len());
        }
        assert!(in_parallel(&[] as &[u8], 2, |_| ()).is_empty());
    }
}
