//! A listener whose connections can be broken from within a handler, for injected faults.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// Whether a connection is cut, and who waits on it.
#[derive(Debug, Default)]
struct Cut {
    done: AtomicBool,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

impl Cut {
    fn cut(&self) {
        self.done.store(true, Ordering::SeqCst);
        self.reader.wake();
        self.writer.wake();
    }

    fn check(&self, waker: &AtomicWaker, cx: &Context<'_>) -> io::Result<()> {
        // Registered first: a cut between check and registration would be slept through.
        waker.register(cx.waker());
        if self.done.load(Ordering::SeqCst) {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionReset,
                "cut by LocalHub",
            ));
        }
        Ok(())
    }
}

/// The connection a request came on.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) peer: SocketAddr,
    cut: Arc<Cut>,
}

impl Connection {
    /// Nothing more is written; the client sees the connection close.
    pub(super) fn cut(&self) {
        self.cut.cut();
    }
}

/// The open connections of a hub.
#[derive(Debug, Clone, Default)]
pub(super) struct Connections(Arc<Mutex<Vec<Weak<Cut>>>>);

impl Connections {
    fn add(&self, cut: &Arc<Cut>) {
        let mut open = self.0.lock();
        if open.len() == open.capacity() {
            open.retain(|cut| cut.strong_count() > 0);
        }
        open.push(Arc::downgrade(cut));
    }

    /// Ends them all, also those whose request is still worked on.
    pub(super) fn cut_all(&self) {
        let open = std::mem::take(&mut *self.0.lock());
        for cut in open.iter().filter_map(Weak::upgrade) {
            cut.cut();
        }
    }
}

pub(super) struct CuttableListener {
    inner: TcpListener,
    connections: Connections,
}

impl CuttableListener {
    pub(super) fn new(inner: TcpListener, connections: Connections) -> Self {
        Self { inner, connections }
    }
}

pub(super) struct CuttableStream {
    inner: TcpStream,
    cut: Arc<Cut>,
}

impl Listener for CuttableListener {
    type Io = CuttableStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (CuttableStream, SocketAddr) {
        // axum's own listener waits out a shortage of file descriptors.
        let (inner, peer) = Listener::accept(&mut self.inner).await;
        if let Err(error) = inner.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
        let cut = Arc::new(Cut::default());
        self.connections.add(&cut);
        (CuttableStream { inner, cut }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}

impl Connected<IncomingStream<'_, CuttableListener>> for Connection {
    fn connect_info(stream: IncomingStream<'_, CuttableListener>) -> Self {
        Self {
            peer: *stream.remote_addr(),
            cut: Arc::clone(&stream.io().cut),
        }
    }
}

impl AsyncRead for CuttableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.cut.check(&self.cut.reader, cx)?;
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for CuttableStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.cut.check(&self.cut.writer, cx)?;
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.cut.check(&self.cut.writer, cx)?;
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.cut.check(&self.cut.writer, cx)?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_cut_wakes_whoever_waits() -> io::Result<()> {
        let connections = Connections::default();
        let socket = TcpListener::bind("127.0.0.1:0").await?;
        let address = socket.local_addr()?;
        let mut listener = CuttableListener::new(socket, connections.clone());
        let mut client = TcpStream::connect(address).await?;
        let (mut server, _) = listener.accept().await;

        client.write_all(b"a").await?;
        assert_eq!(server.read_u8().await?, b'a');
        let waiting = tokio::spawn(async move { server.read_u8().await });
        tokio::task::yield_now().await;
        connections.cut_all();
        let error = waiting.await?.expect_err("the connection is cut");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(client.read(&mut [0; 1]).await?, 0);
        Ok(())
    }
}
