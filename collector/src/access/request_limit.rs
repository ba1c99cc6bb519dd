//! Limit of the requests of each caller: a token bucket per caller, per VM's page of a caller, and
//! per address without valid credentials. The caller passes the time.
//!
//! Own code instead of the crate `governor`: its keyed limiter does not bound the number of keys,
//! and it would add a dozen crates to these few lines.

use std::{
    hash::{BuildHasher as _, Hash, RandomState},
    net::{IpAddr, Ipv6Addr},
    num::NonZeroUsize,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use lru::LruCache;
use virtfleet_collector_core::access::Caller;
use virtfleet_wire::ids::VmKey;

/// Requests of a caller: 20 per second, after a burst of 400. A whole fleet's lists have up to a
/// hundred pages.
const OF_CALLER: RequestRate = RequestRate::new(20, 400);
/// Requests of a caller for the page of one VM's agent: one per second. A Prometheus scrapes every
/// VM with one identity, so these requests cannot share the caller's bucket.
const OF_PAGE: RequestRate = RequestRate::new(1, 20);
/// Requests of an address without valid credentials. The API server's proxy has one address for
/// many callers.
const OF_ADDRESS: RequestRate = RequestRate::new(10, 100);
/// Maximum buckets. Of more, those that were not used for longest are forgotten.
const MAX_BUCKETS: NonZeroUsize = NonZeroUsize::new(131_072).unwrap();

/// A sustained rate after a burst.
#[derive(Debug, Clone, Copy)]
struct RequestRate {
    interval: Duration,
    burst: u32,
}

impl RequestRate {
    const fn new(per_second: u64, burst: u32) -> Self {
        Self {
            interval: Duration::from_nanos(1_000_000_000 / per_second),
            burst,
        }
    }

    fn capacity(self) -> Duration {
        self.interval * self.burst
    }
}

/// Whose bucket a request is taken from.
#[derive(Debug, Clone, Copy, Hash)]
pub(super) enum RequestSource<'a> {
    /// A caller with valid credentials.
    Caller(CallerId<'a>),
    /// The same, for the page of a VM.
    Page(CallerId<'a>, &'a VmKey),
    /// A client without valid credentials; none in tests without a server.
    Address(Option<IpAddr>),
}

#[derive(Debug, Clone, Copy, Hash)]
pub(super) struct CallerId<'a> {
    method: &'static str,
    name: &'a str,
}

impl<'a> CallerId<'a> {
    pub(super) fn of(caller: &'a Caller) -> Self {
        Self {
            method: caller.method.as_str(),
            name: &caller.name,
        }
    }
}

impl RequestSource<'_> {
    /// A site has many IPv6 addresses, so its network of 64 bits has one bucket.
    pub(super) fn address(address: Option<IpAddr>) -> Self {
        Self::Address(address.map(|address| match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = u128::from(address) >> 64 << 64;
                IpAddr::V6(Ipv6Addr::from(network))
            }
            v4 @ IpAddr::V4(_) => v4,
        }))
    }

    fn rate(&self) -> RequestRate {
        match self {
            Self::Caller(_) => OF_CALLER,
            Self::Page(..) => OF_PAGE,
            Self::Address(_) => OF_ADDRESS,
        }
    }
}

pub(super) struct RequestLimit {
    /// Random, so that a client cannot choose names that share a bucket.
    hasher: RandomState,
    /// When each bucket is full again.
    full_at: Mutex<LruCache<u64, Instant>>,
}

impl RequestLimit {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            full_at: Mutex::new(LruCache::new(MAX_BUCKETS)),
        }
    }

    /// Takes a request from its bucket.
    ///
    /// # Errors
    /// The bucket is empty; the time until it has a request again.
    pub(super) fn take(&self, source: RequestSource<'_>, now: Instant) -> Result<(), Duration> {
        let rate = source.rate();
        let mut buckets = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = buckets.get_or_insert_mut(self.hasher.hash_one(source), || now);
        let taken = (*full_at).max(now) + rate.interval;
        match taken.duration_since(now).checked_sub(rate.capacity()) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                *full_at = taken;
                Ok(())
            }
        }
    }

    /// As [`RequestLimit::take`], and takes nothing.
    ///
    /// # Errors
    /// As [`RequestLimit::take`].
    pub(super) fn check(&self, source: RequestSource<'_>, now: Instant) -> Result<(), Duration> {
        let rate = source.rate();
        let buckets = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = buckets.peek(&self.hasher.hash_one(source)).copied();
        let taken = full_at.map_or(now, |at| at.max(now)) + rate.interval;
        match taken.duration_since(now).checked_sub(rate.capacity()) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_collector_core::access::AuthMethod;

    use super::*;

    fn caller(name: &str) -> Caller {
        Caller {
            name: name.to_owned(),
            groups: Vec::new(),
            uid: None,
            extra: std::collections::BTreeMap::new(),
            method: AuthMethod::StaticToken,
        }
    }

    fn allowed(limit: &RequestLimit, source: RequestSource<'_>, now: Instant) -> usize {
        (0..1000).filter(|_| limit.take(source, now).is_ok()).count()
    }

    #[test]
    fn each_caller_has_its_own_bucket_that_fills_again() {
        let (limit, start) = (RequestLimit::new(), Instant::now());
        let (a, b) = (caller("a"), caller("b"));
        let a = RequestSource::Caller(CallerId::of(&a));
        assert_eq!(allowed(&limit, a, start), 400);
        let wait = limit.take(a, start).unwrap_err();
        assert_eq!(wait, Duration::from_millis(50));
        assert_eq!(limit.check(a, start), Err(wait));
        assert_eq!(limit.check(a, start + wait), Ok(()));
        assert_eq!(allowed(&limit, a, start + Duration::from_secs(2)), 40);
        assert_eq!(
            allowed(&limit, RequestSource::Caller(CallerId::of(&b)), start),
            400
        );
        assert_eq!(
            allowed(&limit, a, start + Duration::from_hours(1)),
            400,
            "not more after idle time"
        );
    }

    #[test]
    fn a_scraper_of_a_large_fleet_is_not_limited_and_one_page_is() {
        let (limit, start, who) = (RequestLimit::new(), Instant::now(), caller("prometheus"));
        let key = |number: u32| VmKey {
            namespace: "a".parse().unwrap(),
            name: format!("w-{number}").parse().unwrap(),
        };
        for number in 0..10_000 {
            let key = key(number);
            for time in [0, 5, 10] {
                let page = RequestSource::Page(CallerId::of(&who), &key);
                limit.take(page, start + Duration::from_secs(time)).unwrap();
            }
        }
        let other = key(10_000);
        assert_eq!(
            allowed(&limit, RequestSource::Page(CallerId::of(&who), &other), start),
            20
        );
    }

    #[test]
    fn addresses_of_one_network_share_a_bucket() {
        let (limit, start) = (RequestLimit::new(), Instant::now());
        let address = |text: &str| RequestSource::address(Some(text.parse().unwrap()));
        assert_eq!(allowed(&limit, address("2001:db8:0:1::1"), start), 100);
        assert_eq!(allowed(&limit, address("2001:db8:0:1:f::2"), start), 0);
        assert_eq!(allowed(&limit, address("2001:db8:0:2::1"), start), 100);
        assert_eq!(allowed(&limit, address("192.0.2.1"), start), 100);
        assert_eq!(allowed(&limit, address("::ffff:192.0.2.1"), start), 0);
        assert_eq!(allowed(&limit, address("192.0.2.2"), start), 100);
    }

    #[test]
    fn the_number_of_buckets_is_bounded() {
        let (limit, start) = (RequestLimit::new(), Instant::now());
        for number in 0..200_000_u32 {
            let source = RequestSource::address(Some(IpAddr::V4(number.into())));
            limit.take(source, start).unwrap();
        }
        assert_eq!(limit.full_at.lock().unwrap().len(), MAX_BUCKETS.get());
    }
}
