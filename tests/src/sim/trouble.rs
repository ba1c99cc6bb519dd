//! Bodies that a client must not wait for.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::time::{Interval, interval};

/// Lines of a page, each a new series, for as long as somebody reads.
#[derive(Debug, Default)]
pub(super) struct Endless {
    lines: u64,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let first = self.lines;
        self.lines += 200;
        let lines: Vec<String> = (first..self.lines)
            .map(|line| format!("endless{{line=\"{line}\"}} 1\n"))
            .collect();
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(lines.concat())))))
    }
}

/// One byte every 100 ms.
#[derive(Debug)]
pub(super) struct Drip {
    left: Bytes,
    pace: Interval,
}

impl Drip {
    /// Says `bytes`. Called within a runtime.
    pub(super) fn new(bytes: Bytes) -> Self {
        Self {
            left: bytes,
            pace: interval(Duration::from_millis(100)),
        }
    }
}

impl Body for Drip {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        ready!(self.pace.poll_tick(context));
        Poll::Ready(Some(Ok(Frame::data(self.left.split_to(1)))))
    }
}
