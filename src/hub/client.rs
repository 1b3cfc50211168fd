//! The client: one method per route.

use std::fmt;
use std::sync::Arc;

use futures::stream::{self, Stream};
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, HeaderValue};
use reqwest::{Method, redirect};
use url::Url;

use super::auth::{Secret, TokenSource};
use super::batch::{self, HttpWire};
use super::budget::Budgets;
use super::call::{Call, check_key, encode_path, join};
use super::describe;
use super::error::{Error, ErrorKind, shown};
use super::link::next_page;
use super::redirect::Redirects;
use super::retry::RetryPolicy;
use super::types::{
    Access, BatchOp, BucketId, BucketInfo, CasToken, CreateBucket, Created, FileInfo, ItemKind,
    TreeItem, WhoAmI,
};
use super::wire;

/// Items per page of a listing: the server's default. It takes up to 5000, but answers a page of
/// 1000 in a time that the usual client timeout forgives.
const PAGE: usize = 1000;

/// Paths per request. The server takes 2000, the Hub's own clients send 1000.
const PATHS: usize = 1000;

/// What a client needs to know.
pub(crate) struct HubConfig {
    /// `https://huggingface.co`, or another Hub.
    pub endpoint: Url,
    pub tokens: Arc<dyn TokenSource>,
    pub retry: RetryPolicy,
    /// Proxies, certificates, user agent, timeouts of one request. The client sets the redirect
    /// policy itself.
    pub http: reqwest::ClientBuilder,
    /// Every call fails before any request.
    pub offline: bool,
}

/// A client of the Hub's bucket API. Clones share one connection pool.
///
/// Dropping a call's future cancels it; whether the Hub still does the work is then unknown.
#[derive(Clone)]
pub(crate) struct HubClient(Arc<Inner>);

struct Inner {
    endpoint: Url,
    tokens: Arc<dyn TokenSource>,
    retry: RetryPolicy,
    http: reqwest::Client,
    offline: bool,
    budgets: Arc<Budgets>,
}

impl fmt::Debug for HubClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubClient")
            .field("endpoint", &shown(&self.0.endpoint))
            .field("retry", &self.0.retry)
            .field("offline", &self.0.offline)
            .finish_non_exhaustive()
    }
}

impl HubClient {
    /// No network yet.
    ///
    /// # Errors
    ///
    /// `Invalid` if the endpoint is not a plain http(s) URL or the HTTP client cannot be built.
    pub(crate) fn new(config: HubConfig) -> Result<Self, Error> {
        let endpoint = checked_endpoint(config.endpoint)?;
        let http = config
            .http
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| {
                let message = format!("the HTTP client cannot be built: {error}");
                Error::new(ErrorKind::Invalid, message).with_source(error)
            })?;
        Ok(Self(Arc::new(Inner {
            budgets: Budgets::of(&endpoint),
            endpoint,
            tokens: config.tokens,
            retry: config.retry,
            http,
            offline: config.offline,
        })))
    }

    pub(crate) fn endpoint(&self) -> &Url {
        &self.0.endpoint
    }

    pub(super) fn is_endpoint(&self, url: &Url) -> bool {
        url.origin() == self.0.endpoint.origin()
    }

    pub(super) fn tokens(&self) -> &dyn TokenSource {
        &*self.0.tokens
    }

    pub(super) fn retry_policy(&self) -> &RetryPolicy {
        &self.0.retry
    }

    pub(super) fn http(&self) -> &reqwest::Client {
        &self.0.http
    }

    pub(super) fn budgets(&self) -> &Budgets {
        &self.0.budgets
    }

    pub(super) fn is_offline(&self) -> bool {
        self.0.offline
    }

    /// Whom the token belongs to.
    pub(crate) async fn whoami(&self) -> Result<WhoAmI, Error> {
        let url = join(self.endpoint(), "/api/whoami-v2")?;
        let call = Call::new(Method::GET, url);
        let reply: wire::WhoAmIReply = self.send(&call).await?.json(&call)?;
        Ok(reply.into())
    }

    /// Creates a bucket; one that is there already is fine and stays as it is.
    ///
    /// The namespace may be `me`.
    pub(crate) async fn create_bucket(
        &self,
        id: &BucketId,
        options: &CreateBucket,
    ) -> Result<Created, Error> {
        let call = Call::api(Method::POST, self.endpoint(), id, "")?
            .json(&wire::CreateBody::from(options))?;
        let error = match self.send(&call).await {
            Ok(_) => return Ok(Created::New),
            Err(error) => error,
        };
        match error.kind() {
            // Also after a lost answer to an attempt of this call: nobody can tell.
            ErrorKind::Conflict => Ok(Created::Existed),
            // The Hub checks the right to create before it looks: a token that may only write to
            // the bucket gets a refusal although all is well.
            ErrorKind::Unauthenticated | ErrorKind::PermissionDenied
                if self.bucket_info(id).await.is_ok() =>
            {
                Ok(Created::Existed)
            }
            _ => Err(error),
        }
    }

    pub(crate) async fn bucket_info(&self, id: &BucketId) -> Result<BucketInfo, Error> {
        let call = Call::api(Method::GET, self.endpoint(), id, "")?;
        let reply: wire::BucketReply = self.send(&call).await?.json(&call)?;
        Ok(reply.into())
    }

    /// Deletes a bucket with all that it holds. Irreversible.
    pub(crate) async fn delete_bucket(&self, id: &BucketId) -> Result<(), Error> {
        let call = Call::api(Method::DELETE, self.endpoint(), id, "")?;
        match self.send_until(&call, self.0.retry.deadline()).await {
            Ok(_) => Ok(()),
            // An earlier attempt did it, and its answer got lost.
            Err(gave_up)
                if gave_up.maybe_done && gave_up.error.kind() == ErrorKind::BucketNotFound =>
            {
                Ok(())
            }
            Err(gave_up) => Err(gave_up.error),
        }
    }

    /// Lists what starts with `prefix`, page by page. Pages may be short or empty.
    ///
    /// The Hub matches the prefix as a **string**: `logs` also yields `logs.json` and
    /// `logs_old/…`. It is passed on as given, and telling siblings apart is the caller's job. A
    /// trailing slash is kept. An unknown prefix yields nothing, not an error. The listing may lag
    /// behind the last batch; `paths_info` does not.
    pub(crate) fn tree(
        &self,
        id: &BucketId,
        prefix: &str,
        recursive: bool,
    ) -> impl Stream<Item = Result<Vec<TreeItem>, Error>> + Send + 'static + use<> {
        enum State {
            First { prefix: String, recursive: bool },
            At(Url),
            Done,
        }
        let first = State::First {
            prefix: prefix.to_owned(),
            recursive,
        };
        let start = (self.clone(), id.clone(), first);
        stream::try_unfold(start, |(client, id, state)| async move {
            let url = match state {
                State::First { prefix, recursive } => client.tree_url(&id, &prefix, recursive)?,
                State::At(url) => url,
                State::Done => return Ok(None),
            };
            let (items, next) = client.tree_page(&id, url).await?;
            let state = next.map_or(State::Done, State::At);
            Ok(Some((items, (client, id, state))))
        })
    }

    fn tree_url(&self, id: &BucketId, prefix: &str, recursive: bool) -> Result<Url, Error> {
        let mut tail = String::from("/tree");
        // A bare `…/tree/` only redirects to `…/tree`.
        if !prefix.is_empty() {
            check_key(prefix.strip_suffix('/').unwrap_or(prefix))?;
            tail.push('/');
            tail.push_str(&encode_path(prefix));
        }
        // The server's default for `recursive` is true, so it is always sent.
        tail.push_str(&format!("?recursive={recursive}&limit={PAGE}"));
        Ok(Call::api(Method::GET, self.endpoint(), id, &tail)?.url)
    }

    async fn tree_page(
        &self,
        id: &BucketId,
        url: Url,
    ) -> Result<(Vec<TreeItem>, Option<Url>), Error> {
        let mut call = Call::api(Method::GET, self.endpoint(), id, "/tree")?;
        call.url = url;
        let reply = self.send(&call).await?;
        let items: Vec<wire::Item> = reply.json(&call)?;
        let next =
            next_page(&reply.url, &reply.headers).map_err(|error| call.describe(error.into()))?;
        Ok((items.into_iter().map(TreeItem::from).collect(), next))
    }

    /// What the bucket holds at these paths, as of now. Missing ones are absent from the answer,
    /// whose order means nothing.
    pub(crate) async fn paths_info(
        &self,
        id: &BucketId,
        paths: &[String],
    ) -> Result<Vec<TreeItem>, Error> {
        for path in paths {
            check_key(path).map_err(|fault| Error::from(fault).in_bucket(id).at_path(path))?;
        }
        let mut found = Vec::new();
        for paths in paths.chunks(PATHS) {
            let call = Call::api(Method::POST, self.endpoint(), id, "/paths-info")?
                .json(&wire::PathsBody { paths })?;
            let items: Vec<wire::Item> = self.send(&call).await?.json(&call)?;
            let items = items.into_iter().map(TreeItem::from);
            found.extend(items.filter(|item| item.kind == ItemKind::File));
        }
        Ok(found)
    }

    /// Changes entries: one outcome per operation, in the order given.
    ///
    /// Every thousand operations have the time that the retry policy allows for one call. If an
    /// answer gets lost, the question whether the work was done may take as much again.
    ///
    /// The operations on one path take effect in the order given; between paths there is no order,
    /// and a batch is not a transaction. So a move is two calls: copy, then delete what was copied.
    ///
    /// # Errors
    ///
    /// `Err` means that no operation is known to be done. If the error's kind is `Timeout`,
    /// `Transport`, `Server` or `Protocol`, some may be. As soon as one is known to be done, the
    /// errors are in the outcomes.
    pub(crate) async fn batch(
        &self,
        id: &BucketId,
        ops: Vec<BatchOp>,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        for op in &ops {
            let path = op.path();
            check_key(path).map_err(|fault| Error::from(fault).in_bucket(id).at_path(path))?;
        }
        let wire = HttpWire::new(self, id)?;
        batch::settle(&wire, self.retry_policy(), &ops).await
    }

    /// What is at a path, without downloading it. Counts as a *resolver* request, of which plans
    /// allow several times more than of API calls.
    pub(crate) async fn resolve(&self, id: &BucketId, path: &str) -> Result<FileInfo, Error> {
        let json = HeaderValue::from_static("application/vnd.xet-fileinfo+json");
        let identity = HeaderValue::from_static("identity");
        let mut call = Call::resolve(self.endpoint(), id, path)?
            .header(ACCEPT, json)
            .header(ACCEPT_ENCODING, identity);
        call.redirects = Redirects::Describing;
        let reply = self.send(&call).await?;
        describe::file_info(&call, &reply)
    }

    /// A token for the CAS. A fresh request each time: caching is the caller's.
    pub(crate) async fn cas_token(&self, id: &BucketId, access: Access) -> Result<CasToken, Error> {
        let mut call = Call::api(Method::GET, self.endpoint(), id, access.token_route())?;
        call.secret_reply = true;
        let reply = self.send(&call).await?;
        let token: wire::TokenReply = reply.json(&call)?;
        if Url::parse(&token.cas_url).is_err() {
            return Err(reply.inconsistent(&call, "the CAS address is no URL"));
        }
        Ok(CasToken {
            cas_url: token.cas_url,
            access_token: Secret::from(token.access_token),
            expires_at: token.exp,
        })
    }
}

fn checked_endpoint(mut endpoint: Url) -> Result<Url, Error> {
    let fault = if !matches!(endpoint.scheme(), "http" | "https") {
        "it is neither http nor https"
    } else if !endpoint.username().is_empty() || endpoint.password().is_some() {
        "it holds a user name or password, which would take the place of the token"
    } else {
        endpoint.set_query(None);
        endpoint.set_fragment(None);
        return Ok(endpoint);
    };
    let message = format!("{} cannot be the Hub's endpoint: {fault}", shown(&endpoint));
    Err(Error::new(ErrorKind::Invalid, message))
}
