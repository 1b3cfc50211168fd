//! Upload commits of hf-xet: each in a session that no other uses, the next one opened ahead.
//!
//! The uploads of a session share a shard cache, which one that is aborted at the wrong moment leaves
//! unusable ("Task lock error"); so a session serves one commit at a time, and after a failure none.
//! Opening a commit takes hf-xet ten milliseconds, since it sets up an HTTP client with its
//! certificates; while one commit is under way, the next is opened beside it.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;
use xet::xet_session::{
    Sha256Policy, XetCommitReport, XetSession, XetStreamUpload, XetUploadCommit,
};

use super::Error;
use super::session::Inner;
use crate::hub::{Access, CasToken};

/// Sessions and opened commits that are kept, each.
const KEPT: usize = 4;

/// What waits for the next upload.
#[derive(Default)]
pub(super) struct Idle {
    sessions: Mutex<Vec<XetSession>>,
    ahead: Mutex<Vec<Ahead>>,
}

/// A commit that is being opened, or is open. Dropping it aborts both.
type Ahead = AbortOnDropHandle<Result<OpenCommit, Error>>;

impl Inner {
    /// An open commit; the next one is opened in the background.
    pub(super) async fn take_commit(self: &Arc<Self>) -> Result<OpenCommit, Error> {
        let token = self.tokens.get(Access::Write).await?;
        let commit = match self.opened_ahead(&token).await {
            Some(commit) => commit,
            None => self.open_commit(token).await?,
        };
        self.open_ahead(Arc::clone(&commit.token));
        Ok(commit)
    }

    /// One that was opened with this token. Those that failed tell nothing that opening one now would
    /// not.
    async fn opened_ahead(&self, token: &Arc<CasToken>) -> Option<OpenCommit> {
        loop {
            let ahead = self.idle.ahead.lock().pop()?;
            match ahead.await {
                Ok(Ok(commit)) if Arc::ptr_eq(&commit.token, token) => return Some(commit),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::debug!(%error, "no upload could be opened ahead"),
                Err(error) => tracing::debug!(%error, "the task that opens uploads ended early"),
            }
        }
    }

    fn open_ahead(self: &Arc<Self>, token: Arc<CasToken>) {
        let mut ahead = self.idle.ahead.lock();
        if ahead.len() == KEPT {
            return;
        }
        // The task must not keep alive what aborts it.
        let this = Arc::downgrade(self);
        ahead.push(AbortOnDropHandle::new(tokio::spawn(async move {
            open_if_there(&this, token).await
        })));
    }

    async fn open_commit(self: &Arc<Self>, token: Arc<CasToken>) -> Result<OpenCommit, Error> {
        let what = "open an upload";
        let idle = self.idle.sessions.lock().pop();
        let session = idle.map_or_else(|| self.new_session(), Ok)?;
        let (route, headers) = self.refresh(Access::Write).await?;
        let commit = session
            .new_upload_commit()
            .map_err(|e| Error::from_xet(what, &e))?
            .with_endpoint(&token.cas_url)
            .with_token_info(token.access_token.expose(), token.expires_at)
            .with_token_refresh_url(route, headers)
            .build()
            .await
            .map_err(|e| Error::from_xet(what, &e))?;
        Ok(OpenCommit {
            commit: Some(commit),
            session,
            token,
            inner: Arc::downgrade(self),
        })
    }
}

async fn open_if_there(inner: &Weak<Inner>, token: Arc<CasToken>) -> Result<OpenCommit, Error> {
    match inner.upgrade() {
        Some(inner) => inner.open_commit(token).await,
        None => Err(Error::Failed {
            what: "open an upload".into(),
            message: "the store is gone".into(),
        }),
    }
}

/// A commit that is aborted when it is dropped before its end, and its session then is used no more.
pub(super) struct OpenCommit {
    commit: Option<XetUploadCommit>,
    session: XetSession,
    /// The token it writes with.
    pub(super) token: Arc<CasToken>,
    inner: Weak<Inner>,
}

impl OpenCommit {
    pub(super) async fn stream(&self) -> Result<XetStreamUpload, Error> {
        let what = "start an upload";
        let Some(commit) = &self.commit else {
            return Err(Error::Failed {
                what: what.into(),
                message: "the commit is already done".into(),
            });
        };
        // Buckets need no SHA-256 of the content.
        commit
            .upload_stream(None, Sha256Policy::Skip)
            .await
            .map_err(|e| Error::from_xet(what, &e))
    }

    pub(super) async fn commit(mut self) -> Result<Option<XetCommitReport>, Error> {
        let Some(commit) = &self.commit else {
            return Ok(None);
        };
        let report = commit
            .commit()
            .await
            .map_err(|e| Error::from_xet("commit an upload", &e))?;
        self.commit = None;
        if let Some(inner) = self.inner.upgrade() {
            let mut sessions = inner.idle.sessions.lock();
            if sessions.len() < KEPT {
                sessions.push(self.session.clone());
            }
        }
        Ok(Some(report))
    }
}

impl Drop for OpenCommit {
    fn drop(&mut self) {
        if let Some(commit) = self.commit.take()
            && let Err(error) = commit.abort()
        {
            tracing::debug!(%error, "an upload could not be aborted");
        }
    }
}
