//! The part of `cpu` from `/proc/cpuinfo`, if the settings enable it.

use virtfleet_agent_core::procfs::cpuinfo::{CpuInfo, cpus};
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use super::labels::CpuLabels;
use crate::{CollectError, Context, RegistryError, Skipped};
use virtfleet_agent_core::settings::{NameFilter, filters};

/// Maximum size in bytes: 16384 CPUs with 4 KiB each.
const MAX_CPUINFO_BYTES: usize = 64 << 20;

pub(super) struct CpuInfos {
    file: Reread,
    flags: Option<NameFilter>,
    bugs: Option<NameFilter>,
    labels: CpuLabels,
}

impl CpuInfos {
    /// `None` if the settings enable nothing from `/proc/cpuinfo`.
    pub(super) fn new(context: &Context) -> Result<Option<Self>, RegistryError> {
        let (roots, settings) = (&context.roots, &context.settings.cpu);
        let [flags, bugs] = filters::cpu_info(settings)?;
        // Each of the patterns enables the rest, as in node_exporter.
        if !settings.info && flags.is_none() && bugs.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            file: Reread::with_limit(roots.proc("cpuinfo"), MAX_CPUINFO_BYTES),
            flags,
            bugs,
            labels: CpuLabels::default(),
        }))
    }

    pub(super) fn write(&mut self, page: &mut Page, skipped: &mut Skipped) -> Result<(), CollectError> {
        let path = self.file.path().to_owned();
        let text = self.file.text()?;
        let entries = cpus(&text);
        let first_is_malformed = matches!(entries.first(), Some(Err(_)));
        let mut cpus: Vec<_> = skipped.valid(&path, entries.into_iter()).collect();
        cpus.sort_by_key(|cpu| cpu.processor);
        cpus.dedup_by_key(|cpu| cpu.processor);
        let mut family = page.family(
            "node_cpu_info",
            "CPU information from /proc/cpuinfo, always 1.",
            MetricType::Gauge,
        );
        for cpu in &cpus {
            let labels = [
                ("package", cpu.package),
                ("core", cpu.core),
                ("cpu", self.labels.get(cpu.processor)),
                ("vendor", cpu.vendor),
                ("family", cpu.family),
                ("model", cpu.model),
                ("model_name", cpu.model_name),
                ("microcode", cpu.microcode),
                ("stepping", cpu.stepping),
                ("cachesize", cpu.cache_size),
            ];
            family.sample(&labels, 1.0);
        }
        write_frequencies(page, &cpus, &mut self.labels);
        // The flags of another CPU may differ.
        let first = cpus.first().copied().filter(|_| !first_is_malformed);
        let first = first.unwrap_or_default();
        for (filter, name, help, label, words) in [
            (
                &mut self.flags,
                "node_cpu_flag_info",
                "Flags of the first CPU from /proc/cpuinfo, always 1.",
                "flag",
                first.flags,
            ),
            (
                &mut self.bugs,
                "node_cpu_bug_info",
                "Bugs of the first CPU from /proc/cpuinfo, always 1.",
                "bug",
                first.bugs,
            ),
        ] {
            let Some(filter) = filter else { continue };
            let mut words: Vec<_> = words
                .split_ascii_whitespace()
                .filter(|word| filter.takes(word))
                .collect();
            words.sort_unstable();
            words.dedup();
            let mut family = page.family(name, help, MetricType::Gauge);
            for word in words {
                family.sample(&[(label, word)], 1.0);
            }
        }
        Ok(())
    }
}

fn write_frequencies(page: &mut Page, cpus: &[CpuInfo<'_>], labels: &mut CpuLabels) {
    let mut family = page.family(
        "node_cpu_frequency_hertz",
        "CPU frequency in hertz from /proc/cpuinfo.",
        MetricType::Gauge,
    );
    for cpu in cpus {
        let labels = [
            ("package", cpu.package),
            ("core", cpu.core),
            ("cpu", labels.get(cpu.processor)),
        ];
        family.sample(&labels, cpu.mhz.unwrap_or_default() * 1e6);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use virtfleet_agent_host::Roots;
    use virtfleet_wire::settings::MetricsSettings;

    use super::*;

    #[test]
    fn flags_are_those_of_the_first_cpu_or_none() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            procfs: dir.path().into(),
            sysfs: dir.path().into(),
            ..Roots::default()
        };
        let mut settings = MetricsSettings::default();
        settings.cpu.flags_include = Some(".*".to_owned());
        let mut infos = CpuInfos::new(&Context::new(roots, settings)).unwrap().unwrap();
        for (first, exported) in [("0", true), ("x", false)] {
            let text = format!("processor : {first}\nflags : fpu\n\nprocessor : 1\nflags : fpu vme\n");
            fs::write(dir.path().join("cpuinfo"), text).unwrap();
            let mut page = Page::new();
            infos.write(&mut page, &mut Skipped::default()).unwrap();
            let text = page.to_text();
            assert_eq!(text.contains("{flag=\"fpu\"} 1"), exported, "{text}");
            assert!(!text.contains("vme") && text.contains("cpu=\"1\""), "{text}");
        }
    }
}
