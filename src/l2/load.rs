//! Loading a batch into the caller's buffers.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::TryStreamExt;
use futures::future::join_all;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{GetOptions, GetResult, GetResultPayload};
use tokio::time::Instant;
use tracing::Instrument;

use super::adapter::{Entered, Inner, L2Adapter, known};
use super::bitmap::Bitmap;
use super::error::L2Error;
use super::key::ObjectKey;
use super::question::Asked;

/// Bytes that one blocking read of a file takes. Large enough that a thread's hand-over costs
/// little, small enough that the copy out of it stays in a CPU's cache.
const FILE_CHUNK: usize = 512 * 1024;

/// What became of each position of a load.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Loaded {
    /// By submitted position.
    pub outcomes: Vec<LoadOutcome>,
}

/// What became of one position of a load.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LoadOutcome {
    /// The buffer holds the object, all of it and of one version.
    Hit,
    /// There is no such object. The buffer is untouched.
    NotFound,
    /// The object has another size than the buffer, which is untouched.
    SizeMismatch {
        /// The object's size.
        actual: u64,
    },
    /// The object could not be read. The buffer may hold a part of it.
    Failed(L2Error),
}

impl LoadOutcome {
    /// Whether the buffer holds the object.
    pub fn is_hit(&self) -> bool {
        matches!(self, Self::Hit)
    }
}

impl Loaded {
    /// By submitted position: whether the buffer holds the object.
    pub fn bitmap(&self) -> Bitmap {
        self.outcomes.iter().map(LoadOutcome::is_hit).collect()
    }

    /// Whether every buffer holds its object.
    pub fn is_ok(&self) -> bool {
        self.outcomes.iter().all(LoadOutcome::is_hit)
    }

    /// How many leading buffers hold their object.
    pub fn prefix_hits(&self) -> usize {
        self.bitmap().leading_ones()
    }

    /// The first failure, if any; misses are none.
    pub fn first_error(&self) -> Option<&L2Error> {
        self.outcomes.iter().find_map(|outcome| match outcome {
            LoadOutcome::Failed(error) => Some(error),
            _ => None,
        })
    }

    pub(super) fn failed(keys: usize, error: &L2Error) -> Self {
        Self {
            outcomes: vec![LoadOutcome::Failed(error.clone()); keys],
        }
    }
}

impl L2Adapter {
    /// Reads each key's object into the buffer at the same position, whose length is the size that
    /// the object must have. Takes anything that lends its bytes: `&mut [u8]`, `Vec<u8>`,
    /// `BytesMut`.
    ///
    /// Bytes go from the store's stream into the buffer with one copy and nothing between, at most
    /// [`num_workers`](super::L2Config::num_workers) objects at a time. A position is a hit if the
    /// buffer was filled by exactly one version of the object. An empty object fills an empty
    /// buffer, although a lookup calls it a miss.
    ///
    /// If the store names its contents (the Hub does; S3 with versioning), a load reads the very
    /// content that the last store or lookup saw, as long as that is believed
    /// ([`metadata_cache_ttl_secs`](super::L2Config::metadata_cache_ttl_secs)): it costs no question
    /// to the store, and gives what was looked up even if another writer replaced or deleted the
    /// object since. Otherwise the path decides, and what is found corrects what later lookups
    /// answer.
    ///
    /// A load needs no lock and releases none, and does not count as a use.
    ///
    /// With another number of buffers than keys, every position fails with [`L2Error::Buffers`].
    pub async fn load<B: AsMut<[u8]> + Send>(
        &self,
        keys: &[ObjectKey],
        buffers: &mut [B],
    ) -> Loaded {
        self.load_entered(self.inner.enter(), keys, buffers).await
    }

    pub(super) async fn load_entered<B: AsMut<[u8]> + Send>(
        &self,
        entered: Entered,
        keys: &[ObjectKey],
        buffers: &mut [B],
    ) -> Loaded {
        let _work = match entered {
            Ok(work) => work,
            Err(error) => return Loaded::failed(keys.len(), &error),
        };
        if keys.len() != buffers.len() {
            let (keys, buffers) = (keys.len(), buffers.len());
            return Loaded::failed(keys, &L2Error::Buffers { keys, buffers });
        }
        let started = Instant::now();
        let loads = keys.iter().zip(buffers).map(async |(key, buffer)| {
            let buffer = buffer.as_mut();
            let bytes = buffer.len() as u64;
            let loaded = self.inner.unless_killed(self.inner.load_one(key, buffer));
            (loaded.await.unwrap_or_else(LoadOutcome::Failed), bytes)
        });
        let span = tracing::debug_span!("l2_load", keys = keys.len());
        let loaded = join_all(loads).instrument(span).await;
        self.inner.count_loaded(&loaded, started);
        Loaded {
            outcomes: loaded.into_iter().map(|(outcome, _)| outcome).collect(),
        }
    }
}

impl Inner {
    /// Counts outcomes, each with the bytes of its buffer.
    fn count_loaded(&self, loaded: &[(LoadOutcome, u64)], started: Instant) {
        let hits = || loaded.iter().filter(|(outcome, _)| outcome.is_hit());
        let keys = hits().count();
        let bytes = hits().map(|(_, bytes)| bytes).sum();
        self.stats.loaded(keys, bytes, loaded.len() - keys, started);
    }

    async fn load_one(self: &Arc<Self>, key: &ObjectKey, buffer: &mut [u8]) -> LoadOutcome {
        let path = match self.namer.path(key) {
            Ok(path) => path,
            Err(error) => return LoadOutcome::Failed(error.into()),
        };
        // The semaphore is never closed.
        let _permit = self.downloads.acquire().await.ok();
        let outcome = match self.open_version(key, &path, buffer.len()).await {
            Some(found) => self.fill(&path, found, buffer).await,
            None => self.load_path(key, &path, buffer).await,
        };
        outcome.unwrap_or_else(|broken| LoadOutcome::Failed(self.load_error(&path, broken, buffer)))
    }

    /// Opens the content that a store or lookup saw lately, if the store names its contents: such a
    /// read need not ask what the path holds now. `None` if the path has to decide.
    async fn open_version(&self, key: &ObjectKey, path: &Path, size: usize) -> Option<GetResult> {
        if self.versions_refused.load(Ordering::Relaxed) {
            return None;
        }
        let known = self.state.lock().known(key, Instant::now())?.cloned()?;
        let version = known.version.filter(|_| known.size == size as u64)?;
        let options = GetOptions::new().with_version(Some(version.text()));
        match self.store.get_opts(path, options).await {
            Ok(found) => (found.meta.size == known.size).then_some(found),
            Err(
                error @ (object_store::Error::PermissionDenied { .. }
                | object_store::Error::Unauthenticated { .. }
                | object_store::Error::NotSupported { .. }
                | object_store::Error::NotImplemented { .. }),
            ) => {
                tracing::info!(%path, %error, "reads by version are refused; not tried again");
                self.versions_refused.store(true, Ordering::Relaxed);
                None
            }
            Err(_) => None,
        }
    }

    async fn load_path(
        self: &Arc<Self>,
        key: &ObjectKey,
        path: &Path,
        buffer: &mut [u8],
    ) -> Result<LoadOutcome, Broken> {
        let question = self.state.lock().begin(key);
        let asked = Asked::new(self, key, question);
        match self.store.get_opts(path, GetOptions::default()).await {
            Ok(found) => {
                asked.answer(Some(known(found.meta.clone())));
                self.fill(path, found, buffer).await
            }
            Err(object_store::Error::NotFound { .. }) => {
                asked.answer(None);
                Ok(LoadOutcome::NotFound)
            }
            Err(error) => Err(Broken::Store(error)),
        }
    }

    async fn fill(
        &self,
        path: &Path,
        found: GetResult,
        buffer: &mut [u8],
    ) -> Result<LoadOutcome, Broken> {
        let actual = found.meta.size;
        if actual != buffer.len() as u64 {
            return Ok(LoadOutcome::SizeMismatch { actual });
        }
        match found.payload {
            GetResultPayload::File(file, _) => {
                fill_from_file(file, found.range.start, buffer).await?
            }
            GetResultPayload::Stream(stream) => fill_from_stream(stream, buffer).await?,
        }
        tracing::trace!(%path, actual, "loaded");
        Ok(LoadOutcome::Hit)
    }

    fn load_error(&self, path: &Path, broken: Broken, buffer: &[u8]) -> L2Error {
        match broken {
            Broken::Store(error) => self.store_error("load", path, Arc::new(error)),
            Broken::Length(found) => L2Error::Truncated {
                path: path.to_string(),
                store: self.store.to_string(),
                expected: buffer.len() as u64,
                found,
            },
        }
    }
}

/// Why an object could not be read to its end.
#[derive(Debug)]
enum Broken {
    Store(object_store::Error),
    /// So many bytes came, and not as many as announced.
    Length(u64),
}

impl From<object_store::Error> for Broken {
    fn from(error: object_store::Error) -> Self {
        Self::Store(error)
    }
}

async fn fill_from_stream(
    mut stream: BoxStream<'static, object_store::Result<Bytes>>,
    buffer: &mut [u8],
) -> Result<(), Broken> {
    let mut filled = 0;
    while let Some(bytes) = stream.try_next().await? {
        let end = filled + bytes.len();
        match buffer.get_mut(filled..end) {
            Some(target) => target.copy_from_slice(&bytes),
            None => return Err(Broken::Length(end as u64)),
        }
        filled = end;
    }
    if filled < buffer.len() {
        return Err(Broken::Length(filled as u64));
    }
    Ok(())
}

/// Reads on a blocking thread, which cannot borrow the caller's buffer: so in chunks through one
/// that travels back and forth.
async fn fill_from_file(file: File, start: u64, buffer: &mut [u8]) -> Result<(), Broken> {
    let mut state = (file, vec![0; buffer.len().min(FILE_CHUNK)]);
    let mut filled = 0usize;
    while filled < buffer.len() {
        let wanted = (buffer.len() - filled).min(FILE_CHUNK);
        let at = start + filled as u64;
        let read;
        (read, state) = tokio::task::spawn_blocking(move || {
            let (mut file, mut chunk) = state;
            let read = read_at(&mut file, at, chunk.get_mut(..wanted).unwrap_or_default());
            (read, (file, chunk))
        })
        .await
        .map_err(object_store::Error::from)?;
        let read = read.map_err(|error| object_store::Error::Generic {
            store: "LocalFileSystem",
            source: Box::new(error),
        })?;
        match (buffer.get_mut(filled..filled + read), state.1.get(..read)) {
            (Some(target), Some(bytes)) if read > 0 => target.copy_from_slice(bytes),
            // Cut short since it was opened.
            _ => return Err(Broken::Length(filled as u64)),
        }
        filled += read;
    }
    Ok(())
}

fn read_at(file: &mut File, at: u64, chunk: &mut [u8]) -> std::io::Result<usize> {
    file.seek(SeekFrom::Start(at))?;
    let mut filled = 0;
    while let Some(rest) = chunk.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{StreamExt, stream};

    fn pieces(pieces: &[&'static [u8]]) -> BoxStream<'static, object_store::Result<Bytes>> {
        let pieces: Vec<_> = pieces
            .iter()
            .map(|piece| Ok(Bytes::from_static(piece)))
            .collect();
        stream::iter(pieces).boxed()
    }

    #[tokio::test]
    async fn a_stream_must_fill_the_buffer_exactly() {
        let mut buffer = [0; 4];
        fill_from_stream(pieces(&[b"a", b"", b"bcd"]), &mut buffer)
            .await
            .unwrap();
        assert_eq!(&buffer, b"abcd");
        let short = fill_from_stream(pieces(&[b"a"]), &mut buffer).await;
        assert!(matches!(short, Err(Broken::Length(1))));
        let long = fill_from_stream(pieces(&[b"abc", b"de"]), &mut buffer).await;
        assert!(matches!(long, Err(Broken::Length(5))));
        fill_from_stream(pieces(&[]), &mut []).await.unwrap();
    }

    #[tokio::test]
    async fn a_file_is_read_in_chunks() {
        let bytes: Vec<u8> = (0..FILE_CHUNK * 2 + 17).map(|n| (n % 251) as u8).collect();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("object");
        std::fs::write(&path, &bytes).unwrap();
        let mut buffer = vec![0; bytes.len() - 5];
        fill_from_file(File::open(&path).unwrap(), 5, &mut buffer)
            .await
            .unwrap();
        assert!(buffer == bytes[5..]);
        let short = fill_from_file(File::open(&path).unwrap(), 6, &mut buffer).await;
        assert!(
            matches!(short, Err(Broken::Length(n)) if n == 2 * FILE_CHUNK as u64 || n == bytes.len() as u64 - 6)
        );
    }
}
