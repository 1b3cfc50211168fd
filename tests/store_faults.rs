//! Every fault that LocalHub knows, under every operation: it succeeds after a retry, or says by name
//! what is wrong. Never silence, never a wrong object.

#![cfg(feature = "local-hub")]

mod support;

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use hfbucket::HfBucket;
use hfbucket::local_hub::{Class, Fault, LocalHub, TokenGrant};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, Result};
use support::{Fixture, noise};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Put,
    Get,
    List,
    Delete,
    Copy,
}

const OPS: [Op; 5] = [Op::Put, Op::Get, Op::List, Op::Delete, Op::Copy];

/// Those that end in a batch; the first request of a copy is another.
const WRITES: [Op; 3] = [Op::Put, Op::Delete, Op::Copy];

fn old() -> Bytes {
    noise(1, 300_000).into()
}

fn new() -> Bytes {
    noise(2, 300_000).into()
}

/// The token of somebody else, whose requests do not count against the worker's limit.
const OBSERVER: &str = "hf_observer";

fn observer(fixture: &Fixture) -> HfBucket {
    let builder = fixture.builder("faults").with_token(OBSERVER);
    builder.build().unwrap()
}

/// A bucket with `a` and `dir/b`, and a store that has not been used, so that it needs tokens. It does
/// not create buckets: a fault strikes the operation itself.
async fn prepared() -> (Fixture, HfBucket) {
    let hub = LocalHub::builder()
        .with_token(TokenGrant::new("hf_worker", "worker").owner_of("my-org"))
        .with_token(TokenGrant::new(OBSERVER, "observer").owner_of("my-org"))
        .start()
        .await
        .unwrap();
    let fixture = Fixture::with_hub(hub);
    let setup = fixture.store("faults");
    setup.put(&Path::from("a"), old().into()).await.unwrap();
    setup.put(&Path::from("dir/b"), old().into()).await.unwrap();
    let builder = fixture.builder("faults");
    let store = builder.with_create_bucket_if_missing(false).build();
    (fixture, store.unwrap())
}

impl Op {
    async fn run(self, store: &HfBucket) -> Result<()> {
        let (a, c) = (Path::from("a"), Path::from("c"));
        match self {
            Self::Put => store.put(&a, new().into()).await.map(|_| ()),
            Self::Get => {
                let read = store.get(&a).await?.bytes().await?;
                assert!(read == old(), "a get that succeeds has the right bytes");
                Ok(())
            }
            Self::List => {
                let names = names(store).await?;
                assert_eq!(names, ["a", "dir/b"]);
                Ok(())
            }
            Self::Delete => store.delete(&a).await,
            Self::Copy => store.copy(&a, &c).await,
        }
    }

    /// What the bucket holds after the operation, seen by somebody else.
    async fn assert_done(self, fixture: &Fixture) {
        let store = observer(fixture);
        let expected: &[&str] = match self {
            Self::Put | Self::Get | Self::List => &["a", "dir/b"],
            Self::Delete => &["dir/b"],
            Self::Copy => &["a", "c", "dir/b"],
        };
        assert_eq!(names(&store).await.unwrap(), expected, "{self:?}");
        let (path, content) = match self {
            Self::Put => ("a", new()),
            Self::Copy => ("c", old()),
            _ => return,
        };
        let read = store.get(&Path::from(path)).await.unwrap();
        assert!(read.bytes().await.unwrap() == content, "{self:?}");
    }

    /// What the bucket holds after an operation that failed without being done.
    async fn assert_undone(self, fixture: &Fixture) {
        let store = observer(fixture);
        assert_eq!(names(&store).await.unwrap(), ["a", "dir/b"], "{self:?}");
        let read = store.get(&Path::from("a")).await.unwrap();
        assert!(read.bytes().await.unwrap() == old(), "{self:?}");
    }
}

async fn names(store: &HfBucket) -> Result<Vec<String>> {
    let mut names: Vec<_> = store
        .list(None)
        .map_ok(|meta| meta.location.to_string())
        .try_collect()
        .await?;
    names.sort();
    Ok(names)
}

/// A multipart upload whose registration is refused says so through `WriteMultipart`, which aborts
/// after a failure; `complete` may be tried again without the bytes.
#[tokio::test(flavor = "multi_thread")]
async fn a_multipart_upload_that_is_not_registered_may_be_completed_again() {
    let fixture = Fixture::start().await;
    let store = fixture.store("faults");
    let path = Path::from("x");
    let refuse = || {
        fixture
            .hub
            .inject(Fault::partial_batch(422, "x").times(100))
    };
    refuse();
    let mut writer = object_store::WriteMultipart::new(store.put_multipart(&path).await.unwrap());
    writer.write(b"content");
    let error = writer.finish().await.unwrap_err().to_string();
    assert!(error.contains("injected fault"), "{error}");

    let mut upload = store.put_multipart(&path).await.unwrap();
    upload.put_part("content".into()).await.unwrap();
    let error = upload.complete().await.unwrap_err().to_string();
    assert!(error.contains("injected fault"), "{error}");
    fixture.hub.clear_faults();
    upload.complete().await.unwrap();
    assert!(upload.complete().await.is_err(), "once is enough");
    let read = store.get(&path).await.unwrap().bytes().await.unwrap();
    assert_eq!(read, "content");
}

/// The operation succeeds in spite of the fault, which strikes.
async fn survives(fault: Fault, ops: &[Op]) {
    for &op in ops {
        let (fixture, store) = prepared().await;
        fixture.hub.inject(fault.clone());
        op.run(&store)
            .await
            .unwrap_or_else(|e| panic!("{op:?} under {fault:?}: {e}"));
        assert_eq!(fixture.hub.pending_faults(), 0, "{op:?} under {fault:?}");
        op.assert_done(&fixture).await;
    }
}

/// The operation fails with an error that `check` knows, and nothing has changed.
async fn fails(fault: Fault, ops: &[Op], check: impl Fn(Op, &Error)) {
    for &op in ops {
        let (fixture, store) = prepared().await;
        fixture.hub.inject(fault.clone().times(100));
        let error = op
            .run(&store)
            .await
            .expect_err(&format!("{op:?} under {fault:?}"));
        let text = error.to_string();
        assert!(
            text.contains("my-org/faults"),
            "{op:?} names the bucket: {text}"
        );
        check(op, &error);
        fixture.hub.clear_faults();
        op.assert_undone(&fixture).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn passing_statuses_are_retried() {
    for status in [408, 500, 502, 503, 504] {
        survives(Fault::status(status).on_class(Class::Api), &OPS).await;
        survives(Fault::status(status).on_route("batch"), &WRITES).await;
        survives(
            Fault::status(status).on_class(Class::Token),
            &[Op::Put, Op::Get],
        )
        .await;
    }
    for status in [429, 500, 503] {
        survives(
            Fault::status(status).on_class(Class::Cas),
            &[Op::Put, Op::Get],
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_is_waited_out() {
    // `t=0` is a wait of one second.
    survives(Fault::rate_limited(Class::Api, 0), &OPS).await;
    survives(
        Fault::rate_limited(Class::Api, 0).on_route("batch"),
        &WRITES,
    )
    .await;
    survives(Fault::status(429).on_class(Class::Api), &OPS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_beyond_the_deadline_says_how_long() {
    fails(Fault::rate_limited(Class::Api, 290), &OPS, |op, error| {
        let text = error.to_string();
        assert!(
            text.contains("291") && text.contains("429"),
            "{op:?}: {text}"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_connections_are_retried_or_settled() {
    survives(Fault::drop_before().on_class(Class::Api), &OPS).await;
    survives(Fault::drop_after().on_class(Class::Api), &OPS).await;
    survives(Fault::drop_before().on_route("batch"), &WRITES).await;
    survives(Fault::drop_after().on_route("batch"), &WRITES).await;
    survives(
        Fault::drop_before().on_class(Class::Token),
        &[Op::Put, Op::Get],
    )
    .await;
    survives(
        Fault::drop_after().on_class(Class::Token),
        &[Op::Put, Op::Get],
    )
    .await;
    survives(
        Fault::drop_before().on_class(Class::Cas),
        &[Op::Put, Op::Get],
    )
    .await;
    survives(
        Fault::drop_after().on_class(Class::Cas),
        &[Op::Put, Op::Get],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_batch_answer_is_settled_without_sending_again() {
    for op in [Op::Put, Op::Delete, Op::Copy] {
        let (fixture, store) = prepared().await;
        fixture.hub.inject(Fault::drop_after().on_route("batch"));
        let before = fixture.hub.requests();
        op.run(&store).await.unwrap();
        let spent = fixture.hub.requests().since(&before);
        assert_eq!(
            spent.route("POST /api/buckets/{ns}/{name}/batch"),
            1,
            "{op:?}"
        );
        op.assert_done(&fixture).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delays_are_borne() {
    let slow = Fault::delay(Duration::from_millis(30));
    survives(slow.clone().on_class(Class::Api), &OPS).await;
    survives(slow.on_class(Class::Cas), &[Op::Put, Op::Get]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_stay_broken_are_named() {
    fails(
        Fault::status(503).on_class(Class::Api),
        &OPS,
        |op, error| {
            assert!(matches!(error, Error::Generic { .. }), "{op:?}: {error}");
            let text = error.to_string();
            assert!(
                text.contains("503") && text.contains("local-"),
                "{op:?}: {text}"
            );
        },
    )
    .await;
    let html = Fault::status(500)
        .with_header("content-type", "text/html")
        .with_body("<html><body><h1>Oh no</h1></body></html>")
        .on_class(Class::Api);
    fails(html, &OPS, |op, error| {
        let text = error.to_string();
        assert!(
            text.contains("500") && !text.contains("<h1>"),
            "{op:?}: {text}"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_told_apart() {
    let of = |status: u16| Fault::status(status).on_class(Class::Api);
    let batch = |status: u16| Fault::status(status).on_route("batch");
    fails(batch(401), &WRITES, |op, error| {
        assert!(
            matches!(error, Error::Unauthenticated { .. }),
            "{op:?}: {error}"
        );
    })
    .await;
    fails(batch(403), &WRITES, |op, error| {
        assert!(
            matches!(error, Error::PermissionDenied { .. }),
            "{op:?}: {error}"
        );
    })
    .await;
    let no_bucket = batch(404).with_header("x-error-code", "RepoNotFound");
    fails(no_bucket, &WRITES, |op, error| {
        assert!(matches!(error, Error::NotFound { .. }), "{op:?}: {error}");
    })
    .await;
    fails(batch(409), &WRITES, |op, error| {
        assert!(
            matches!(error, Error::AlreadyExists { .. }),
            "{op:?}: {error}"
        );
    })
    .await;
    for status in [400, 422, 503] {
        fails(batch(status), &WRITES, |op, error| {
            let text = error.to_string();
            assert!(text.contains(&status.to_string()), "{op:?}: {text}");
        })
        .await;
    }
    fails(of(401), &OPS, |op, error| {
        assert!(
            matches!(error, Error::Unauthenticated { .. }),
            "{op:?}: {error}"
        );
    })
    .await;
    fails(of(403), &OPS, |op, error| {
        assert!(
            matches!(error, Error::PermissionDenied { .. }),
            "{op:?}: {error}"
        );
    })
    .await;
    let no_bucket = of(404).with_header("x-error-code", "RepoNotFound");
    fails(
        no_bucket,
        &[Op::Put, Op::Get, Op::Delete, Op::Copy],
        |op, error| {
            assert!(matches!(error, Error::NotFound { .. }), "{op:?}: {error}");
        },
    )
    .await;
    fails(of(409), &[Op::Get, Op::List], |op, error| {
        assert!(
            matches!(error, Error::AlreadyExists { .. }),
            "{op:?}: {error}"
        );
    })
    .await;
    fails(of(412), &OPS, |op, error| {
        assert!(
            matches!(error, Error::Precondition { .. }),
            "{op:?}: {error}"
        );
    })
    .await;
    for status in [400, 416, 422] {
        fails(of(status), &[Op::Get, Op::List], |op, error| {
            let text = error.to_string();
            assert!(text.contains(&status.to_string()), "{op:?}: {text}");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partial_batch_is_sent_again_for_what_failed() {
    for status in [200, 422] {
        // Once: the second attempt goes through.
        survives(Fault::partial_batch(status, "a"), &[Op::Put, Op::Delete]).await;
        survives(Fault::partial_batch(status, "c"), &[Op::Copy]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_path_that_stays_refused_fails_alone() {
    let fixture = Fixture::start().await;
    let store = fixture.store("faults");
    fixture
        .hub
        .inject(Fault::partial_batch(200, "bad").times(100));
    let paths = ["good-1", "bad", "good-2"].map(Path::from);
    let puts = futures::future::join_all(paths.iter().map(|path| store.put(path, "x".into())));
    let outcomes = puts.await;
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    let error = outcomes[1].as_ref().unwrap_err().to_string();
    assert!(
        error.contains("'bad'") && error.contains("injected fault"),
        "{error}"
    );
    assert_eq!(names(&store).await.unwrap(), ["good-1", "good-2"]);

    // A delete in a stream of deletes: each has its own answer, in order.
    fixture.hub.clear_faults();
    store.put(&Path::from("bad"), "x".into()).await.unwrap();
    fixture
        .hub
        .inject(Fault::partial_batch(200, "bad").times(100));
    let outcomes: Vec<_> = store
        .delete_stream(futures::stream::iter(paths.clone()).map(Ok).boxed())
        .collect()
        .await;
    assert_eq!(outcomes[0].as_ref().unwrap(), &paths[0]);
    assert!(
        outcomes[1]
            .as_ref()
            .unwrap_err()
            .to_string()
            .contains("'bad'")
    );
    assert_eq!(outcomes[2].as_ref().unwrap(), &paths[2]);
    fixture.hub.clear_faults();
    assert_eq!(names(&store).await.unwrap(), ["bad"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_cannot_be_trusted_is_checked() {
    let ops = [Op::Put, Op::Delete, Op::Copy];
    let report = |text: &str| Fault::batch_report(text);
    // Unreadable, or naming nothing: the work is done, and the store finds out.
    survives(report("<html>gateway</html>"), &ops).await;
    survives(
        report(r#"{"success":true,"processed":7,"succeeded":7,"failed":[]}"#),
        &ops,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_have_expired_are_replaced() {
    survives(Fault::expired_token(), &[Op::Put, Op::Get]).await;
    let refused = Fault::status(401).on_class(Class::Cas);
    survives(refused, &[Op::Put, Op::Get]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_always_refused_is_an_error() {
    let (fixture, store) = prepared().await;
    fixture
        .hub
        .inject(Fault::status(401).on_class(Class::Cas).times(100));
    for op in [Op::Put, Op::Get] {
        let error = op.run(&store).await.unwrap_err();
        assert!(
            matches!(error, Error::Unauthenticated { .. }),
            "{op:?}: {error}"
        );
        let text = error.to_string();
        assert!(
            !text.contains(fixture.hub.token()) && !text.contains("cas_"),
            "{text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_ends_early_goes_on_or_fails() {
    let truncated = Fault::truncate(1000).on_method("GET");
    survives(truncated.clone().on_route("fetch_term"), &[Op::Get]).await;
    let (fixture, store) = prepared().await;
    fixture
        .hub
        .inject(truncated.on_route("fetch_term").times(1000));
    let error = Op::Get.run(&store).await.unwrap_err();
    assert!(error.to_string().contains("'a'"), "{error}");
}

/// A store of bytes that knows nothing of a content answers 416, which hf-xet takes for the end of the
/// stream: without an error, and without a byte.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_ends_early_is_never_a_short_object() {
    let ends = Fault::status(416).on_route("reconstructions");
    survives(ends.clone(), &[Op::Get]).await;
    let (fixture, store) = prepared().await;
    fixture.hub.inject(ends.times(1000));
    let error = Op::Get.run(&store).await.unwrap_err().to_string();
    assert!(error.contains("0 of 300000 bytes"), "{error}");
    // The same store goes on.
    fixture.hub.clear_faults();
    Op::Get.run(&store).await.unwrap();

    for (status, is) in [(403, "refused"), (404, "not in")] {
        let fault = Fault::status(status).on_route("reconstructions");
        fixture.hub.inject(fault.times(1000));
        let error = Op::Get.run(&store).await.unwrap_err();
        let right = match status {
            403 => matches!(error, Error::Unauthenticated { .. }),
            _ => matches!(error, Error::NotFound { .. }),
        };
        assert!(
            right && error.to_string().contains(is),
            "{status}: {error:?}"
        );
        fixture.hub.clear_faults();
        Op::Get.run(&store).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_downloads_that_end_early_go_on_or_fail() {
    for (times, survives) in [(1, true), (1000, false)] {
        let (fixture, _) = prepared().await;
        let store = fixture
            .builder("faults")
            .with_download_mode(hfbucket::DownloadMode::Http)
            .build()
            .unwrap();
        let fault = Fault::truncate(0).on_route("/files/");
        fixture.hub.inject(fault.times(times));
        let outcome = Op::Get.run(&store).await;
        assert_eq!(outcome.is_ok(), survives, "{outcome:?}");
        fixture.hub.clear_faults();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_listing_does_not_mislead_heads() {
    let (fixture, store) = prepared().await;
    fixture.hub.inject(Fault::stale_listing().times(10));
    let (a, c) = (Path::from("a"), Path::from("c"));
    store.put(&c, new().into()).await.unwrap();
    store.delete(&a).await.unwrap();
    // The listing is the server's; nothing that asks for one path relies on it.
    assert_eq!(names(&store).await.unwrap(), ["a", "dir/b"]);
    assert_eq!(store.head(&c).await.unwrap().size, 300_000);
    assert!(matches!(store.head(&a).await, Err(Error::NotFound { .. })));
    assert!(store.get(&c).await.unwrap().bytes().await.unwrap() == new());
    store.copy(&c, &a).await.unwrap();
    store.delete(&c).await.unwrap();
    fixture.hub.clear_faults();
    assert_eq!(names(&store).await.unwrap(), ["a", "dir/b"]);
}
