//! Faults on demand: the next matching requests go wrong in a given way.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::requests::Class;
use super::state::State;

/// A fault for the next matching requests, once unless [`times`](Self::times) says otherwise.
///
/// ```
/// use hfbucket::local_hub::{Class, Fault};
///
/// let busy = Fault::status(503).on_class(Class::Api).times(2);
/// let lost = Fault::drop_after().on_route("batch");
/// ```
#[derive(Debug, Clone)]
pub struct Fault {
    pub(super) kind: FaultKind,
    class: Option<Class>,
    method: Option<String>,
    route: Option<String>,
    path: Option<String>,
    left: usize,
}

#[derive(Debug, Clone)]
pub(super) enum FaultKind {
    Status {
        status: u16,
        headers: Vec<(String, String)>,
        body: String,
    },
    Delay(Duration),
    DropBefore,
    DropAfter,
    /// Operations whose path holds this text fail, and are not done.
    PartialBatch {
        status: u16,
        path: String,
    },
    /// The batch is done; its report is this text.
    Report(String),
    /// The listing of this state.
    StaleListing {
        state: Arc<State>,
        /// paths-info, too.
        paths_info: bool,
    },
    /// The token route hands out a token that has expired.
    ExpiredToken,
    /// The body ends after this many bytes.
    Truncate {
        after: u64,
        /// `Content-Length` says so, and the connection stays.
        quietly: bool,
    },
}

impl FaultKind {
    /// Whether it is for this route at all. One that is not waits for a request that it is for.
    fn is_for(&self, class: Class, route: &str) -> bool {
        match self {
            Self::Status { .. }
            | Self::Delay(_)
            | Self::DropBefore
            | Self::DropAfter
            | Self::Truncate { .. } => true,
            Self::PartialBatch { .. } | Self::Report(_) => route.ends_with("/batch"),
            Self::StaleListing { paths_info, .. } => {
                route.contains("/tree") || (*paths_info && route.ends_with("/paths-info"))
            }
            Self::ExpiredToken => class == Class::Token,
        }
    }
}

impl Fault {
    fn new(kind: FaultKind) -> Self {
        Self {
            kind,
            class: None,
            method: None,
            route: None,
            path: None,
            left: 1,
        }
    }

    /// An answer with this status and a JSON error body; nothing is done.
    pub fn status(status: u16) -> Self {
        Self::new(FaultKind::Status {
            status,
            headers: vec![("content-type".into(), "application/json".into())],
            body: format!(r#"{{"error":"injected fault {status}"}}"#),
        })
    }

    /// Adds a header to the answer of [`status`](Self::status) (no effect on other faults).
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        if let FaultKind::Status { headers, .. } = &mut self.kind {
            headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Replaces the body of the answer of [`status`](Self::status) (no effect on other faults).
    pub fn with_body(mut self, text: &str) -> Self {
        if let FaultKind::Status { body, .. } = &mut self.kind {
            *body = text.to_owned();
        }
        self
    }

    /// A 429 that says to wait this many seconds, in the Hub's own headers.
    pub fn rate_limited(class: Class, seconds: u64) -> Self {
        let name = match class {
            Class::Resolver => "resolvers",
            _ => "api",
        };
        Self::status(429)
            .with_header("ratelimit", &format!(r#""{name}";r=0;t={seconds}"#))
            .with_header(
                "ratelimit-policy",
                &format!(r#""fixed window";"{name}";q=1000;w=300"#),
            )
            .on_class(class)
    }

    /// The answer comes late, by real time.
    pub fn delay(by: Duration) -> Self {
        Self::new(FaultKind::Delay(by))
    }

    /// The connection breaks and nothing is done.
    pub fn drop_before() -> Self {
        Self::new(FaultKind::DropBefore)
    }

    /// The work is done, but the connection breaks before the answer.
    pub fn drop_after() -> Self {
        Self::new(FaultKind::DropAfter)
    }

    /// A batch whose operations on paths that hold `path` fail and are not done; `status` is 200
    /// or 422.
    pub fn partial_batch(status: u16, path: &str) -> Self {
        Self::new(FaultKind::PartialBatch {
            status,
            path: path.to_owned(),
        })
        .on_route("batch")
    }

    /// A batch that is done and answers 200 with `body` instead of its report.
    pub fn batch_report(body: &str) -> Self {
        Self::new(FaultKind::Report(body.to_owned())).on_route("batch")
    }

    /// A listing that shows what there was when the fault was injected.
    pub fn stale_listing() -> Self {
        Self::new(FaultKind::StaleListing {
            state: Arc::default(),
            paths_info: false,
        })
    }

    /// paths-info is as stale as listings (no effect on faults other than
    /// [`stale_listing`](Self::stale_listing)).
    pub fn and_paths_info(mut self) -> Self {
        if let FaultKind::StaleListing { paths_info, .. } = &mut self.kind {
            *paths_info = true;
        }
        self
    }

    /// A CAS token that has already expired.
    pub fn expired_token() -> Self {
        Self::new(FaultKind::ExpiredToken).on_class(Class::Token)
    }

    /// A download whose connection breaks after this many bytes of its body, of which
    /// `Content-Length` promises all.
    pub fn truncate(after: u64) -> Self {
        let quietly = false;
        Self::new(FaultKind::Truncate { after, quietly }).on_class(Class::Cas)
    }

    /// A download that ends after this many bytes and says so in `Content-Length`: only those who
    /// know the size can tell.
    pub fn truncate_quietly(after: u64) -> Self {
        let quietly = true;
        Self::new(FaultKind::Truncate { after, quietly }).on_class(Class::Cas)
    }

    /// Only requests of this class.
    pub fn on_class(mut self, class: Class) -> Self {
        self.class = Some(class);
        self
    }

    /// Only requests with this method.
    pub fn on_method(mut self, method: &str) -> Self {
        self.method = Some(method.to_ascii_uppercase());
        self
    }

    /// Only requests whose route, as in [`Requests::routes`](super::Requests::routes), holds this
    /// text.
    pub fn on_route(mut self, part: &str) -> Self {
        self.route = Some(part.to_owned());
        self
    }

    /// Only requests whose path, percent-encoded as it was sent, holds this text.
    pub fn on_path(mut self, part: &str) -> Self {
        self.path = Some(part.to_owned());
        self
    }

    /// The next `n` matching requests.
    pub fn times(mut self, n: usize) -> Self {
        self.left = n;
        self
    }

    fn matches(&self, class: Class, method: &str, route: &str, path: &str) -> bool {
        let holds = |part: &Option<String>, text: &str| {
            part.as_deref().is_none_or(|part| text.contains(part))
        };
        self.left > 0
            && self.kind.is_for(class, route)
            && self.class.is_none_or(|wanted| wanted == class)
            && self.method.as_deref().is_none_or(|wanted| wanted == method)
            && holds(&self.route, route)
            && holds(&self.path, path)
    }
}

#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    pub(super) fn inject(&self, mut fault: Fault, now: &State) {
        if let FaultKind::StaleListing { state, .. } = &mut fault.kind {
            *state = Arc::new(now.clone());
        }
        self.0.lock().push(fault);
    }

    /// Takes one use of the first fault that matches.
    pub(super) fn take(
        &self,
        class: Class,
        method: &str,
        route: &str,
        path: &str,
    ) -> Option<FaultKind> {
        let mut faults = self.0.lock();
        let place = faults
            .iter()
            .position(|fault| fault.matches(class, method, route, path))?;
        let kind = faults[place].kind.clone();
        faults[place].left -= 1;
        if faults[place].left == 0 {
            faults.remove(place);
        }
        Some(kind)
    }

    /// Uses left over all faults.
    pub(super) fn pending(&self) -> usize {
        self.0.lock().iter().map(|fault| fault.left).sum()
    }

    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}
