//! CPU features under their names in libvirt and in the Linux kernel.

/// Features that the kernel always shows in `/proc/cpuinfo` if the CPU has them: the name in
/// libvirt (`src/cpu_map/x86_features.xml`), and the kernel's flag
/// (`arch/x86/include/asm/cpufeatures.h`).
const NAMES: [(&str, &str); 58] = [
    ("vmx", "vmx"),
    ("svm", "svm"),
    ("aes", "aes"),
    ("avx", "avx"),
    ("avx2", "avx2"),
    ("avx512f", "avx512f"),
    ("avx512bw", "avx512bw"),
    ("avx512cd", "avx512cd"),
    ("avx512dq", "avx512dq"),
    ("avx512vl", "avx512vl"),
    ("avx512vbmi", "avx512vbmi"),
    ("avx512vnni", "avx512_vnni"),
    ("avx512-bf16", "avx512_bf16"),
    ("avx512-fp16", "avx512_fp16"),
    ("amx-tile", "amx_tile"),
    ("amx-int8", "amx_int8"),
    ("amx-bf16", "amx_bf16"),
    ("pcid", "pcid"),
    ("invpcid", "invpcid"),
    ("pdpe1gb", "pdpe1gb"),
    ("x2apic", "x2apic"),
    ("la57", "la57"),
    ("tsc-deadline", "tsc_deadline_timer"),
    ("tsc_adjust", "tsc_adjust"),
    ("invtsc", "nonstop_tsc"),
    ("rdtscp", "rdtscp"),
    ("pclmuldq", "pclmulqdq"),
    ("ssse3", "ssse3"),
    ("sse4.1", "sse4_1"),
    ("sse4.2", "sse4_2"),
    ("sse4a", "sse4a"),
    ("popcnt", "popcnt"),
    ("rdrand", "rdrand"),
    ("rdseed", "rdseed"),
    ("smap", "smap"),
    ("smep", "smep"),
    ("umip", "umip"),
    ("pku", "pku"),
    ("bmi1", "bmi1"),
    ("bmi2", "bmi2"),
    ("adx", "adx"),
    ("erms", "erms"),
    ("fsrm", "fsrm"),
    ("fsgsbase", "fsgsbase"),
    ("f16c", "f16c"),
    ("fma", "fma"),
    ("movbe", "movbe"),
    ("abm", "abm"),
    ("sha-ni", "sha_ni"),
    ("gfni", "gfni"),
    ("vaes", "vaes"),
    ("vpclmulqdq", "vpclmulqdq"),
    ("clwb", "clwb"),
    ("clflushopt", "clflushopt"),
    ("serialize", "serialize"),
    ("md-clear", "md_clear"),
    ("arch-capabilities", "arch_capabilities"),
    ("ssbd", "ssbd"),
];

/// The known features of a guest's CPU, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuFlags(u64);

impl CpuFlags {
    /// The features of `flags` in `/proc/cpuinfo`.
    pub(crate) fn of_kernel(text: &str) -> Self {
        let found = text.split_whitespace().filter_map(|word| {
            let index = NAMES.iter().position(|(_, kernel)| *kernel == word)?;
            Some(1_u64 << index)
        });
        Self(found.fold(0, |all, one| all | one))
    }

    /// Whether the CPU has a feature, by its name in libvirt; none for an unknown feature.
    pub(crate) fn has(self, name: &str) -> Option<bool> {
        let index = NAMES.iter().position(|(libvirt, _)| *libvirt == name)?;
        Some(self.0 & (1 << index) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_one_bit_each() {
        assert!(NAMES.len() <= 64, "the bits of a word");
        let flags = CpuFlags::of_kernel("fpu sse4_2 nonstop_tsc ssbd vmx");
        for (name, expected) in [
            ("sse4.2", Some(true)),
            ("invtsc", Some(true)),
            ("vmx", Some(true)),
            ("ssbd", Some(true)),
            ("svm", Some(false)),
            ("hle-not-listed", None),
        ] {
            assert_eq!(flags.has(name), expected, "{name}");
        }
    }
}
