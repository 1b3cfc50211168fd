//! What was asked of the hub, by class and by route.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The classes that the Hub's rate limits know, and those outside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Class {
    /// `/api/…`, but for the routes of CAS tokens.
    Api,
    /// `…/resolve/…`.
    Resolver,
    /// `…/xet-read-token` and `…/xet-write-token`. The Hub counts them as API calls; they stand
    /// apart here because clients keep tokens.
    Token,
    /// The content-addressed store, and signed download URLs.
    Cas,
}

/// Counts since the start, or since [`reset_requests`](super::LocalHub::reset_requests).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requests {
    /// Requests of [`Class::Api`].
    pub api: u64,
    /// Requests of [`Class::Resolver`].
    pub resolver: u64,
    /// Requests of [`Class::Token`].
    pub token: u64,
    /// Requests of [`Class::Cas`].
    pub cas: u64,
    /// Those refused with 429 by the [`Plan`](super::Plan)'s limit. They are counted in their classes
    /// too.
    pub limited: u64,
    /// By method and route, such as `POST /api/buckets/{ns}/{name}/batch`.
    pub routes: BTreeMap<String, u64>,
}

impl Requests {
    /// Requests of one class.
    pub fn of(&self, class: Class) -> u64 {
        match class {
            Class::Api => self.api,
            Class::Resolver => self.resolver,
            Class::Token => self.token,
            Class::Cas => self.cas,
        }
    }

    /// Requests of one route, 0 for one that was never asked.
    pub fn route(&self, route: &str) -> u64 {
        self.routes.get(route).copied().unwrap_or(0)
    }

    /// What has come since `earlier`, a former count of the same hub; 0 where the counts
    /// have been reset in between.
    pub fn since(&self, earlier: &Self) -> Self {
        let routes = self
            .routes
            .iter()
            .map(|(route, count)| (route.clone(), count.saturating_sub(earlier.route(route))))
            .filter(|&(_, count)| count > 0)
            .collect();
        Self {
            api: self.api.saturating_sub(earlier.api),
            resolver: self.resolver.saturating_sub(earlier.resolver),
            token: self.token.saturating_sub(earlier.token),
            cas: self.cas.saturating_sub(earlier.cas),
            limited: self.limited.saturating_sub(earlier.limited),
            routes,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Counter(Mutex<Requests>);

impl Counter {
    pub(super) fn count(&self, class: Class, route: &str) {
        let mut requests = self.0.lock();
        match class {
            Class::Api => requests.api += 1,
            Class::Resolver => requests.resolver += 1,
            Class::Token => requests.token += 1,
            Class::Cas => requests.cas += 1,
        }
        match requests.routes.get_mut(route) {
            Some(count) => *count += 1,
            None => {
                requests.routes.insert(route.to_owned(), 1);
            }
        }
    }

    pub(super) fn count_limited(&self) {
        self.0.lock().limited += 1;
    }

    pub(super) fn snapshot(&self) -> Requests {
        self.0.lock().clone()
    }

    pub(super) fn reset(&self) {
        *self.0.lock() = Requests::default();
    }
}
