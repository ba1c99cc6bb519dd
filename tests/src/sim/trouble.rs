//! Response bodies for which a client must not wait.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::time::{Interval, interval};

/// Endless lines of a page, each a new series.
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

/// Interval between two writes of [`Drip`].
const DRIP_INTERVAL: Duration = Duration::from_millis(100);

/// A few bytes every 100 ms.
#[derive(Debug)]
pub(super) struct Drip {
    left: Bytes,
    /// Bytes per write.
    step: usize,
    pace: Interval,
}

impl Drip {
    /// Sends `bytes` one by one. Requires a runtime.
    pub(super) fn new(bytes: Bytes) -> Self {
        Self {
            left: bytes,
            step: 1,
            pace: interval(DRIP_INTERVAL),
        }
    }

    /// Spreads `bytes` over `length`. Requires a runtime.
    pub(super) fn spread(bytes: Bytes, length: Duration) -> Self {
        let steps = usize::try_from(length.as_millis() / DRIP_INTERVAL.as_millis()).unwrap_or(1);
        Self {
            step: bytes.len().div_ceil(steps.max(1)).max(1),
            ..Self::new(bytes)
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
        let step = self.step.min(self.left.len());
        Poll::Ready(Some(Ok(Frame::data(self.left.split_to(step)))))
    }
}
