//! A store that fails, loses acknowledgements, cuts streams short or waits, as it is told.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    Result,
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// A class of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Put,
    Get,
    Head,
    Delete,
    List,
}

/// What happens to a call.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Nothing is done, and an error says so.
    Refuse,
    /// It is done, and an error says that it is not known.
    LoseAck,
    /// A delete's whole request fails with a single error.
    RefuseBatch,
    /// A get's stream ends after so many bytes.
    Truncate(usize),
    /// It is done after the gate is opened. A head, get or list is done before, and known after.
    Hold(Gate),
    /// A put or delete is done, and known after the gate is opened.
    HoldAck(Gate),
    /// It is done after others had so many turns, and known after so many more.
    Dawdle(usize, usize),
}

/// Where held calls arrive and wait.
#[derive(Debug, Clone)]
pub struct Gate {
    arrived: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            arrived: Arc::new(Semaphore::new(0)),
            open: Arc::new(Semaphore::new(0)),
        }
    }
}

impl Gate {
    /// Waits until so many calls wait here.
    pub async fn arrivals(&self, calls: u32) {
        self.arrived.acquire_many(calls).await.unwrap().forget();
    }

    /// Lets all calls pass, now and later.
    pub fn open(&self) {
        self.open.add_permits(1000);
    }

    async fn pass(&self) {
        self.arrived.add_permits(1);
        self.open.acquire().await.unwrap().forget();
    }
}

#[derive(Debug)]
struct Rule {
    op: Op,
    path: Option<Path>,
    times: usize,
    fault: Fault,
}

/// See the [module](self).
#[derive(Debug)]
pub struct FaultStore {
    inner: Arc<dyn ObjectStore>,
    rules: Arc<Mutex<Vec<Rule>>>,
    calls: Arc<[AtomicUsize; 5]>,
}

impl FaultStore {
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self {
            inner,
            rules: Arc::default(),
            calls: Arc::default(),
        }
    }

    /// The next so many matching calls get the fault. Without a path, all paths match.
    pub fn inject(&self, op: Op, path: Option<Path>, times: usize, fault: Fault) {
        self.rules.lock().push(Rule {
            op,
            path,
            times,
            fault,
        });
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.rules.lock().clear();
    }

    /// Calls so far; a delete counts its paths.
    pub fn calls(&self, op: Op) -> usize {
        self.calls[op as usize].load(Ordering::SeqCst)
    }

    fn next(&self, op: Op, path: &Path) -> Option<Fault> {
        self.calls[op as usize].fetch_add(1, Ordering::SeqCst);
        take(&self.rules, op, path)
    }
}

fn take(rules: &Mutex<Vec<Rule>>, op: Op, path: &Path) -> Option<Fault> {
    let mut rules = rules.lock();
    let rule = rules.iter_mut().find(|rule| {
        rule.op == op && rule.times > 0 && rule.path.as_ref().is_none_or(|own| own == path)
    })?;
    rule.times -= 1;
    Some(rule.fault.clone())
}

/// A failure whose text holds the number of a status that it is not: LMCache takes that for a miss.
pub fn injected() -> Error {
    Error::Generic {
        store: "FaultStore",
        source: "injected, not a 404 Not Found".into(),
    }
}

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultStore({})", self.inner)
    }
}

// A new method of the trait must be decided on here, not slip past with its default.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let fault = self.next(Op::Put, location);
        match &fault {
            Some(Fault::Refuse) => return Err(injected()),
            Some(Fault::Hold(gate)) => gate.pass().await,
            Some(Fault::Dawdle(before, _)) => dawdle(*before).await,
            _ => {}
        }
        let result = self.inner.put_opts(location, payload, opts).await;
        match fault {
            Some(Fault::LoseAck) => Err(injected()),
            Some(Fault::HoldAck(gate)) => {
                gate.pass().await;
                result
            }
            Some(Fault::Dawdle(_, after)) => {
                dawdle(after).await;
                result
            }
            _ => result,
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let op = if options.head { Op::Head } else { Op::Get };
        let fault = self.next(op, location);
        match &fault {
            Some(Fault::Refuse) => return Err(injected()),
            Some(Fault::Hold(gate)) => {
                // As a slow answer: what it says was true before the wait.
                let result = self.inner.get_opts(location, options).await;
                gate.pass().await;
                return result;
            }
            Some(Fault::Dawdle(before, _)) => dawdle(*before).await,
            _ => {}
        }
        let result = self.inner.get_opts(location, options).await?;
        match fault {
            Some(Fault::Dawdle(_, after)) => {
                dawdle(after).await;
                Ok(result)
            }
            Some(Fault::Truncate(length)) => truncate(result, length),
            _ => Ok(result),
        }
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let inner = Arc::clone(&self.inner);
        let (rules, calls) = (Arc::clone(&self.rules), Arc::clone(&self.calls));
        let results = async move {
            let locations: Vec<Path> = locations.try_collect().await?;
            calls[Op::Delete as usize].fetch_add(locations.len(), Ordering::SeqCst);
            let mut results = Vec::new();
            for location in locations {
                let fault = take(&rules, Op::Delete, &location);
                match &fault {
                    Some(Fault::RefuseBatch) => return Err(injected()),
                    Some(Fault::Hold(gate)) => gate.pass().await,
                    Some(Fault::Dawdle(before, _)) => dawdle(*before).await,
                    _ => {}
                }
                results.push(if let Some(Fault::Refuse) = fault {
                    Err(injected())
                } else {
                    let one = stream::once(async { Ok(location) }).boxed();
                    let deleted = inner.delete_stream(one).next().await.unwrap();
                    match fault {
                        Some(Fault::LoseAck) => Err(injected()),
                        Some(Fault::HoldAck(gate)) => {
                            gate.pass().await;
                            deleted
                        }
                        Some(Fault::Dawdle(_, after)) => {
                            dawdle(after).await;
                            deleted
                        }
                        _ => deleted,
                    }
                });
            }
            Ok(stream::iter(results))
        };
        stream::once(results).try_flatten().boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let fault = self.next(Op::List, prefix.unwrap_or(&Path::default()));
        let objects = self.inner.list(prefix);
        let Some(fault) = fault else { return objects };
        let listing = async move {
            if let Fault::Dawdle(before, _) = fault {
                dawdle(before).await;
            }
            // What it says was true before the wait.
            let objects: Vec<Result<ObjectMeta>> = objects.collect().await;
            match fault {
                Fault::Refuse => return Err(injected()),
                Fault::Hold(gate) => gate.pass().await,
                Fault::Dawdle(_, after) => dawdle(after).await,
                _ => {}
            }
            Ok(stream::iter(objects))
        };
        stream::once(listing).try_flatten().boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}

async fn dawdle(turns: usize) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}

fn truncate(result: GetResult, length: usize) -> Result<GetResult> {
    let (meta, range) = (result.meta.clone(), result.range.clone());
    let (attributes, extensions) = (result.attributes.clone(), result.extensions.clone());
    let mut left = length;
    let payload = result
        .into_stream()
        .map_ok(move |bytes| {
            let bytes = bytes.slice(..left.min(bytes.len()));
            left -= bytes.len();
            bytes
        })
        .boxed();
    Ok(GetResult {
        payload: GetResultPayload::Stream(payload),
        meta,
        range,
        attributes,
        extensions,
    })
}
