//! Runs each verb: prepares its input, calls the library, prints the result.

use std::{path::Path, time::Duration};

use anyhow::Context as _;
use virtfleet_agent_core::{
    VERSION,
    pass::{RunOutcome, Stage},
};
use virtfleet_agent_host::{SystemCommands, Systemctl, is_root, link_target};
use virtfleet_agent_metrics::{COLLECTORS, Context, Filter, Registry};
use virtfleet_agent_provision::STEPS;
use virtfleet_agent_service::{
    doctor::{self, CollectorRun},
    pause::ClockWatch,
    report::Reporter,
    server::try_tls,
};
use virtfleet_agent_state::{identity::state::write_state, settings};
use virtfleet_runtime::{
    exit::Code,
    telemetry,
    tls::{Validity, check_agent_names, check_pem},
};
use virtfleet_wire::{
    exposition::Page,
    report::GuestReport,
    settings::{LogSettings, MetricsSettings, ServerTls},
};

use super::{
    check_config::check_config,
    disks, dns,
    failure::Failure,
    nic, plan, print,
    verb::{Args, Domain, Verb},
    virtio,
};

use crate::{
    install::{self, InstallError, Options},
    output::Output,
    run,
};

/// Runs the verb of the command line.
pub(super) fn run(args: &Args) -> Result<Code, Failure> {
    if matches!(
        args.verb,
        Verb::Apply(..) | Verb::ApplyDomain(..) | Verb::Plan(..)
    ) {
        log(args);
    }
    match &args.verb {
        Verb::Run => run::run(args)
            .map_err(|(error, code)| Failure { error, code })
            .map(|()| Code::Ok),
        Verb::Metrics => metrics(args),
        Verb::Report(output) => report(args, *output),
        Verb::Doctor(output) => examine(args, *output),
        Verb::CheckConfig(file, output) => {
            // A file argument may be a part of the settings. `--config`, as for `run`, names all of
            // them.
            let part = file.as_deref();
            let path = part.or(args.config.as_deref());
            let checked = check_config(&args.roots, path, part.is_none(), *output)?;
            print::text(&checked.text)?;
            Ok(if checked.valid { Code::Ok } else { Code::Failure })
        }
        Verb::Install(options, remove, output) => put_in_place(options, *remove, *output),
        Verb::Schema => {
            print::text(&Output::Json.render(&settings::schema(), |_| String::new())?)?;
            Ok(Code::Ok)
        }
        Verb::Apply(stage, output, wait) => apply(args, *stage, *output, *wait),
        Verb::ApplyDomain(options) => match options.domain {
            Domain::Disks => disks::apply(args, options),
            Domain::Dns => dns::apply(args, options),
            Domain::Nic => nic::apply(args, options),
        },
        Verb::Plan(subjects, output, detailed) => plan::plan(args, *subjects, *output, *detailed),
        Verb::Dns(output) => dns::status(args, *output),
        Verb::Virtio(all, output) => virtio::show(args, *all, *output),
        Verb::Disks(verb) => disks::disks(args, verb),
        Verb::State => {
            print::text(
                &write_state(&args.roots)
                    .context("cannot write the state")?
                    .to_string(),
            )?;
            Ok(Code::Ok)
        }
    }
}

/// Starts logging for `apply` or `plan`: progress of long work, and errors that do not end it.
fn log(args: &Args) {
    let settings = settings::load(&args.roots, args.config.as_deref()).config.log;
    let settings = LogSettings {
        level: args.log_level.unwrap_or(settings.level),
        format: args.log_format.unwrap_or(settings.format),
    };
    // Only a second call fails.
    telemetry::init_command(&settings).ok();
}

fn put_in_place(options: &Options, remove: bool, output: Output) -> Result<Code, Failure> {
    // The running binary, even if its file has been replaced since.
    let own = Path::new("/proc/self/exe");
    if !is_root() {
        return Err(InstallError::NotRoot(link_target(own).unwrap_or_default().display().to_string()).into());
    }
    let outcome = if remove {
        install::remove(options, &SystemCommands)?
    } else {
        let plan = install::plan(options, own, VERSION)?;
        install::apply(options, &plan, &SystemCommands)?
    };
    print::text(&output.render(&outcome, install::Outcome::text)?)?;
    Ok(Code::Ok)
}

fn apply(args: &Args, stage: Option<Stage>, output: Output, wait: Option<Duration>) -> Result<Code, Failure> {
    let stages = stage.as_ref().map_or(Stage::ALL.as_slice(), std::slice::from_ref);
    let settings = || settings::load(&args.roots, args.config.as_deref());
    let services = Systemctl(SystemCommands);
    let passes = virtfleet_agent_provision::apply(
        &args.roots,
        &settings,
        &services,
        STEPS,
        stages,
        wait,
        &mut print::complain,
    )?;
    print::text(&output.render(&passes, |passes| virtfleet_agent_provision::text(passes))?)?;
    let failed = passes
        .iter()
        .any(|pass| pass.record.outcome == RunOutcome::Failed);
    Ok(if failed { Code::Failure } else { Code::Ok })
}

fn metrics(args: &Args) -> Result<Code, Failure> {
    let loaded = settings::load(&args.roots, args.config.as_deref());
    let settings = args.collectors.apply_to(&loaded.config.metrics)?;
    let context = Context {
        nic: loaded.config.nic.clone(),
        ..Context::new(args.roots.clone(), settings)
    };
    let mut registry = Registry::with_table(COLLECTORS, context, &args.collectors.switched)?;
    let mut page = Page::new();
    registry.scrape(&Filter::default(), &mut page)?;
    print::bytes(page.as_bytes())?;
    for problem in &loaded.problems {
        print::complain(&problem.to_string());
    }
    for complaint in failures(&registry) {
        print::complain(&complaint);
    }
    Ok(Code::Ok)
}

/// Why collectors failed in the last scrape, one line each. The page only says that they failed.
fn failures(registry: &Registry) -> Vec<String> {
    let reason = |name| Some(format!("collector {name}: {}", registry.reason(name)?));
    registry.enabled().filter_map(reason).collect()
}

fn report(args: &Args, output: Output) -> Result<Code, Failure> {
    let loaded = settings::load(&args.roots, args.config.as_deref());
    // A single sample of the clocks shows nothing. A running agent has more.
    let report = Reporter::new(args.roots.clone(), VERSION, &loaded)
        .with_listener_query()
        .report(&ClockWatch::new(&args.roots));
    // As `/v1/report` returns it, cut to the size limit too.
    let report = GuestReport::from_json(&report.to_json_within_limit()?)?;
    print::text(&output.render(&report, |_| String::new())?)?;
    Ok(Code::Ok)
}

fn examine(args: &Args, output: Output) -> Result<Code, Failure> {
    let loaded = settings::load(&args.roots, args.config.as_deref());
    let metrics = loaded.config.metrics.clone();
    let seen = doctor::collect(&args.roots, loaded, &inspect, &agree, || {
        collectors(args, &metrics)
    });
    let lines = doctor::check(&seen);
    print::coloured(&output.render(&lines, |lines| doctor::text(lines))?)?;
    Ok(if doctor::any_failed(&lines) {
        Code::Failure
    } else {
        Code::Ok
    })
}

/// Parses a TLS file for the doctor.
fn inspect(key: &str, pem: &[u8]) -> Result<Option<Validity>, String> {
    let validity = check_pem(pem, key == "key")?;
    match key {
        "certificate" => check_agent_names(pem).map(|()| validity),
        _ => Ok(validity),
    }
}

/// Checks for the doctor that `run` could serve with these files.
fn agree(tls: &ServerTls) -> Result<(), String> {
    try_tls(tls).map_err(|error| format!("{:#}", anyhow::Error::new(error)))
}

/// Runs each enabled collector alone.
fn collectors(args: &Args, settings: &MetricsSettings) -> Vec<CollectorRun> {
    let registry = args
        .collectors
        .apply_to(settings)
        .map_err(|error| error.to_string())
        .and_then(|settings| {
            let switched = &args.collectors.switched;
            Registry::new(&args.roots, &settings, switched)
                .map_err(|error| format!("{:#}", anyhow::Error::new(error)))
        });
    let mut registry = match registry {
        Ok(registry) => registry,
        Err(error) => {
            return vec![CollectorRun {
                name: "all".to_owned(),
                result: Err(error),
            }];
        }
    };
    let names: Vec<_> = registry.enabled().collect();
    let mut page = Page::new();
    let run = |name: &'static str| {
        page.clear();
        let filter = Filter {
            collect: vec![name.to_owned()],
            exclude: Vec::new(),
        };
        let result = registry
            .scrape(&filter, &mut page)
            .map_err(|error| error.to_string())
            .and_then(|()| {
                // Without a reason the collector has no data in this guest, which is not a fault.
                // The metrics of its own duration and success are not samples of the guest.
                let samples = page.samples().saturating_sub(2);
                registry
                    .reason(name)
                    .map_or(Ok(samples), |reason| Err(reason.to_owned()))
            });
        CollectorRun {
            name: name.to_owned(),
            result,
        }
    };
    names.into_iter().map(run).collect()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use super::*;

    use virtfleet_agent_host::Roots;

    #[test]
    fn a_failed_collector_has_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("loadavg"), "high").unwrap();
        let roots = Roots {
            procfs: dir.path().to_owned(),
            ..Roots::default()
        };
        let mut registry = Registry::new(&roots, &MetricsSettings::default(), &BTreeMap::new()).unwrap();
        let filter = Filter {
            collect: vec!["loadavg".to_owned()],
            exclude: Vec::new(),
        };
        registry.scrape(&filter, &mut Page::new()).unwrap();
        let failures = failures(&registry);
        assert!(
            matches!(failures.as_slice(), [one] if one.starts_with("collector loadavg: ") && one.contains("/loadavg")),
            "{failures:?}"
        );
    }
}
