//! CAS tokens: one per right, kept until shortly before they expire, one refresh at a time.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;

use crate::hub::{Access, BucketId, CasToken, Error, HubClient};

/// A token is not handed out for new work in the last minute of its life (the Python client's
/// margin; hf-xet's own is 30 seconds).
const MARGIN_SECS: u64 = 60;

type Fetch = Shared<BoxFuture<'static, Result<Arc<CasToken>, Error>>>;

/// The tokens of one bucket. Cheap to clone through its `Arc`.
pub(super) struct CasTokens {
    hub: HubClient,
    bucket: BucketId,
    read: Mutex<Slot>,
    write: Mutex<Slot>,
}

#[derive(Default)]
enum Slot {
    #[default]
    Empty,
    /// All callers drive the same request; one that gives up leaves it to the others.
    Fetching(Fetch),
    Ready(Arc<CasToken>),
}

impl CasTokens {
    pub(super) fn new(hub: HubClient, bucket: BucketId) -> Self {
        Self {
            hub,
            bucket,
            read: Mutex::default(),
            write: Mutex::default(),
        }
    }

    /// A token that lives for at least another minute, unless the Hub hands out shorter ones.
    pub(super) async fn get(&self, access: Access) -> Result<Arc<CasToken>, Error> {
        let fetch = {
            let mut slot = self.slot(access).lock();
            match &*slot {
                Slot::Ready(token) if is_fresh(token) => return Ok(Arc::clone(token)),
                // One that nobody waits for any more was left in the middle: its connection may be
                // dead and its deadline over.
                Slot::Fetching(fetch) if fetch.strong_count() != Some(1) => fetch.clone(),
                _ => {
                    let fetch = self.fetch(access);
                    *slot = Slot::Fetching(fetch.clone());
                    fetch
                }
            }
        };
        let result = fetch.clone().await;
        let mut slot = self.slot(access).lock();
        // Only the request that this caller waited for is replaced, never a newer one.
        if matches!(&*slot, Slot::Fetching(current) if current.ptr_eq(&fetch)) {
            *slot = match &result {
                Ok(token) => Slot::Ready(Arc::clone(token)),
                Err(_) => Slot::Empty,
            };
        }
        result
    }

    /// Forgets `token` after the CAS refused it, unless a newer one has taken its place.
    pub(super) fn reject(&self, access: Access, token: &Arc<CasToken>) {
        let mut slot = self.slot(access).lock();
        if matches!(&*slot, Slot::Ready(current) if Arc::ptr_eq(current, token)) {
            *slot = Slot::Empty;
        }
    }

    /// The Hub's route for a new token and the Hub token it takes, for transfers that outlive one.
    pub(super) async fn refresh_route(
        &self,
        access: Access,
    ) -> Result<(String, Option<String>), Error> {
        let url = self.hub.cas_token_url(&self.bucket, access)?;
        let token = self.hub.hub_token().await?;
        Ok((url.into(), token.map(|token| token.expose().to_owned())))
    }

    fn slot(&self, access: Access) -> &Mutex<Slot> {
        match access {
            Access::Read => &self.read,
            Access::Write => &self.write,
        }
    }

    fn fetch(&self, access: Access) -> Fetch {
        let (hub, bucket) = (self.hub.clone(), self.bucket.clone());
        async move { hub.cas_token(&bucket, access).await.map(Arc::new) }
            .boxed()
            .shared()
    }
}

fn is_fresh(token: &CasToken) -> bool {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    token.expires_at > now.saturating_add(MARGIN_SECS)
}
