//! [`HfBucketBuilder`]: what users configure, checked at [`build`](HfBucketBuilder::build).

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::{ClientOptions, Result, RetryConfig};
use thiserror::Error;
use url::Url;

use super::HfBucket;
use super::client_options::{self, client_builder};
use super::config::{HfBucketConfigKey, boolean};
use super::core::{Core, CoreParts, DownloadMode};
use super::credential::{HfToken, HfTokenProvider, Provided};
use super::error;
use crate::hub::{
    self, BucketId, CreateBucket, HubClient, HubConfig, RetryPolicy, StaticToken, TokenSource,
    implicit_token, is_truthy,
};
use crate::location::{BucketLocation, LocationError, without_secrets};
use crate::xet::{Xet, XetOptions};

const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// What of a configuration was wrong.
#[derive(Debug, Error)]
pub(super) enum Error {
    #[error("no bucket given: use with_url(\"hf://buckets/<namespace>/<bucket>\") or with_bucket")]
    NoBucket,
    #[error(transparent)]
    Location(#[from] LocationError),
    #[error("bucket '{bucket}': expected <namespace>/<bucket>")]
    Bucket { bucket: String },
    #[error(
        "configuration key '{key}' is unknown: expected one of hf_url, hf_bucket, hf_prefix, \
         hf_token, hf_endpoint, hf_create_bucket_if_missing, hf_private, hf_download_mode, \
         hf_cache_dir, hf_read_ahead, hf_compression, hf_offline, hf_disable_xet, or an option of \
         object_store's HTTP client"
    )]
    UnknownKey { key: String },
    #[error("{key} is '{value}': expected {expected}")]
    Value {
        key: String,
        value: String,
        expected: &'static str,
    },
    #[error("the token is blank: give a token, or none to be anonymous")]
    BlankToken,
    #[error("endpoint '{endpoint}' cannot be used: {reason}")]
    Endpoint { endpoint: String, reason: String },
    #[error(
        "'{url}' is no page of {endpoint}: set the endpoint to its Hub, or name the bucket as \
         hf://buckets/<namespace>/<bucket>"
    )]
    OtherHub { url: String, endpoint: Url },
    #[error("option '{key}' cannot be given beside a URL that names the bucket")]
    NamedByUrl { key: String },
    #[error("client options: {0}")]
    Client(#[from] client_options::Error),
    #[error(transparent)]
    Hub(#[from] hub::Error),
}

impl From<Error> for object_store::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::UnknownKey { key } => Self::UnknownConfigurationKey {
                store: error::STORE,
                key,
            },
            other => error::generic(other),
        }
    }
}

/// Builds an [`HfBucket`].
///
/// [`new`](Self::new) reads nothing from the environment: without a token it is anonymous, which is
/// enough to read public buckets. [`from_env`](Self::from_env) reads what the Hub's Python client
/// reads.
///
/// ```
/// use hfbucket::HfBucketBuilder;
///
/// let store = HfBucketBuilder::from_env()
///     .with_url("hf://buckets/my-org/lmcache-kv/prod")
///     .with_create_bucket_if_missing(true)
///     .build()?; // no network yet
/// assert_eq!(store.to_string(), "HfBucket(hf://buckets/my-org/lmcache-kv/prod)");
/// # Ok::<(), object_store::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct HfBucketBuilder {
    url: Option<String>,
    bucket: Option<String>,
    prefix: Option<String>,
    token: Option<HfToken>,
    provider: Option<HfTokenProvider>,
    /// What `from_env` found; the implicit token is looked for in it.
    environment: Option<Environment>,
    endpoint: Option<String>,
    create_if_missing: bool,
    private: Option<bool>,
    mode: DownloadMode,
    cache_dir: Option<PathBuf>,
    read_ahead: Option<u64>,
    compression: Option<bool>,
    offline: bool,
    without_xet: bool,
    retry: Option<RetryConfig>,
    client_options: ClientOptions,
    /// The first fault of `with_config`, which cannot return one.
    fault: Option<Arc<object_store::Error>>,
}

/// Bytes. Eight windows.
const READ_AHEAD: u64 = 32 << 20;

/// Environment variables by name; tokens are among them.
#[derive(Clone)]
struct Environment(HashMap<String, String>);

/// Leaves out what may hold secrets: tokens, the client's headers and proxy, parts of URLs.
impl fmt::Debug for HfBucketBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HfBucketBuilder")
            .field("url", &self.url.as_deref().map(without_secrets))
            .field("bucket", &self.bucket)
            .field("prefix", &self.prefix)
            .field("endpoint", &self.endpoint.as_deref().map(without_secrets))
            .field("create_if_missing", &self.create_if_missing)
            .field("private", &self.private)
            .field("mode", &self.mode)
            .field("cache_dir", &self.cache_dir)
            .field("read_ahead", &self.read_ahead)
            .field("compression", &self.compression)
            .field("offline", &self.offline)
            .field("without_xet", &self.without_xet)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

impl HfBucketBuilder {
    /// A builder that reads nothing from the environment.
    pub fn new() -> Self {
        Self::default()
    }

    /// A builder that follows the environment as the Hub's Python client does:
    ///
    /// - the token: `HF_TOKEN`, else the file `HF_TOKEN_PATH`, else `$HF_HOME/token`, unless
    ///   `HF_HUB_DISABLE_IMPLICIT_TOKEN` is set; `HF_HOME` is `$XDG_CACHE_HOME/huggingface`, else
    ///   `~/.cache/huggingface`. [`with_token`](Self::with_token) comes before all of them;
    /// - `HF_ENDPOINT`, `HF_HUB_OFFLINE`, `HF_HUB_DISABLE_XET`.
    ///
    /// hf-xet itself reads `HF_XET_CACHE` and its other `HF_XET_*` variables.
    pub fn from_env() -> Self {
        Self::from_vars(std::env::vars_os().filter_map(|(name, value)| {
            // A variable that is no Unicode cannot be any of those that are read here.
            Some((name.into_string().ok()?, value.into_string().ok()?))
        }))
    }

    fn from_vars(vars: impl IntoIterator<Item = (String, String)>) -> Self {
        let wanted =
            |name: &str| name.starts_with("HF_") || name == "XDG_CACHE_HOME" || name == "HOME";
        let vars: HashMap<_, _> = vars.into_iter().filter(|(name, _)| wanted(name)).collect();
        let set = |name: &str| vars.get(name).is_some_and(|value| is_truthy(value));
        Self {
            endpoint: vars
                .get("HF_ENDPOINT")
                .map(|value| value.trim().to_owned())
                .filter(|value| !value.is_empty()),
            offline: set("HF_HUB_OFFLINE"),
            without_xet: set("HF_HUB_DISABLE_XET"),
            environment: Some(Environment(vars)),
            ..Self::default()
        }
    }

    /// The bucket and prefix: `hf://buckets/<namespace>/<bucket>[/<prefix>]`, or the web form
    /// `https://huggingface.co/buckets/<namespace>/<bucket>[/tree/<prefix>]`, which must be of the
    /// endpoint's host. See [`BucketLocation`].
    pub fn with_url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// The bucket as `<namespace>/<bucket>`; replaces that of [`with_url`](Self::with_url).
    pub fn with_bucket(mut self, bucket: impl Into<String>) -> Self {
        self.bucket = Some(bucket.into());
        self
    }

    /// The prefix that every path lies below; replaces that of [`with_url`](Self::with_url).
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// The Hub token.
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(HfToken::new(token));
        self
    }

    /// A provider of Hub tokens that may rotate; comes before [`with_token`](Self::with_token).
    pub fn with_token_provider(mut self, provider: HfTokenProvider) -> Self {
        self.provider = Some(provider);
        self
    }

    /// The Hub's address, `https://huggingface.co` by default. Plain `http` is taken for this
    /// machine's own addresses, else only with [`ClientOptions::with_allow_http`].
    pub fn with_endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = Some(endpoint.into());
        self
    }

    /// Whether the first write creates the bucket if there is none. Reads never do; until then the
    /// bucket lists as empty.
    pub fn with_create_bucket_if_missing(mut self, create: bool) -> Self {
        self.create_if_missing = create;
        self
    }

    /// Whether a bucket that is created is private. Unset, the Hub decides: some organisations
    /// default to private.
    pub fn with_private(mut self, private: bool) -> Self {
        self.private = Some(private);
        self
    }

    /// How bytes are read.
    pub fn with_download_mode(mut self, mode: DownloadMode) -> Self {
        self.mode = mode;
        self
    }

    /// hf-xet's folder for its shard cache and scratch files; by default `HF_XET_CACHE`, else `xet`
    /// under `HF_HOME`. Give each server that starts empty on the same address a folder of its own:
    /// the cache remembers what a server holds by that address.
    pub fn with_cache_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cache_dir = Some(dir.into());
        self
    }

    /// Whether uploads try to compress, the default. Where data is known not to (most KV caches,
    /// whatever is compressed already), `false` saves the attempt. Reads do not care.
    pub fn with_compression(mut self, compression: bool) -> Self {
        self.compression = Some(compression);
        self
    }

    /// Bytes that all reads of this store together may have asked for ahead of their readers; 32 MiB by
    /// default. Long reads go in windows of 4 MiB, of which each read always has one; what is ahead
    /// comes on top and makes one read fast. More helps where the way is long and wide; 0 saves memory.
    pub fn with_read_ahead(mut self, bytes: u64) -> Self {
        self.read_ahead = Some(bytes);
        self
    }

    /// Retries of requests to the Hub and the content-addressed store. Without it the Hub's client
    /// uses `object_store`'s default and hf-xet its own.
    pub fn with_retry(mut self, retry: RetryConfig) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Options of the HTTP client that talks to the Hub (hf-xet has a client of its own). `timeout`
    /// bounds the wait for each read, not a whole download. Root certificates given here cannot be
    /// read back and are not used: put them where `SSL_CERT_FILE` points. Content types by suffix apply
    /// to `put`.
    pub fn with_client_options(mut self, options: ClientOptions) -> Self {
        self.client_options = options;
        self
    }

    /// Sets one value by key. A fault is reported by [`build`](Self::build).
    pub fn with_config(mut self, key: HfBucketConfigKey, value: impl Into<String>) -> Self {
        if let Err(error) = self.set(key, value.into()) {
            self.fault.get_or_insert(Arc::new(error.into()));
        }
        self
    }

    fn set(&mut self, key: HfBucketConfigKey, value: String) -> Result<(), Error> {
        match &key {
            HfBucketConfigKey::Url => self.url = Some(value),
            HfBucketConfigKey::Bucket => self.bucket = Some(value),
            HfBucketConfigKey::Prefix => self.prefix = Some(value),
            HfBucketConfigKey::Token => self.token = Some(HfToken::new(value)),
            HfBucketConfigKey::Endpoint => self.endpoint = Some(value),
            HfBucketConfigKey::CreateBucketIfMissing => {
                self.create_if_missing = boolean(&key, &value)?;
            }
            HfBucketConfigKey::Private => self.private = Some(boolean(&key, &value)?),
            HfBucketConfigKey::DownloadMode => {
                self.mode = match value.to_ascii_lowercase().as_str() {
                    "xet" => DownloadMode::Xet,
                    "http" => DownloadMode::Http,
                    _ => {
                        return Err(Error::Value {
                            key: key.as_ref().to_owned(),
                            value,
                            expected: "xet or http",
                        });
                    }
                }
            }
            HfBucketConfigKey::CacheDir => self.cache_dir = Some(value.into()),
            HfBucketConfigKey::ReadAhead => {
                let bytes = value.trim().parse().map_err(|_| Error::Value {
                    key: key.as_ref().to_owned(),
                    value,
                    expected: "a number of bytes",
                })?;
                self.read_ahead = Some(bytes);
            }
            HfBucketConfigKey::Compression => self.compression = Some(boolean(&key, &value)?),
            HfBucketConfigKey::Offline => self.offline = boolean(&key, &value)?,
            HfBucketConfigKey::DisableXet => self.without_xet = boolean(&key, &value)?,
            HfBucketConfigKey::Client(client_key) => {
                let options = std::mem::take(&mut self.client_options);
                self.client_options = options.with_config(*client_key, value);
            }
        }
        Ok(())
    }

    /// Checks everything and makes the store. No request is sent; the token file, if one is to be
    /// read, is.
    ///
    /// # Errors
    ///
    /// Names the setting that is wrong, and what it may be.
    pub fn build(self) -> Result<HfBucket> {
        if let Some(fault) = &self.fault {
            return Err(error::generic(Arc::clone(fault)));
        }
        Ok(self.try_build()?)
    }

    fn try_build(self) -> Result<HfBucket, Error> {
        let location = self.location()?;
        let endpoint = parse_endpoint(self.endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT))?;
        if let Some(url) = self.url.as_deref().and_then(|url| Url::parse(url).ok()) {
            check_host(&url, &endpoint)?;
        }
        let hub = HubClient::new(HubConfig {
            http: client_builder(&self.client_options, &endpoint)?,
            endpoint: endpoint.clone(),
            tokens: self.tokens()?,
            retry: retry_policy(self.retry.clone().unwrap_or_default()),
            offline: self.offline,
        })?;
        let bucket = BucketId {
            namespace: location.namespace().to_owned(),
            name: location.bucket().to_owned(),
        };
        let xet_options = XetOptions {
            cache_dir: self.cache_dir,
            compression: self.compression,
            read_ahead: self.read_ahead.unwrap_or(READ_AHEAD),
            retry: self
                .retry
                .map(|retry| (retry.max_retries, retry.backoff.init_backoff)),
        };
        let core = Core::new(CoreParts {
            xet: Xet::new(hub.clone(), bucket.clone(), xet_options),
            hub,
            bucket,
            mode: match self.without_xet {
                true => DownloadMode::Http,
                false => self.mode,
            },
            without_xet: self.without_xet,
            create: self.create_if_missing.then(|| CreateBucket {
                private: self.private,
                ..CreateBucket::default()
            }),
        });
        Ok(HfBucket {
            core: Arc::new(core),
            location,
            private: self.private,
            client_options: Arc::new(self.client_options),
        })
    }

    fn location(&self) -> Result<BucketLocation, Error> {
        let from_url = match &self.url {
            Some(url) => Some(url.parse::<BucketLocation>()?),
            None => None,
        };
        let location = match (&self.bucket, from_url) {
            (Some(bucket), from_url) => {
                let (namespace, name) = bucket.split_once('/').ok_or_else(|| Error::Bucket {
                    bucket: bucket.clone(),
                })?;
                let prefix = from_url.as_ref().map_or("", |location| location.prefix());
                BucketLocation::new(namespace, name, prefix)?
            }
            (None, Some(location)) => location,
            (None, None) => return Err(Error::NoBucket),
        };
        match &self.prefix {
            Some(prefix) => Ok(location.with_prefix(prefix)?),
            None => Ok(location),
        }
    }

    /// Whether a web URL is a page of the endpoint in force.
    pub(super) fn is_of_endpoint(&self, url: &Url) -> bool {
        parse_endpoint(self.endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT))
            .is_ok_and(|endpoint| check_host(url, &endpoint).is_ok())
    }

    fn tokens(&self) -> Result<Arc<dyn TokenSource>, Error> {
        if let Some(provider) = &self.provider {
            return Ok(Arc::new(Provided(Arc::clone(provider))));
        }
        let token = match (&self.token, &self.environment) {
            (Some(token), _) if token.is_blank() => return Err(Error::BlankToken),
            (Some(token), _) => Some(token.into()),
            (None, Some(environment)) => implicit_token(&|name| environment.0.get(name).cloned())?,
            (None, None) => None,
        };
        Ok(Arc::new(StaticToken(token)))
    }
}

/// A page of another Hub names a bucket of another Hub: taking it for one of this endpoint would read
/// and write in the wrong place, with a token that does not belong there.
fn check_host(url: &Url, endpoint: &Url) -> Result<(), Error> {
    if matches!(url.scheme(), "http" | "https") && url.host() != endpoint.host() {
        return Err(Error::OtherHub {
            url: without_secrets(url.as_str()),
            endpoint: endpoint.clone(),
        });
    }
    Ok(())
}

fn parse_endpoint(text: &str) -> Result<Url, Error> {
    let fault = |reason: String| Error::Endpoint {
        endpoint: without_secrets(text),
        reason,
    };
    let url = Url::parse(text.trim_end_matches('/')).map_err(|e| fault(e.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(fault(format!("its scheme is '{}'", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(fault(
            "it has a user name or password; give the token apart".into(),
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(fault("it has a query or a fragment".into()));
    }
    Ok(url)
}

fn retry_policy(retry: RetryConfig) -> RetryPolicy {
    RetryPolicy {
        max_retries: retry.max_retries,
        timeout: retry.retry_timeout,
        init_backoff: retry.backoff.init_backoff,
        max_backoff: retry.backoff.max_backoff,
        base: retry.backoff.base,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(builder: HfBucketBuilder) -> String {
        builder.build().unwrap_err().to_string()
    }

    fn env(vars: &[(&str, &str)]) -> HfBucketBuilder {
        HfBucketBuilder::from_vars(vars.iter().map(|&(k, v)| (k.into(), v.into())))
            .with_url("hf://buckets/o/b")
    }

    #[test]
    fn the_location_may_come_in_pieces() {
        let location = |builder: HfBucketBuilder| builder.build().unwrap().location().to_string();
        let new = HfBucketBuilder::new;
        assert_eq!(location(new().with_bucket("o/b")), "hf://buckets/o/b");
        assert_eq!(
            location(new().with_bucket("o/b").with_prefix("x/y/")),
            "hf://buckets/o/b/x/y"
        );
        assert_eq!(
            location(new().with_url("hf://buckets/o/b/x").with_prefix("y")),
            "hf://buckets/o/b/y"
        );
        assert_eq!(
            location(new().with_url("https://huggingface.co/buckets/o/b/tree/a%20b")),
            "hf://buckets/o/b/a b"
        );
    }

    #[test]
    fn faults_are_named_before_any_request() {
        let new = || HfBucketBuilder::new().with_url("hf://buckets/o/b");
        assert!(message(HfBucketBuilder::new()).contains("no bucket given"));
        assert!(message(HfBucketBuilder::new().with_bucket("b")).contains("'b'"));
        assert!(message(new().with_endpoint("ftp://x")).contains("ftp"));
        assert!(message(new().with_endpoint("nonsense")).contains("nonsense"));
        for endpoint in [
            "http://hf_secret:pw@h:bad",
            "hf_secret@h",
            "http://h/?x=hf_secret",
        ] {
            let text = message(new().with_endpoint(endpoint));
            assert!(!text.contains("hf_secret") && text.contains('h'), "{text}");
        }
        assert!(message(new().with_token(" \n")).contains("blank"));
        assert!(message(new().with_endpoint("http://hub.example.com")).contains("allow_http"));
        assert!(message(new().with_prefix("a//b")).contains("a//b"));
        let elsewhere = new().with_url("https://hub-ci.huggingface.co/buckets/o/b");
        assert!(message(elsewhere.clone()).contains("hub-ci"));
        let there = elsewhere.with_endpoint("https://hub-ci.huggingface.co");
        there.build().unwrap();
        let config = |key, value: &str| message(new().with_config(key, value));
        assert!(config(HfBucketConfigKey::Private, "maybe").contains("hf_private is 'maybe'"));
        assert!(config(HfBucketConfigKey::ReadAhead, "-1").contains("a number of bytes"));
        assert!(config(HfBucketConfigKey::DownloadMode, "ftp").contains("xet or http"));
    }

    #[test]
    fn the_environment_is_read_as_the_python_client_reads_it() {
        let builder = env(&[
            ("HF_ENDPOINT", "http://localhost:1/"),
            ("HF_HUB_OFFLINE", "yes"),
            ("HF_HUB_DISABLE_XET", "0"),
        ]);
        assert_eq!(builder.endpoint.as_deref(), Some("http://localhost:1/"));
        assert!(builder.offline && !builder.without_xet);
        assert!(env(&[("HF_HUB_DISABLE_XET", "1")]).without_xet);
        assert_eq!(env(&[("HF_ENDPOINT", "  ")]).endpoint, None);
        env(&[]).build().unwrap();
    }

    #[test]
    fn no_token_is_ever_shown() {
        let secret = "hf_verysecret";
        let options = ClientOptions::new()
            .with_proxy_url(format!("http://me:{secret}@proxy"))
            .with_default_headers([("authorization", secret)].into_iter().fold(
                object_store::HeaderMap::new(),
                |mut headers, (name, value)| {
                    headers.insert(name, value.parse().unwrap());
                    headers
                },
            ));
        let odd = HfBucketBuilder::new()
            .with_url(format!("https://{secret}@huggingface.co/x?token={secret}"))
            .with_endpoint(format!("https://{secret}@huggingface.co"))
            .with_client_options(options);
        assert!(!format!("{odd:?}").contains(secret));
        let builder = env(&[("HF_TOKEN", secret)]).with_token(secret);
        assert!(!format!("{builder:?}").contains(secret));
        let store = builder.build().unwrap();
        assert!(!format!("{store:?} {store}").contains(secret));
    }
}
