//! Watches the folder while the collector runs: by inotify, and by slow rescans for changes that
//! inotify does not report.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch as channel},
    task,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::facts::InventoryEvent;
use virtfleet_wire::finding::Finding;

use super::follower::{FolderFollower, FollowStep};
use crate::{
    inventory::log_new,
    mla::settings::{StreamDefaults, StreamRegistry},
};

/// Delay between a change and the scan, and between two scans of a changing file: it is read once
/// two scans are equal.
const DEBOUNCE: Duration = Duration::from_millis(150);
/// Interval between scans without any notification: symlinks and network filesystems change
/// silently.
const RESCAN_INTERVAL: Duration = Duration::from_secs(15);
/// The same while inotify does not work at all, or the folder is missing.
const RESCAN_INTERVAL_WITHOUT_INOTIFY: Duration = Duration::from_secs(1);
/// Maximum scans of the first read that wait for files that are being written.
const MAX_FIRST_SCANS: u32 = 10;

/// Why the folder cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// It is missing at the start, or is not a folder.
    #[error("the manifest folder {} cannot be read; create it, or set inventory.folder", folder.display())]
    Folder { folder: PathBuf, source: std::io::Error },
    /// A step panicked, which is a bug.
    #[error("reading the manifest folder {} panicked", folder.display())]
    FollowStep {
        folder: PathBuf,
        /// The panic.
        source: task::JoinError,
    },
}

/// Reads the folder completely (`Init`, its objects, `Synced`), then follows it until `stop` or
/// until the receiver of events is dropped. Sends the complete findings about files to `problems`,
/// before the events of the same scan, and the streams of user clusters to `streams`.
///
/// # Errors
/// The folder cannot be read at the start. A folder that disappears later is a finding, and its
/// last valid content is used.
pub async fn watch(
    folder: PathBuf,
    events: mpsc::Sender<InventoryEvent>,
    problems: channel::Sender<Vec<Finding>>,
    streams: Arc<StreamRegistry>,
    stop: CancellationToken,
) -> Result<(), WatchError> {
    let run = follow(folder, &events, &problems, &streams);
    stop.run_until_cancelled(run).await.unwrap_or(Ok(()))
}

async fn follow(
    folder: PathBuf,
    events: &mpsc::Sender<InventoryEvent>,
    problems: &channel::Sender<Vec<Finding>>,
    streams: &StreamRegistry,
) -> Result<(), WatchError> {
    if let Err(source) = std::fs::read_dir(&folder) {
        return Err(WatchError::Folder { folder, source });
    }
    let (notifications, mut wake) = mpsc::channel(1);
    let mut follower = FolderFollower::new(folder.clone(), watcher(notifications));
    let mut first = vec![InventoryEvent::Init];
    let mut looks = 0;
    let mut step = loop {
        looks += 1;
        let step = next(&mut follower, looks >= MAX_FIRST_SCANS, &folder).await?;
        // The first scan only collects names; a file is read once two scans are equal.
        if !step.settling || looks >= MAX_FIRST_SCANS {
            break step;
        }
        first.extend(step.events);
        sleep(DEBOUNCE).await;
    };
    first.append(&mut step.events);
    first.push(InventoryEvent::Synced);
    step.events = first;
    let mut defaults = streams.defaults_changes();
    loop {
        let (settling, folder_missing) = (step.settling, step.folder_missing);
        if let Some(known) = step.streams.take() {
            streams.retain_tenants(|cluster| known.contains_key(cluster));
            for (cluster, known) in &known {
                streams.set_tenant(cluster, Some(known));
            }
        }
        if !publish(step, events, problems).await {
            return Ok(());
        }
        let patience = match (settling, folder_missing || !follower.has_inotify()) {
            (true, _) => DEBOUNCE,
            (false, true) => RESCAN_INTERVAL_WITHOUT_INOTIFY,
            (false, false) => RESCAN_INTERVAL,
        };
        if settling {
            sleep(patience).await;
        } else if let Ok(Some(())) = timeout(patience, notified(&mut wake, &mut defaults)).await {
            sleep(DEBOUNCE).await;
        } else if wake.is_closed() {
            // No inotify: `recv` returned at once.
            sleep(patience).await;
        }
        // This scan covers all notifications so far.
        while wake.try_recv().is_ok() {}
        step = next(&mut follower, false, &folder).await?;
    }
}

/// Waits for a notification, or for other limits of streams: each scan sets all streams again.
async fn notified(
    wake: &mut mpsc::Receiver<()>,
    defaults: &mut channel::Receiver<Option<StreamDefaults>>,
) -> Option<()> {
    tokio::select! {
        notified = wake.recv() => notified,
        Ok(()) = defaults.changed() => Some(()),
    }
}

/// Runs one step on a blocking thread.
async fn next(
    follower: &mut FolderFollower,
    last_look: bool,
    folder: &std::path::Path,
) -> Result<FollowStep, WatchError> {
    let mut moved = std::mem::replace(follower, FolderFollower::new(PathBuf::new(), None));
    let stepped = task::spawn_blocking(move || {
        let step = moved.step(last_look);
        (moved, step)
    });
    let (moved, step) = stepped.await.map_err(|source| WatchError::FollowStep {
        folder: folder.to_owned(),
        source,
    })?;
    *follower = moved;
    Ok(step)
}

/// Sends the findings and events of a step. Returns false if the receiver of events was dropped.
async fn publish(
    step: FollowStep,
    events: &mpsc::Sender<InventoryEvent>,
    problems: &channel::Sender<Vec<Finding>>,
) -> bool {
    problems.send_if_modified(|known| {
        let changed = *known != step.findings;
        if changed {
            log_new(known, &step.findings);
            *known = step.findings;
        }
        changed
    });
    for event in step.events {
        if events.send(event).await.is_err() {
            return false;
        }
    }
    true
}

/// A watcher that notifies the receiver. None, with a warning, if the kernel allows no further
/// watch.
fn watcher(notifications: mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
    let made = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // The collector's own reads cause events, too.
        if event.as_ref().is_ok_and(|event| event.kind.is_access()) {
            return;
        }
        // A full queue means that a scan is already due.
        notifications.try_send(()).ok();
    });
    made.inspect_err(
        |error| tracing::warn!(%error, "inotify is not available: the manifest folder is scanned every second"),
    )
    .ok()
}
