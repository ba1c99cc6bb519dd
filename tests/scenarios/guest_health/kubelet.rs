//! A stand-in for kubelet in the guest, and for the node controller of its user cluster.

use std::{
    io::ErrorKind,
    net::UdpSocket,
    str,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

/// Address to which the guest sends its heartbeats.
const ADDRESS: &str = "10.0.2.2:10255";
/// Silence after which the Node is given up; 40 seconds in a real cluster.
const GRACE_PERIOD: Duration = Duration::from_secs(10);
/// Available memory in KiB below which kubelet reports memory pressure: its default is 100 MiB.
const MIN_AVAILABLE_KIB: u64 = 100 * 1024;
/// Interval at which the thread checks whether it should end.
const END_INTERVAL: Duration = Duration::from_millis(200);

/// The unit in the guest: a heartbeat each second, with the available memory in KiB.
pub(crate) const UNIT: &str = "[Unit]
Description=a stand-in for kubelet
[Service]
ExecStart=/bin/bash -c 'while :; do while read -r key kib rest; do [ $key != MemAvailable: ] || echo $kib >/dev/udp/10.0.2.2/10255; done </proc/meminfo; sleep 1; done'
";

/// The Node as its conditions show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeSeen {
    /// Status of `Ready`: `True`, or `Unknown` without heartbeats.
    pub(crate) ready: &'static str,
    /// Whether the guest has little memory left.
    pub(crate) has_memory_pressure: bool,
}

#[derive(Debug, Clone, Copy)]
struct Heartbeat {
    at: Instant,
    available_kib: u64,
}

/// A server that receives the heartbeats. Dropping it ends it.
pub(crate) struct Heartbeats {
    last: Arc<Mutex<Option<Heartbeat>>>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeats {
    /// Starts the server in the network namespace of this thread.
    pub(crate) fn serve() -> Result<Self> {
        let socket = UdpSocket::bind(ADDRESS).with_context(|| format!("bind {ADDRESS}"))?;
        socket.set_read_timeout(Some(END_INTERVAL))?;
        let (last, end) = (Arc::<Mutex<_>>::default(), Arc::<AtomicBool>::default());
        let thread = thread::spawn({
            let (last, end) = (Arc::clone(&last), Arc::clone(&end));
            move || receive(&socket, &last, &end)
        });
        Ok(Self {
            last,
            end,
            thread: Some(thread),
        })
    }

    /// The Node now.
    pub(crate) fn node(&self) -> NodeSeen {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = last.filter(|beat| beat.at.elapsed() < GRACE_PERIOD);
        NodeSeen {
            ready: if fresh.is_some() { "True" } else { "Unknown" },
            has_memory_pressure: last.is_some_and(|beat| beat.available_kib < MIN_AVAILABLE_KIB),
        }
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            eprintln!("the server of heartbeats has panicked");
        }
    }
}

fn receive(socket: &UdpSocket, last: &Mutex<Option<Heartbeat>>, end: &AtomicBool) {
    let mut buffer = [0; 64];
    while !end.load(Ordering::Relaxed) {
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(error) => {
                eprintln!("no heartbeats any more: {error}");
                return;
            }
        };
        let text = str::from_utf8(&buffer[..length]).unwrap_or_default();
        if let Ok(available_kib) = text.trim().parse() {
            *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Heartbeat {
                at: Instant::now(),
                available_kib,
            });
        }
    }
}
