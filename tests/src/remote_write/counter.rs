//! A receiver that counts what it gets, of either version of the protocol, and stores none of it.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, runtime::Runtime};
use virtfleet_remote_write::{Compression, MAX_MESSAGE_BYTES, decode_v1, decode_v2, decompress};

/// Content of the header Content-Type that says version 2.0.
const V2_TYPE: &str = "proto=io.prometheus.write.v2.Request";

/// An accepted request.
#[derive(Debug, Clone)]
pub struct CountedRequest {
    /// When it was complete.
    pub at: Instant,
    /// Path of its URL.
    pub path: String,
    /// Size of the body as sent, in bytes.
    pub bytes: u64,
    /// Samples in it.
    pub samples: u64,
    /// Samples of the series `up`: one for each scrape of a target.
    pub scrapes: u64,
    /// Age of its oldest sample.
    pub delay: Duration,
}

/// A receiver on a port of its own. Dropping it ends it.
pub struct Counter {
    address: SocketAddr,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

#[derive(Default)]
struct Shared {
    requests: Mutex<Vec<CountedRequest>>,
    refused_path: Mutex<Option<String>>,
    refused: AtomicU64,
    malformed: Mutex<Option<String>>,
}

/// What a message holds.
struct Content {
    samples: u64,
    scrapes: u64,
    oldest_ms: i64,
}

impl Counter {
    /// Starts it.
    pub fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("counter")
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        runtime.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self {
            address,
            shared,
            runtime: Some(runtime),
        })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The requests since the last call, in the order of their arrival.
    pub fn take(&self) -> Result<Vec<CountedRequest>> {
        if let Some(error) = locked(&self.shared.malformed).take() {
            bail!("the receiver got a malformed request: {error}");
        }
        Ok(std::mem::take(&mut *locked(&self.shared.requests)))
    }

    /// Refuses all requests to this path with status 503 from now on; with none, it accepts all.
    pub fn refuse(&self, path: Option<&str>) {
        *locked(&self.shared.refused_path) = path.map(str::to_owned);
    }

    /// Number of refused requests so far.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        let service = service_fn(move |request| {
            let shared = Arc::clone(&shared);
            async move { respond(request, &shared).await }
        });
        let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move { drop(served.await) });
    }
}

async fn respond(request: Request<Incoming>, shared: &Shared) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let body = body.collect().await?.to_bytes();
    let mut response = Response::new(Full::new(Bytes::new()));
    if locked(&shared.refused_path).as_deref() == Some(&path) {
        shared.refused.fetch_add(1, Ordering::Relaxed);
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        return Ok(response);
    }
    let header = |name| {
        head.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let is_v2 = header("content-type").contains(V2_TYPE);
    let content = match content(&body, header("content-encoding"), is_v2) {
        Ok(content) => content,
        Err(error) => {
            *locked(&shared.malformed) = Some(format!("{path}: {error:#}"));
            *response.status_mut() = StatusCode::BAD_REQUEST;
            return Ok(response);
        }
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let oldest = Duration::from_millis(content.oldest_ms.try_into().unwrap_or(0));
    locked(&shared.requests).push(CountedRequest {
        at: Instant::now(),
        path,
        bytes: body.len() as u64,
        samples: content.samples,
        scrapes: content.scrapes,
        delay: now.saturating_sub(oldest),
    });
    *response.status_mut() = StatusCode::NO_CONTENT;
    if is_v2 {
        for (kind, count) in [("samples", content.samples), ("histograms", 0), ("exemplars", 0)] {
            let name = format!("x-prometheus-remote-write-{kind}-written");
            if let Ok(name) = hyper::header::HeaderName::try_from(name) {
                response.headers_mut().insert(name, count.into());
            }
        }
    }
    Ok(response)
}

fn content(body: &[u8], encoding: &str, is_v2: bool) -> Result<Content> {
    let compression = match encoding {
        "snappy" => Compression::Snappy,
        "zstd" => Compression::Zstd,
        other => bail!("content-encoding {other:?}"),
    };
    let message = decompress(compression, body, MAX_MESSAGE_BYTES).context("decompress")?;
    let mut content = Content {
        samples: 0,
        scrapes: 0,
        oldest_ms: i64::MAX,
    };
    let mut count = |is_up: bool, times: &mut dyn Iterator<Item = i64>| {
        for time in times {
            content.samples += 1;
            content.scrapes += u64::from(is_up);
            content.oldest_ms = content.oldest_ms.min(time);
        }
    };
    if is_v2 {
        let request = decode_v2(&message)?;
        let symbol = |text: &str| request.symbols.iter().position(|symbol| symbol == text);
        let up = [symbol("__name__"), symbol("up")];
        for series in &request.timeseries {
            let is_up = series
                .labels_refs
                .chunks_exact(2)
                .any(|pair| [Some(pair[0] as usize), Some(pair[1] as usize)] == up);
            count(is_up, &mut series.samples.iter().map(|sample| sample.timestamp));
        }
    } else {
        let request = decode_v1(&message)?;
        for series in &request.timeseries {
            let is_up = series
                .labels
                .iter()
                .any(|label| label.name == "__name__" && label.value == "up");
            count(is_up, &mut series.samples.iter().map(|sample| sample.timestamp));
        }
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use virtfleet_remote_write::{compress, to_v1};

    use super::*;
    use crate::remote_write::PageSender;

    #[test]
    fn counts_the_same_in_both_versions() {
        let page = "# TYPE up gauge\nnode_load1 1\nnode_load5{up=\"up\"} 2\n";
        let request = PageSender::new(&[("job", "node")])
            .scraped(Some(page), 1_000)
            .remove(0);
        let new = decompress(Compression::Snappy, &request.body, 1 << 20).unwrap();
        let old = to_v1(&new).unwrap();
        for (message, is_v2) in [(&new, true), (&old, false)] {
            let body = compress(Compression::Snappy, message);
            let content = content(&body, "snappy", is_v2).unwrap();
            assert_eq!(
                (content.samples, content.scrapes, content.oldest_ms),
                (3, 1, 1_000)
            );
        }
        assert!(content(b"not snappy", "snappy", true).is_err());
    }
}
