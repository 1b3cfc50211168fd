//! The Hub's rate limits: fixed windows per token, or per address without one.

use std::collections::HashMap;
use std::net::IpAddr;

use chrono::{DateTime, TimeDelta, Utc};
use parking_lot::Mutex;

use super::requests::Class;

/// The Hub's windows.
pub(super) const WINDOW: TimeDelta = TimeDelta::seconds(300);

/// The plans of the Hub and their limits per five minutes
/// (<https://huggingface.co/docs/hub/rate-limits>).
///
/// Requests without a token get the numbers of [`Anonymous`](Self::Anonymous) whatever the plan, but
/// for [`Custom`](Self::Custom), which holds for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Plan {
    /// 500 API calls, 3 000 resolvers.
    Anonymous,
    /// 1 000 API calls, 5 000 resolvers.
    Free,
    /// 2 500 API calls, 12 000 resolvers.
    Pro,
    /// 3 000 API calls, 20 000 resolvers.
    Team,
    /// 6 000 API calls, 50 000 resolvers.
    Enterprise,
    /// 10 000 API calls, 100 000 resolvers.
    EnterprisePlus,
    /// Numbers of one's own.
    Custom {
        /// API calls per five minutes.
        api: u64,
        /// Resolvers per five minutes.
        resolvers: u64,
    },
}

impl Plan {
    fn limit(self, class: Limited) -> u64 {
        let (api, resolvers) = match self {
            Self::Anonymous => (500, 3_000),
            Self::Free => (1_000, 5_000),
            Self::Pro => (2_500, 12_000),
            Self::Team => (3_000, 20_000),
            Self::Enterprise => (6_000, 50_000),
            Self::EnterprisePlus => (10_000, 100_000),
            Self::Custom { api, resolvers } => (api, resolvers),
        };
        match class {
            Limited::Api => api,
            Limited::Resolvers => resolvers,
        }
    }
}

/// Whose window a request counts in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Asker {
    Token(String),
    Address(IpAddr),
}

impl Plan {
    fn for_asker(self, asker: &Asker) -> Self {
        match (self, asker) {
            (Self::Custom { .. }, _) | (_, Asker::Token(_)) => self,
            (_, Asker::Address(_)) => Self::Anonymous,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Limited {
    Api,
    Resolvers,
}

impl Limited {
    fn of(class: Class) -> Option<Self> {
        match class {
            Class::Api | Class::Token => Some(Self::Api),
            Class::Resolver => Some(Self::Resolvers),
            Class::Cas => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Resolvers => "resolvers",
        }
    }
}

/// Where a caller stands after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    class: Limited,
    pub(super) allowed: bool,
    left: u64,
    reset_secs: i64,
    limit: u64,
    window_secs: i64,
}

impl Standing {
    /// `RateLimit`.
    pub(super) fn rate_limit(&self) -> String {
        format!(
            r#""{}";r={};t={}"#,
            self.class.name(),
            self.left,
            self.reset_secs
        )
    }

    /// `RateLimit-Policy`.
    pub(super) fn policy(&self) -> String {
        format!(
            r#""fixed window";"{}";q={};w={}"#,
            self.class.name(),
            self.limit,
            self.window_secs
        )
    }
}

/// When it began, and the requests since.
type Window = (DateTime<Utc>, u64);

#[derive(Debug)]
pub(super) struct Limiter {
    plan: Plan,
    length: TimeDelta,
    windows: Mutex<HashMap<(Asker, Limited), Window>>,
}

impl Limiter {
    pub(super) fn new(plan: Plan, length: TimeDelta) -> Self {
        Self {
            plan,
            length,
            windows: Mutex::default(),
        }
    }

    /// Counts a request of `asker`; `None` for a class without a limit.
    pub(super) fn take(&self, asker: Asker, class: Class, now: DateTime<Utc>) -> Option<Standing> {
        let class = Limited::of(class)?;
        let limit = self.plan.for_asker(&asker).limit(class);
        let mut windows = self.windows.lock();
        let (start, used) = windows.entry((asker, class)).or_insert((now, 0));
        let end = *start + self.length;
        if now >= end {
            (*start, *used) = (now, 0);
        }
        let allowed = *used < limit;
        *used += u64::from(allowed);
        let end = *start + self.length;
        Some(Standing {
            class,
            allowed,
            left: limit - *used,
            // Whole seconds, rounded up, so that whoever waits as told is not too early.
            reset_secs: ((end - now).num_milliseconds() + 999) / 1000,
            limit,
            window_secs: self.length.num_seconds(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_fills_and_starts_anew() {
        let plan = Plan::Custom {
            api: 2,
            resolvers: 1,
        };
        let limiter = Limiter::new(plan, WINDOW);
        let start = DateTime::UNIX_EPOCH;
        let take = |caller: &str, class, secs| {
            let now = start + TimeDelta::seconds(secs);
            limiter.take(Asker::Token(caller.to_owned()), class, now)
        };
        let first = take("a", Class::Api, 0).unwrap();
        assert_eq!(first.rate_limit(), r#""api";r=1;t=300"#);
        assert_eq!(first.policy(), r#""fixed window";"api";q=2;w=300"#);
        assert!(
            take("a", Class::Token, 10).unwrap().allowed,
            "tokens are API calls"
        );
        let full = take("a", Class::Api, 245).unwrap();
        assert!(!full.allowed);
        assert_eq!(full.rate_limit(), r#""api";r=0;t=55"#);
        assert!(
            take("b", Class::Api, 245).unwrap().allowed,
            "each caller has a window"
        );
        assert!(
            take("a", Class::Resolver, 245).unwrap().allowed,
            "each class has a window"
        );
        assert_eq!(take("a", Class::Cas, 245), None);
        assert!(take("a", Class::Api, 300).unwrap().allowed);
    }
}
