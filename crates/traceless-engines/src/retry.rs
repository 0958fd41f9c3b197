//! Repeats a request that failed or had no answer, for a limited time.

use crate::engine::RequestError;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How long a request may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// An attempt without an answer for so long is given up.
    pub attempt: Duration,
    /// No attempt begins so long after the first one.
    pub total: Duration,
    /// The first pause between attempts. Each one is twice as long as the last, up to a second.
    pub pause: Duration,
}

impl Patience {
    /// The patience for a request that moves so many bytes: a network that is slow but works must
    /// not look as if it did not.
    pub fn for_bytes(self, bytes: usize) -> Self {
        let more = Duration::from_millis(bytes as u64 / BYTES_PER_MS_MIN);
        Self { attempt: self.attempt + more, total: self.total + more, ..self }
    }
}

/// Bytes that move in a millisecond at least, beyond the patience for an answer.
const BYTES_PER_MS_MIN: u64 = 500;

/// A network that drops a connection without a word is noticed in seconds, and a server may take
/// some more to restart, or its replica to take its place. It is less than a gateway waits.
pub const PATIENCE: Patience = Patience {
    attempt: Duration::from_secs(4),
    total: Duration::from_secs(15),
    pause: Duration::from_millis(20),
};

/// A gateway that cannot write its state has to end, so it waits longer; but not longer than a
/// supervisor waits for the end of a program.
pub(crate) const STATE_PATIENCE: Patience = Patience { total: Duration::from_secs(25), ..PATIENCE };

/// A second copy is rather left behind than waited for.
pub(crate) const COPY_PATIENCE: Patience = Patience { total: Duration::from_secs(1), ..PATIENCE };

/// One attempt, to find a wrong address soon.
pub(crate) const ONE_ATTEMPT: Patience = Patience { total: Duration::ZERO, ..PATIENCE };

const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Repeats an attempt until it succeeds, its failure is lasting, or the patience is at its end. All
/// attempts send the same request, and when they are made depends on the engine alone.
pub async fn persist<T, F>(
    patience: Patience,
    attempt: impl FnMut() -> F,
) -> Result<T, RequestError>
where
    F: Future<Output = Result<T, RequestError>>,
{
    persist_observed(patience, attempt, |_| {}).await
}

/// The same, and `observe` gets each failure that may pass, or nothing after a success.
pub async fn persist_observed<T, F>(
    patience: Patience,
    mut attempt: impl FnMut() -> F,
    observe: impl Fn(Option<&RequestError>),
) -> Result<T, RequestError>
where
    F: Future<Output = Result<T, RequestError>>,
{
    let begin = Instant::now();
    let mut pause = patience.pause;
    loop {
        let failed = match timeout(patience.attempt, attempt()).await {
            Ok(Err(error)) if error.is_passing => error,
            Ok(Err(error)) => return Err(error),
            Ok(Ok(done)) => {
                observe(None);
                return Ok(done);
            }
            Err(_) => RequestError::passing("no answer"),
        };
        observe(Some(&failed));
        if begin.elapsed() + pause >= patience.total {
            let after = begin.elapsed().as_secs_f32();
            let message = match patience.total {
                Duration::ZERO => failed.message,
                _ => format!("{} (given up after {after:.0} s)", failed.message),
            };
            return Err(RequestError { message, ..failed });
        }
        sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::future::pending;

    const SHORT: Patience = Patience {
        attempt: Duration::from_millis(50),
        total: Duration::from_millis(600),
        pause: Duration::from_millis(20),
    };

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
    }

    #[test]
    fn passing_failures_and_silence_are_overcome() {
        let attempts = Cell::new(0);
        let found = run(persist(SHORT, || {
            attempts.set(attempts.get() + 1);
            let attempt = attempts.get();
            async move {
                match attempt {
                    1 => Err(RequestError::passing("loading")),
                    2 => pending().await,
                    _ => Ok(attempt),
                }
            }
        }));
        assert_eq!(found.unwrap(), 3);
    }

    #[test]
    fn lasting_failures_end_at_once_and_passing_ones_in_time() {
        let attempts = Cell::new(0);
        let fail = |error: RequestError| {
            attempts.set(0);
            run(persist(SHORT, || {
                attempts.set(attempts.get() + 1);
                let error = error.clone();
                async move { Err::<(), _>(error) }
            }))
            .unwrap_err()
        };
        assert!(!fail(RequestError::lasting("wrong password")).is_passing);
        assert_eq!(attempts.get(), 1);
        assert!(fail(RequestError::passing("away")).message.starts_with("away (given up after"));
        assert!((4..20).contains(&attempts.get()), "{}", attempts.get());
    }
}
