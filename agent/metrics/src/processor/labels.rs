//! Cached label values of CPU numbers.

/// Maximum cached number; larger than the kernel's largest `NR_CPUS`.
const MAX_CPU: u32 = 65_535;

/// The label value of each CPU.
#[derive(Debug, Default)]
pub(super) struct CpuLabels {
    made: Vec<String>,
    other: String,
}

impl CpuLabels {
    pub(super) fn get(&mut self, cpu: u32) -> &str {
        if cpu > MAX_CPU {
            self.other = cpu.to_string();
            return &self.other;
        }
        let index = cpu as usize;
        while self.made.len() <= index {
            self.made.push(self.made.len().to_string());
        }
        &self.made[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_own_label() {
        let mut labels = CpuLabels::default();
        for cpu in [3, 0, 3, u32::MAX, 70_000] {
            assert_eq!(labels.get(cpu), cpu.to_string());
        }
        assert_eq!(labels.made.len(), 4);
    }
}
