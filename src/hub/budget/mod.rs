//! The requests that a token may still make, shared by all clients of an endpoint in this process.
//!
//! The Hub counts per token, in fixed windows of five minutes, and says in each answer what is left:
//! <https://huggingface.co/docs/hub/rate-limits>. A request is counted before it goes, so that many
//! callers together stay within the limit; when little is left they are spaced out until the window
//! ends, which lets the next ones gather into larger requests; when nothing is left they wait, or
//! learn at once that their deadline comes first.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use hashlink::LruCache;
use parking_lot::Mutex;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::info;
use url::Url;

use super::auth::Secret;
use super::rate_limit::{policy_in_words, requested_wait, stated};

mod window;

use window::{Admission, Window};

/// Tokens per endpoint whose budgets are kept. A program that changes its token often has had all
/// but the last few refused.
const TOKENS: usize = 64;

/// A wait that is worth a line in the log.
const LONG: Duration = Duration::from_secs(1);

/// What a request counts as. The names are those of the `RateLimit` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Class {
    Api,
    Resolvers,
}

impl Class {
    fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Resolvers => "resolvers",
        }
    }
}

/// The budgets of one endpoint, by token and class.
pub(super) struct Budgets {
    /// Tokens are kept as keyed hashes: nothing here can print one.
    hasher: RandomState,
    budgets: Mutex<LruCache<(u64, Class), Arc<Budget>>>,
}

static ENDPOINTS: LazyLock<Mutex<HashMap<String, Weak<Budgets>>>> = LazyLock::new(Mutex::default);

impl Budgets {
    /// The budgets of this endpoint, which live as long as any of its clients.
    pub(super) fn of(endpoint: &Url) -> Arc<Self> {
        let origin = endpoint.origin().ascii_serialization();
        let mut endpoints = ENDPOINTS.lock();
        if let Some(budgets) = endpoints.get(&origin).and_then(Weak::upgrade) {
            return budgets;
        }
        endpoints.retain(|_, budgets| budgets.strong_count() > 0);
        let budgets = Arc::new(Self {
            hasher: RandomState::new(),
            budgets: Mutex::new(LruCache::new(TOKENS)),
        });
        endpoints.insert(origin, Arc::downgrade(&budgets));
        budgets
    }

    pub(super) fn budget(&self, token: Option<&Secret>, class: Class) -> Arc<Budget> {
        let asker = self.hasher.hash_one(token.map(Secret::expose));
        let mut budgets = self.budgets.lock();
        let budget = budgets
            .entry((asker, class))
            .or_insert_with(|| Arc::new(Budget::new(class)));
        Arc::clone(budget)
    }
}

/// One token's requests of one class.
pub(super) struct Budget {
    class: Class,
    state: Mutex<State>,
    /// Callers go in the order in which they came: only the first looks at the window.
    turn: Semaphore,
    /// For the one whose turn it is: an answer has changed the window.
    changed: Notify,
}

#[derive(Default)]
struct State {
    window: Window,
    /// The limit in the Hub's words.
    policy: Option<String>,
}

/// The caller's time is over before the next request may go. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "nothing was sent: the Hub allows no more '{class}' requests for now{}{}",
    .policy.as_ref().map(|policy| format!(" ({policy})")).unwrap_or_default(),
    due(*.wait, *.left)
)]
pub(super) struct UsedUp {
    class: &'static str,
    policy: Option<String>,
    /// How long until the next may go; `None` if others are waiting for the same.
    wait: Option<Duration>,
    left: Duration,
}

fn due(wait: Option<Duration>, left: Duration) -> String {
    let left = left.as_secs_f64();
    match wait {
        Some(wait) => format!(
            "; the next may go in {:.1} s and only {left:.1} s are left",
            wait.as_secs_f64()
        ),
        None => format!("; others were waiting before this one, which gave up after {left:.1} s"),
    }
}

impl Budget {
    fn new(class: Class) -> Self {
        Self {
            class,
            state: Mutex::default(),
            turn: Semaphore::new(1),
            changed: Notify::new(),
        }
    }

    /// Waits until a request may go and counts it. Cancel safe: who gives up counts nothing.
    pub(super) async fn reserve(self: &Arc<Self>, deadline: Instant) -> Result<Reserved, UsedUp> {
        let start = Instant::now();
        // Those before this one only make it later.
        let first = self.state.lock().window.admission(start, deadline);
        if let Admission::At(time) = first
            && time >= deadline
        {
            return Err(self.used_up(Some(time - start), deadline - start));
        }
        let reserved = timeout_at(deadline, self.wait_turn(deadline))
            .await
            .unwrap_or_else(|_| Err(self.used_up(None, deadline - start)))?;
        let waited = start.elapsed();
        metrics::histogram!("hfbucket_hub_wait_seconds", "class" => self.class.name())
            .record(waited.as_secs_f64());
        if waited >= LONG {
            info!(
                class = self.class.name(),
                ?waited,
                "waited for the Hub's rate limit"
            );
        }
        Ok(reserved)
    }

    async fn wait_turn(self: &Arc<Self>, deadline: Instant) -> Result<Reserved, UsedUp> {
        let _turn = self.turn.acquire().await;
        loop {
            let now = Instant::now();
            let admission = self.state.lock().window.admission(now, deadline);
            match admission {
                Admission::Now => return Ok(self.go(now)),
                Admission::At(time) if time >= deadline => {
                    return Err(self.used_up(Some(time - now), deadline - now));
                }
                Admission::At(time) => tokio::select! {
                    () = sleep_until(time) => {}
                    () = self.changed.notified() => {}
                },
                Admission::AfterAnswer => self.changed.notified().await,
            }
        }
    }

    fn go(self: &Arc<Self>, now: Instant) -> Reserved {
        self.state.lock().window.sent(now);
        metrics::counter!("hfbucket_hub_requests_total", "class" => self.class.name()).increment(1);
        Reserved {
            budget: Arc::clone(self),
            answered: false,
        }
    }

    fn used_up(&self, wait: Option<Duration>, left: Duration) -> UsedUp {
        UsedUp {
            class: self.class.name(),
            policy: self.state.lock().policy.clone(),
            wait,
            left,
        }
    }
}

/// A request that is counted.
pub(super) struct Reserved {
    budget: Arc<Budget>,
    answered: bool,
}

impl Reserved {
    /// Takes what the answer says of the limit.
    pub(super) fn answered(mut self, status: StatusCode, headers: &HeaderMap) {
        self.answered = true;
        let class = self.budget.class.name();
        let now = Instant::now();
        let mut state = self.budget.state.lock();
        if let Some(policy) = policy_in_words(headers) {
            state.policy = Some(policy);
        }
        state.window.answered(now, stated(headers, class));
        if status == StatusCode::TOO_MANY_REQUESTS {
            metrics::counter!("hfbucket_hub_rate_limited_total", "class" => class).increment(1);
            if let Some(wait) = requested_wait(headers) {
                state.window.refused(now, wait);
            }
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.answered {
            self.budget.state.lock().window.lost();
        }
        self.budget.changed.notify_one();
    }
}

#[cfg(test)]
mod tests;
