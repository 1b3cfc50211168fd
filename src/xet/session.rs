//! The `hf-xet` session: made on first use, in the runtime that first uses it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use xet::xet_session::{
    HeaderMap, HeaderValue, XetConfig, XetDownloadStreamGroup, XetSession, XetSessionBuilder,
    header,
};

use super::Error;
use super::commit::Idle;
use super::download::WINDOW;
use super::token::CasTokens;
use crate::hub::{Access, BucketId, CasToken, HubClient};

/// hf-xet keeps a progress record for each stream of a group until the group is gone, so a group
/// serves this many downloads and is then replaced.
const STREAMS_PER_GROUP: usize = 1024;

/// What the user may set.
#[derive(Debug, Clone, Default)]
pub(crate) struct XetOptions {
    /// Root of the shard cache and scratch files; `None` for hf-xet's own (`HF_XET_CACHE`, …).
    pub(crate) cache_dir: Option<PathBuf>,
    /// Whether uploads try to compress; `None` for hf-xet's own.
    pub(crate) compression: Option<bool>,
    /// Bytes that downloads may have asked for beyond what is read.
    pub(crate) read_ahead: u64,
    /// Retries of one CAS request and the delay before the first; `None` for hf-xet's own.
    pub(crate) retry: Option<(usize, Duration)>,
}

/// The bytes' way of one bucket. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Xet {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    options: XetOptions,
    pub(super) http: reqwest::Client,
    pub(super) tokens: CasTokens,
    /// For downloads.
    session: Mutex<Option<XetSession>>,
    /// For uploads.
    pub(super) idle: Idle,
    group: Mutex<Option<Arc<DownloadGroup>>>,
    /// Windows that downloads may have on their way, beyond the first of each.
    pub(super) read_ahead: Arc<Semaphore>,
}

/// A download group with the token it was built with.
pub(super) struct DownloadGroup {
    pub(super) group: XetDownloadStreamGroup,
    pub(super) token: Arc<CasToken>,
    streams: std::sync::atomic::AtomicUsize,
}

impl fmt::Debug for Xet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Xet")
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

impl Xet {
    pub(crate) fn new(hub: HubClient, bucket: BucketId, options: XetOptions) -> Self {
        let windows = usize::try_from(options.read_ahead / WINDOW).unwrap_or(usize::MAX);
        Self {
            inner: Arc::new(Inner {
                read_ahead: Arc::new(Semaphore::new(windows.min(Semaphore::MAX_PERMITS))),
                options,
                http: hub.connections().clone(),
                tokens: CasTokens::new(hub, bucket),
                session: Mutex::default(),
                idle: Idle::default(),
                group: Mutex::default(),
            }),
        }
    }
}

impl Inner {
    /// The session of all downloads.
    fn session(&self) -> Result<XetSession, Error> {
        let mut slot = self.session.lock();
        if let Some(session) = &*slot {
            return Ok(session.clone());
        }
        Ok(slot.insert(self.new_session()?).clone())
    }

    pub(super) fn new_session(&self) -> Result<XetSession, Error> {
        let mut builder = XetSessionBuilder::new_with_config(config(&self.options)?);
        if let Some(dir) = &self.options.cache_dir {
            builder = builder.with_cache_dir(dir);
        }
        builder
            .build()
            .map_err(|e| Error::from_xet("start hf-xet", &e))
    }

    /// The shared download group, replaced when its token ages or it has served its share.
    pub(super) async fn download_group(&self) -> Result<Arc<DownloadGroup>, Error> {
        let token = self.tokens.get(Access::Read).await?;
        if let Some(group) = self.group.lock().as_ref()
            && Arc::ptr_eq(&group.token, &token)
            && group
                .streams
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed)
                < STREAMS_PER_GROUP
        {
            return Ok(Arc::clone(group));
        }
        let what = "open a download";
        let (route, headers) = self.refresh(Access::Read).await?;
        let group = self
            .session()?
            .new_download_stream_group()
            .map_err(|e| Error::from_xet(what, &e))?
            .with_endpoint(&token.cas_url)
            .with_token_info(token.access_token.expose(), token.expires_at)
            .with_token_refresh_url(route, headers)
            .build()
            .await
            .map_err(|e| Error::from_xet(what, &e))?;
        let group = Arc::new(DownloadGroup {
            group,
            token,
            streams: 1.into(),
        });
        *self.group.lock() = Some(Arc::clone(&group));
        Ok(group)
    }

    /// Takes a group out of use: an error may have poisoned it for all later streams.
    pub(super) fn discard_group(&self, failed: &Arc<DownloadGroup>) {
        let mut slot = self.group.lock();
        if slot.as_ref().is_some_and(|g| Arc::ptr_eq(g, failed)) {
            *slot = None;
        }
    }

    pub(super) async fn refresh(&self, access: Access) -> Result<(String, HeaderMap), Error> {
        let (route, token) = self.tokens.refresh_route(access).await?;
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let mut value =
                HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| Error::Failed {
                    what: "open a transfer".into(),
                    message: "the Hub token holds characters that no HTTP header can carry".into(),
                })?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        Ok((route, headers))
    }
}

/// hf-xet's own configuration (with its `HF_XET_*` variables), and what this package sets on top.
fn config(options: &XetOptions) -> Result<XetConfig, Error> {
    let mut config = XetConfig::new();
    let mut set = Vec::new();
    // A library reports nothing about its users unless they ask for it.
    if std::env::var_os("HF_XET_TELEMETRY_ENABLED").is_none() {
        set.push(("telemetry.enabled", "false".to_owned()));
    }
    if let Some(compression) = options.compression {
        let policy = if compression { "auto" } else { "none" };
        set.push(("xorb.compression_policy", policy.to_owned()));
    }
    if let Some((retries, delay)) = options.retry {
        set.push(("client.retry_max_attempts", retries.to_string()));
        set.push((
            "client.retry_base_delay",
            format!("{}ms", delay.as_millis().max(1)),
        ));
    }
    for (key, value) in set {
        config = config.with_config(key, &value).map_err(|e| Error::Failed {
            what: format!("set hf-xet's {key} to {value}"),
            message: e.to_string(),
        })?;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_reach_hf_xet() {
        let options = XetOptions {
            cache_dir: None,
            compression: Some(false),
            read_ahead: 0,
            retry: Some((2, Duration::from_millis(250))),
        };
        let config = config(&options).unwrap();
        assert_eq!(config.client.retry_max_attempts, 2);
        assert_eq!(config.client.retry_base_delay, Duration::from_millis(250));
        assert!(!config.telemetry.enabled);
        assert_eq!(config.xorb.compression_policy.as_str(), "none");
    }
}
