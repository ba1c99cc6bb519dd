//! `/proc/cpuinfo` of x86 and ARM (kernel: `arch/x86/kernel/cpu/proc.c`,
//! `arch/arm64/kernel/cpuinfo.c`).

use super::ParseError;

/// CPU. Missing fields are empty.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuInfo<'text> {
    /// Number.
    pub processor: u32,
    /// Vendor, or ARM's implementer.
    pub vendor: &'text str,
    /// Family, or ARM's architecture.
    pub family: &'text str,
    /// Model, or ARM's part.
    pub model: &'text str,
    /// Name of the model.
    pub model_name: &'text str,
    /// Microcode revision.
    pub microcode: &'text str,
    /// Stepping, or ARM's variant.
    pub stepping: &'text str,
    /// Cache size with unit.
    pub cache_size: &'text str,
    /// Package.
    pub package: &'text str,
    /// Core.
    pub core: &'text str,
    /// CPU features, separated by spaces.
    pub flags: &'text str,
    /// Hardware bugs for which the kernel has workarounds, separated by spaces.
    pub bugs: &'text str,
    /// Frequency in MHz.
    pub mhz: Option<f64>,
}

/// Parses the CPUs in the order of the text.
///
/// # Errors
///
/// A line is malformed.
pub fn cpus(text: &str) -> Result<Vec<CpuInfo<'_>>, ParseError> {
    let mut cpus: Vec<CpuInfo<'_>> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        if key == "processor" {
            let processor = value
                .parse()
                .map_err(|_| ParseError::at(index, "the number of a CPU", value))?;
            cpus.push(CpuInfo {
                processor,
                ..CpuInfo::default()
            });
            continue;
        }
        // 32-bit ARM describes the board below the last CPU; none of its fields has one of these
        // names.
        let Some(cpu) = cpus.last_mut() else {
            continue;
        };
        let slot = match key {
            "vendor_id" | "vendor" | "CPU implementer" => &mut cpu.vendor,
            "cpu family" | "CPU architecture" => &mut cpu.family,
            "model" | "CPU part" => &mut cpu.model,
            "model name" => &mut cpu.model_name,
            "microcode" => &mut cpu.microcode,
            "stepping" | "CPU variant" => &mut cpu.stepping,
            "cache size" => &mut cpu.cache_size,
            "physical id" => &mut cpu.package,
            "core id" => &mut cpu.core,
            "flags" | "Features" => &mut cpu.flags,
            "bugs" => &mut cpu.bugs,
            "cpu MHz" => {
                let mhz = value.parse().ok().filter(|mhz: &f64| mhz.is_finite());
                cpu.mhz = Some(mhz.ok_or_else(|| ParseError::at(index, "a frequency in MHz", value))?);
                continue;
            }
            _ => continue,
        };
        *slot = value;
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n\
                          model name\t: AMD EPYC\nstepping\t: 1\nmicrocode\t: 0x1000065\ncpu MHz\t\t: 2596.148\n\
                          cache size\t: 1024 KB\nphysical id\t: 0\ncore id\t\t: 1\nflags\t\t: fpu vme\n\
                          bugs\t\t: spectre_v1 srso\npower management:\n\nprocessor\t: 3\nvendor_id\t: AuthenticAMD\n";

    #[test]
    fn fields_of_x86_and_arm() {
        let all = cpus(SAMPLE).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].model, all[0].model_name), ("17", "AMD EPYC"));
        assert_eq!((all[0].core, all[0].mhz), ("1", Some(2596.148)));
        assert_eq!((all[0].bugs, all[0].cache_size), ("spectre_v1 srso", "1024 KB"));
        assert_eq!((all[1].processor, all[1].mhz), (3, None));
        let arm = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n";
        let arm = cpus(arm).unwrap();
        assert_eq!(
            (arm[0].vendor, arm[0].model, arm[0].flags),
            ("0x41", "0xd0c", "fp asimd")
        );
        assert!(cpus("").unwrap().is_empty());
    }

    #[test]
    fn malformed_lines_are_reported() {
        assert_eq!(cpus("processor : x").unwrap_err().line, 1);
        assert_eq!(cpus("processor : 1\ncpu MHz : nan\n").unwrap_err().line, 2);
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            cpus(&text).ok();
        }
    }
}
