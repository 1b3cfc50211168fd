//! A store that lists as many objects as it is told, a thousand a page, and holds none.

use std::fmt;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Objects `pool/<key>` of 1 MiB, uploaded a second apart in an order that is not that of their
/// names.
#[derive(Debug)]
pub struct Listed {
    objects: usize,
}

impl Listed {
    pub fn new(objects: usize) -> Self {
        Self { objects }
    }
}

fn object(n: usize) -> ObjectMeta {
    let hash = format!("{n:064x}");
    let uploaded = (n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    ObjectMeta {
        location: Path::parse(format!("pool/org%2Fmodel%4001000100%40{hash}")).unwrap(),
        last_modified: DateTime::<Utc>::from_timestamp(uploaded as i64, 0).unwrap(),
        size: 1 << 20,
        e_tag: None,
        version: None,
    }
}

fn holds_nothing<T>(operation: &str) -> Result<T> {
    Err(Error::NotImplemented {
        operation: operation.to_owned(),
        implementer: "Listed".to_owned(),
    })
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listed({})", self.objects)
    }
}

#[async_trait]
impl ObjectStore for Listed {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        holds_nothing("put")
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        holds_nothing("put_multipart")
    }

    async fn get_opts(&self, _: &Path, _: GetOptions) -> Result<GetResult> {
        holds_nothing("get")
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        locations
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        const PAGE: usize = 1000;
        let objects = self.objects;
        let pages = (0..objects.div_ceil(PAGE)).map(move |page| {
            let from = page * PAGE;
            stream::iter((from..objects.min(from + PAGE)).map(|n| Ok(object(n))))
        });
        stream::iter(pages).flatten().boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        holds_nothing("list_with_delimiter")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        holds_nothing("copy")
    }
}
