//! Reflects one collection of an API server: list, watch, and list again when the server has
//! dropped the resource version.
//!
//! ```text
//! list, page by page ─▶ watch ─ ends ─▶ watch from the last version seen
//!        ▲                     │
//!        └─ 410: version expired ┘     any failure: wait (growing, jittered), then resume
//! ```
//! kube's own `watcher` does not report when a failed watch works again, and has no timeout for
//! responses. Both are needed here, so this uses `Api::list` and `Api::watch`. Lists are paged and
//! never streamed: servers before 1.27 reject streamed lists.
//!
//! A user cluster's API server is not trusted: the size of its lists, its event rate and its error
//! messages are limited, see [`Reflector::tenant`].

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
    failure::{WatchFailure, explain, limit_of, message},
};
use crate::{
    labels::TokenBucket,
    page::{ListPage, ListPageError},
};

/// Objects in a page of a list.
const PAGE_SIZE: u32 = 500;
/// Objects in a page of a user cluster's list; a page of Nodes is then far below
/// [`LimitError::Response`].
const TENANT_PAGE_SIZE: u32 = 32;
/// Maximum bytes of a user cluster's list, per object of its limit.
const BYTES_PER_OBJECT: usize = 64 << 10;
/// Sustained maximum rate of events in a user cluster's watch. A cluster of 5,000 Nodes sends some
/// tens per second.
const TENANT_EVENTS_PER_SECOND: u32 = 500;
/// Minimum interval between two lists of a user cluster.
const TENANT_LIST_INTERVAL: Duration = Duration::from_secs(1);
/// Delay after a limit was exceeded.
const RETRY_AFTER_LIMIT: Duration = Duration::from_secs(30);
/// Timeout for a page, and for the response to the start of a watch.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// Duration of a watch that is requested from the server.
const WATCH_SECONDS: u32 = 150;
/// A watch without any event for this time counts as disconnected.
const WATCH_IDLE_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 10);
/// Maximum delay between two tries.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// A watch that lasts this long counts as working.
pub(super) const STABLE_AFTER: Duration = Duration::from_secs(5);
/// After this many consecutive rejections of a resource version everything is listed again.
const MAX_VERSION_REJECTIONS: u32 = 5;

/// Output of a [`Reflector`].
#[derive(Debug)]
pub(super) enum ReflectorEvent<K> {
    ListStarted,
    Listed(K),
    /// The list is complete: objects that were not in it do not exist.
    Complete,
    /// The object was created or changed.
    Applied(K),
    Deleted(K),
    /// A watch started: the server works.
    Watching,
    /// A request failed; the next call waits and retries.
    Failed(WatchFailure),
}

type WatchStream<K> = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<K>>> + Send>>;

enum ReflectorState<K> {
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
        events: WatchStream<K>,
        since: Instant,
    },
}

/// TenantLimits on a user cluster, which is not trusted.
struct TenantLimits {
    /// Maximum objects of a list.
    objects: usize,
    /// Objects and bytes of the current list; an empty page counts as one object.
    listed: (usize, usize),
    /// Start of the last list.
    list_began: Option<Instant>,
    pace: TokenBucket,
}

/// Lists and watches one collection.
pub(super) struct Reflector<K: Clone> {
    api: Api<K>,
    client: Client,
    labels: Option<&'static str>,
    fields: Option<String>,
    state: ReflectorState<K>,
    page: u32,
    /// Only for a user cluster.
    limits: Option<TenantLimits>,
    backoff: DefaultBackoff,
    wait_until: Option<Instant>,
    failures: u32,
}

impl<K: Resource + Clone + DeserializeOwned + Debug + Send + 'static> Reflector<K> {
    /// Reflects all of `api` on the infra cluster.
    pub(super) fn new(api: Api<K>) -> Self {
        Self {
            client: api.clone().into_client(),
            api,
            labels: None,
            fields: None,
            state: ReflectorState::Start,
            page: PAGE_SIZE,
            limits: None,
            backoff: DefaultBackoff::default(),
            wait_until: None,
            failures: 0,
        }
    }

    /// Sets the number of objects in a page.
    pub(super) fn page_size(mut self, objects: u32) -> Self {
        self.page = objects;
        self
    }

    /// Reflects all of `api` on a user cluster, with at most `objects` objects in a list. Lists,
    /// pages and events are limited, and failures contain no text of the server.
    pub(super) fn tenant(api: Api<K>, objects: usize) -> Self {
        let pace = TokenBucket::new(TENANT_EVENTS_PER_SECOND, Instant::now().into_std());
        Self {
            page: TENANT_PAGE_SIZE,
            limits: Some(TenantLimits {
                objects,
                listed: (0, 0),
                list_began: None,
                pace,
            }),
            ..Self::new(api)
        }
    }

    /// Rejects the collection because it exceeds a limit: it is listed again after a delay.
    pub(super) fn reject(&mut self, message: String) -> WatchFailure {
        self.state = ReflectorState::Start;
        self.exceeded(message)
    }

    /// Ends the present watch, which may be dead, and resumes it.
    pub(super) fn renew(&mut self) {
        if let ReflectorState::Watch { version, .. } = &mut self.state {
            self.state = ReflectorState::Resume {
                version: std::mem::take(version),
            };
        }
    }

    /// Selects objects by label.
    pub(super) fn labelled(mut self, labels: Option<&'static str>) -> Self {
        self.labels = labels;
        self
    }

    /// Selects objects by field.
    pub(super) fn with_fields(mut self, fields: Option<String>) -> Self {
        self.fields = fields;
        self
    }

    /// The next event. Dropping a call only cancels the current request.
    pub(super) async fn next(&mut self) -> ReflectorEvent<K> {
        loop {
            if let Some(until) = self.wait_until {
                sleep_until(until).await;
                self.wait_until = None;
            }
            if let Some(described) = self.step().await {
                return described;
            }
        }
    }

    async fn step(&mut self) -> Option<ReflectorEvent<K>> {
        match &mut self.state {
            ReflectorState::Start => {
                if let Some(limits) = &mut self.limits {
                    let now = Instant::now();
                    let earliest = limits.list_began.map(|began| began + TENANT_LIST_INTERVAL);
                    if let Some(earliest) = earliest.filter(|earliest| *earliest > now) {
                        self.wait_until = Some(earliest);
                        return None;
                    }
                    (limits.list_began, limits.listed) = (Some(now), (0, 0));
                }
                self.state = ReflectorState::Page {
                    items: Vec::new().into_iter(),
                    more: Some(String::new()),
                    version: None,
                };
                Some(ReflectorEvent::ListStarted)
            }
            ReflectorState::Page { items, more, version } => {
                if let Some(item) = items.next() {
                    return Some(ReflectorEvent::Listed(item));
                }
                match (more, version) {
                    (None, Some(version)) => {
                        self.state = ReflectorState::Resume {
                            version: std::mem::take(version),
                        };
                        Some(ReflectorEvent::Complete)
                    }
                    (more, _) => {
                        let from = more.clone().filter(|token| !token.is_empty());
                        self.page(from).await
                    }
                }
            }
            ReflectorState::Resume { version } => {
                let version = version.clone();
                self.resume(version).await
            }
            ReflectorState::Watch { .. } => self.event().await,
        }
    }

    async fn page(&mut self, continue_token: Option<String>) -> Option<ReflectorEvent<K>> {
        let params = ListParams {
            label_selector: self.labels.map(str::to_owned),
            field_selector: self.fields.clone(),
            limit: Some(self.page),
            continue_token,
            ..ListParams::default()
        };
        let request = Request::new(self.api.resource_url()).list(&params);
        let request = match request {
            Ok(request) => request,
            Err(error) => return self.restart(None, format!("the list cannot be requested: {error}")),
        };
        match timeout(RESPONSE_TIMEOUT, self.client.request_text(request)).await {
            Ok(Ok(text)) => self.read_page(&text),
            // After any failure the list starts again: a list is used completely or not at all.
            Ok(Err(error)) => match limit_of(&error) {
                Some(LimitError::Response | LimitError::Busy) if self.page > 1 => {
                    self.page = (self.page / 4).max(1);
                    self.state = ReflectorState::Start;
                    None
                }
                Some(limit @ (LimitError::Response | LimitError::Object)) => {
                    Some(ReflectorEvent::Failed(self.reject(limit.to_string())))
                }
                _ => {
                    let (code, message) = explain(&error, self.limits.is_some());
                    self.restart(code, message)
                }
            },
            Err(_) => self.restart(None, timed_out("the list")),
        }
    }

    fn read_page(&mut self, text: &str) -> Option<ReflectorEvent<K>> {
        let page = match ListPage::read(text, self.page as usize) {
            Ok(page) => page,
            Err(error @ (ListPageError::TooMany(_) | ListPageError::LongToken)) => {
                return Some(ReflectorEvent::Failed(self.reject(error.to_string())));
            }
            Err(error) => return self.restart(None, error.to_string()),
        };
        if let Some(limits) = &mut self.limits {
            limits.listed.0 += page.items.len().max(1);
            limits.listed.1 += text.len();
            let (objects, bytes) = (limits.objects, limits.objects * BYTES_PER_OBJECT);
            if limits.listed.0 > objects {
                return Some(ReflectorEvent::Failed(
                    self.reject(format!("a list has more than {objects} objects")),
                ));
            }
            if limits.listed.1 > bytes {
                return Some(ReflectorEvent::Failed(
                    self.reject(format!("a list has more than {bytes} bytes")),
                ));
            }
        }
        if page.version.is_none() && page.more.is_none() {
            return self.restart(None, "a list without metadata.resourceVersion".to_owned());
        }
        self.state = ReflectorState::Page {
            items: page.items.into_iter(),
            more: page.more,
            version: page.version,
        };
        None
    }

    async fn resume(&mut self, version: String) -> Option<ReflectorEvent<K>> {
        let params = WatchParams {
            label_selector: self.labels.map(str::to_owned),
            field_selector: self.fields.clone(),
            timeout: Some(WATCH_SECONDS),
            ..WatchParams::default()
        };
        match timeout(RESPONSE_TIMEOUT, self.api.watch(&params, &version)).await {
            Ok(Ok(events)) => {
                self.state = ReflectorState::Watch {
                    version,
                    events: events.boxed(),
                    since: Instant::now(),
                };
                Some(ReflectorEvent::Watching)
            }
            Ok(Err(error)) => {
                let (code, message) = explain(&error, self.limits.is_some());
                if code == Some(410) {
                    self.relist();
                    return None;
                }
                let described = self.fail(code, message);
                // A server that lost its data would reject a version from its future for ever.
                if code.is_some() && self.failures >= MAX_VERSION_REJECTIONS {
                    self.state = ReflectorState::Start;
                }
                Some(described)
            }
            Err(_) => Some(self.fail(None, timed_out("the watch"))),
        }
    }

    async fn event(&mut self) -> Option<ReflectorEvent<K>> {
        let ReflectorState::Watch {
            version,
            events,
            since,
        } = &mut self.state
        else {
            return None;
        };
        let event = timeout(WATCH_IDLE_TIMEOUT, events.next()).await;
        let held = since.elapsed() >= STABLE_AFTER;
        let described = match event {
            Ok(Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)))) => {
                seen(version, &object);
                ReflectorEvent::Applied(object)
            }
            Ok(Some(Ok(WatchEvent::Deleted(object)))) => {
                seen(version, &object);
                ReflectorEvent::Deleted(object)
            }
            Ok(Some(Ok(WatchEvent::Bookmark(mark)))) => {
                *version = mark.metadata.resource_version;
                self.works();
                return None;
            }
            Ok(Some(Ok(WatchEvent::Error(status)))) => return self.watch_error(&status),
            Ok(Some(Err(kube::Error::Api(status)))) => return self.watch_error(&status),
            Ok(Some(Err(error))) => {
                let limit = limit_of(&error);
                self.state = ReflectorState::Resume {
                    version: std::mem::take(version),
                };
                if let Some(limit @ LimitError::Object) = limit {
                    return Some(ReflectorEvent::Failed(self.exceeded(limit.to_string())));
                }
                let (code, message) = explain(&error, self.limits.is_some());
                return Some(self.fail(code, message));
            }
            // The server ends a watch after the requested time, and when it shuts down.
            Ok(None) | Err(_) => {
                self.state = ReflectorState::Resume {
                    version: std::mem::take(version),
                };
                if held {
                    self.works();
                    return None;
                }
                return Some(self.fail(None, "the watch ended immediately after its start".to_owned()));
            }
        };
        self.works();
        if let Some(limits) = &mut self.limits {
            let now = Instant::now();
            let next = Instant::from_std(limits.pace.take(now.into_std()));
            self.wait_until = Some(next).filter(|next| *next > now);
        }
        Some(described)
    }

    /// Handles an error in the stream of a watch.
    fn watch_error(&mut self, status: &Status) -> Option<ReflectorEvent<K>> {
        let ReflectorState::Watch { version, .. } = &mut self.state else {
            return None;
        };
        if status.code == 410 {
            self.relist();
            return None;
        }
        self.state = ReflectorState::Resume {
            version: std::mem::take(version),
        };
        let message = message(status, self.limits.is_some());
        Some(self.fail(Some(status.code), message))
    }

    /// The server has dropped the version: list again. Many of these must not cause as many lists.
    fn relist(&mut self) {
        self.state = ReflectorState::Start;
        self.failures += 1;
        if self.failures > 1 {
            self.wait();
        }
    }

    fn restart(&mut self, code: Option<u16>, message: String) -> Option<ReflectorEvent<K>> {
        if code == Some(410) {
            // The list took longer than the server keeps a version.
            self.relist();
            return None;
        }
        self.state = ReflectorState::Start;
        Some(self.fail(code, message))
    }

    fn fail(&mut self, code: Option<u16>, message: String) -> ReflectorEvent<K> {
        self.failures += 1;
        self.wait();
        ReflectorEvent::Failed(WatchFailure {
            code,
            message,
            count: self.failures,
            over_limit: false,
        })
    }

    fn exceeded(&mut self, message: String) -> WatchFailure {
        self.failures += 1;
        self.wait_until = Some(Instant::now() + RETRY_AFTER_LIMIT);
        WatchFailure {
            code: None,
            message,
            count: self.failures,
            over_limit: true,
        }
    }

    fn wait(&mut self) {
        let wait = self.backoff.next().unwrap_or(MAX_BACKOFF) / 2;
        self.wait_until = Some(Instant::now() + wait.min(MAX_BACKOFF));
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

fn timed_out(what: &str) -> String {
    format!("{what} was not answered within {} s", RESPONSE_TIMEOUT.as_secs())
}
