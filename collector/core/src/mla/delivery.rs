//! Whether the metrics of VMs reach their receivers, from the statuses of pages and streams. Only
//! the process that feeds the streams knows it. Pure; the caller passes the time.

use std::collections::BTreeMap;

use serde::Deserialize;
use virtfleet_wire::ids::{ClusterName, VmKey};

use super::status::{QueueStatusView, StreamName, StreamState, TargetErrorReason, TargetStatus};
use crate::pull_result::UnixMs;

/// Age of a page, in milliseconds, after which it is no evidence any more. A stream takes a page at
/// least every two and a half minutes, so that one pull may fail.
const MAX_PAGE_AGE_MS: u64 = 300_000;
/// Minimum age of the oldest sample in a queue, in milliseconds, of a stream that is late. A short
/// delay would change the conditions of all its VMs.
const MIN_LATE_AGE_MS: u64 = 300_000;

/// What becomes of the samples of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamDelivery {
    /// The receiver accepts them.
    Delivered,
    /// The receiver accepts them, and gets those first that have been in the queue for long.
    Late,
    /// The receiver has not accepted any yet.
    Untried,
    Suspended,
    /// The settings of the stream name no receiver that can be used.
    NoReceiver,
    /// The stream cannot be used: its queue cannot be written, or its certificate has expired.
    Stopped,
    /// The receiver refuses them for good.
    Refused,
    /// The oldest ones are dropped, because the queue is full or they are too old.
    QueueFull,
    /// Requests have failed for some time; they wait in the queue.
    Unreachable,
}

impl StreamDelivery {
    /// What becomes of the samples of a stream with this status at `now`. `is_refused`, `is_full`
    /// and `is_down` have lasted, or were true lately.
    pub(super) fn of(
        queue: &QueueStatusView,
        is_refused: bool,
        is_full: bool,
        is_down: bool,
        now: UnixMs,
    ) -> Self {
        match queue.state {
            StreamState::NotConfigured => Self::NoReceiver,
            // Any other stopped stream has a problem.
            StreamState::Stopped if queue.problem.is_none() => Self::Suspended,
            StreamState::Stopped => Self::Stopped,
            _ if is_refused => Self::Refused,
            _ if is_full => Self::QueueFull,
            _ if is_down => Self::Unreachable,
            _ if queue.last_success_ms.is_none() => Self::Untried,
            StreamState::CatchingUp if queue.oldest_age_ms(now) >= MIN_LATE_AGE_MS => Self::Late,
            _ => Self::Delivered,
        }
    }
}

/// What became of a VM's pages lately.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PageDelivery {
    /// None was read.
    NotRead,
    /// One exceeded a limit of the stream; the text says which.
    OverLimit(Box<str>),
    /// They were put into the stream.
    Read,
}

/// Where a VM has no page.
static NOT_READ: PageDelivery = PageDelivery::NotRead;

/// Delivery of the metrics of all VMs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricsDelivery {
    tenants: BTreeMap<ClusterName, StreamDelivery>,
    fleet: Option<StreamDelivery>,
    /// The VMs whose pages a stream takes.
    pages: BTreeMap<VmKey, PageDelivery>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmDelivery<'a> {
    /// The user cluster whose stream has them; none: the operator's stream.
    pub cluster: Option<&'a ClusterName>,
    /// What becomes of the samples of the stream.
    pub stream: StreamDelivery,
    pub page: &'a PageDelivery,
}

impl MetricsDelivery {
    /// Delivery through these streams; `pages` has the VMs whose pages they take.
    pub fn new(
        streams: impl IntoIterator<Item = (StreamName, StreamDelivery)>,
        pages: BTreeMap<VmKey, PageDelivery>,
    ) -> Self {
        let mut made = Self {
            pages,
            ..Self::default()
        };
        for (name, stream) in streams {
            match name {
                StreamName::Tenant(cluster) => {
                    made.tenants.insert(cluster, stream);
                }
                StreamName::Fleet => made.fleet = Some(stream),
            }
        }
        made
    }

    /// Delivery of the metrics of a VM that serves this user cluster; none if no stream takes them.
    pub fn of(&self, vm: &VmKey, cluster: Option<&ClusterName>) -> Option<VmDelivery<'_>> {
        let page = self.pages.get(vm);
        let tenant = cluster.and_then(|cluster| self.tenants.get_key_value(cluster));
        let (cluster, stream) = match tenant {
            Some((cluster, stream)) => (Some(cluster), *stream),
            // The operator's stream may have no pages of VMs.
            None => (None, self.fleet.filter(|_| page.is_some())?),
        };
        Some(VmDelivery {
            cluster,
            stream,
            page: page.unwrap_or(&NOT_READ),
        })
    }
}

/// Remembers the pages of VMs for some time, so that one failed pull changes nothing.
#[derive(Debug, Default)]
pub struct DeliveryWatch {
    pages: BTreeMap<VmKey, PageWatch>,
}

#[derive(Debug, Default)]
struct PageWatch {
    read_ms: Option<UnixMs>,
    over_limit: Option<(UnixMs, Box<str>)>,
}

impl PageWatch {
    fn update(&mut self, target: &TargetStatus) {
        let at = target.last_scrape_ms;
        match &target.error {
            None => self.read_ms = Some(at),
            Some(error) if error.reason == TargetErrorReason::OverLimit => {
                self.over_limit = Some((at, error.message.as_str().into()));
            }
            Some(_) => {}
        }
    }

    fn delivery(&self, now: UnixMs) -> PageDelivery {
        match &self.over_limit {
            Some((at, why)) if is_fresh(*at, now) => PageDelivery::OverLimit(why.clone()),
            _ if self.read_ms.is_some_and(|at| is_fresh(at, now)) => PageDelivery::Read,
            _ => PageDelivery::NotRead,
        }
    }
}

fn is_fresh(at: UnixMs, now: UnixMs) -> bool {
    now.saturating_sub(at) <= MAX_PAGE_AGE_MS
}

impl DeliveryWatch {
    /// The delivery at `now` through `streams`; `targets` has the last page of each VM.
    pub fn update(
        &mut self,
        streams: &BTreeMap<StreamName, StreamDelivery>,
        targets: &BTreeMap<VmKey, TargetStatus>,
        now: UnixMs,
    ) -> MetricsDelivery {
        // The status of a VM stays when no stream takes its pages any more.
        let is_taken = |target: &TargetStatus| {
            let tenant = target.cluster.clone().map(StreamName::Tenant);
            is_fresh(target.last_scrape_ms, now) && tenant.is_none_or(|name| streams.contains_key(&name))
        };
        self.pages.retain(|vm, _| targets.get(vm).is_some_and(is_taken));
        for (vm, target) in targets.iter().filter(|(_, target)| is_taken(target)) {
            self.pages.entry(vm.clone()).or_default().update(target);
        }
        let pages = self.pages.iter();
        let pages = pages.map(|(vm, page)| (vm.clone(), page.delivery(now)));
        let streams = streams.iter().map(|(name, stream)| (name.clone(), *stream));
        MetricsDelivery::new(streams, pages.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mla::status::TargetError;

    fn vm(name: &str) -> VmKey {
        VmKey {
            namespace: "ns".parse().unwrap(),
            name: name.parse().unwrap(),
        }
    }

    fn target(at: UnixMs, error: Option<TargetErrorReason>) -> BTreeMap<VmKey, TargetStatus> {
        let status = TargetStatus {
            vm: vm("one"),
            cluster: None,
            last_scrape_ms: at,
            took_ms: 1,
            samples: 1,
            series_added: 0,
            page_bytes: 1,
            dropped_by_relabel: 0,
            unsent: 0,
            error: error.map(|reason| TargetError {
                reason,
                message: "why".to_owned(),
            }),
        };
        BTreeMap::from([(status.vm.clone(), status)])
    }

    #[test]
    fn the_stream_of_the_user_cluster_is_used_before_that_of_the_operator() {
        let (blue, red) = ("blue".parse().unwrap(), "red".parse().unwrap());
        let streams = [
            (StreamName::Tenant("blue".parse().unwrap()), StreamDelivery::Late),
            (StreamName::Fleet, StreamDelivery::Refused),
        ];
        let pages = BTreeMap::from([(vm("one"), PageDelivery::Read)]);
        let delivery = MetricsDelivery::new(streams, pages);
        let found = |name: &str, cluster: Option<&ClusterName>| {
            let found = delivery.of(&vm(name), cluster)?;
            Some((found.cluster.is_some(), found.stream, found.page.clone()))
        };
        let of_page = PageDelivery::Read;
        assert_eq!(
            found("one", Some(&blue)),
            Some((true, StreamDelivery::Late, of_page.clone()))
        );
        assert_eq!(
            found("two", Some(&blue)),
            Some((true, StreamDelivery::Late, PageDelivery::NotRead))
        );
        assert_eq!(
            found("one", Some(&red)),
            Some((false, StreamDelivery::Refused, of_page))
        );
        assert_eq!(found("two", None), None, "the operator's has no page of it");
        assert_eq!(MetricsDelivery::default().of(&vm("one"), Some(&blue)), None);
    }

    #[test]
    fn one_failed_pull_changes_nothing_and_a_page_over_a_limit_is_remembered() {
        let mut watch = DeliveryWatch::default();
        let streams = BTreeMap::from([(StreamName::Fleet, StreamDelivery::Delivered)]);
        let mut page = |targets: BTreeMap<VmKey, TargetStatus>, now| {
            let delivery = watch.update(&streams, &targets, now);
            delivery.of(&vm("one"), None).map(|found| found.page.clone())
        };
        let (read, not_read) = (Some(PageDelivery::Read), Some(PageDelivery::NotRead));
        let over = Some(PageDelivery::OverLimit("why".into()));
        let failed = Some(TargetErrorReason::PullFailed);
        assert_eq!(page(target(1_000, failed), 1_000), not_read);
        assert_eq!(page(target(2_000, None), 2_000), read);
        assert_eq!(page(target(300_000, failed), 302_000), read);
        assert_eq!(page(target(300_000, failed), 302_001), not_read);
        assert_eq!(
            page(target(400_000, Some(TargetErrorReason::OverLimit)), 400_000),
            over
        );
        assert_eq!(page(target(430_000, None), 430_000), over);
        assert_eq!(page(target(700_000, None), 700_001), read);
        assert_eq!(page(BTreeMap::new(), 700_001), None);
        assert_eq!(page(target(700_000, None), 1_000_000), read);
        assert_eq!(
            page(target(700_000, None), 1_000_001),
            None,
            "no stream takes its pages any more"
        );
    }

    #[test]
    fn the_stream_of_the_operator_does_not_have_the_page_of_a_tenant() {
        let mut watch = DeliveryWatch::default();
        let blue: ClusterName = "blue".parse().unwrap();
        let mut targets = target(1_000, None);
        for target in targets.values_mut() {
            target.cluster = Some(blue.clone());
        }
        let mut is_delivered = |streams: &[StreamName]| {
            let streams = streams.iter().cloned();
            let streams = streams.map(|name| (name, StreamDelivery::Delivered));
            let delivery = watch.update(&streams.collect(), &targets, 1_000);
            delivery.of(&vm("one"), Some(&blue)).is_some()
        };
        let (fleet, tenant) = (StreamName::Fleet, StreamName::Tenant(blue.clone()));
        assert!(is_delivered(&[fleet.clone(), tenant]));
        assert!(!is_delivered(&[fleet]), "the tenant's stream is removed");
    }
}
