//! Filling a buffer from a stream.

use bytes::Bytes;
use futures::TryStreamExt;
use futures::stream::BoxStream;

use super::Broken;

pub(super) async fn fill(
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
        fill(pieces(&[b"a", b"", b"bcd"]), &mut buffer)
            .await
            .unwrap();
        assert_eq!(&buffer, b"abcd");
        let short = fill(pieces(&[b"a"]), &mut buffer).await;
        assert!(matches!(short, Err(Broken::Length(1))));
        let long = fill(pieces(&[b"abc", b"de"]), &mut buffer).await;
        assert!(matches!(long, Err(Broken::Length(5))));
        fill(pieces(&[]), &mut []).await.unwrap();
    }
}
