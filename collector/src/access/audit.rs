//! Audit log: a line for each denied request and for each read across tenants, limited for each
//! caller. Lines have the target `audit`. They never contain a credential.

use std::{
    net::IpAddr,
    num::NonZeroUsize,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use lru::LruCache;
use virtfleet_collector_core::access::Caller;

use super::AccessError;
use crate::bounded::bounded;

/// Lines of one caller in a burst.
const MAX_BURST: u32 = 10;
/// Sustained interval between two lines of one caller.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum callers whose lines are counted.
const MAX_CALLERS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// Maximum characters of a name or path in a line.
const MAX_TEXT_CHARS: usize = 256;
/// Maximum groups of a caller in a line.
const MAX_GROUPS: usize = 16;

/// A request as the audit log shows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct AuditedRequest<'a> {
    pub(super) method: &'a str,
    /// The path, without its query.
    pub(super) path: &'a str,
    /// The client's address; none in tests.
    pub(super) address: Option<IpAddr>,
}

#[derive(Debug, Clone, Copy)]
struct LineBudget {
    /// When the whole burst is available again.
    full_at: Instant,
    suppressed: u64,
}

/// Limits the lines of each caller.
#[derive(Debug)]
struct LineLimiter(Mutex<LruCache<String, LineBudget>>);

impl LineLimiter {
    fn new() -> Self {
        Self(Mutex::new(LruCache::new(MAX_CALLERS)))
    }

    /// The number of lines suppressed before this one, or none if this one is suppressed.
    fn pass(&self, who: &str, now: Instant) -> Option<u64> {
        let mut budgets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || LineBudget {
            full_at: now,
            suppressed: 0,
        };
        let budget = budgets.get_or_insert_mut(who.to_owned(), fresh);
        let full_at = budget.full_at.max(now) + LINE_INTERVAL;
        if full_at > now + LINE_INTERVAL * MAX_BURST {
            budget.suppressed += 1;
            return None;
        }
        budget.full_at = full_at;
        Some(std::mem::take(&mut budget.suppressed))
    }
}

#[derive(Debug)]
pub(super) struct AuditLog {
    denied: LineLimiter,
    read: LineLimiter,
}

impl AuditLog {
    pub(super) fn new() -> Self {
        Self {
            denied: LineLimiter::new(),
            read: LineLimiter::new(),
        }
    }

    pub(super) fn denied(
        &self,
        request: &AuditedRequest<'_>,
        caller: Option<&Caller>,
        error: &AccessError,
        now: Instant,
    ) {
        let caller = match error {
            AccessError::Forbidden { caller, .. } => Some(&**caller),
            _ => caller,
        };
        let client = client(request);
        // Callers without valid credentials are known by their address.
        let who = caller.map_or_else(|| client.clone(), |caller| caller.name.clone());
        let Some(suppressed) = self.denied.pass(&who, now) else {
            return;
        };
        tracing::warn!(
            target: "audit",
            caller = name(caller),
            groups = groups(caller),
            authentication = caller.map(|caller| caller.method.as_str()),
            client,
            method = request.method,
            path = bounded(request.path, MAX_TEXT_CHARS),
            result = "denied",
            reason = error.reason(),
            suppressed,
            "audit: {error}"
        );
    }

    /// Logs a read of a caller that may see all tenants.
    pub(super) fn read_across_tenants(&self, request: &AuditedRequest<'_>, caller: &Caller, now: Instant) {
        let Some(suppressed) = self.read.pass(&caller.name, now) else {
            return;
        };
        tracing::info!(
            target: "audit",
            caller = name(Some(caller)),
            groups = groups(Some(caller)),
            authentication = caller.method.as_str(),
            client = client(request),
            method = request.method,
            path = bounded(request.path, MAX_TEXT_CHARS),
            result = "allowed",
            suppressed,
            "audit: read across tenants"
        );
    }
}

fn client(request: &AuditedRequest<'_>) -> String {
    request.address.map_or_else(
        || "unknown".to_owned(),
        |address| address.to_canonical().to_string(),
    )
}

fn name(caller: Option<&Caller>) -> String {
    caller.map_or_else(
        || "unknown".to_owned(),
        |caller| bounded(&caller.name, MAX_TEXT_CHARS),
    )
}

fn groups(caller: Option<&Caller>) -> String {
    let groups = caller.map(|caller| caller.groups.as_slice()).unwrap_or_default();
    let shown: Vec<String> = groups
        .iter()
        .take(MAX_GROUPS)
        .map(|group| bounded(group, MAX_TEXT_CHARS))
        .collect();
    shown.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_caller_are_limited_and_counted() {
        let limiter = LineLimiter::new();
        let start = Instant::now();
        for _ in 0..MAX_BURST {
            assert_eq!(limiter.pass("a", start), Some(0));
        }
        for _ in 0..3 {
            assert_eq!(limiter.pass("a", start), None);
        }
        assert_eq!(
            limiter.pass("b", start),
            Some(0),
            "another caller has its own lines"
        );
        assert_eq!(limiter.pass("a", start + LINE_INTERVAL), Some(3));
        assert_eq!(limiter.pass("a", start + LINE_INTERVAL), None);
    }
}
