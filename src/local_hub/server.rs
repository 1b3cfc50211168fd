//! [`LocalHub`]: listeners, tasks, and their end.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use xet_client::cas_client::simulation::{
    DeletionControlableClient, DirectAccessClient, LocalClient, LocalServer, MemoryClient,
};
use xet_runtime::core::XetContext;

use super::auth::TokenGrant;
use super::builder::{Fault as Failure, LocalHubBuilder};
use super::cas::{self, Proxy};
use super::connection::{Connection, Connections, CuttableListener};
use super::content::Content;
use super::extract::Origins;
use super::faults::Fault;
use super::hub::{Hub, HubParts};
use super::limiter::Limiter;
use super::persist::Persist;
use super::requests::Requests;
use super::routes;
use super::state::State;

/// How long open requests may go on after [`LocalHub::shutdown`].
const GRACE: Duration = Duration::from_secs(2);

/// The Hub's bucket API and a content-addressed store, in this process.
///
/// Without tokens of one's own there is one, [`token`](Self::token), of the user `local`, who owns the
/// namespaces `local` and `my-org`. Dropping the hub stops it at once; [`shutdown`](Self::shutdown)
/// lets open requests finish.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use hfbucket::local_hub::{Fault, LocalHub};
/// use hfbucket::HfBucketBuilder;
/// use object_store::{ObjectStoreExt, path::Path};
///
/// let hub = LocalHub::builder().in_memory().start().await?;
/// # let cache = tempfile::tempdir()?;
/// let store = HfBucketBuilder::new()
///     .with_url("hf://buckets/my-org/test")
///     .with_endpoint(hub.endpoint())
///     .with_token(hub.token())
///     .with_create_bucket_if_missing(true)
/// #   .with_cache_dir(cache.path())
///     .build()?;
///
/// // The Hub's answer to the first batch gets lost. The store finds out what has become of it.
/// hub.inject(Fault::drop_after().on_route("batch"));
/// store.put(&Path::from("a"), "1".into()).await?;
/// assert_eq!(hub.requests().route("POST /api/buckets/{ns}/{name}/batch"), 1);
/// # Ok(())
/// # }
/// ```
pub struct LocalHub {
    hub: Arc<Hub>,
    stop: CancellationToken,
    connections: Connections,
    stop_cas: Option<oneshot::Sender<()>>,
    tasks: JoinSet<()>,
}

impl LocalHub {
    /// A hub in memory on a free port of this machine, unless the builder is told otherwise.
    pub fn builder() -> LocalHubBuilder {
        LocalHubBuilder::default()
    }

    pub(super) async fn start(options: LocalHubBuilder) -> Result<Self, Failure> {
        let api = listen(SocketAddr::new(options.host, options.port)).await?;
        let proxy = listen(SocketAddr::new(options.host, 0)).await?;
        // The simulation server checks no tokens and has controls that delete: nobody but the proxy
        // may reach it, unless it is asked for.
        let backend_host = match options.direct_cas {
            true => options.host,
            false => Ipv4Addr::LOCALHOST.into(),
        };
        let backend = listen(SocketAddr::new(backend_host, 0)).await?;
        let (store, state, persist) = open(options.data_dir.as_deref()).await?;
        let (backend_port, files_port) = (port_of(&backend)?, port_of(&proxy)?);
        let (backend_url, files_url) = (url_of(&backend)?, url_of(&proxy)?);
        let (cas, cas_port) = match options.direct_cas {
            true => (backend_url.clone(), backend_port),
            false => (files_url.clone(), files_port),
        };
        let hub = Arc::new(Hub::new(HubParts {
            origins: Origins {
                hub: url_of(&api)?,
                cas,
                files: files_url,
            },
            cas_port,
            files_port,
            grants: match options.grants.is_empty() {
                true => vec![TokenGrant::default_owner()],
                false => options.grants,
            },
            limiter: options.plan.map(|plan| Limiter::new(plan, options.window)),
            content: Content::new(Arc::clone(&store.access)),
            short_pages: options.short_pages,
            state,
            persist,
        }));
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let connections = Connections::default();
        let api = CuttableListener::new(api, connections.clone());
        tasks.spawn(serve(api, routes::router(Arc::clone(&hub)), stop.clone()));
        let proxy_router = cas::router(Proxy {
            hub: Arc::clone(&hub),
            // A proxy of the environment is for the way out, not for this machine.
            http: reqwest::Client::builder().no_proxy().build()?,
            backend: backend_url,
        });
        let proxy = CuttableListener::new(proxy, connections.clone());
        tasks.spawn(serve(proxy, proxy_router, stop.clone()));
        let (stop_cas, stopped) = oneshot::channel();
        let address = backend.local_addr().map_err(|e| no_address(&e))?;
        let server = LocalServer::from_client(
            store.access,
            Some(store.deletion),
            address.ip().to_string(),
            address.port(),
        );
        tasks.spawn(async move {
            if let Err(error) = server.serve_until_stopped(backend, stopped).await {
                tracing::error!(%error, "the content-addressed store of LocalHub has ended");
            }
        });
        Ok(Self {
            hub,
            stop,
            connections,
            stop_cas: Some(stop_cas),
            tasks,
        })
    }

    /// The address of the Hub's API: `http://127.0.0.1:<port>`.
    pub fn endpoint(&self) -> &str {
        &self.hub.origins.hub
    }

    /// The address of the content-addressed store, as the token routes tell it.
    pub fn cas_endpoint(&self) -> &str {
        &self.hub.origins.cas
    }

    /// The first token.
    pub fn token(&self) -> &str {
        self.hub.grants.first().map_or("", |grant| &grant.token)
    }

    /// What was asked so far.
    pub fn requests(&self) -> Requests {
        self.hub.requests.snapshot()
    }

    /// Starts the counts anew.
    pub fn reset_requests(&self) {
        self.hub.requests.reset();
    }

    /// Lets the next matching requests go wrong. Faults are tried in the order of their injection, one
    /// per request.
    pub fn inject(&self, fault: Fault) {
        self.hub.faults.inject(fault, &self.hub.state.read());
    }

    /// How often faults that have been injected will still strike: 0 when all have.
    pub fn pending_faults(&self) -> usize {
        self.hub.faults.pending()
    }

    /// Forgets the faults that have not struck.
    pub fn clear_faults(&self) {
        self.hub.faults.clear();
    }

    /// Moves the hub's clock forward: signed URLs and CAS tokens expire, rate limits begin anew,
    /// `uploadedAt` grows.
    pub fn advance(&self, by: Duration) {
        self.hub.clock.advance(by);
    }

    /// Stops listening, lets open requests finish for up to two seconds, cuts those that take longer,
    /// and joins all tasks.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        if let Some(stop) = self.stop_cas.take() {
            // The store may have ended on its own.
            let _ = stop.send(());
        }
        if !self.joined().await {
            self.connections.cut_all();
            if !self.joined().await {
                tracing::warn!("connections to LocalHub's store were still open at its end");
                self.tasks.shutdown().await;
            }
        }
    }

    /// Whether all tasks have ended in time.
    async fn joined(&mut self) -> bool {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        tokio::time::timeout(GRACE, all).await.is_ok()
    }
}

impl Drop for LocalHub {
    fn drop(&mut self) {
        // Connections have tasks of their own, which nothing else ends.
        self.stop.cancel();
        self.connections.cut_all();
    }
}

impl fmt::Debug for LocalHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalHub")
            .field("endpoint", &self.hub.origins.hub)
            .field("cas", &self.hub.origins.cas)
            .finish_non_exhaustive()
    }
}

/// The two faces of the content-addressed store.
struct Store {
    access: Arc<dyn DirectAccessClient>,
    deletion: Arc<dyn DeletionControlableClient>,
}

async fn open(data_dir: Option<&Path>) -> Result<(Store, State, Option<Persist>), Failure> {
    let context = XetContext::default().map_err(|e| Failure::Cas(e.to_string()))?;
    let Some(dir) = data_dir else {
        let client = MemoryClient::new(context);
        let store = Store {
            access: client.clone(),
            deletion: client,
        };
        return Ok((store, State::default(), None));
    };
    let cas_dir = dir.join("cas");
    tokio::fs::create_dir_all(&cas_dir)
        .await
        .map_err(|source| Failure::DataDir {
            path: cas_dir.clone(),
            source,
        })?;
    let client = LocalClient::new(context, &cas_dir)
        .await
        .map_err(|e| Failure::Cas(e.to_string()))?;
    let file = dir.join("hub.redb");
    let path = file.clone();
    let (persist, state) = tokio::task::spawn_blocking(move || Persist::open(&file))
        .await?
        .map_err(|source| Failure::Database { path, source })?;
    let store = Store {
        access: client.clone(),
        deletion: client,
    };
    Ok((store, state, Some(persist)))
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address)
        .await
        .map_err(|source| Failure::Listen {
            address: address.to_string(),
            source,
        })
}

/// Where clients find the listener; one that listens on all addresses is told by this machine's.
fn url_of(listener: &TcpListener) -> Result<String, Failure> {
    let mut address = listener.local_addr().map_err(|e| no_address(&e))?;
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    Ok(format!("http://{address}"))
}

fn port_of(listener: &TcpListener) -> Result<u16, Failure> {
    let address = listener.local_addr().map_err(|e| no_address(&e))?;
    Ok(address.port())
}

fn no_address(error: &std::io::Error) -> Failure {
    Failure::Cas(format!("a listener has no address: {error}"))
}

async fn serve(listener: CuttableListener, router: Router, stop: CancellationToken) {
    let service = router.into_make_service_with_connect_info::<Connection>();
    let served = axum::serve(listener, service)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "a server of LocalHub has ended");
    }
}
