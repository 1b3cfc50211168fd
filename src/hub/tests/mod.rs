//! The client against a server that answers what it is told to, faults included.

mod api;
mod batch;
mod download;
mod faults;
mod server;

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use reqwest::Client;
use url::Url;

use self::server::{Answer, Server};
use super::*;

pub(super) fn bucket() -> BucketId {
    BucketId {
        namespace: "o".into(),
        name: "b".into(),
    }
}

fn config(server: &Server) -> HubConfig {
    HubConfig {
        endpoint: server.url(),
        tokens: Arc::new(StaticToken(Some(Secret::new("hf_secret")))),
        retry: RetryPolicy {
            max_retries: 3,
            timeout: Duration::from_secs(20),
            init_backoff: Duration::from_millis(1),
            max_backoff: Duration::from_millis(5),
            base: 2.0,
        },
        http: Client::builder(),
        offline: false,
    }
}

fn client(server: &Server) -> HubClient {
    HubClient::new(config(server)).unwrap()
}

/// What the server gets as `Authorization` from `client`.
const BEARER: Option<&str> = Some("Bearer hf_secret");

fn text_of(error: &Error) -> String {
    let text = format!("{error} {error:?}");
    assert!(!text.contains("hf_secret"), "{text}");
    error.to_string()
}

async fn pages(
    client: &HubClient,
    prefix: &str,
    recursive: bool,
) -> Result<Vec<Vec<String>>, Error> {
    let pages: Vec<Vec<TreeItem>> = client
        .tree(&bucket(), prefix, recursive)
        .try_collect()
        .await?;
    let paths = |page: Vec<TreeItem>| page.into_iter().map(|item| item.path).collect();
    Ok(pages.into_iter().map(paths).collect())
}
