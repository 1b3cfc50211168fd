//! Hub tokens: one that stays, or a provider that rotates.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use object_store::CredentialProvider;

use crate::hub::{Error as HubError, Secret, TokenSource};

/// A Hub token (`hf_…`). Its `Debug` never shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct HfToken(String);

impl HfToken {
    /// Wraps a token; white space around it, as files and pasting leave it, is dropped.
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into().trim().to_owned())
    }

    pub(super) fn is_blank(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for HfToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HfToken(…)")
    }
}

/// Provides Hub tokens that may change: asked before each request, so it should cache. After a 401 it
/// is asked again, and the request is sent once more if the token has changed.
///
/// A transfer of bytes that takes longer than its own token lives (about 15 minutes) renews that with
/// the Hub token of its start, which must still be good then.
///
/// ```
/// use std::sync::Arc;
/// use hfbucket::{HfBucketBuilder, HfToken, HfTokenProvider};
/// use object_store::StaticCredentialProvider;
///
/// let provider: HfTokenProvider = Arc::new(StaticCredentialProvider::new(HfToken::new("hf_…")));
/// let store = HfBucketBuilder::new()
///     .with_url("hf://buckets/my-org/data")
///     .with_token_provider(provider)
///     .build()?;
/// # Ok::<(), object_store::Error>(())
/// ```
pub type HfTokenProvider = Arc<dyn CredentialProvider<Credential = HfToken>>;

/// A provider as the source that the Hub's client asks.
#[derive(Debug)]
pub(super) struct Provided(pub(super) HfTokenProvider);

#[async_trait]
impl TokenSource for Provided {
    async fn token(&self) -> Result<Option<Secret>, HubError> {
        match self.0.get_credential().await {
            Ok(token) => Ok(Some(Secret::new(token.0.as_str()))),
            Err(error) => Err(HubError::no_token(error)),
        }
    }
}

impl From<&HfToken> for Secret {
    fn from(token: &HfToken) -> Self {
        Self::new(token.0.as_str())
    }
}
