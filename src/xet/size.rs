//! The size of a content that nobody has listed: one HEAD on the CAS.

use reqwest::header::CONTENT_LENGTH;

use super::{Error, Xet};
use crate::hub::Access;

impl Xet {
    /// Bytes of the content with this hash. The Hub is not asked (but for a CAS token, if none is
    /// held). A refused token is replaced once.
    pub(crate) async fn size(&self, hash: &str) -> Result<u64, Error> {
        // The content of an empty file is never uploaded.
        if hash.bytes().all(|digit| digit == b'0') {
            return Ok(0);
        }
        let mut fresh_token = false;
        loop {
            let token = self.inner.tokens.get(Access::Read).await?;
            let what = || format!("size of content {hash}");
            let url = format!("{}/v1/files/{hash}", token.cas_url.trim_end_matches('/'));
            let response = self
                .inner
                .http
                .head(url)
                .bearer_auth(token.access_token.expose())
                .send()
                .await
                .map_err(|e| Error::Transient {
                    what: what(),
                    message: e.without_url().to_string(),
                })?;
            let status = response.status();
            let message = format!("the server answered {status}");
            return match status.as_u16() {
                200..=299 => response
                    .headers()
                    .get(CONTENT_LENGTH)
                    .and_then(|value| value.to_str().ok()?.parse().ok())
                    .ok_or_else(|| Error::Failed {
                        what: what(),
                        message: "the answer has no Content-Length".into(),
                    }),
                401 | 403 if !fresh_token => {
                    self.inner.tokens.reject(Access::Read, &token);
                    fresh_token = true;
                    continue;
                }
                401 | 403 => Err(Error::Unauthenticated {
                    what: what(),
                    message,
                }),
                404 | 416 => Err(Error::NotFound {
                    what: what(),
                    message,
                }),
                408 | 429 | 500..=599 => Err(Error::Transient {
                    what: what(),
                    message,
                }),
                _ => Err(Error::Failed {
                    what: what(),
                    message,
                }),
            };
        }
    }
}
