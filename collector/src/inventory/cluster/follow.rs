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
//!
//! A user cluster's API server is not trusted: its lists, its pace and what it makes the collector say have limits, see
//! [`Follower::tenant`].

use std::{fmt::Debug, pin::Pin, time::Duration, vec};

use futures_util::{Stream, StreamExt as _};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ListParams, WatchEvent, WatchParams},
    core::{Request, Status},
    runtime::{utils::Backoff as _, watcher::DefaultBackoff},
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until, timeout};

use super::{
    connect::LimitError,
    failure::{Failure, explain, limit_of, message},
};
use crate::{
    labels::TokenBucket,
    page::{Page, PageError},
};

/// Objects in a page of a list.
const PAGE: u32 = 500;
/// Objects in a page of a user cluster's list, so that a page of Nodes is far below [`LimitError::Answer`].
const TENANT_PAGE: u32 = 32;
/// Bytes of a user cluster's list, per object that it may have.
const BYTES_PER_OBJECT: usize = 64 << 10;
/// Objects per second that a user cluster's watch may send in the long run. A cluster of 5,000 Nodes sends some tens.
const TENANT_EVENTS_PER_SECOND: u32 = 500;
/// Time between the beginnings of two lists of a user cluster.
const TENANT_LIST_INTERVAL: Duration = Duration::from_secs(1);
/// Wait after a limit was exceeded.
const LIMIT_WAIT: Duration = Duration::from_secs(30);
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

/// What is kept of a user cluster that is not trusted.
struct Limits {
    /// Objects that a list may have.
    objects: usize,
    /// Objects and bytes that the list under way has had; an empty page counts as one object.
    listed: (usize, usize),
    /// When the last list began.
    list_began: Option<Instant>,
    pace: TokenBucket,
}

/// See the module.
pub(super) struct Follower<K: Clone> {
    api: Api<K>,
    client: Client,
    labels: Option<&'static str>,
    state: State<K>,
    /// Objects in a page.
    page: u32,
    /// Only for a user cluster.
    limits: Option<Limits>,
    backoff: DefaultBackoff,
    wait_until: Option<Instant>,
    failures: u32,
}

impl<K: Resource + Clone + DeserializeOwned + Debug + Send + 'static> Follower<K> {
    /// Follows all of `api` on the infra cluster.
    pub(super) fn new(api: Api<K>) -> Self {
        Self {
            client: api.clone().into_client(),
            api,
            labels: None,
            state: State::Start,
            page: PAGE,
            limits: None,
            backoff: DefaultBackoff::default(),
            wait_until: None,
            failures: 0,
        }
    }

    /// The same with so many objects in a page.
    pub(super) fn pages_of(mut self, objects: u32) -> Self {
        self.page = objects;
        self
    }

    /// Follows all of `api` on a user cluster, of which a list may have so many `objects`. Lists, pages and events have limits,
    /// and a failure repeats nothing that the server said.
    pub(super) fn tenant(api: Api<K>, objects: usize) -> Self {
        let pace = TokenBucket::new(TENANT_EVENTS_PER_SECOND, Instant::now().into_std());
        Self {
            page: TENANT_PAGE,
            limits: Some(Limits {
                objects,
                listed: (0, 0),
                list_began: None,
                pace,
            }),
            ..Self::new(api)
        }
    }

    /// What it has said is more than may be kept: begins anew, after a while.
    pub(super) fn reject(&mut self, message: String) -> Failure {
        self.state = State::Start;
        self.exceeded(message)
    }

    /// The same for what a label selector selects.
    pub(super) fn labelled(mut self, labels: Option<&'static str>) -> Self {
        self.labels = labels;
        self
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
                if let Some(limits) = &mut self.limits {
                    let now = Instant::now();
                    let earliest = limits.list_began.map(|began| began + TENANT_LIST_INTERVAL);
                    if let Some(earliest) = earliest.filter(|earliest| *earliest > now) {
                        self.wait_until = Some(earliest);
                        return None;
                    }
                    (limits.list_began, limits.listed) = (Some(now), (0, 0));
                }
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
            label_selector: self.labels.map(str::to_owned),
            limit: Some(self.page),
            continue_token,
            ..ListParams::default()
        };
        let request = Request::new(self.api.resource_url()).list(&params);
        let request = match request {
            Ok(request) => request,
            Err(error) => return self.restart(None, format!("the list cannot be asked for: {error}")),
        };
        match timeout(ANSWER, self.client.request_text(request)).await {
            Ok(Ok(text)) => self.read_page(&text),
            // Whatever failed: a list is taken whole or not at all.
            Ok(Err(error)) => match limit_of(&error) {
                Some(LimitError::Answer | LimitError::Busy) if self.page > 1 => {
                    self.page = (self.page / 4).max(1);
                    self.state = State::Start;
                    None
                }
                Some(limit @ (LimitError::Answer | LimitError::Object)) => {
                    Some(Said::Failed(self.reject(limit.to_string())))
                }
                _ => {
                    let (code, message) = explain(&error, self.limits.is_some());
                    self.restart(code, message)
                }
            },
            Err(_) => self.restart(None, late("the list")),
        }
    }

    fn read_page(&mut self, text: &str) -> Option<Said<K>> {
        let page = match Page::read(text, self.page as usize) {
            Ok(page) => page,
            Err(error @ (PageError::TooMany(_) | PageError::LongToken)) => {
                return Some(Said::Failed(self.reject(error.to_string())));
            }
            Err(error) => return self.restart(None, error.to_string()),
        };
        if let Some(limits) = &mut self.limits {
            limits.listed.0 += page.items.len().max(1);
            limits.listed.1 += text.len();
            let (objects, bytes) = (limits.objects, limits.objects * BYTES_PER_OBJECT);
            if limits.listed.0 > objects {
                return Some(Said::Failed(
                    self.reject(format!("a list has more than {objects} objects")),
                ));
            }
            if limits.listed.1 > bytes {
                return Some(Said::Failed(
                    self.reject(format!("a list has more than {bytes} bytes")),
                ));
            }
        }
        if page.version.is_none() && page.more.is_none() {
            return self.restart(None, "a list without metadata.resourceVersion".to_owned());
        }
        self.state = State::Page {
            items: page.items.into_iter(),
            more: page.more,
            version: page.version,
        };
        None
    }

    async fn resume(&mut self, version: String) -> Option<Said<K>> {
        let params = WatchParams {
            label_selector: self.labels.map(str::to_owned),
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
                let (code, message) = explain(&error, self.limits.is_some());
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
                let limit = limit_of(&error);
                self.state = State::Resume {
                    version: std::mem::take(version),
                };
                if let Some(limit @ LimitError::Object) = limit {
                    return Some(Said::Failed(self.exceeded(limit.to_string())));
                }
                let (code, message) = explain(&error, self.limits.is_some());
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
        if let Some(limits) = &mut self.limits {
            let now = Instant::now();
            let next = Instant::from_std(limits.pace.take(now.into_std()));
            self.wait_until = Some(next).filter(|next| *next > now);
        }
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
        let message = message(status, self.limits.is_some());
        Some(self.fail(Some(status.code), message))
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
            over_limit: false,
        })
    }

    fn exceeded(&mut self, message: String) -> Failure {
        self.failures += 1;
        self.wait_until = Some(Instant::now() + LIMIT_WAIT);
        Failure {
            code: None,
            message,
            count: self.failures,
            over_limit: true,
        }
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
