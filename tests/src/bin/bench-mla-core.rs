//! `make bench-mla-core`: time per sample from the line of a page to the write request, beside the
//! time of parsing the page alone.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use clap::Parser;
use virtfleet_collector::{config::MlaBatchSettings, mla::Requests};
use virtfleet_collector_core::mla::{
    PageReader, SourceKey, StreamSeries, TableShare,
    memory::MemoryPool,
    page_reader::PageSeries,
    page_rules::SampleLimits,
    relabel::{CompiledRules, RelabelRule},
    stream::{PullTime, StampLabels, TargetValues},
};
use virtfleet_tests::sim::{Guest, Model, Options, Plan, write_page};
use virtfleet_wire::{
    exposition::{Line, Page, parse_line},
    ids::VmKey,
};

/// Measure the time per sample from a page to a write request.
#[derive(Debug, Parser)]
struct Arguments {
    /// VMs, each with a page of its own.
    #[arg(long, default_value_t = 20)]
    vms: usize,
    /// Pages of each VM.
    #[arg(long, default_value_t = 50)]
    pages: usize,
}

/// Rules of a usual length, none of which depends on the VM.
const RULES: &str = r#"[{"sourceLabels":["__name__"],"regex":"node_(scrape|netstat_Ip6).*","action":"drop"},
    {"regex":"fstype","action":"labeldrop"},
    {"sourceLabels":["mountpoint"],"regex":"/var/lib/kubelet/.*","action":"drop"}]"#;

struct Vm {
    source: SourceKey,
    targets: TargetValues,
    text: String,
    last: PageSeries,
}

fn vm(guest: &Guest) -> Result<Vm> {
    let mut page = Page::new();
    write_page(&mut page, guest, &Model::new(guest), 100.0, 1_700_000_000.0);
    let values = ["cluster-1", "namespace-1", &guest.name, &guest.name];
    Ok(Vm {
        source: SourceKey::Vm(VmKey {
            namespace: guest.cluster.parse()?,
            name: guest.name.parse()?,
        }),
        targets: values.map(Arc::from).into(),
        text: page.to_text(),
        last: PageSeries::default(),
    })
}

/// Parses all pages; returns the number of samples.
fn parse(vms: &[Vm]) -> Result<u64> {
    let mut samples = 0;
    for vm in vms {
        for line in vm.text.lines() {
            samples += u64::from(matches!(parse_line(line)?, Line::Sample(_)));
        }
    }
    Ok(samples)
}

/// Turns all pages into requests; returns the bytes of these.
fn write(
    vms: &mut [Vm],
    table: &Arc<TableShare>,
    stream: &mut StreamSeries,
    requests: &mut Requests,
    at_ms: i64,
) -> Result<usize> {
    for vm in vms {
        let limits = SampleLimits::new(100_000);
        let mut reader = PageReader::new(Arc::clone(table), limits, Arc::clone(&vm.last));
        for line in vm.text.lines() {
            reader.read(line)?;
        }
        let page = reader.finish().map_err(anyhow::Error::msg)?;
        vm.last = page.series();
        let time = PullTime { at_ms, seconds: 0.01 };
        stream.page(&vm.source, &vm.targets, &page, time, requests);
    }
    let finished = requests.take();
    Ok(finished.iter().map(|held| held.request.message_bytes).sum())
}

fn nanoseconds(took: Duration, samples: u64) -> f64 {
    took.as_secs_f64() * 1e9 / samples as f64
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let plan = Plan::new(&Options {
        guests: arguments.vms,
        ..Options::default()
    })?;
    let mut vms = plan.guests.iter().map(vm).collect::<Result<Vec<_>>>()?;
    let table = Arc::new(TableShare::default());
    let stamp = StampLabels {
        per_vm: ["cluster", "namespace", "name", "instance"].map(Arc::from).into(),
        constant: vec![("job".into(), "node".into())],
        external: Vec::new(),
    };
    let rules: Vec<RelabelRule> = serde_json::from_str(RULES)?;
    let mut stream = StreamSeries::new(&table, stamp, CompiledRules::new(&rules)?);
    let memory = Arc::new(MemoryPool::new(usize::MAX).share());
    let mut requests = Requests::new(&MlaBatchSettings::default(), memory);
    // The first pages fill the tables.
    write(&mut vms, &table, &mut stream, &mut requests, 0)?;
    let per_round = parse(&vms)?;
    ensure!(per_round > 0, "the pages have no samples");
    let (mut parsing, mut writing, mut bytes) = (Duration::ZERO, Duration::ZERO, 0);
    for round in 1..=arguments.pages {
        let started = Instant::now();
        parse(&vms)?;
        parsing += started.elapsed();
        let started = Instant::now();
        let at_ms = 10_000 * i64::try_from(round)?;
        bytes += write(&mut vms, &table, &mut stream, &mut requests, at_ms)?;
        writing += started.elapsed();
    }
    let samples = per_round * arguments.pages as u64;
    let (parsed, written) = (nanoseconds(parsing, samples), nanoseconds(writing, samples));
    println!(
        "VMs {}, samples per page {}",
        vms.len(),
        per_round / vms.len() as u64
    );
    println!("parse a page:               {parsed:8.0} ns per sample");
    println!("parse it and write requests: {written:7.0} ns per sample");
    println!("ratio:                      {:8.2}", written / parsed);
    println!(
        "bytes before compression:   {:8.1} per sample",
        bytes as f64 / samples as f64
    );
    Ok(())
}
