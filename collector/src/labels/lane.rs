//! One user cluster's lane: its own queue, rate, parallelism and patience. Nothing of another cluster is waited for here.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::{self, JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;
use virtfleet_wire::ids::{ClusterName, VmKey};

use super::{
    pace::{Breaker, Bucket},
    queue::{Next, Queue},
    road::{Looked, Memory, Road},
    shared::{Shared, now},
    writer::NodeWriter,
};

/// A look that ended in a bug is repeated after this.
const AFTER_PANIC: Duration = Duration::from_mins(1);

/// What the dispatcher hands to a lane: never blocks, and holds each VM once.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    queue: Mutex<Queue>,
    wake: Notify,
}

impl Inbox {
    pub(super) fn push<'a>(&self, keys: impl IntoIterator<Item = &'a VmKey>) {
        let mut queue = self.queue();
        for key in keys {
            queue.push(key, now());
        }
        drop(queue);
        self.wake.notify_one();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module.
pub(super) struct Lane<W> {
    shared: Arc<Shared<W>>,
    inbox: Arc<Inbox>,
    road: Arc<Road>,
    breaker: Breaker,
    memories: HashMap<VmKey, Memory>,
    running: JoinSet<(VmKey, Looked)>,
    looked_at: HashMap<task::Id, VmKey>,
}

impl<W: NodeWriter> Lane<W> {
    pub(super) fn new(shared: Arc<Shared<W>>, cluster: ClusterName, inbox: Arc<Inbox>) -> Self {
        let road = Road {
            cluster,
            bucket: Mutex::new(Bucket::new(shared.settings.per_second, now())),
            busy: Mutex::default(),
        };
        Self {
            shared,
            inbox,
            road: Arc::new(road),
            breaker: Breaker::new(),
            memories: HashMap::new(),
            running: JoinSet::new(),
            looked_at: HashMap::new(),
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        loop {
            let wake = self.begin();
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.inbox.wake.notified() => {}
                Some(ended) = self.running.join_next_with_id() => self.ended(ended),
                () = tokio::time::sleep_until(wake.unwrap_or_else(now).into()), if wake.is_some() => {}
            }
        }
        self.shared.metrics.forget(&self.road.cluster);
    }

    /// Begins what may begin, and returns when there is more to begin if nothing else happens.
    fn begin(&mut self) -> Option<std::time::Instant> {
        let gate = self.breaker.not_before().filter(|gate| *gate > now());
        let lanes = self.breaker.lanes(self.shared.settings.parallel.max(1));
        let inbox = Arc::clone(&self.inbox);
        let mut queue = inbox.queue();
        self.shared.metrics.queue(&self.road.cluster, queue.len());
        if gate.is_some() || self.breaker.lanes(2) == 1 {
            // Plans are shown also while nobody answers.
            for key in queue.unseen() {
                self.shared.show(&self.road, &key);
            }
        }
        if let Some(gate) = gate {
            return Some(gate).filter(|_| queue.next().is_some());
        }
        while self.running.len() < lanes {
            let Some(key) = queue.take(now()) else {
                return queue.next();
            };
            let memory = self.memories.remove(&key).unwrap_or_default();
            let (shared, road, vm) = (Arc::clone(&self.shared), Arc::clone(&self.road), key.clone());
            let look = async move {
                let looked = shared.look(&road, &vm, memory).await;
                (vm, looked)
            };
            let id = self.running.spawn(look).id();
            self.looked_at.insert(id, key);
        }
        None
    }

    fn ended(&mut self, ended: Result<(task::Id, (VmKey, Looked)), JoinError>) {
        let (key, looked) = match ended {
            Ok((id, (key, looked))) => {
                self.looked_at.remove(&id);
                (key, looked)
            }
            Err(error) => {
                let Some(key) = self.looked_at.remove(&error.id()) else {
                    return;
                };
                tracing::error!(vm = %key, %error, "looking at a VM's labels has panicked; tried again");
                let looked = Looked {
                    next: Next::After(AFTER_PANIC),
                    memory: Memory::default(),
                    answered: None,
                };
                (key, looked)
            }
        };
        let mut queue = self.inbox.queue();
        match looked.answered {
            Some(false) => self.breaker.failed(now()),
            Some(true) => {
                if self.breaker.lanes(2) == 1 {
                    queue.hurry(now());
                }
                self.breaker.answered();
                if self.shared.once.clear(&self.road.cluster) {
                    tracing::info!(cluster = %self.road.cluster, "the user cluster answers again");
                }
            }
            None => {}
        }
        if looked.next != Next::Forget {
            self.memories.insert(key.clone(), looked.memory);
        }
        queue.done(&key, looked.next, now());
    }
}
