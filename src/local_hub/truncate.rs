//! Bodies that end early, for injected faults.

use std::io;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures::future::ready;
use futures::stream::{self, Stream, StreamExt};

/// The answer with the first `after` bytes of its body. Quietly, `Content-Length` says that this is
/// all; else it promises the whole, and the connection breaks.
pub(super) fn truncated(response: Response, after: u64, quietly: bool) -> Response {
    let (mut parts, body) = response.into_parts();
    let announced = parts.headers.get(header::CONTENT_LENGTH);
    let whole = announced
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .or(body.size_hint().exact());
    if let Some(whole) = whole {
        let length = if quietly { after.min(whole) } else { whole };
        parts
            .headers
            .insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    let first = first_bytes(body, after);
    let body = if quietly {
        Body::from_stream(first)
    } else {
        let cut = stream::once(async {
            // The server sends what it has while it waits. Without a pause the error would come
            // first, and the client would not even see the headers.
            tokio::task::yield_now().await;
            Err(io::Error::other("cut by an injected fault"))
        });
        Body::from_stream(first.chain(cut))
    };
    Response::from_parts(parts, body)
}

fn first_bytes(body: Body, count: u64) -> impl Stream<Item = io::Result<Bytes>> {
    body.into_data_stream().scan(count, |left, chunk| {
        if *left == 0 {
            return ready(None);
        }
        ready(Some(chunk.map_err(io::Error::other).map(|mut chunk| {
            chunk.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= chunk.len() as u64;
            chunk
        })))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use axum::response::IntoResponse;

    #[tokio::test]
    async fn a_quiet_end_is_consistent() {
        let response = truncated("hello".into_response(), 3, true);
        assert_eq!(response.headers()["content-length"], "3");
        assert_eq!(to_bytes(response.into_body(), 9).await.unwrap(), "hel");
    }

    #[tokio::test]
    async fn a_loud_end_promises_more_than_it_keeps() {
        let response = truncated("hello".into_response(), 3, false);
        assert_eq!(response.headers()["content-length"], "5");
        assert!(to_bytes(response.into_body(), 9).await.is_err());
    }
}
