//! Passes the pages of VMs from the scraper to the streams: that of the VM's user cluster, and that
//! of the operator. Only the leader does: two processes would write each sample twice.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use virtfleet_collector_core::{
    index::LocatedVm,
    mla::{
        PageReader, SourceKey,
        page_reader::PageSeries,
        status::{TargetError, TargetErrorReason, TargetStatus, status_message},
        stream::{PullTime, StreamPageResult},
    },
    pull_result::{Failure, FailureClass},
};
use virtfleet_wire::{
    exposition::{Line, LineError},
    ids::{ClusterName, Uid, VmKey},
};

use super::{
    settings::StreamName,
    status::MlaStatus,
    stream::{PageSettings, Stream, StreamPage},
    streams::Streams,
    targets,
};
use crate::{clock::unix_ms, fleet::Fleet, leader::WriteAccess};

/// The feed. Share it as `Arc<PageFeed>`.
#[derive(Debug)]
pub(crate) struct PageFeed {
    fleet: Arc<Fleet>,
    streams: Arc<Streams>,
    status: Arc<MlaStatus>,
    write_access: WriteAccess,
    vms: Mutex<HashMap<VmKey, FedVm>>,
}

/// What is known of a VM between two pages.
#[derive(Debug, Clone, Default)]
struct FedVm {
    last: Option<PageSeries>,
    /// The stream of its user cluster that has its series.
    tenant: Option<StreamName>,
}

/// The page of a VM while it is pulled.
#[derive(Debug)]
pub(crate) struct VmPage {
    vm: VmKey,
    uid: Option<Uid>,
    reader: PageReader,
    at_ms: u64,
    started: Instant,
    bytes: u64,
}

/// The streams that a VM's page goes to.
struct Receivers {
    placed: Option<LocatedVm>,
    tenant: Option<(StreamName, Arc<Stream>, PageSettings)>,
    fleet: Option<(Arc<Stream>, PageSettings)>,
}

impl VmPage {
    /// Parses and reads the next line.
    ///
    /// # Errors
    /// The first error in the line.
    pub(crate) fn read<'text>(&mut self, line: &'text str) -> Result<Line<'text>, LineError> {
        self.reader.read(line)
    }

    pub(crate) fn add_bytes(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }
}

impl PageFeed {
    pub(super) fn new(
        fleet: Arc<Fleet>,
        streams: Arc<Streams>,
        status: Arc<MlaStatus>,
        write_access: WriteAccess,
    ) -> Self {
        Self {
            fleet,
            streams,
            status,
            write_access,
            vms: Mutex::default(),
        }
    }

    /// Begins the page of a VM, when its pull begins. None if no stream takes it.
    pub(crate) fn begin(&self, vm: &VmKey, uid: Option<&Uid>) -> Option<VmPage> {
        if self.streams.is_empty() || !self.write_access.leads() {
            return None;
        }
        let at_ms = unix_ms();
        let receivers = self.receivers(vm, at_ms);
        let (stream, settings) = receivers.first().filter(|_| receivers.is_any_due())?;
        let tenant = receivers.tenant.as_ref().map(|(name, ..)| name);
        // The series of a VM that has changed its stream count for the new one.
        let last = self.lock().get(vm).and_then(|known| {
            let last = known.last.clone();
            last.filter(|_| known.tenant.as_ref() == tenant)
        });
        let last = last.unwrap_or_default();
        Some(VmPage {
            vm: vm.clone(),
            uid: uid.cloned(),
            reader: PageReader::new(Arc::clone(&stream.table), settings.limits, last),
            at_ms,
            started: Instant::now(),
            bytes: 0,
        })
    }

    /// Passes on a page that was read completely.
    pub(crate) fn complete(&self, page: VmPage) {
        let VmPage {
            vm,
            uid,
            reader,
            at_ms,
            started,
            bytes,
        } = page;
        let took = started.elapsed();
        let receivers = self.receivers(&vm, at_ms);
        // A page of a VMI that was replaced meanwhile is not the present one's.
        let is_present = receivers
            .placed
            .as_ref()
            .is_some_and(|placed| placed.view.uid == uid);
        if !is_present || !self.write_access.leads() {
            return;
        }
        let samples = reader.samples();
        match reader.finish() {
            Ok(page) => {
                let result = self.write(&vm, &receivers, &StreamPage::Complete(&page), at_ms, took);
                self.remember(&vm, &receivers, Some(page.series()), at_ms);
                let exceeded = result.and_then(|result| result.exceeded);
                let exceeded = exceeded.map(|why| why.to_string());
                let error = exceeded.as_deref();
                self.publish(
                    &vm,
                    &receivers,
                    (at_ms, took),
                    (page.samples, bytes),
                    result,
                    error.map(|why| (TargetErrorReason::OverLimit, why)),
                );
            }
            Err(why) => {
                let result = self.write(&vm, &receivers, &StreamPage::Failed, at_ms, took);
                receivers.count_rejected(samples);
                self.remember(&vm, &receivers, None, at_ms);
                let error = (TargetErrorReason::OverLimit, why.as_str());
                self.publish(&vm, &receivers, (at_ms, took), (0, bytes), result, Some(error));
            }
        }
    }

    /// Takes note of a pull that failed and began at `at_ms`.
    pub(crate) fn failed(&self, vm: &VmKey, at_ms: u64, took: Duration, failure: &Failure) {
        if self.streams.is_empty() || !self.write_access.leads() {
            return;
        }
        let receivers = self.receivers(vm, at_ms);
        if !receivers.is_any_due() {
            return;
        }
        let result = self.write(vm, &receivers, &StreamPage::Failed, at_ms, took);
        self.remember(vm, &receivers, None, at_ms);
        let reason = match failure.class {
            FailureClass::Malformed | FailureClass::TooLarge => TargetErrorReason::Malformed,
            _ => TargetErrorReason::PullFailed,
        };
        let error = (reason, failure.message());
        self.publish(vm, &receivers, (at_ms, took), (0, 0), result, Some(error));
    }

    /// Ends the series of a VM that does not run any more.
    pub(crate) fn gone(&self, vm: &VmKey) {
        let known = self.lock().remove(vm);
        self.status.remove_target(vm);
        let Some(known) = known else { return };
        if !self.write_access.leads() {
            return;
        }
        let source = SourceKey::Vm(vm.clone());
        let at_ms = signed(unix_ms());
        let tenant = known.tenant.and_then(|name| self.streams.get(&name));
        let fleet = self.streams.get(&StreamName::Fleet);
        for stream in tenant.iter().chain(&fleet) {
            stream.gone(&source, at_ms);
        }
    }

    /// Forgets all VMs: another process leads.
    pub(super) fn forget_all(&self) {
        self.lock().clear();
        for (_, stream) in self.streams.all() {
            stream.forget_all();
        }
        self.status.clear_targets();
    }

    /// The streams for a page of a VM whose pull began at `at_ms`.
    fn receivers(&self, vm: &VmKey, at_ms: u64) -> Receivers {
        let (source, at_ms) = (SourceKey::Vm(vm.clone()), signed(at_ms));
        let placed = self.fleet.read(|index| index.located_vm(vm, &[]));
        let cluster: Option<ClusterName> = placed.as_ref().and_then(|placed| placed.view.cluster.clone());
        let tenant = self.streams.tenant(cluster.as_ref());
        let fleet = self.streams.get(&StreamName::Fleet);
        Receivers {
            placed,
            tenant: tenant.and_then(|(name, stream)| {
                let settings = stream.page_settings(&source, at_ms)?;
                Some((name, stream, settings))
            }),
            fleet: fleet.and_then(|stream| {
                let settings = stream.page_settings(&source, at_ms)?;
                Some((stream, settings))
            }),
        }
    }

    /// Writes to those of both streams that are due; returns the result of the tenant's, or of the
    /// operator's without one. None if that one is not due.
    fn write(
        &self,
        vm: &VmKey,
        receivers: &Receivers,
        page: &StreamPage<'_>,
        at_ms: u64,
        took: Duration,
    ) -> Option<StreamPageResult> {
        let source = SourceKey::Vm(vm.clone());
        let time = PullTime {
            at_ms: signed(at_ms),
            seconds: took.as_secs_f64(),
        };
        let tenant = receivers.tenant.as_ref();
        let tenant = tenant.map(|(name, stream, settings)| (name, stream, settings));
        let (fleet, fleet_name) = (receivers.fleet.as_ref(), StreamName::Fleet);
        let fleet = fleet.map(|(stream, settings)| (&fleet_name, stream, settings));
        let mut first = None;
        for (at, (name, stream, settings)) in tenant.into_iter().chain(fleet).enumerate() {
            if !settings.is_due {
                continue;
            }
            let keys = targets::host_label_keys(&settings.placement);
            let placed = self.fleet.read(|index| index.located_vm(vm, &keys));
            let Some(placed) = placed.or_else(|| receivers.placed.clone()) else {
                continue;
            };
            let values = targets::values(&placed, &settings.placement);
            let result = stream.page(&source, &values, page, time);
            if let Some(why) = result.exceeded.filter(|_| stream.is_naming_due()) {
                tracing::warn!(stream = %name, %vm, "the page of a VM is not sent: {why}");
            }
            first = first.or((at == 0).then_some(result));
        }
        first
    }

    /// Keeps the series of the page for the next one. Ends them in the stream of another user
    /// cluster, to which the VM belonged.
    fn remember(&self, vm: &VmKey, receivers: &Receivers, last: Option<PageSeries>, at_ms: u64) {
        let tenant = receivers.tenant.as_ref().map(|(name, _, _)| name.clone());
        let new = FedVm {
            last,
            tenant: tenant.clone(),
        };
        let mut vms = self.lock();
        let known = vms.insert(vm.clone(), new);
        drop(vms);
        if let Some(former) = known.and_then(|known| known.tenant)
            && tenant.as_ref() != Some(&former)
            && let Some(stream) = self.streams.get(&former)
        {
            stream.gone(&SourceKey::Vm(vm.clone()), signed(at_ms));
        }
    }

    fn publish(
        &self,
        vm: &VmKey,
        receivers: &Receivers,
        (at_ms, took): (u64, Duration),
        (samples, page_bytes): (u64, u64),
        result: Option<StreamPageResult>,
        error: Option<(TargetErrorReason, &str)>,
    ) {
        let Some(result) = result else { return };
        self.status.publish_target(TargetStatus {
            vm: vm.clone(),
            cluster: receivers
                .tenant
                .as_ref()
                .and_then(|_| receivers.placed.as_ref()?.view.cluster.clone()),
            last_scrape_ms: at_ms,
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            samples,
            series_added: result.added,
            page_bytes,
            dropped_by_relabel: result.dropped,
            unsent: if result.exceeded.is_some() {
                0
            } else {
                result.over_limit + result.collided
            },
            error: error.map(|(reason, message)| TargetError {
                reason,
                message: status_message(message),
            }),
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<VmKey, FedVm>> {
        self.vms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Receivers {
    fn all(&self) -> impl Iterator<Item = (&Stream, &PageSettings)> {
        let tenant = self.tenant.iter();
        let tenant = tenant.map(|(_, stream, settings)| (&**stream, settings));
        let fleet = self.fleet.iter().map(|(stream, settings)| (&**stream, settings));
        tenant.chain(fleet)
    }

    /// Counts the samples of a page that is rejected.
    fn count_rejected(&self, samples: u64) {
        for (stream, _) in self.all().filter(|(_, settings)| settings.is_due) {
            stream.rejected(samples);
        }
    }

    /// Whether a stream is to have the page.
    fn is_any_due(&self) -> bool {
        self.all().any(|(_, settings)| settings.is_due)
    }

    /// The stream whose limits apply to the page; none if no stream takes it.
    fn first(&self) -> Option<(&Stream, &PageSettings)> {
        self.all().next()
    }
}

fn signed(at_ms: u64) -> i64 {
    i64::try_from(at_ms).unwrap_or(i64::MAX)
}
