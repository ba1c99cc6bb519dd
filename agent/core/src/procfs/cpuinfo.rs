//! `/proc/cpuinfo` of x86 and ARM (kernel: `arch/x86/kernel/cpu/proc.c`,
//! `arch/arm64/kernel/cpuinfo.c`).

use super::ParseError;

/// CPU. Missing fields are empty.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuInfo<'text> {
    pub processor: u32,
    /// Vendor, or ARM's implementer.
    pub vendor: &'text str,
    /// Family, or ARM's architecture.
    pub family: &'text str,
    /// Model, or ARM's part.
    pub model: &'text str,
    pub model_name: &'text str,
    pub microcode: &'text str,
    /// Stepping, or ARM's variant.
    pub stepping: &'text str,
    /// Cache size with unit.
    pub cache_size: &'text str,
    pub package: &'text str,
    pub core: &'text str,
    /// CPU features, separated by spaces.
    pub flags: &'text str,
    /// Hardware bugs for which the kernel has workarounds, separated by spaces.
    pub bugs: &'text str,
    /// Frequency in MHz.
    pub mhz: Option<f64>,
}

/// Fields with which the block of a CPU is recognised if the line with its number is malformed.
const FIELDS: [&str; 6] = [
    "vendor_id",
    "cpu family",
    "model name",
    "physical id",
    "flags",
    "CPU implementer",
];

/// Parses the CPUs in the order of the text. An empty line ends a CPU.
///
/// # Errors
///
/// An item is an error if a line of the CPU is malformed, or if its number is missing.
pub fn cpus(text: &str) -> Vec<Result<CpuInfo<'_>, ParseError>> {
    let mut cpus: Vec<Result<CpuInfo<'_>, ParseError>> = Vec::new();
    // Whether the line belongs to the last of them.
    let mut inside = false;
    // A field without a CPU, in a block of its own. s390 has some above its CPUs, which have no
    // line `processor`.
    let mut first = None;
    for (index, line) in text.lines().enumerate() {
        inside &= !line.trim().is_empty();
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        if key == "processor" {
            inside = true;
            let processor = value
                .parse()
                .map_err(|_| ParseError::at(index, "the number of a CPU", value));
            cpus.push(processor.map(|processor| CpuInfo {
                processor,
                ..CpuInfo::default()
            }));
            continue;
        }
        // 32-bit ARM describes the board below the last CPU; none of its fields has one of these
        // names.
        if !inside {
            if FIELDS.contains(&key) {
                inside = true;
                let error = ParseError::at(index, "the number of a CPU above", line);
                if cpus.is_empty() {
                    first.get_or_insert(error);
                } else {
                    cpus.push(Err(error));
                }
            }
            continue;
        }
        let Some(last) = cpus.last_mut() else {
            continue;
        };
        let Ok(cpu) = last else { continue };
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
                cpu.mhz = mhz;
                if mhz.is_none() {
                    *last = Err(ParseError::at(index, "a frequency in MHz", value));
                }
                continue;
            }
            _ => continue,
        };
        *slot = value;
    }
    if let Some(error) = first.filter(|_| !cpus.is_empty()) {
        cpus.insert(0, Err(error));
    }
    cpus
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n\
                          model name\t: AMD EPYC\nstepping\t: 1\nmicrocode\t: 0x1000065\ncpu MHz\t\t: 2596.148\n\
                          cache size\t: 1024 KB\nphysical id\t: 0\ncore id\t\t: 1\nflags\t\t: fpu vme\n\
                          bugs\t\t: spectre_v1 srso\npower management:\n\nprocessor\t: 3\nvendor_id\t: AuthenticAMD\n";

    fn whole(text: &str) -> Vec<CpuInfo<'_>> {
        cpus(text).into_iter().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn fields_of_x86_and_arm() {
        let all = whole(SAMPLE);
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].model, all[0].model_name), ("17", "AMD EPYC"));
        assert_eq!((all[0].core, all[0].mhz), ("1", Some(2596.148)));
        assert_eq!((all[0].bugs, all[0].cache_size), ("spectre_v1 srso", "1024 KB"));
        assert_eq!((all[1].processor, all[1].mhz), (3, None));
        let arm = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n";
        let arm = whole(arm);
        assert_eq!(
            (arm[0].vendor, arm[0].model, arm[0].flags),
            ("0x41", "0xd0c", "fp asimd")
        );
        assert!(cpus("").is_empty());
    }

    #[test]
    fn malformed_lines_are_reported() {
        for (text, line) in [
            ("processor : x", 1),
            ("processor : 1\ncpu MHz : nan\nmodel : 1", 2),
        ] {
            // The CPU behind it is found.
            let text = format!("{text}\nprocessor : 7\n");
            let [Err(error), Ok(cpu)] = &cpus(&text)[..] else {
                panic!("{text}")
            };
            assert_eq!((error.line, cpu.processor), (line, 7));
        }
        // No field goes to the CPU above, and the first CPU is missed, too.
        for (lost, line) in [("processor\t: 3", 17), ("processor\t: 0", 2)] {
            let text = format!("{SAMPLE}flags\t: lost\n\nprocessor\t: 5\nflags\t: x\n");
            let text = text.replace(lost, "processXr");
            let all = cpus(&text);
            let bad: Vec<_> = all.iter().filter_map(|cpu| cpu.as_ref().err()).collect();
            assert_eq!(bad.iter().map(|error| error.line).collect::<Vec<_>>(), [line]);
            let flags: Vec<_> = all
                .iter()
                .flatten()
                .map(|cpu| (cpu.processor, cpu.flags))
                .collect();
            let other = if line == 2 { (3, "lost") } else { (0, "fpu vme") };
            assert!(flags.contains(&other) && flags.contains(&(5, "x")), "{flags:?}");
            assert_eq!(flags.len(), 2);
        }
        // s390, and the board of 32-bit ARM.
        assert!(cpus("vendor_id : IBM/S390\n# processors : 1\nprocessor 0: version = FF\n").is_empty());
        assert_eq!(
            cpus("processor : 0\n\nHardware : x\nRevision : 0\nSerial : 0\n").len(),
            1
        );
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            drop(cpus(&text));
        }
    }
}
