//! Limits on requests that wait for changes: long polls, and streams of changes. In all, of
//! tenants, and of one client, so that no client uses up the places of others.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use virtfleet_collector_core::access::{AuthMethod, Caller};
use virtfleet_runtime::http::RequestPeer;

/// Beginning of the names of ServiceAccounts, before `NAMESPACE:NAME`.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Maximum numbers of requests that wait at the same time.
#[derive(Debug, Clone, Copy)]
pub struct WatchLimits {
    pub all: usize,
    /// Of all tenants: their part of the fleet is made anew for each comparison. Fewer than all, so
    /// that tenants block no admin.
    pub of_tenants: usize,
    /// Of one client that may see everything.
    pub of_client: usize,
    pub of_tenant: usize,
}

impl WatchLimits {
    /// Streams of changes. Each compares the fleet a few times a second while it changes; an open
    /// page has one.
    pub const STREAMS: Self = Self {
        all: 64,
        of_tenants: 32,
        of_client: 8,
        of_tenant: 8,
    };
    pub const LONG_POLLS: Self = Self {
        all: 160,
        of_tenants: 64,
        of_client: 64,
        of_tenant: 8,
    };
}

/// The places of one kind of requests that wait.
#[derive(Debug)]
pub struct WatchSlots {
    limits: WatchLimits,
    used: Mutex<UsedWatchSlots>,
}

#[derive(Debug, Default)]
struct UsedWatchSlots {
    all: usize,
    of_tenants: usize,
    by_client: HashMap<String, usize>,
}

/// The place of one request; dropping it frees the place.
#[derive(Debug)]
pub(super) struct WatchSlot {
    slots: Arc<WatchSlots>,
    client: String,
    is_tenant: bool,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoWatchSlot {
    /// The client has so many, its maximum.
    OwnShare(usize),
    /// All clients together, or all tenants, have their maximum.
    Full,
}

/// The client whose share a request uses; its address if access is open. The ServiceAccounts of a
/// namespace are one client: whoever may create one there may create any number.
pub(super) fn client_of(caller: Option<&Caller>, peer: Option<&RequestPeer>) -> String {
    let Some(caller) = caller else {
        return peer.map(|peer| peer.address.ip().to_string()).unwrap_or_default();
    };
    let name = match caller.method {
        AuthMethod::TokenReview => caller.name.strip_prefix(SERVICE_ACCOUNT),
        _ => None,
    };
    match name.and_then(|name| name.split_once(':')) {
        Some((namespace, _)) => format!("serviceaccounts {namespace}"),
        None => format!("{} {}", caller.method.as_str(), caller.name),
    }
}

impl WatchSlots {
    /// Places within these limits.
    pub fn new(limits: WatchLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            used: Mutex::default(),
        })
    }

    /// Takes a place for a request of `client`.
    ///
    /// # Errors
    /// There is no free one.
    pub(super) fn take(self: &Arc<Self>, client: &str, is_tenant: bool) -> Result<WatchSlot, NoWatchSlot> {
        let limits = self.limits;
        let mut used = self.lock();
        let own = used.by_client.get(client).copied().unwrap_or_default();
        let share = if is_tenant {
            limits.of_tenant
        } else {
            limits.of_client
        };
        if own >= share {
            return Err(NoWatchSlot::OwnShare(own));
        }
        if used.all >= limits.all || (is_tenant && used.of_tenants >= limits.of_tenants) {
            return Err(NoWatchSlot::Full);
        }
        used.all += 1;
        used.of_tenants += usize::from(is_tenant);
        used.by_client.insert(client.to_owned(), own + 1);
        Ok(WatchSlot {
            slots: Arc::clone(self),
            client: client.to_owned(),
            is_tenant,
        })
    }

    /// Number of places that are taken.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.lock().all
    }

    fn lock(&self) -> MutexGuard<'_, UsedWatchSlots> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WatchSlot {
    fn drop(&mut self) {
        let mut used = self.slots.lock();
        used.all = used.all.saturating_sub(1);
        used.of_tenants = used.of_tenants.saturating_sub(usize::from(self.is_tenant));
        if let Some(own) = used.by_client.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                used.by_client.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes places until there is none; they stay taken.
    fn fill(slots: &Arc<WatchSlots>, client: &str, held: &mut Vec<WatchSlot>) -> (usize, NoWatchSlot) {
        let before = held.len();
        loop {
            match slots.take(client, client != "admin") {
                Ok(slot) => held.push(slot),
                Err(refused) => return (held.len() - before, refused),
            }
        }
    }

    #[test]
    fn one_client_and_all_tenants_leave_places_for_others() {
        for limits in [WatchLimits::STREAMS, WatchLimits::LONG_POLLS] {
            let slots = WatchSlots::new(limits);
            let mut held = Vec::new();
            let tenants = limits.of_tenants / limits.of_tenant;
            for number in 0..tenants {
                let own = fill(&slots, &format!("tenant-{number}"), &mut held);
                assert_eq!(own, (8, NoWatchSlot::OwnShare(8)));
            }
            assert!(tenants >= 4, "one tenant has a small part");
            assert_eq!(fill(&slots, "late", &mut held), (0, NoWatchSlot::Full));
            let own = fill(&slots, "admin", &mut held);
            assert_eq!(own, (limits.of_client, NoWatchSlot::OwnShare(limits.of_client)));
            let left = slots.take("another-admin", false).unwrap();
            held.clear();
            drop(left);
            let used = slots.lock();
            assert_eq!((used.all, used.of_tenants, used.by_client.len()), (0, 0, 0));
        }
    }

    #[test]
    fn all_places_may_be_taken() {
        let slots = WatchSlots::new(WatchLimits::STREAMS);
        let all = (0..64).map(|number| slots.take(&number.to_string(), false));
        let held: Vec<_> = all.map(Result::unwrap).collect();
        assert_eq!(slots.take("admin", false).unwrap_err(), NoWatchSlot::Full);
        drop(held);
    }

    #[test]
    fn a_tenant_gets_no_second_share_with_another_service_account() {
        let client = |name: &str, method| client_of(Some(&Caller::new(name, method)), None);
        let reviewed = |name: &str| client(name, AuthMethod::TokenReview);
        let own = reviewed("system:serviceaccount:team-a:default");
        assert_eq!(own, reviewed("system:serviceaccount:team-a:another"));
        assert_ne!(own, reviewed("system:serviceaccount:team-b:default"));
        assert_ne!(reviewed("alice"), reviewed("bob"));
        // Other authenticators' names mean nothing.
        let name = "system:serviceaccount:team-a:default";
        assert_ne!(own, client(name, AuthMethod::Certificate));
        let peer = |address: &str| RequestPeer {
            address: address.parse().unwrap(),
            names: None,
        };
        assert_eq!(
            client_of(None, Some(&peer("127.0.0.1:1"))),
            client_of(None, Some(&peer("127.0.0.1:2")))
        );
    }
}
