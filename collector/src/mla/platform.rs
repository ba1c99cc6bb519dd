//! Writes the platform's own series about VMs into the streams: those of a user cluster's VMs into
//! its stream, those of the whole fleet into the operator's.

use std::{collections::HashMap, sync::Arc};

use virtfleet_collector_core::{
    mla::{
        PageReader, SourceKey, TableShare,
        page_reader::PageSeries,
        stream::{PullTime, TargetValues},
    },
    view::FleetSnapshot,
};
use virtfleet_wire::exposition::Page;

use super::{settings::StreamName, stream::StreamPage, streams::Streams};
use crate::fleet_series;

/// Writes the series of the platform at every interval.
#[derive(Debug)]
pub(super) struct PlatformSeries {
    streams: Arc<Streams>,
    /// A table of its own: guests cannot use up the memory for these series.
    table: Arc<TableShare>,
    last: HashMap<StreamName, PageSeries>,
}

impl PlatformSeries {
    pub(super) fn new(streams: Arc<Streams>) -> Self {
        Self {
            table: Arc::default(),
            streams,
            last: HashMap::new(),
        }
    }

    /// Writes the series of the present fleet, with this time.
    pub(super) fn write(&mut self, fleet: &FleetSnapshot, at_ms: i64) {
        // An incomplete fleet would look like a small one.
        if !fleet.synced {
            return;
        }
        let streams = self.streams.all();
        self.last
            .retain(|name, _| streams.iter().any(|(known, _)| known == name));
        for (name, stream) in streams.iter().filter(|(_, stream)| stream.takes_platform(at_ms)) {
            let mut page = Page::new();
            match name {
                StreamName::Fleet => fleet_series::fleet(&mut page, fleet),
                StreamName::Tenant(cluster) => {
                    let own = fleet.vms.values().map(AsRef::as_ref);
                    fleet_series::vms(&mut page, own.filter(|vm| vm.cluster.as_ref() == Some(cluster)));
                }
            }
            let last = self.last.get(name).cloned().unwrap_or_default();
            let mut reader = PageReader::trusted(Arc::clone(&self.table), last);
            for line in page.to_text().lines() {
                if let Err(error) = reader.read(line) {
                    tracing::error!(stream = %name, %error, "a line of the platform's series is malformed");
                }
            }
            let page = match reader.finish() {
                Ok(page) => page,
                Err(error) => {
                    tracing::error!(stream = %name, %error, "cannot write the platform's series");
                    continue;
                }
            };
            self.last.insert(name.clone(), page.series());
            let time = PullTime { at_ms, seconds: 0.0 };
            let none: TargetValues = Arc::new([]);
            stream.page(&SourceKey::Platform, &none, &StreamPage::Complete(&page), time);
        }
    }
}
