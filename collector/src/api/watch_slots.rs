//! Limits of concurrent streams of changes: in all, of tenants, and of one caller.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Maximum streams. Each compares the fleet a few times a second while it changes.
const MAX_STREAMS: usize = 64;
/// Maximum streams of tenants: their part of the fleet is made anew for each comparison. Fewer than
/// all, so that tenants block no admin.
const MAX_TENANT_STREAMS: usize = 32;
/// Maximum streams of one caller: one for each open page.
const MAX_CALLER_STREAMS: usize = 8;

/// The streams that are open.
#[derive(Debug, Default)]
pub struct WatchSlots {
    open: Mutex<OpenStreams>,
}

#[derive(Debug, Default)]
struct OpenStreams {
    all: usize,
    of_tenants: usize,
    by_caller: HashMap<String, usize>,
}

/// One open stream; dropping it frees its place.
#[derive(Debug)]
pub(super) struct WatchSlot {
    slots: Arc<WatchSlots>,
    caller: String,
    is_tenant: bool,
}

impl WatchSlots {
    /// Takes a place for a stream of `caller`; none if there is no free one.
    pub(super) fn take(self: &Arc<Self>, caller: &str, is_tenant: bool) -> Option<WatchSlot> {
        let mut open = self.lock();
        let own = open.by_caller.get(caller).copied().unwrap_or_default();
        let is_full = open.all >= MAX_STREAMS
            || own >= MAX_CALLER_STREAMS
            || (is_tenant && open.of_tenants >= MAX_TENANT_STREAMS);
        if is_full {
            return None;
        }
        open.all += 1;
        open.of_tenants += usize::from(is_tenant);
        open.by_caller.insert(caller.to_owned(), own + 1);
        Some(WatchSlot {
            slots: Arc::clone(self),
            caller: caller.to_owned(),
            is_tenant,
        })
    }

    fn lock(&self) -> MutexGuard<'_, OpenStreams> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WatchSlot {
    fn drop(&mut self) {
        let mut open = self.slots.lock();
        open.all = open.all.saturating_sub(1);
        open.of_tenants = open.of_tenants.saturating_sub(usize::from(self.is_tenant));
        if let Some(own) = open.by_caller.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                open.by_caller.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_and_all_tenants_leave_places_for_others() {
        let slots = Arc::new(WatchSlots::default());
        let mut held = Vec::new();
        while let Some(slot) = slots.take("greedy", true) {
            held.push(slot);
        }
        assert_eq!(held.len(), MAX_CALLER_STREAMS);
        let mut number = 0;
        while let Some(slot) = slots.take(&format!("tenant-{number}"), true) {
            number += 1;
            held.push(slot);
        }
        assert_eq!(held.len(), MAX_TENANT_STREAMS);
        for number in MAX_TENANT_STREAMS..MAX_STREAMS {
            held.push(slots.take(&format!("admin-{number}"), false).unwrap());
        }
        assert!(slots.take("admin", false).is_none());
        held.clear();
        let open = slots.lock();
        assert_eq!((open.all, open.of_tenants, open.by_caller.len()), (0, 0, 0));
    }
}
