//! Benchmark of remote write with many simulated guests, against vmagent, which discovers the same
//! guests through `/sd`, scrapes them at the same interval and sends to the same receiver in the
//! same run.
//!
//! Both read the guests' pages without gzip. The collector also reads a report from each guest, and
//! puts every request into its queue on disk. vmagent uses its disk only while the receiver is
//! down.
//! The receiver runs in this process: it decodes and counts requests, and stores nothing.

mod figures;
mod scene;

use std::{
    io::{Write as _, stdout},
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::Parser;
use virtfleet_tests::{
    measure::{Table, usage},
    sim,
};

use figures::{Delays, Side, Window, bytes_per_sample, delays, is_form, median_ratio};
use scene::{Form, Scene};

/// Measure remote write of the collector against vmagent.
#[derive(Debug, Parser)]
#[command(name = "bench-mla")]
struct Arguments {
    /// Simulated guests; a tenth of them is measured first.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..))]
    guests: u32,
    /// Network interfaces of pods on each guest, each with 16 series and a name that no other guest
    /// has. The default makes about 1,000 series.
    #[arg(long, default_value_t = 42)]
    pods: u32,
    /// Seconds between two scrapes of a guest. Figures need 10 or more: requests wait for 5 s.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..))]
    interval: u32,
    /// Measured intervals of each part. Medians need 3 or more.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    intervals: u32,
    /// Minutes for which the receiver refuses one tenant; 0 omits the outage.
    #[arg(long, default_value_t = 10)]
    outage: u32,
}

const MIB: f64 = 1024.0 * 1024.0;
/// Maximum time until a backlog is delivered, as a multiple of the outage.
const MAX_DRAIN_TIME: u32 = 2;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    sim::raise_file_limit()?;
    let interval = Duration::from_secs(arguments.interval.into());
    let (few, many) = (arguments.guests / 10, arguments.guests);
    let first = {
        let scene = Scene::start(few as usize, arguments.pods, interval)?;
        Window::measure(&scene, arguments.intervals)?
    };
    print(&format!(
        "\n{few} guests every {} s\n{}\n{}",
        arguments.interval,
        beside(&first),
        disk(&first)
    ))?;
    let scene = Scene::start(many as usize, arguments.pods, interval)?;
    let all = Window::measure(&scene, arguments.intervals)?;
    print(&format!(
        "\n{many} guests every {} s\n{}\n{}",
        arguments.interval,
        beside(&all),
        disk(&all)
    ))?;
    print(&format!(
        "growth per guest from {few} to {many} guests\n{}",
        growth(&first, &all)
    ))?;
    wire(&scene, &all, arguments.intervals)?;
    if arguments.outage > 0 {
        let length = Duration::from_mins(arguments.outage.into());
        outage(&scene, length)?;
    }
    Ok(())
}

fn print(text: &str) -> Result<()> {
    Ok(writeln!(stdout(), "{text}")?)
}

/// The collector and vmagent in one window.
fn beside(window: &Window) -> String {
    let mut table = Table::new(&["figure", "virtfleet-collector", "vmagent", "ratio", "goal"]);
    let [ours, theirs] = &window.sides;
    let cpu = [ours.cpu_per_million(), theirs.cpu_per_million()];
    for (name, unit, [own, other], ratio, goal) in [
        (
            "CPU per million samples, median",
            "s",
            cpu,
            median_ratio(window),
            "≤ 0.5",
        ),
        (
            "resident memory, mean",
            "MiB",
            [ours.resident / MIB, theirs.resident / MIB],
            ours.resident / theirs.resident,
            "",
        ),
        (
            "resident memory, peak",
            "MiB",
            [ours.peak / MIB, theirs.peak / MIB],
            ours.peak / theirs.peak,
            "≤ 0.5",
        ),
        (
            "private memory, end",
            "MiB",
            [ours.private / MIB, theirs.private / MIB],
            ours.private / theirs.private,
            "",
        ),
        (
            "interval reached",
            "s",
            window.reached(),
            window.reached()[0] / window.reached()[1],
            "",
        ),
        (
            "samples a second",
            "",
            [ours.rate(), theirs.rate()],
            ours.rate() / theirs.rate(),
            "",
        ),
        (
            "cores used",
            "",
            [ours.cores(), theirs.cores()],
            ours.cores() / theirs.cores(),
            "",
        ),
        (
            "of it in the kernel",
            "",
            [ours.kernel, theirs.kernel],
            ours.kernel / theirs.kernel,
            "",
        ),
        (
            "samples a request",
            "",
            [ours.samples_per_request(), theirs.samples_per_request()],
            ours.samples_per_request() / theirs.samples_per_request(),
            "",
        ),
    ] {
        table.row(&[
            name,
            &format!("{own:.2} {unit}"),
            &format!("{other:.2} {unit}"),
            &format!("{ratio:.3}"),
            goal,
        ]);
    }
    table.render()
}

/// What both have written to their disks. While the receiver answers, vmagent writes nothing.
fn disk(window: &Window) -> String {
    let mut table = Table::new(&["written to the disk", "virtfleet-collector", "vmagent", "goal"]);
    let each = |figure: fn(&Side) -> f64| {
        let sides = window.sides.each_ref();
        sides.map(|side| format!("{:.2}", figure(side)))
    };
    let [own, other] = each(Side::written_per_sample);
    table.row(&["bytes a sample", &own, &other, ""]);
    let [own, other] = each(Side::written_per_byte);
    table.row(&[
        "bytes for each byte sent",
        &own,
        &other,
        goal(window.sides[0].written),
    ]);
    table.render()
}

/// The goal of the bytes written for each byte sent. The queue always writes: without a byte, its
/// folder is on no disk.
fn goal(written: f64) -> &'static str {
    if written > 0.0 {
        "≤ 1.5"
    } else {
        "not measured: TMPDIR is in memory"
    }
}

/// Cost per guest of the large fleet divided by that of the small one.
fn growth(first: &Window, all: &Window) -> String {
    let mut table = Table::new(&["figure", "virtfleet-collector", "vmagent", "goal"]);
    let each = |figure: &dyn Fn(&Window, usize) -> f64| {
        [0, 1].map(|side| {
            let of = |window: &Window| figure(window, side) / window.guests;
            format!("{:.2}", of(all) / of(first))
        })
    };
    let [own, other] = each(&|window, side| window.sides[side].cores());
    table.row(&["CPU", &own, &other, "≤ 1"]);
    let [own, other] = each(&|window, side| window.sides[side].peak);
    table.row(&["resident memory, peak", &own, &other, "≤ 1"]);
    table.render()
}

/// Bytes on the wire in each form, of the same guests.
fn wire(scene: &Scene, newest: &Window, intervals: u32) -> Result<()> {
    let vmagent = newest.sides[1].bytes_per_sample();
    let mut table = Table::new(&["form", "bytes a sample", "ratio", "goal"]);
    let mut row = |name: &str, bytes: f64, ratio: String, goal: &str| {
        table.row(&[name, &format!("{bytes:.2}"), &ratio, goal]);
    };
    let new = newest.sides[0].bytes_per_sample();
    let measured = |form: Form| -> Result<f64> {
        scene.send(form)?;
        let requests = scene.requests_of(form, intervals)?;
        Ok(bytes_per_sample(&requests))
    };
    let (old, zstd) = (measured(Form::V1Snappy)?, measured(Form::V1Zstd)?);
    row("1.0 snappy", old, String::new(), "");
    row(
        "2.0 snappy",
        new,
        format!("{:.3} of 1.0 snappy", new / old),
        "≤ 0.6",
    );
    row("vmagent", vmagent, String::new(), "");
    row(
        "1.0 zstd",
        zstd,
        format!("{:.3} of vmagent", zstd / vmagent),
        "≤ 1",
    );
    scene.send(Form::V2)?;
    print(&format!(
        "request bodies, as sent to the receiver\n{}",
        table.render()
    ))
}

/// Refuses the requests of one tenant for `length`, and measures the drain of its backlog.
fn outage(scene: &Scene, length: Duration) -> Result<()> {
    let refused = scene.path(Form::V2, &scene.clusters[0]);
    let is_other = |path: &str| path != refused && path.starts_with(Form::V2.prefix());
    let live = scene.collect(scene.interval * 4)?;
    let collector = scene.processes()[0];
    let before = usage::written(collector)?;
    let begin = Instant::now();
    scene.receiver.refuse(Some(&refused));
    let during = scene.collect(length)?;
    scene.receiver.refuse(None);
    let outage = begin.elapsed();
    let deadline = length * MAX_DRAIN_TIME + scene.interval * 6;
    let after = scene.until_caught_up(&refused, deadline)?;
    let written = usage::written(collector)?.saturating_sub(before) as f64;
    let all = during.iter().chain(&after);
    let sent: u64 = all
        .filter(|request| is_form(request, Form::V2))
        .map(|request| request.bytes)
        .sum();
    let live_rate = live
        .iter()
        .filter(|request| request.path == refused)
        .map(|request| request.samples as f64)
        .sum::<f64>()
        / (scene.interval * 4).as_secs_f64();
    let drain = figures::drain(&after, &refused, scene.interval);
    let mut table = Table::new(&[
        "delay of the oldest sample of a request",
        "median",
        "p99",
        "highest",
    ]);
    for (name, requests) in [
        ("others, before", &live),
        ("others, outage", &during),
        ("others, drain", &after),
    ] {
        let Delays { median, p99, highest } = delays(requests, is_other);
        let cells = [median, p99, highest].map(|delay| format!("{delay:.2} s"));
        table.row(&[name, &cells[0], &cells[1], &cells[2]]);
    }
    let text = format!(
        "outage of {:.0} s of 1 of {} tenants; {} requests refused\n\
         backlog of {} samples drained in {:.2} s after the first success: {:.0} a second, live rate {live_rate:.0}, \
         ratio {:.1} (goal ≥ 5)\n\
         {:.2} bytes written to the disk for each byte sent in the meantime (goal {})\n{}",
        outage.as_secs_f64(),
        scene.clusters.len(),
        scene.receiver.refused(),
        drain.samples,
        drain.seconds,
        drain.rate(),
        drain.rate() / live_rate.max(1e-9),
        written / (sent as f64).max(1.0),
        goal(written),
        table.render()
    );
    print(&text)
}
