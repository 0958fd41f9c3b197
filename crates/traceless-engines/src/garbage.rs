//! Stripes that nothing can read or make readable again, until the engine has removed them.

use crate::client::EngineClient;
use crate::engine::{Engine, StripeName};
use crate::retry::persist;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Stripes that one request removes.
const REMOVALS_MAX: usize = 256;
/// Most stripes that are kept for a further attempt. What is forgotten is found again when the
/// store is opened.
const WAITING_MAX: usize = 1 << 16;

/// The stripes that are to be removed.
#[derive(Default)]
pub struct Garbage {
    /// Stripes that could not be removed.
    waiting: Arc<Mutex<Vec<StripeName>>>,
}

impl Garbage {
    /// Removes stripes in the background, and the ones that could not be removed before.
    pub fn remove<E: Engine>(&self, client: &EngineClient<E>, names: Vec<StripeName>) {
        let mut all = std::mem::take(&mut *lock(&self.waiting));
        all.extend(names);
        if all.is_empty() {
            return;
        }
        let (waiting, (engine, patience)) = (self.waiting.clone(), client.parts());
        client.spawn(async move {
            for names in all.chunks(REMOVALS_MAX) {
                if persist(patience, || engine.remove(names)).await.is_err() {
                    let mut waiting = lock(&waiting);
                    let room = WAITING_MAX.saturating_sub(waiting.len());
                    waiting.extend(names.iter().take(room));
                }
            }
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
