//! CPU features from `/proc/cpuinfo`.

use super::file_reader::FileReader;
use crate::proc::processor::first_processor;

/// Whether the CPUs have a random number instruction: `rdrand` in the `flags` of x86, `rng` in the
/// `Features` of Arm. `None` if neither line exists.
pub(super) fn random(reader: &FileReader<'_>) -> Option<bool> {
    of_text(&first_processor(reader.roots)?)
}

fn of_text(text: &str) -> Option<bool> {
    text.lines().find_map(|line| {
        let (name, words) = line.split_once(':')?;
        let wanted = match name.trim() {
            "flags" => "rdrand",
            "Features" => "rng",
            _ => return None,
        };
        Some(words.split_whitespace().any(|word| word == wanted))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_both_architectures_are_parsed() {
        assert_eq!(
            of_text("processor\t: 0\nflags\t\t: fpu rdrand rdseed\n"),
            Some(true)
        );
        assert_eq!(of_text("flags\t\t: fpu rdrand_not\n"), Some(false));
        assert_eq!(of_text("Features\t: fp asimd rng\n"), Some(true));
        assert_eq!(of_text("Features\t: fp asimd\n"), Some(false));
        assert_eq!(of_text("model name\t: rdrand\n"), None);
    }
}
