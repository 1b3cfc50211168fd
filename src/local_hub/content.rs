//! Direct reads of the content-addressed store, past its server.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use axum::body::Bytes;
use futures::future::ready;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use thiserror::Error;
use xet_client::ClientError;
use xet_client::cas_client::simulation::DirectAccessClient;
use xet_client::cas_types::FileRange;
use xet_core_structures::merklehash::MerkleHash;

/// The content of an empty file, which is never uploaded.
const EMPTY: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Chunks that are unpacked at a time: at most 8 MiB, as a chunk has 128 KiB at most.
const CHUNKS: u32 = 64;

#[derive(Debug, Error)]
pub(super) enum Error {
    #[error("content {0} is not in the content-addressed store")]
    Missing(String),
    #[error("the content-addressed store: {0}")]
    Store(#[from] ClientError),
    #[error("a read of the content-addressed store has ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// The content of files, by hash.
#[derive(Clone)]
pub(super) struct Content {
    client: Arc<dyn DirectAccessClient>,
}

/// Chunks of a xorb.
#[derive(Debug, Clone, Copy)]
struct Piece {
    xorb: MerkleHash,
    start: u32,
    end: u32,
}

impl Content {
    pub(super) fn new(client: Arc<dyn DirectAccessClient>) -> Self {
        Self { client }
    }

    /// The sizes of those hashes that are files of the store.
    pub(super) async fn sizes(&self, hashes: Vec<String>) -> Result<HashMap<String, u64>, Error> {
        if hashes.is_empty() {
            return Ok(HashMap::new());
        }
        let client = Arc::clone(&self.client);
        blocking(async move {
            let mut sizes = HashMap::with_capacity(hashes.len());
            for hash in hashes {
                if let Some(size) = size_of(client.as_ref(), &hash).await? {
                    sizes.insert(hash, size);
                }
            }
            Ok(sizes)
        })
        .await
    }

    /// The bytes of a range, which must lie within the file. Unpacks what the range needs, piece by
    /// piece as it is read.
    pub(super) async fn read(
        &self,
        hash: &str,
        range: Range<u64>,
    ) -> Result<impl Stream<Item = Result<Bytes, Error>> + Send + use<>, Error> {
        let (skip, pieces) = if range.is_empty() {
            (0, Vec::new())
        } else {
            self.pieces(hash, range.clone()).await?
        };
        let content = self.clone();
        let stream = stream::iter(pieces)
            .then(move |piece| content.clone().unpack(piece))
            .scan((skip, range.end - range.start), |(skip, left), bytes| {
                ready(Some(bytes.map(|bytes| cut(bytes, skip, left))))
            })
            .try_filter(|bytes| ready(!bytes.is_empty()));
        Ok(stream)
    }

    /// The pieces that hold a range, and how many bytes of them come before it.
    async fn pieces(&self, hash: &str, range: Range<u64>) -> Result<(u64, Vec<Piece>), Error> {
        let missing = || Error::Missing(hash.to_owned());
        let id = MerkleHash::from_hex(hash).map_err(|_| missing())?;
        let client = Arc::clone(&self.client);
        let range = FileRange::new(range.start, range.end);
        let found =
            blocking(async move { Ok(client.get_reconstruction_v1(&id, Some(range)).await?) })
                .await?
                .ok_or_else(missing)?;
        let mut pieces = Vec::new();
        for term in found.terms {
            let xorb = term.hash.into();
            let mut start = term.range.start;
            while start < term.range.end {
                let end = term.range.end.min(start.saturating_add(CHUNKS));
                pieces.push(Piece { xorb, start, end });
                start = end;
            }
        }
        Ok((found.offset_into_first_range, pieces))
    }

    async fn unpack(self, piece: Piece) -> Result<Bytes, Error> {
        blocking(async move {
            let chunks = vec![(piece.start, piece.end)];
            let parts = self.client.get_xorb_ranges(&piece.xorb, chunks).await?;
            Ok(parts.into_iter().next().unwrap_or_default())
        })
        .await
    }
}

/// Runs a call of the simulation on a thread for it: its futures read files and unpack in place.
async fn blocking<T: Send + 'static>(
    call: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(call)).await?
}

async fn size_of(client: &dyn DirectAccessClient, hash: &str) -> Result<Option<u64>, Error> {
    if hash == EMPTY {
        return Ok(Some(0));
    }
    let Ok(id) = MerkleHash::from_hex(hash) else {
        return Ok(None);
    };
    // Not `get_file_size`: in memory that packs all that the store knows of files on every call.
    match client.get_file_reconstruction_info(&id).await {
        Ok(info) => Ok(info.map(|(info, _)| info.file_size())),
        Err(ClientError::FileNotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Drops what comes before and what comes after the wanted bytes.
fn cut(mut bytes: Bytes, skip: &mut u64, left: &mut u64) -> Bytes {
    let len = bytes.len();
    let first = usize::try_from(*skip).map_or(len, |skip| skip.min(len));
    *skip -= first as u64;
    let mut wanted = bytes.split_off(first);
    let keep = usize::try_from(*left).map_or(wanted.len(), |left| left.min(wanted.len()));
    *left -= keep as u64;
    wanted.truncate(keep);
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use xet_client::cas_client::simulation::MemoryClient;
    use xet_runtime::core::XetContext;

    #[test]
    fn a_cut_spans_pieces() {
        let (mut skip, mut left) = (3, 4);
        let mut next = |bytes: &'static [u8]| cut(Bytes::from_static(bytes), &mut skip, &mut left);
        assert_eq!(next(b"ab"), "");
        assert_eq!(next(b"cdef"), "def");
        assert_eq!(next(b"ghi"), "g");
        assert_eq!(next(b"jkl"), "");
    }

    #[tokio::test]
    async fn an_empty_store_knows_the_empty_file() {
        let content = Content::new(MemoryClient::new(XetContext::default().unwrap()));
        let hashes = vec![EMPTY.to_owned(), "1".repeat(64), "no hash".to_owned()];
        let sizes = content.sizes(hashes).await.unwrap();
        assert_eq!(sizes, HashMap::from([(EMPTY.to_owned(), 0)]));
    }
}
