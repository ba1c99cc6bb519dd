//! Limits the bytes that a peer sends, below TLS and HTTP: handshakes, headers, `100 Continue` and
//! chunk heads count as well, which no limit on a body covers.

use std::{
    cell::RefCell,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum bytes of an exchange beside its body: TLS, headers.
const OVERHEAD_BYTES: u64 = 64 * 1024;
/// Maximum bytes of one read from the peer. rustls alone reads 4 KiB at a time.
const READ_BYTES: usize = 64 * 1024;

thread_local! {
    /// Memory for one read, so that a connection which waits needs none.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Remaining bytes that may be read; clones share the count.
#[derive(Debug, Clone, Default)]
pub(super) struct Meter(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    left: AtomicU64,
    spent: AtomicBool,
}

impl Meter {
    /// Starts an exchange whose body may have `body` bytes, plus an eighth for TLS records and
    /// chunks.
    pub(super) fn start_exchange(&self, body: usize) {
        let body = body as u64;
        self.0.left.store(
            body.saturating_add(body / 8).saturating_add(OVERHEAD_BYTES),
            Ordering::Relaxed,
        );
    }

    /// Whether the peer sent more than allowed.
    pub(super) fn is_spent(&self) -> bool {
        self.0.spent.load(Ordering::Relaxed)
    }
}

/// A stream whose reads are limited. It reads as much as there is at once.
#[derive(Debug)]
pub(super) struct Metered<S> {
    inner: S,
    meter: Meter,
    /// What was read, and the number of bytes of it that were returned. Empty while the stream
    /// waits.
    ahead: Vec<u8>,
    returned: usize,
}

impl<S> Metered<S> {
    pub(super) fn new(inner: S, meter: Meter) -> Self {
        Self {
            inner,
            meter,
            ahead: Vec::new(),
            returned: 0,
        }
    }

    fn return_ahead(&mut self, buf: &mut ReadBuf<'_>) {
        let left = &self.ahead[self.returned..];
        let length = left.len().min(buf.remaining());
        buf.put_slice(&left[..length]);
        self.returned += length;
        if self.returned == self.ahead.len() {
            (self.ahead, self.returned) = (Vec::new(), 0);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            self.return_ahead(buf);
            return Poll::Ready(Ok(()));
        }
        let this = &mut *self;
        let read = SCRATCH.with_borrow_mut(|scratch| {
            let mut read = ReadBuf::new(scratch);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut read))?;
            let (now, later) = read.filled().split_at(read.filled().len().min(buf.remaining()));
            buf.put_slice(now);
            this.ahead.extend_from_slice(later);
            Poll::Ready(Ok::<_, io::Error>(read.filled().len() as u64))
        });
        let read = ready!(read)?;
        let inner = &self.meter.0;
        let left = inner.left.load(Ordering::Relaxed);
        inner.left.store(left.saturating_sub(read), Ordering::Relaxed);
        if read > left {
            inner.spent.store(true, Ordering::Relaxed);
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the peer exceeds the maximum size of an exchange",
            )));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn each_exchange_has_its_own_byte_limit() {
        let meter = Meter::default();
        let sent = vec![0_u8; 400 * 1024];
        let mut stream = Metered::new(&sent[..], meter.clone());
        let mut buffer = vec![0; 64 * 1024];
        meter.start_exchange(8 * 1024);
        stream.read_exact(&mut buffer).await.unwrap();
        meter.start_exchange(0);
        stream.read_exact(&mut buffer).await.unwrap();
        assert!(!meter.is_spent());
        stream.read_exact(&mut buffer).await.unwrap_err();
        assert!(meter.is_spent());
    }
}
