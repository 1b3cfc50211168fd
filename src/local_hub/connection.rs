//! A listener whose connections can be broken from within a handler, for injected faults.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// The connection a request came on.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) peer: SocketAddr,
    broken: Arc<AtomicBool>,
}

impl Connection {
    /// Nothing more is written; the client sees the connection close.
    pub(super) fn cut(&self) {
        self.broken.store(true, Ordering::Release);
    }
}

pub(super) struct CuttableListener(pub(super) TcpListener);

pub(super) struct CuttableStream {
    inner: TcpStream,
    broken: Arc<AtomicBool>,
}

impl Listener for CuttableListener {
    type Io = CuttableStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (CuttableStream, SocketAddr) {
        // axum's own listener waits out a shortage of file descriptors.
        let (inner, peer) = Listener::accept(&mut self.0).await;
        if let Err(error) = inner.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
        let broken = Arc::new(AtomicBool::new(false));
        (CuttableStream { inner, broken }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Connected<IncomingStream<'_, CuttableListener>> for Connection {
    fn connect_info(stream: IncomingStream<'_, CuttableListener>) -> Self {
        Self {
            peer: *stream.remote_addr(),
            broken: Arc::clone(&stream.io().broken),
        }
    }
}

impl CuttableStream {
    fn check(&self) -> io::Result<()> {
        if self.broken.load(Ordering::Acquire) {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionReset,
                "cut by an injected fault",
            ));
        }
        Ok(())
    }
}

impl AsyncRead for CuttableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for CuttableStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
