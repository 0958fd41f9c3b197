//! Waits for a future on this thread, outside any runtime: storage engines are asynchronous, and
//! the host's rounds are not.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Polls `future` on this thread until it is done; between polls the thread is parked.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let parked =
        Arc::new(ParkedThread { thread: thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&parked));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            // The flag keeps a wake that came before, also where the poll itself parked this
            // thread and so took the token of `unpark`.
            Poll::Pending => {
                while !parked.is_woken.swap(false, Ordering::Acquire) {
                    thread::park();
                }
            }
        }
    }
}

struct ParkedThread {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for ParkedThread {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn a_wake_is_not_lost_when_the_poll_parks_the_thread() {
        let (done, ended) = mpsc::channel();
        thread::spawn(move || {
            let mut polls = 0;
            let future = poll_fn(|context| {
                polls += 1;
                if polls == 2 {
                    return Poll::Ready(5);
                }
                context.waker().wake_by_ref();
                // Takes the token, as a lock or a channel inside the poll may.
                thread::park();
                Poll::Pending
            });
            done.send(block_on(future)).unwrap();
        });
        assert_eq!(ended.recv_timeout(Duration::from_secs(30)), Ok(5), "the wake was lost");
    }

    #[cfg(feature = "http")]
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
