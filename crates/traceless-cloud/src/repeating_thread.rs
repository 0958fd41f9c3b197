//! A thread that does a step of its work after each pause.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Repeats a step until it is dropped.
pub struct RepeatingThread {
    ends: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RepeatingThread {
    /// Starts the thread. Each call of `step` returns how long to wait for the next one, or `None`
    /// to end the thread.
    pub fn start(mut step: impl FnMut() -> Option<Duration> + Send + 'static) -> Self {
        let (ends, ended) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut pause = Duration::ZERO;
            while ended.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
                let Some(next) = step() else { break };
                pause = next;
            }
        });
        Self { ends: Some(ends), thread: Some(thread) }
    }
}

impl Drop for RepeatingThread {
    fn drop(&mut self) {
        self.ends = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
