//! TCP connections to a receiver. For a receiver that a tenant names, the address is checked first.

use std::{
    error::Error,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::{net::TcpStream, time::timeout};
use tower::Service;

use crate::dial_guard::DialGuard;

type Boxed = Box<dyn Error + Send + Sync>;

#[derive(Debug, Clone)]
pub(super) struct ReceiverConnector {
    http: HttpConnector,
    /// None: the operator names the receiver.
    guard: Option<Arc<DialGuard>>,
    timeout: Duration,
}

impl ReceiverConnector {
    pub(super) fn new(guard: Option<Arc<DialGuard>>, timeout: Duration) -> Self {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(timeout));
        Self { http, guard, timeout }
    }
}

impl Service<Uri> for ReceiverConnector {
    type Response = TokioIo<TcpStream>;
    type Error = Boxed;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Boxed>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Some(guard) = self.guard.clone() else {
            let connecting = self.http.call(uri);
            return Box::pin(async { connecting.await.map_err(Into::into) });
        };
        let limit = self.timeout;
        Box::pin(async move {
            match timeout(limit, guard.connect(uri)).await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            }
        })
    }
}
