//! Follows the folder for as long as the collector runs: woken by the kernel (inotify), and by a slow rescan where the
//! kernel does not tell.

use std::{path::PathBuf, time::Duration};

use tokio::{
    sync::{mpsc, watch as channel},
    task,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::facts::InventoryEvent;
use virtfleet_wire::finding::Finding;

use super::follow::{Follower, Step};
use crate::inventory::log_new;

/// From a change to the look at it, and between two looks at a file that changes: it is read when both see the same.
const DEBOUNCE: Duration = Duration::from_millis(150);
/// Between looks when nobody tells of a change: symlinks and network filesystems change silently.
const RESCAN: Duration = Duration::from_secs(15);
/// The same while the kernel tells nothing at all, or the folder is away.
const RESCAN_UNTOLD: Duration = Duration::from_secs(1);
/// How many looks the first pass waits for files that are being written.
const FIRST_LOOKS: u32 = 10;

/// Why the folder is not followed.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// It is not there at the start, or is no folder.
    #[error("the manifest folder {} cannot be read; make it, or set inventory.folder", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A step panicked: a bug.
    #[error("reading the manifest folder {} failed inside the collector", folder.display())]
    Step {
        /// The folder.
        folder: PathBuf,
        /// What happened.
        source: task::JoinError,
    },
}

/// Reads the folder completely (`Init`, its objects, `Synced`), then follows it until `stop` or until nobody takes the
/// events. What is wrong with the folder's files goes to `problems`, whole each time, before the events of the same look.
///
/// Errors: the folder cannot be read at the start. When it goes away later, that is a problem and the last good state stays.
pub async fn watch(
    folder: PathBuf,
    events: mpsc::Sender<InventoryEvent>,
    problems: channel::Sender<Vec<Finding>>,
    stop: CancellationToken,
) -> Result<(), WatchError> {
    let run = follow(folder, &events, &problems);
    stop.run_until_cancelled(run).await.unwrap_or(Ok(()))
}

async fn follow(
    folder: PathBuf,
    events: &mpsc::Sender<InventoryEvent>,
    problems: &channel::Sender<Vec<Finding>>,
) -> Result<(), WatchError> {
    if let Err(source) = std::fs::read_dir(&folder) {
        return Err(WatchError::Folder { folder, source });
    }
    let (told, mut wake) = mpsc::channel(1);
    let mut follower = Follower::new(folder.clone(), watcher(told));
    let mut first = vec![InventoryEvent::Init];
    let mut looks = 0;
    let mut step = loop {
        looks += 1;
        let step = next(&mut follower, looks >= FIRST_LOOKS, &folder).await?;
        // The first look only learns the names; a file is read when a second one sees the same.
        if !step.settling || looks >= FIRST_LOOKS {
            break step;
        }
        first.extend(step.events);
        sleep(DEBOUNCE).await;
    };
    first.append(&mut step.events);
    first.push(InventoryEvent::Synced);
    step.events = first;
    loop {
        let (settling, lost) = (step.settling, step.lost);
        if !tell(step, events, problems).await {
            return Ok(());
        }
        let patience = match (settling, lost || !follower.is_told()) {
            (true, _) => DEBOUNCE,
            (false, true) => RESCAN_UNTOLD,
            (false, false) => RESCAN,
        };
        if settling {
            sleep(patience).await;
        } else if let Ok(Some(())) = timeout(patience, wake.recv()).await {
            sleep(DEBOUNCE).await;
        } else if wake.is_closed() {
            // No watcher: `recv` returned at once.
            sleep(patience).await;
        }
        // Whatever was told until here is seen by this look.
        while wake.try_recv().is_ok() {}
        step = next(&mut follower, false, &folder).await?;
    }
}

/// Runs one step where it may block.
async fn next(
    follower: &mut Follower,
    last_look: bool,
    folder: &std::path::Path,
) -> Result<Step, WatchError> {
    let mut moved = std::mem::replace(follower, Follower::new(PathBuf::new(), None));
    let stepped = task::spawn_blocking(move || {
        let step = moved.step(last_look);
        (moved, step)
    });
    let (moved, step) = stepped.await.map_err(|source| WatchError::Step {
        folder: folder.to_owned(),
        source,
    })?;
    *follower = moved;
    Ok(step)
}

/// Passes on what a step came to. Returns false when nobody takes events any more.
async fn tell(
    step: Step,
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

/// A watcher that wakes whoever holds the receiver. None, with a warning, when the kernel has no watch left to give.
fn watcher(told: mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
    let made = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Our own reads are events, too.
        if event.as_ref().is_ok_and(|event| event.kind.is_access()) {
            return;
        }
        // Full means that a look is due already.
        told.try_send(()).ok();
    });
    made.inspect_err(
        |error| tracing::warn!(%error, "no inotify: the manifest folder is scanned every second"),
    )
    .ok()
}
