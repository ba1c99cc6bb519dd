//! Limits Events: repeats, their rate, and the share of each tenant in the rate and in the queue,
//! so that the Events of one tenant displace none of others. Pure: the caller passes the time.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use virtfleet_wire::ids::{ClusterName, Namespace};

use super::new_event::{EventObject, NewEvent};

/// Maximum queued Events.
pub(super) const MAX_QUEUED: usize = 512;
/// An equal Event within this time is not sent again.
const REPEAT_INTERVAL: Duration = Duration::from_mins(10);
/// Sustained rate of all Events.
const MAX_EVENTS_PER_SECOND: u32 = 5;
/// Maximum burst, as the time in which the sustained rate sends as many Events.
const MAX_BURST: Duration = Duration::from_secs(10);
/// Sustained rate of a tenant: one Event in this time.
const TENANT_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum burst of a tenant, as the time in which its sustained rate sends as many Events.
const TENANT_BURST: Duration = Duration::from_secs(20);
/// Maximum queued Events of a tenant.
pub(super) const MAX_QUEUED_OF_TENANT: usize = MAX_QUEUED / 16;

/// Whose share an Event uses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum EventTenant {
    /// The user cluster. Several may share a namespace.
    Cluster(ClusterName),
    /// VMs of this namespace that serve no user cluster.
    Namespace(Namespace),
    /// The admins, who write the policies.
    Policies,
}

impl EventTenant {
    pub(super) fn of(about: &EventObject) -> Self {
        match about {
            EventObject::Vm {
                cluster: Some(cluster),
                ..
            }
            | EventObject::UserCluster(cluster) => Self::Cluster(cluster.clone()),
            EventObject::Vm { key, .. } => Self::Namespace(key.namespace.clone()),
            EventObject::Policy(_) => Self::Policies,
        }
    }
}

/// Filters repeated Events and limits their rate.
#[derive(Debug)]
pub(super) struct EventFilter {
    sent: HashMap<NewEvent, Instant>,
    /// Token-bucket position of all Events.
    bucket_time: Instant,
    /// Token-bucket positions of the tenants of which an Event was sent lately.
    tenants: HashMap<EventTenant, Instant>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum FilterResult {
    Send,
    Repeated,
    RateLimited,
}

impl EventFilter {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            sent: HashMap::new(),
            bucket_time: now,
            tenants: HashMap::new(),
        }
    }

    pub(super) fn check(&mut self, event: &NewEvent, now: Instant) -> FilterResult {
        if self.sent.len() >= 4 * MAX_QUEUED {
            self.sent
                .retain(|_, at| now.duration_since(*at) < REPEAT_INTERVAL);
        }
        if self.tenants.len() >= MAX_QUEUED {
            self.tenants.retain(|_, bucket_time| *bucket_time > now);
        }
        if self
            .sent
            .get(event)
            .is_some_and(|at| now.duration_since(*at) < REPEAT_INTERVAL)
        {
            return FilterResult::Repeated;
        }
        let tenant = EventTenant::of(&event.about);
        let of_tenant = self.tenants.get(&tenant).map_or(now, |at| now.max(*at)) + TENANT_INTERVAL;
        let bucket_time = self.bucket_time.max(now) + Duration::from_secs(1) / MAX_EVENTS_PER_SECOND;
        if of_tenant > now + TENANT_BURST || bucket_time > now + MAX_BURST {
            return FilterResult::RateLimited;
        }
        self.bucket_time = bucket_time;
        // A dropped Event is not inserted, so that it is sent when it is recorded again. The rate
        // limit bounds the size of both maps.
        self.tenants.insert(tenant, of_tenant);
        self.sent.insert(event.clone(), now);
        FilterResult::Send
    }
}

/// Number of queued Events of each tenant that has some, so that the queue bounds the size.
#[derive(Debug, Default)]
pub(super) struct QueueShares(HashMap<EventTenant, usize>);

impl QueueShares {
    /// Takes a place in the queue; false if the tenant has too many.
    pub(super) fn take(&mut self, tenant: &EventTenant) -> bool {
        let queued = self.0.get(tenant).copied().unwrap_or_default();
        if queued >= MAX_QUEUED_OF_TENANT {
            return false;
        }
        self.0.insert(tenant.clone(), queued + 1);
        true
    }

    /// Frees a place in the queue.
    pub(super) fn free(&mut self, tenant: &EventTenant) {
        if let Some(queued) = self.0.get_mut(tenant) {
            *queued -= 1;
            if *queued == 0 {
                self.0.remove(tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::tests::event_of;

    fn event(text: &str) -> NewEvent {
        event_of("ns", None, text)
    }

    #[test]
    fn repeats_and_bursts_are_filtered() {
        let now = Instant::now();
        let mut filter = EventFilter::new(now);
        assert_eq!(filter.check(&event("a"), now), FilterResult::Send);
        assert_eq!(filter.check(&event("a"), now), FilterResult::Repeated);
        assert_eq!(
            filter.check(&event("a"), now + REPEAT_INTERVAL),
            FilterResult::Send
        );
        let later = now + 2 * REPEAT_INTERVAL;
        let results = (0..5000).map(|n| {
            let namespace = format!("ns-{}", n % 100);
            filter.check(&event_of(&namespace, None, &n.to_string()), later)
        });
        let sent = results.filter(|result| *result == FilterResult::Send).count();
        assert_eq!(sent, 50);
        assert_eq!(
            filter.check(&event_of("ns-99", None, "4999"), later + MAX_BURST),
            FilterResult::Send,
            "a dropped Event can be sent later"
        );
    }

    #[test]
    fn a_storm_of_a_tenant_leaves_room_for_others() {
        let now = Instant::now();
        let mut filter = EventFilter::new(now);
        let mut record = |count: usize, namespace: &str, cluster: Option<&str>, at: Instant| {
            let results = (0..count).map(|n| {
                let text = format!("{n} {:?}", at.duration_since(now));
                filter.check(&event_of(namespace, cluster, &text), at)
            });
            results.filter(|result| *result == FilterResult::Send).count()
        };
        assert_eq!(record(500, "shared", Some("red"), now), 20);
        // The same user cluster in another namespace, and another one in the same namespace.
        assert_eq!(record(500, "other", Some("red"), now), 0);
        assert_eq!(record(500, "shared", Some("blue"), now), 20);
        assert_eq!(record(500, "shared", None, now), 10, "the limit of all");
        for second in 1..60 {
            let at = now + Duration::from_secs(second);
            assert_eq!(record(500, "shared", Some("red"), at), 1);
            assert_eq!(record(1, "calm", None, at), 1);
        }
    }

    #[test]
    fn tenants_without_recent_events_are_forgotten() {
        let (begin, mut filter) = (Instant::now(), EventFilter::new(Instant::now()));
        for second in 0..5000 {
            let at = begin + Duration::from_secs(second);
            let result = filter.check(&event_of(&format!("ns-{second}"), None, ""), at);
            assert_eq!(result, FilterResult::Send);
        }
        assert!(filter.tenants.len() <= MAX_QUEUED, "{}", filter.tenants.len());
    }

    #[test]
    fn a_tenant_has_a_part_of_the_queue() {
        let mut shares = QueueShares::default();
        let tenant = |namespace: &str| EventTenant::of(&event_of(namespace, None, "").about);
        let taken = (0..100).filter(|_| shares.take(&tenant("a"))).count();
        assert_eq!(taken, MAX_QUEUED_OF_TENANT);
        assert!(shares.take(&tenant("b")));
        shares.free(&tenant("a"));
        assert!(shares.take(&tenant("a")) && !shares.take(&tenant("a")));
        for _ in 0..taken {
            shares.free(&tenant("a"));
        }
        shares.free(&tenant("b"));
        assert!(shares.0.is_empty());
    }
}
