//! Scrapes one page and sends it by remote write: the program that Prometheus' compliance tests for
//! senders run. It uses the sender of the collector.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use clap::Parser;
use virtfleet_collector::mla::send::{Backoff, Endpoint, EndpointError, SendResult, Sender, parse_url};
use virtfleet_remote_write::{Compression, CompressionSetting, ProtocolSetting, request::FinishedRequest};
use virtfleet_tests::{remote_write::PageSender, scrape::Client};

/// Samples are collected for this time: a test that counts requests expects a sender that does so,
/// and others end after five seconds.
const FLUSH_INTERVAL: Duration = Duration::from_millis(4500);
/// Time between two scrapes.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait before the loop looks for something to do.
const TICK: Duration = Duration::from_millis(100);
/// Requests that wait; the oldest are dropped beyond that.
const MAX_WAITING: usize = 100;

/// Scrape a page every second and send its samples.
#[derive(Debug, Parser)]
#[command(name = "remote-write-sender")]
struct Arguments {
    /// Address of the page, with or without http:// before it.
    #[arg(long)]
    scrape: String,
    /// URL of the receiver.
    #[arg(long)]
    endpoint: String,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let target = arguments
        .scrape
        .trim_start_matches("http://")
        .trim_end_matches('/');
    let address: SocketAddr = target.parse().with_context(|| format!("target {target:?}"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    // The tests end a sender with SIGINT and expect success.
    let interrupted = Arc::new(AtomicBool::new(false));
    let (flag, main) = (Arc::clone(&interrupted), thread::current());
    runtime.spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            flag.store(true, Ordering::Relaxed);
            main.unpark();
        }
    });
    // An endpoint that cannot be used stops nothing but the sending.
    let sender = connect(&arguments.endpoint)
        .inspect_err(|error| eprintln!("{error}"))
        .ok();
    let mut page_sender = PageSender::new(&[("instance", target), ("job", "test")]);
    let mut waiting: VecDeque<FinishedRequest> = VecDeque::new();
    let (start, mut backoff) = (Instant::now(), Backoff::new());
    let (mut next_scrape, mut next_flush) = (Duration::ZERO, FLUSH_INTERVAL);
    while !interrupted.load(Ordering::Relaxed) {
        if start.elapsed() >= next_scrape {
            next_scrape += SCRAPE_INTERVAL;
            let page = scrape(address);
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
            page_sender.scrape(page.as_deref(), i64::try_from(now)?);
        }
        if start.elapsed() >= next_flush {
            next_flush += FLUSH_INTERVAL;
            waiting.extend(page_sender.flush());
        }
        while waiting.len() > MAX_WAITING {
            waiting.pop_front();
        }
        while let (Some(sender), Some(next)) = (&sender, waiting.front())
            && backoff.wait(start.elapsed()).is_zero()
        {
            let body = Bytes::from(next.body.clone());
            let outcome = runtime.block_on(sender.send(&body, Compression::Snappy, next.samples));
            println!("{outcome:?}");
            if let SendResult::Retry { after, .. } = outcome.result {
                backoff.failed(start.elapsed(), after, fastrand::f64());
            } else {
                backoff.answered();
                waiting.pop_front();
            }
        }
        thread::park_timeout(TICK);
    }
    Ok(())
}

fn connect(url: &str) -> Result<Sender, EndpointError> {
    Sender::new(Endpoint {
        url: parse_url(url)?,
        headers: hyper::HeaderMap::new(),
        tls: None,
        server_name: None,
        protocol: ProtocolSetting::Auto,
        compression: CompressionSetting::Auto,
        timeout: Duration::from_secs(5),
        user_agent: "virtfleet-remote-write-sender/1".to_owned(),
    })
}

fn scrape(address: SocketAddr) -> Option<String> {
    let mut client = Client::plain(address, Duration::from_secs(5)).ok()?;
    let answer = client.get("/metrics").ok()?.ok().ok()?;
    answer.text().ok().map(str::to_owned)
}
