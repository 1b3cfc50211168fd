//! What the CAS client needs of the Hub's besides tokens.

use url::Url;

use super::auth::Secret;
use super::call::Call;
use super::client::HubClient;
use super::error::Error;
use super::types::{Access, BucketId};

impl HubClient {
    /// The connections, for requests to other servers; they carry no Hub token of their own.
    pub(crate) fn connections(&self) -> &reqwest::Client {
        self.http()
    }

    /// The route that [`cas_token`](Self::cas_token) asks.
    pub(crate) fn cas_token_url(&self, id: &BucketId, access: Access) -> Result<Url, Error> {
        Ok(Call::api(
            reqwest::Method::GET,
            self.endpoint(),
            id,
            access.token_route(),
        )?
        .url)
    }

    /// The Hub token of this moment.
    pub(crate) async fn hub_token(&self) -> Result<Option<Secret>, Error> {
        self.tokens().token().await
    }
}
