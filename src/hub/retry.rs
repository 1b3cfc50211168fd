//! The one retry loop: which failures are sent again, after how long, and when to give up.

use std::future::Future;
use std::time::Duration;

use rand::RngExt;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::debug;

use super::error::{Error, ErrorKind, Tries};

/// How often and how long a call is tried.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RetryPolicy {
    /// Attempts after the first.
    pub max_retries: usize,
    /// The whole time for one call, attempts and waits together.
    pub timeout: Duration,
    /// The upper bound of the first wait.
    pub init_backoff: Duration,
    /// The upper bound of any wait that the Hub did not ask for.
    pub max_backoff: Duration,
    /// What the bound grows by from wait to wait.
    pub base: f64,
}

impl RetryPolicy {
    /// When a call that starts now must be over.
    pub(super) fn deadline(&self) -> Instant {
        const FOREVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
        Instant::now() + self.timeout.min(FOREVER)
    }
}

/// What is known of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// The Hub has not begun to work on it: never harmful to send again.
    Undone,
    /// The answer is lost or says nothing: the work may or may not be done.
    Unknown,
    /// An answer that another attempt would not change.
    Final,
}

/// Whether doing the work twice does harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Safety {
    /// Sent again after any failure that may pass.
    Idempotent,
    /// Sent again only if the Hub has not begun; the caller settles the rest.
    OnlyUndone,
}

/// A failed attempt.
#[derive(Debug)]
pub(super) struct Failure {
    pub error: Error,
    pub class: Class,
    /// The wait that the server asked for.
    pub wait: Option<Duration>,
}

impl Failure {
    pub(super) fn new(class: Class, error: impl Into<Error>) -> Self {
        Self {
            error: error.into(),
            class,
            wait: None,
        }
    }

    pub(super) fn last(error: impl Into<Error>) -> Self {
        Self::new(Class::Final, error)
    }
}

/// A call that failed for good.
#[derive(Debug)]
pub(super) struct GaveUp {
    /// The last failure, with the counts in it.
    pub error: Error,
    pub class: Class,
    /// Whether any attempt may have done the work unseen.
    pub maybe_done: bool,
    /// The wait that the server asked for last.
    pub wait: Option<Duration>,
}

impl From<GaveUp> for Error {
    fn from(gave_up: GaveUp) -> Self {
        gave_up.error
    }
}

/// Waits that grow, with full jitter: anything from nothing up to the bound, so that many clients
/// do not come back together.
#[derive(Debug)]
pub(super) struct Backoff {
    bound: f64,
    max: f64,
    base: f64,
}

impl Backoff {
    pub(super) fn new(policy: &RetryPolicy) -> Self {
        Self {
            bound: policy.init_backoff.as_secs_f64(),
            max: policy.max_backoff.as_secs_f64(),
            base: policy.base.max(1.0),
        }
    }

    pub(super) fn next(&mut self) -> Duration {
        self.next_at(rand::rng().random::<f64>())
    }

    /// `position` between 0 and 1.
    fn next_at(&mut self, position: f64) -> Duration {
        let bound = self.bound.min(self.max);
        self.bound = (self.bound * self.base).min(self.max);
        Duration::try_from_secs_f64(bound * position).unwrap_or(Duration::ZERO)
    }
}

/// Waits, unless that would take longer than there is time: then says at once how long it would
/// have taken and what was left.
pub(super) async fn wait_within(
    wait: Duration,
    deadline: Instant,
) -> Result<(), (Duration, Duration)> {
    let left = deadline.saturating_duration_since(Instant::now());
    if wait >= left {
        return Err((wait, left));
    }
    sleep(wait).await;
    Ok(())
}

/// Runs `attempt` until it succeeds, fails for good, or `deadline` leaves no room for another.
pub(super) async fn run<T, F, A>(
    policy: &RetryPolicy,
    deadline: Instant,
    safety: Safety,
    mut attempt: F,
) -> Result<T, GaveUp>
where
    F: FnMut() -> A,
    A: Future<Output = Result<T, Failure>>,
{
    let start = Instant::now();
    let mut backoff = Backoff::new(policy);
    let mut attempts = 0;
    let mut maybe_done = false;
    loop {
        attempts += 1;
        let (failure, in_time) = match timeout_at(deadline, attempt()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(failure)) => (failure, true),
            Err(_) => (out_of_time(), false),
        };
        maybe_done |= failure.class == Class::Unknown;
        let may_retry = match failure.class {
            Class::Undone => true,
            Class::Unknown => safety == Safety::Idempotent,
            Class::Final => false,
        };
        let mut refused_wait = None;
        if may_retry && in_time && attempts <= policy.max_retries {
            let own = backoff.next();
            let wait = failure.wait.unwrap_or(own);
            debug!(attempts, ?wait, error = %failure.error, "attempt failed");
            match wait_within(wait, deadline).await {
                Ok(()) => continue,
                Err(refused) => refused_wait = Some(refused),
            }
        }
        let tries = Tries {
            attempts,
            elapsed: start.elapsed(),
            refused_wait,
        };
        return Err(GaveUp {
            error: failure.error.after(tries),
            class: failure.class,
            maybe_done,
            wait: failure.wait,
        });
    }
}

fn out_of_time() -> Failure {
    let message = "no answer within the time allowed for this call";
    Failure::new(Class::Unknown, Error::new(ErrorKind::Timeout, message))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn policy(max_retries: usize, timeout: u64) -> RetryPolicy {
        RetryPolicy {
            max_retries,
            timeout: Duration::from_secs(timeout),
            init_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(8),
            base: 2.0,
        }
    }

    fn failure(class: Class, wait: Option<u64>) -> Failure {
        Failure {
            wait: wait.map(Duration::from_secs),
            ..Failure::new(class, Error::new(ErrorKind::Server, "down"))
        }
    }

    /// Runs through scripted failures and then succeeds with the number of attempts.
    async fn go(
        policy: &RetryPolicy,
        safety: Safety,
        failures: impl IntoIterator<Item = Failure>,
    ) -> Result<usize, GaveUp> {
        let mut failures: VecDeque<_> = failures.into_iter().collect();
        let mut attempts = 0;
        run(policy, policy.deadline(), safety, || {
            attempts += 1;
            std::future::ready(failures.pop_front().map_or(Ok(attempts), Err))
        })
        .await
    }

    #[test]
    fn waits_grow_up_to_the_bound_and_jitter_fully() {
        let mut backoff = Backoff::new(&policy(9, 60));
        let bounds: Vec<_> = (0..5).map(|_| backoff.next_at(1.0).as_secs()).collect();
        assert_eq!(bounds, [1, 2, 4, 8, 8]);
        let mut backoff = Backoff::new(&policy(9, 60));
        assert_eq!(backoff.next_at(0.0), Duration::ZERO);
        assert_eq!(backoff.next_at(0.25), Duration::from_millis(500));
        for _ in 0..100 {
            assert!(backoff.next() <= Duration::from_secs(8));
        }
        let wild = RetryPolicy {
            base: f64::NAN,
            init_backoff: Duration::MAX,
            ..policy(9, 60)
        };
        assert!(Backoff::new(&wild).next_at(1.0) <= Duration::from_secs(8));
    }

    #[tokio::test(start_paused = true)]
    async fn passing_failures_are_tried_again() {
        let unknown = |_| failure(Class::Unknown, None);
        let attempts = go(&policy(3, 60), Safety::Idempotent, (0..3).map(unknown)).await;
        assert_eq!(attempts.unwrap(), 4);
        let gave_up = go(&policy(2, 60), Safety::Idempotent, (0..3).map(unknown)).await;
        let gave_up = gave_up.unwrap_err();
        assert!(gave_up.maybe_done);
        assert!(gave_up.error.to_string().starts_with("down (3 attempts in"));
        let gave_up = go(
            &policy(9, 60),
            Safety::Idempotent,
            [failure(Class::Final, None)],
        )
        .await;
        assert!(!gave_up.unwrap_err().maybe_done);
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_be_done_is_repeated_only_where_that_is_harmless() {
        let failures = [failure(Class::Undone, None), failure(Class::Unknown, None)];
        let gave_up = go(&policy(9, 60), Safety::OnlyUndone, failures).await;
        let gave_up = gave_up.unwrap_err();
        assert_eq!(gave_up.class, Class::Unknown);
        assert!(gave_up.error.to_string().contains("2 attempts"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_that_the_server_asks_for_is_kept() {
        let start = Instant::now();
        let failures = [failure(Class::Undone, Some(56))];
        let attempts = go(&policy(3, 60), Safety::OnlyUndone, failures).await;
        assert_eq!(attempts.unwrap(), 2);
        assert_eq!(start.elapsed(), Duration::from_secs(56));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_beyond_the_deadline_is_not_begun() {
        let start = Instant::now();
        let failures = [
            failure(Class::Undone, Some(20)),
            failure(Class::Undone, Some(56)),
        ];
        let gave_up = go(&policy(3, 60), Safety::Idempotent, failures)
            .await
            .unwrap_err();
        assert_eq!(start.elapsed(), Duration::from_secs(20));
        let text = gave_up.error.to_string();
        assert!(
            text.contains("next attempt is due in 56.0 s and only 40.0 s are left"),
            "{text}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_attempt_ends_at_the_deadline() {
        let start = Instant::now();
        let policy = policy(3, 60);
        let gave_up = run(&policy, policy.deadline(), Safety::Idempotent, || {
            std::future::pending::<Result<(), Failure>>()
        })
        .await
        .unwrap_err();
        assert_eq!(start.elapsed(), Duration::from_secs(60));
        assert_eq!(gave_up.error.kind(), ErrorKind::Timeout);
        assert!(gave_up.maybe_done);
        assert!(gave_up.error.to_string().contains("1 attempt in 60.0 s"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_endless_timeout_is_fine() {
        let policy = policy(1, u64::MAX);
        let failures = [failure(Class::Undone, Some(1))];
        assert_eq!(go(&policy, Safety::Idempotent, failures).await.unwrap(), 2);
    }
}
