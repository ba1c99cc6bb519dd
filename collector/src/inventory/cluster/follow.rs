//! Follows one collection of an API server for ever: list, watch, and again when the server has forgotten where we were.
//!
//! ```text
//! list, page by page ─▶ watch from there ─ ends ─▶ watch from the last version seen
//!        ▲                                 │
//!        └───── 410: version forgotten ────┘       any failure: wait (growing, jittered), then where it was
//! ```
//! kube's own `watcher` does the same and says nothing when a watch that failed works again, nor does it limit how long a
//! server may take to answer; here both matter, so this is built on `Api::list` and `Api::watch`. Lists are paged and never
//! streamed: servers before 1.27 refuse streamed ones.

use std::{fmt::Debug, pin::Pin, time::Duration, vec};

use futures_util::{Stream, StreamExt as _};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ListParams, WatchEvent, WatchParams},
    core::Status,
    runtime::{utils::Backoff as _, watcher::DefaultBackoff},
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until, timeout};

/// Objects in a page of a list.
const PAGE: u32 = 500;
/// How long a page, or the answer to the begin of a watch, may take.
const ANSWER: Duration = Duration::from_secs(20);
/// How long the server is asked to keep a watch open.
const WATCH_SECONDS: u32 = 150;
/// After how long without a word the connection of a watch is taken for dead.
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 10);
/// The longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// A watch that holds so long has worked.
const HOLDS: Duration = Duration::from_secs(5);
/// So many refusals to go on from a version, and everything is listed again.
const REFUSALS: u32 = 5;

/// What a followed collection says.
#[derive(Debug)]
pub(super) enum Said<K> {
    /// A list begins.
    Begun,
    /// It is in the list.
    Listed(K),
    /// The list is complete: what was not in it is not there.
    Complete,
    /// It was made or changed.
    Applied(K),
    /// It was deleted.
    Deleted(K),
    /// A watch has begun: the server answers as it should.
    Fine,
    /// Something went wrong; the next call waits and tries again.
    Failed(Failure),
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// The HTTP status, when the server gave one.
    pub(super) code: Option<u16>,
    /// For people.
    pub(super) message: String,
    /// How many in a row.
    pub(super) count: u32,
}

impl Failure {
    /// Whether waiting alone does not mend it: 401, 403, 404.
    pub(super) fn is_definite(&self) -> bool {
        matches!(self.code, Some(401 | 403 | 404))
    }
}

type Events<K> = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<K>>> + Send>>;

enum State<K> {
    Start,
    Page {
        items: vec::IntoIter<K>,
        more: Option<String>,
        version: Option<String>,
    },
    Resume {
        version: String,
    },
    Watch {
        version: String,
        events: Events<K>,
        since: Instant,
    },
}

/// See the module.
pub(super) struct Follower<K: Clone> {
    api: Api<K>,
    fields: Option<String>,
    state: State<K>,
    backoff: DefaultBackoff,
    wait_until: Option<Instant>,
    failures: u32,
}

impl<K: Resource + Clone + DeserializeOwned + Debug + Send + 'static> Follower<K> {
    /// Follows all of `api`, or what a field selector selects.
    pub(super) fn new(api: Api<K>, fields: Option<String>) -> Self {
        Self {
            api,
            fields,
            state: State::Start,
            backoff: DefaultBackoff::default(),
            wait_until: None,
            failures: 0,
        }
    }

    /// What it says next. A call that is dropped loses nothing but the request that was under way.
    pub(super) async fn next(&mut self) -> Said<K> {
        loop {
            if let Some(until) = self.wait_until {
                sleep_until(until).await;
                self.wait_until = None;
            }
            if let Some(said) = self.step().await {
                return said;
            }
        }
    }

    async fn step(&mut self) -> Option<Said<K>> {
        match &mut self.state {
            State::Start => {
                self.state = State::Page {
                    items: Vec::new().into_iter(),
                    more: Some(String::new()),
                    version: None,
                };
                Some(Said::Begun)
            }
            State::Page { items, more, version } => {
                if let Some(item) = items.next() {
                    return Some(Said::Listed(item));
                }
                match (more, version) {
                    (None, Some(version)) => {
                        self.state = State::Resume {
                            version: std::mem::take(version),
                        };
                        Some(Said::Complete)
                    }
                    (more, _) => {
                        let from = more.clone().filter(|token| !token.is_empty());
                        self.page(from).await
                    }
                }
            }
            State::Resume { version } => {
                let version = version.clone();
                self.resume(version).await
            }
            State::Watch { .. } => self.event().await,
        }
    }

    async fn page(&mut self, continue_token: Option<String>) -> Option<Said<K>> {
        let params = ListParams {
            field_selector: self.fields.clone(),
            limit: Some(PAGE),
            continue_token,
            ..ListParams::default()
        };
        match timeout(ANSWER, self.api.list(&params)).await {
            Ok(Ok(list)) => {
                let version = list.metadata.resource_version.filter(|text| !text.is_empty());
                let more = list.metadata.continue_.filter(|text| !text.is_empty());
                if version.is_none() && more.is_none() {
                    return self.restart(None, "a list without metadata.resourceVersion".to_owned());
                }
                self.state = State::Page {
                    items: list.items.into_iter(),
                    more,
                    version,
                };
                None
            }
            // Whatever failed: a list is taken whole or not at all.
            Ok(Err(error)) => {
                let (code, message) = explain(&error);
                self.restart(code, message)
            }
            Err(_) => self.restart(None, late("the list")),
        }
    }

    async fn resume(&mut self, version: String) -> Option<Said<K>> {
        let params = WatchParams {
            field_selector: self.fields.clone(),
            timeout: Some(WATCH_SECONDS),
            ..WatchParams::default()
        };
        match timeout(ANSWER, self.api.watch(&params, &version)).await {
            Ok(Ok(events)) => {
                self.state = State::Watch {
                    version,
                    events: events.boxed(),
                    since: Instant::now(),
                };
                Some(Said::Fine)
            }
            Ok(Err(error)) => {
                let (code, message) = explain(&error);
                if code == Some(410) {
                    self.forgotten();
                    return None;
                }
                let said = self.fail(code, message);
                // A server that lost its data refuses a version from its future for ever.
                if code.is_some() && self.failures >= REFUSALS {
                    self.state = State::Start;
                }
                Some(said)
            }
            Err(_) => Some(self.fail(None, late("the watch"))),
        }
    }

    async fn event(&mut self) -> Option<Said<K>> {
        let State::Watch {
            version,
            events,
            since,
        } = &mut self.state
        else {
            return None;
        };
        let event = timeout(SILENCE, events.next()).await;
        let held = since.elapsed() >= HOLDS;
        let said = match event {
            Ok(Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)))) => {
                seen(version, &object);
                Said::Applied(object)
            }
            Ok(Some(Ok(WatchEvent::Deleted(object)))) => {
                seen(version, &object);
                Said::Deleted(object)
            }
            Ok(Some(Ok(WatchEvent::Bookmark(mark)))) => {
                *version = mark.metadata.resource_version;
                self.works();
                return None;
            }
            Ok(Some(Ok(WatchEvent::Error(status)))) => return self.refused(&status),
            Ok(Some(Err(kube::Error::Api(status)))) => return self.refused(&status),
            Ok(Some(Err(error))) => {
                let (code, message) = explain(&error);
                self.state = State::Resume {
                    version: std::mem::take(version),
                };
                return Some(self.fail(code, message));
            }
            // The server ends a watch after its time, and when it stops.
            Ok(None) | Err(_) => {
                self.state = State::Resume {
                    version: std::mem::take(version),
                };
                if held {
                    self.works();
                    return None;
                }
                return Some(self.fail(None, "the watch ended as soon as it had begun".to_owned()));
            }
        };
        self.works();
        Some(said)
    }

    /// An error in the stream of a watch.
    fn refused(&mut self, status: &Status) -> Option<Said<K>> {
        let State::Watch { version, .. } = &mut self.state else {
            return None;
        };
        if status.code == 410 {
            self.forgotten();
            return None;
        }
        self.state = State::Resume {
            version: std::mem::take(version),
        };
        Some(self.fail(Some(status.code), status.message.clone()))
    }

    /// The server has forgotten the version: list again. A storm of these must not become a storm of lists.
    fn forgotten(&mut self) {
        self.state = State::Start;
        self.failures += 1;
        if self.failures > 1 {
            self.wait();
        }
    }

    fn restart(&mut self, code: Option<u16>, message: String) -> Option<Said<K>> {
        if code == Some(410) {
            // The list took longer than the server remembers.
            self.forgotten();
            return None;
        }
        self.state = State::Start;
        Some(self.fail(code, message))
    }

    fn fail(&mut self, code: Option<u16>, message: String) -> Said<K> {
        self.failures += 1;
        self.wait();
        Said::Failed(Failure {
            code,
            message,
            count: self.failures,
        })
    }

    fn wait(&mut self) {
        let wait = self.backoff.next().unwrap_or(LONGEST_WAIT) / 2;
        self.wait_until = Some(Instant::now() + wait.min(LONGEST_WAIT));
    }

    fn works(&mut self) {
        if self.failures > 0 {
            self.failures = 0;
            self.backoff.reset();
        }
    }
}

fn seen<K: Resource>(version: &mut String, object: &K) {
    if let Some(new) = object.resource_version() {
        *version = new;
    }
}

fn late(what: &str) -> String {
    format!("{what} was not answered within {} s", ANSWER.as_secs())
}

/// Status and message of an error, with its causes.
pub(super) fn explain(error: &kube::Error) -> (Option<u16>, String) {
    match error {
        kube::Error::Api(status) => (Some(status.code), format!("{} ({})", status.message, status.code)),
        other => {
            let mut message = other.to_string();
            let mut cause = std::error::Error::source(other);
            while let Some(error) = cause {
                let text = error.to_string();
                if !message.contains(&text) {
                    message = format!("{message}: {text}");
                }
                cause = error.source();
            }
            (None, message)
        }
    }
}
