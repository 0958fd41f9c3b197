//! Waits for a future on this thread, outside any runtime: storage engines are asynchronous, and
//! the host's rounds are not.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Polls `future` on this thread until it is done; between polls the thread is parked.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(ParkedThread(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            // A wake before this call lets it return at once.
            Poll::Pending => thread::park(),
        }
    }
}

struct ParkedThread(Thread);

impl Wake for ParkedThread {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_future_that_another_thread_completes_is_awaited() {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let thread = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            sender.send(7).unwrap();
        });
        assert_eq!(block_on(receiver).unwrap(), 7);
        assert_eq!(block_on(async { 3 }), 3);
        thread.join().unwrap();
    }
}
