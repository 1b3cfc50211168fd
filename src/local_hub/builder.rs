//! How a [`LocalHub`] is set up.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use chrono::TimeDelta;
use thiserror::Error;

use super::LocalHub;
use super::auth::TokenGrant;
use super::limiter::{self, Plan};
use super::persist;

/// Why a hub did not start.
#[derive(Debug, Error)]
#[error("LocalHub: {0}")]
pub struct StartError(#[from] pub(super) Fault);

/// What stood in the way.
#[derive(Debug, Error)]
pub(super) enum Fault {
    #[error("cannot listen on {address}: {source}")]
    Listen {
        address: String,
        source: std::io::Error,
    },
    #[error("cannot use the data folder {}: {source}", path.display())]
    DataDir {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot open {}: {source}", path.display())]
    Database {
        path: PathBuf,
        source: persist::Error,
    },
    #[error("the content-addressed store: {0}")]
    Cas(String),
    #[error("the proxy before the content-addressed store: {0}")]
    Proxy(#[from] reqwest::Error),
    #[error("a task of the start has ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// Builds a [`LocalHub`].
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use hfbucket::local_hub::{LocalHub, Plan, TokenGrant};
///
/// let hub = LocalHub::builder()
///     .in_memory()
///     .with_token(TokenGrant::new("hf_alice", "alice").owner_of("my-org"))
///     .with_token(TokenGrant::new("hf_reader", "bob").owner_of("my-org").read_only())
///     .with_plan(Plan::Free)
///     .start()
///     .await?;
/// assert_eq!(hub.token(), "hf_alice");
/// hub.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct LocalHubBuilder {
    pub(super) data_dir: Option<PathBuf>,
    pub(super) host: IpAddr,
    pub(super) port: u16,
    pub(super) grants: Vec<TokenGrant>,
    pub(super) plan: Option<Plan>,
    pub(super) window: TimeDelta,
    pub(super) short_pages: bool,
    pub(super) direct_cas: bool,
}

impl Default for LocalHubBuilder {
    fn default() -> Self {
        Self {
            data_dir: None,
            host: Ipv4Addr::LOCALHOST.into(),
            port: 0,
            grants: Vec::new(),
            plan: None,
            window: limiter::WINDOW,
            short_pages: false,
            direct_cas: false,
        }
    }
}

impl LocalHubBuilder {
    /// Keeps everything in memory, the default.
    pub fn in_memory(mut self) -> Self {
        self.data_dir = None;
        self
    }

    /// Keeps everything in this folder, which is made if there is none. A change is on disk before it
    /// is answered, and a hub that starts on the same folder goes on with it. One hub at a time.
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(path.into());
        self
    }

    /// The port of the Hub's API; 0, the default, takes a free one. The content-addressed store
    /// always takes a free one.
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// The address to listen on, `127.0.0.1` by default. Any other opens the hub to whoever can reach
    /// it, over plain http.
    pub fn with_host(mut self, host: IpAddr) -> Self {
        self.host = host;
        self
    }

    /// Adds a token. Without any there is one, of the user `local` who also owns `my-org`.
    pub fn with_token(mut self, grant: TokenGrant) -> Self {
        self.grants.push(grant);
        self
    }

    /// Enforces the rate limits of a plan, per token, or per address for requests without one.
    pub fn with_plan(mut self, plan: Plan) -> Self {
        self.plan = Some(plan);
        self
    }

    /// Makes the windows of the rate limits as long as this, in whole seconds and at least one, so that
    /// a test can see several. The Hub's, and the default, are 300 seconds long.
    pub fn with_rate_limit_window(mut self, length: Duration) -> Self {
        let seconds = length.as_secs().clamp(1, 300);
        self.window = TimeDelta::seconds(seconds.cast_signed());
        self
    }

    /// Lists in pages of a few items, the first one empty: what the Hub may do, and clients must bear.
    pub fn with_short_pages(mut self, short: bool) -> Self {
        self.short_pages = short;
        self
    }

    /// Sends clients to the content-addressed store itself: a little faster, but its requests are
    /// neither counted nor checked for tokens, and faults do not reach them.
    pub fn with_direct_cas(mut self, direct: bool) -> Self {
        self.direct_cas = direct;
        self
    }

    /// Starts the hub on the current Tokio runtime, which must be able to run blocking tasks.
    ///
    /// # Errors
    ///
    /// If it cannot listen, or cannot use the data folder.
    pub async fn start(self) -> Result<LocalHub, StartError> {
        Ok(LocalHub::start(self).await?)
    }
}
