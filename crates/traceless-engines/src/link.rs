//! A connection that is replaced once a request on it failed or had no answer.

use crate::engine::RequestError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Mutex as AsyncMutex;

/// A connection that many requests share, made when it is first needed.
pub struct Link<C> {
    current: Mutex<Option<Arc<LinkedConnection<C>>>>,
    /// Held by the request that connects.
    connecting: AsyncMutex<()>,
}

/// One connection of a [`Link`].
struct LinkedConnection<C> {
    connection: C,
    is_broken: AtomicBool,
}

/// A request's use of a connection. Unless [`Use::end`] is called, the request had no answer, and
/// the next one gets another connection.
pub struct Use<C> {
    linked: Arc<LinkedConnection<C>>,
    is_usable: bool,
}

impl<C> Default for Link<C> {
    fn default() -> Self {
        Self { current: Mutex::new(None), connecting: AsyncMutex::new(()) }
    }
}

impl<C> Link<C> {
    /// The connection, or the one that `connect` makes.
    pub async fn get<F>(&self, connect: impl FnOnce() -> F) -> Result<Use<C>, RequestError>
    where
        F: Future<Output = Result<C, RequestError>>,
    {
        if let Some(working) = self.working() {
            return Ok(Use::new(working));
        }
        let _connecting = self.connecting.lock().await;
        // Another request may have connected meanwhile.
        if let Some(working) = self.working() {
            return Ok(Use::new(working));
        }
        let connection = connect().await?;
        let made = Arc::new(LinkedConnection { connection, is_broken: AtomicBool::new(false) });
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(made.clone());
        Ok(Use::new(made))
    }

    fn working(&self) -> Option<Arc<LinkedConnection<C>>> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clone().filter(|linked| !linked.is_broken.load(Ordering::Relaxed))
    }
}

impl<C> Use<C> {
    fn new(linked: Arc<LinkedConnection<C>>) -> Self {
        Self { linked, is_usable: false }
    }

    /// The connection.
    pub fn connection(&self) -> &C {
        &self.linked.connection
    }

    /// Ends the use. If `is_usable`, the connection can serve further requests.
    pub fn end(mut self, is_usable: bool) {
        self.is_usable = is_usable;
    }
}

impl<C> Drop for Use<C> {
    fn drop(&mut self) {
        if !self.is_usable {
            self.linked.is_broken.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use tokio::runtime::Builder;

    #[test]
    fn a_connection_is_shared_until_a_request_on_it_has_no_answer() {
        let (link, made) = (Link::default(), AtomicU32::new(0));
        let connect = || async { Ok(made.fetch_add(1, Ordering::Relaxed)) };
        Builder::new_current_thread().build().unwrap().block_on(async {
            let (first, second) =
                (link.get(connect).await.unwrap(), link.get(connect).await.unwrap());
            assert_eq!((*first.connection(), *second.connection()), (0, 0));
            first.end(true);
            assert_eq!(*link.get(connect).await.unwrap().connection(), 0, "dropped at once");
            let third = link.get(connect).await.unwrap();
            assert_eq!(*third.connection(), 1);
            // The end of a use of an earlier connection says nothing about this one.
            second.end(false);
            third.end(true);
            let fourth = link.get(connect).await.unwrap();
            assert_eq!(*fourth.connection(), 1);
            fourth.end(false);
            assert_eq!(*link.get(connect).await.unwrap().connection(), 2);
            let refused = async { Err(RequestError::passing("refused")) };
            assert!(link.get(|| refused).await.is_err());
            assert_eq!(*link.get(connect).await.unwrap().connection(), 3);
        });
    }
}
