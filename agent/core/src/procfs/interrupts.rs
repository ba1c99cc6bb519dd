//! `/proc/interrupts` and `/proc/softirqs`: counts by CPU (kernel: `fs/proc/interrupts.c`,
//! `kernel/irq/proc.c`, `arch/*/kernel/irq.c`, `fs/proc/softirqs.c`).
//!
//! The heading names the CPUs of the columns. Offline CPUs have no column, so its position is not
//! the CPU.

use super::{ParseError, counter, words};

/// Rows with one count, of all CPUs; arm64 has `Err`.
const TOTALS: [&str; 3] = ["ERR", "MIS", "Err"];

/// Maximum number of CPUs in a heading; the kernel's largest `NR_CPUS` is below it.
const MAX_CPUS: usize = 16_384;

/// Text with a parsed heading.
#[derive(Debug, Clone)]
pub struct Table<'text> {
    /// CPUs of the columns, in order.
    pub cpus: Vec<u32>,
    rows: &'text str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupt<'text> {
    /// Number, or short name such as `LOC`.
    pub name: &'text str,
    /// Text after the counts: chip, hardware number and handlers, or the meaning of the short name.
    pub about: &'text str,
}

/// Parses the heading. It must name each CPU once and in order; otherwise counts would be assigned
/// to wrong CPUs.
///
/// # Errors
///
/// The heading is malformed.
pub fn table(text: &str) -> Result<Table<'_>, ParseError> {
    let (heading, rows) = text.split_once('\n').unwrap_or((text, ""));
    let cpu = |word: &str| {
        let number = word.strip_prefix("CPU").and_then(|digits| digits.parse().ok());
        number.ok_or_else(|| ParseError::at(0, "a heading of CPUs such as CPU0", word))
    };
    let cpus = words(heading)
        .take(MAX_CPUS)
        .map(cpu)
        .collect::<Result<Vec<u32>, _>>()?;
    if cpus.is_empty() {
        return Err(ParseError::at(0, "a heading of CPUs such as CPU0", heading));
    }
    if !cpus.is_sorted_by(|one, next| one < next) {
        return Err(ParseError::at(0, "a heading of CPUs in order", heading));
    }
    Ok(Table { cpus, rows })
}

impl<'text> Table<'text> {
    /// Calls `each` with every interrupt and its counts for [`Table::cpus`], and `bad` with
    /// malformed lines, among them those with fewer or more counts than CPUs. Totals, such as
    /// `ERR`, are skipped. `counts` is a buffer that the caller can reuse.
    pub fn rows(
        &self,
        counts: &mut Vec<u64>,
        mut bad: impl FnMut(ParseError),
        mut each: impl FnMut(Interrupt<'text>, &[u64]),
    ) {
        for (index, line) in self.rows.lines().enumerate() {
            let Some((name, rest)) = line.split_once(':') else {
                if !line.trim().is_empty() {
                    bad(ParseError::at(index + 1, "NAME: and counts", line));
                }
                continue;
            };
            let name = name.trim();
            match self.counts(index + 1, rest, counts) {
                Err(_) if TOTALS.contains(&name) => {}
                Ok(about) => {
                    let interrupt = Interrupt { name, about };
                    if interrupt.is_numbered() && about.is_empty() {
                        // The kernel prints `None` for one without a chip.
                        bad(ParseError::at(index + 1, "the chip of an interrupt", name));
                    } else if word(about).0.parse::<u64>().is_ok() {
                        bad(ParseError::at(index + 1, "no more counts than CPUs", name));
                    } else {
                        each(interrupt, counts);
                    }
                }
                Err(error) => bad(error),
            }
        }
    }

    /// Parses the counts of a line, and returns the rest of it.
    fn counts(
        &self,
        index: usize,
        mut rest: &'text str,
        counts: &mut Vec<u64>,
    ) -> Result<&'text str, ParseError> {
        counts.clear();
        for _ in &self.cpus {
            let (word, behind) = word(rest);
            counts.push(counter(Some(word), index, "a count for each CPU")?);
            rest = behind;
        }
        Ok(rest.trim())
    }
}

impl<'text> Interrupt<'text> {
    /// Whether it is the interrupt of a device, which has a number, not one of the architecture.
    pub fn is_numbered(&self) -> bool {
        !self.name.is_empty() && self.name.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// Returns the chip of a numbered interrupt and the rest.
    pub fn chip(&self) -> (&'text str, &'text str) {
        let (chip, rest) = word(self.about);
        (chip, rest.trim_start())
    }

    /// Returns the handlers of a numbered interrupt as listed by the kernel: `virtio0-input.0`, or
    /// several with commas. Empty if it has no handler.
    pub fn handlers(&self) -> &'text str {
        let mut rest = self.chip().1;
        loop {
            let (word, behind) = word(rest);
            // `5-edge` on x86; `27 Level` elsewhere.
            let digits = word.trim_start_matches(|c: char| c.is_ascii_digit());
            let number = digits.len() < word.len() && (digits.is_empty() || digits.starts_with('-'));
            let trigger = ["level", "edge"]
                .iter()
                .any(|kind| word.eq_ignore_ascii_case(kind));
            if !number && !trigger {
                return rest.trim();
            }
            rest = behind;
        }
    }
}

/// Splits off the first word.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_at(text.find(|c: char| c.is_ascii_whitespace()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str = "           CPU0       CPU2\n  0:         34          0  IO-APIC   2-edge      timer\n\
                          \x2010:          1          2  IO-APIC  10-fasteoi   virtio1, uhci_hcd\n\
                          \x2028:        114          0 PCI-MSIX-0000:00:01.0   0-edge      virtio0-config\n\
                          \x2030:          5          6  GICv3  27 Level     arch_timer\n\
                          LOC:       9000       8000   Local timer interrupts\nERR:          0\nMIS:          0\n";

    fn all(text: &str) -> Result<Vec<(Interrupt<'_>, Vec<u64>)>, ParseError> {
        let (mut all, mut bad) = (Vec::new(), None);
        let each = |interrupt, counts: &[u64]| all.push((interrupt, counts.to_vec()));
        table(text)?.rows(&mut Vec::new(), |error| bad = Some(error), each);
        bad.map_or(Ok(all), Err)
    }

    #[test]
    fn columns_are_assigned_to_cpus() {
        assert_eq!(table(SAMPLE).unwrap().cpus, [0, 2]);
        let all = all(SAMPLE).unwrap();
        assert_eq!(
            all.iter().map(|(i, _)| i.name).collect::<Vec<_>>(),
            ["0", "10", "28", "30", "LOC"]
        );
        assert_eq!(all[1].1, [1, 2]);
        assert_eq!(
            all[2].0.chip(),
            ("PCI-MSIX-0000:00:01.0", "0-edge      virtio0-config")
        );
        assert_eq!(
            all.iter().map(|(i, _)| i.handlers()).take(4).collect::<Vec<_>>(),
            ["timer", "virtio1, uhci_hcd", "virtio0-config", "arch_timer"]
        );
        assert!(!all[4].0.is_numbered());
        assert_eq!(all[4].0.about, "Local timer interrupts");
    }

    #[test]
    fn single_cpu_and_columns_without_spaces() {
        let text = "CPU7\nIPI0:12 Rescheduling interrupts\n  5:1 None\nERR:\n";
        let all = all(text).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].0.name, all[0].1.as_slice()), ("IPI0", [12].as_slice()));
        assert_eq!((all[1].0.about, all[1].0.handlers()), ("None", ""));
    }

    #[test]
    fn malformed_texts_are_errors() {
        for (text, line) in [
            ("", 1),
            ("  0: 1", 1),
            ("CPU0 CPUx\n", 1),
            ("CPU1 CPU0\n1: 5 6\n", 1),
            ("CPU0 CPU0\n1: 5 6\n", 1),
            ("CPU0\n1: 5 None\n2: x y\n", 3),
            ("CPU0\n1: 5 None\n2: 5\n", 3),
            ("CPU0 CPU1\n1: 5 6 None\n2: 5\n", 3),
            ("CPU0 CPU1\n1: 5 6 None\n2\n", 3),
            ("CPU0\n1: 5 6 None\n", 2),
        ] {
            assert_eq!(all(text).unwrap_err().line, line, "{text:?}");
        }
        // Totals have one count on any number of CPUs.
        assert!(all("CPU0 CPU1\nERR: 5\nMIS: 6\nErr: 7\n").unwrap().is_empty());
        // The lines behind it are found.
        let broken = SAMPLE.replace("          1          2", "          x          2");
        let mut names = Vec::new();
        let table = table(&broken).unwrap();
        table.rows(&mut Vec::new(), |_| {}, |interrupt, _| names.push(interrupt.name));
        assert_eq!(names, ["0", "28", "30", "LOC"]);
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            if let Ok(rows) = all(&text) {
                for (interrupt, _) in rows {
                    interrupt.handlers();
                }
            }
        }
    }
}
