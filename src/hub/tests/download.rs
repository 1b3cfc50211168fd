//! Downloads over plain HTTP.

use std::ops::Range;

use super::*;
use crate::hub::types::Download;

const BYTES: &str = "0123456789";

struct Hub {
    hub: Server,
    cdn: Server,
}

impl Hub {
    /// A hub that redirects every request, to a CDN with these answers.
    async fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let cdn = Server::start(answers).await;
        let hub = Server::start([]).await;
        Self { hub, cdn }
    }

    fn redirect(self, times: usize, hash: &str) -> Self {
        let location = format!("location: {}", self.cdn.at("/blob?sig=hf_secret"));
        let hash = format!("x-xet-hash: {hash}");
        for _ in 0..times {
            let headers = ["x-linked-size: 10", &*hash, &*location];
            self.hub
                .then(Answer::new(302, &headers, "Found. Redirecting"));
        }
        self
    }

    async fn get(&self, range: Option<Range<u64>>) -> Result<(Download, String), Error> {
        let mut download = client(&self.hub).download(&bucket(), "a b", range).await?;
        let stream = std::mem::replace(&mut download.stream, Box::pin(futures::stream::empty()));
        let chunks: Vec<_> = stream.try_collect().await?;
        Ok((download, String::from_utf8(chunks.concat()).unwrap()))
    }
}

fn part(range: Range<usize>) -> Answer {
    let header = format!("content-range: bytes {}-{}/10", range.start, range.end - 1);
    Answer::new(206, &[&header], &BYTES[range])
}

#[tokio::test]
async fn the_redirect_is_followed_without_the_token() {
    let hub = Hub::new([Answer::new(200, &[], BYTES)])
        .await
        .redirect(1, "ff");
    let (download, bytes) = hub.get(None).await.unwrap();
    assert_eq!(bytes, BYTES);
    assert_eq!((download.size_of_object, download.range), (10, 0..10));
    assert_eq!(download.xet_hash.as_deref(), Some("ff"));
    let asked = &hub.hub.requests()[0];
    assert_eq!(asked.line, "GET /buckets/o/b/resolve/a%20b");
    assert_eq!(asked.authorization(), BEARER);
    assert_eq!(asked.header("accept-encoding"), Some("identity"));
    let signed = &hub.cdn.requests()[0];
    assert_eq!(signed.line, "GET /blob?sig=hf_secret");
    assert_eq!(signed.authorization(), None);
}

#[tokio::test]
async fn a_range_is_asked_for_and_clamped() {
    let hub = Hub::new([part(3..10)]).await.redirect(1, "ff");
    let (download, bytes) = hub.get(Some(3..99)).await.unwrap();
    assert_eq!(
        (&*bytes, download.range, download.size_of_object),
        ("3456789", 3..10, 10)
    );
    assert_eq!(hub.cdn.requests()[0].header("range"), Some("bytes=3-98"));
}

#[tokio::test]
async fn an_ignored_range_is_cut_out() {
    for (range, expected) in [(3..6, "345"), (0..1, "0"), (8..99, "89")] {
        let hub = Hub::new([Answer::new(200, &[], BYTES)])
            .await
            .redirect(1, "ff");
        assert_eq!(hub.get(Some(range)).await.unwrap().1, expected);
    }
    let hub = Hub::new([Answer::new(200, &[], BYTES)])
        .await
        .redirect(1, "ff");
    let error = hub.get(Some(10..11)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RangeNotSatisfiable);
}

#[tokio::test]
async fn an_answer_about_other_bytes_is_refused() {
    for (answer, range, expected) in [
        (part(2..5), Some(3..6), "asked for"),
        (part(3..5), Some(3..6), "asked for"),
        (Answer::new(206, &[], "345"), Some(3..6), "size"),
        (part(3..6), None, "nobody asked"),
        (
            Answer::new(200, &[], "012345678"),
            None,
            "10 bytes, but the answer is about 9",
        ),
        (
            Answer::new(200, &["content-encoding: br"], BYTES),
            None,
            "compressed",
        ),
    ] {
        let hub = Hub::new([answer]).await.redirect(1, "ff");
        let error = hub.get(range).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{expected}");
        assert!(text_of(&error).contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_is_continued() {
    let answers = [
        Answer::cut(200, &[], "0123", 10),
        Answer::drop(),
        part(4..10),
    ];
    let hub = Hub::new(answers).await.redirect(3, "ff");
    assert_eq!(hub.get(None).await.unwrap().1, BYTES);
    assert_eq!(hub.cdn.requests()[2].header("range"), Some("bytes=4-9"));
}

#[tokio::test]
async fn a_body_that_ends_early_in_good_order_is_continued_too() {
    let answers = [Answer::chunked(200, &[], "0123"), part(4..10)];
    let hub = Hub::new(answers).await.redirect(2, "ff");
    assert_eq!(hub.get(None).await.unwrap().1, BYTES);
}

#[tokio::test]
async fn a_body_that_keeps_breaking_off_is_an_error() {
    let short = || Answer::chunked(206, &["content-range: bytes 0-9/10"], "");
    let answers = [Answer::chunked(200, &[], "")].into_iter();
    let hub = Hub::new(answers.chain((0..9).map(|_| short()))).await;
    let hub = hub.redirect(9, "ff");
    let error = hub.get(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(
        text_of(&error).contains("10 bytes of 10 are missing"),
        "{error}"
    );
    assert_eq!(hub.cdn.requests().len(), 4);
}

#[tokio::test]
async fn what_was_overwritten_meanwhile_is_not_continued() {
    let answers = [Answer::cut(200, &[], "0123", 10), part(4..10)];
    let hub = Hub::new(answers).await.redirect(1, "ff").redirect(1, "ee");
    let error = hub.get(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PreconditionFailed);
}

#[tokio::test]
async fn a_body_that_goes_on_too_long_is_an_error() {
    let hub = Hub::new([Answer::chunked(200, &[], "0123456789x")]).await;
    let error = hub.redirect(1, "ff").get(None).await.unwrap_err();
    assert!(
        text_of(&error).contains("went on after the 10 bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn an_expired_signature_gets_a_new_one() {
    let expired = Answer::new(403, &[], "<Error><Code>AccessDenied</Code></Error>");
    let hub = Hub::new([expired.clone(), part(0..2)])
        .await
        .redirect(2, "ff");
    assert_eq!(hub.get(Some(0..2)).await.unwrap().1, "01");
    let hub = Hub::new((0..9).map(|_| expired.clone()))
        .await
        .redirect(9, "ff");
    let error = hub.get(None).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.status()),
        (ErrorKind::Server, Some(403))
    );
    assert!(text_of(&error).contains("AccessDenied"), "{error}");
}

#[tokio::test]
async fn missing_objects_and_buckets_are_told_apart() {
    for (headers, kind) in [
        (
            vec!["x-error-code: EntryNotFound"],
            ErrorKind::EntryNotFound,
        ),
        (
            vec!["x-error-code: RepoNotFound"],
            ErrorKind::BucketNotFound,
        ),
        (vec![], ErrorKind::EntryNotFound),
    ] {
        let hub = Server::start([Answer::new(404, &headers, "")]).await;
        let result = client(&hub).download(&bucket(), "a", None).await;
        let error = result.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(text_of(&error).contains("path 'a'"), "{error}");
        assert_eq!(hub.requests().len(), 1);
    }
}

#[tokio::test]
async fn nothing_can_be_downloaded_too() {
    let hub = Hub::new([Answer::new(416, &[], "")])
        .await
        .redirect(2, "ff");
    let (download, bytes) = hub.get(Some(10..10)).await.unwrap();
    assert_eq!(
        (&*bytes, download.range, download.size_of_object),
        ("", 10..10, 10)
    );
    assert!(hub.cdn.requests().is_empty());
    let error = hub.get(Some(10..12)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RangeNotSatisfiable);

    let empty = Server::start([Answer::new(200, &[], "")]).await;
    let download = client(&empty).download(&bucket(), "a", None).await.unwrap();
    assert_eq!((download.size_of_object, download.range), (0, 0..0));
    assert_eq!(
        download.stream.try_collect::<Vec<_>>().await.unwrap().len(),
        0
    );
}
