//! CPU features from `/proc/cpuinfo`.

use std::{fs::File, io::Read as _};

use super::file_reader::FileReader;

/// Bytes to read: several times the lines of the first CPU.
const READ_BYTES: u64 = 16 << 10;

/// Whether the CPUs have a random number instruction: `rdrand` in the `flags` of x86, `rng` in the
/// `Features` of Arm. `None` if neither line exists.
pub(super) fn random(reader: &FileReader<'_>) -> Option<bool> {
    let mut bytes = Vec::new();
    let file = File::open(reader.roots.proc("cpuinfo")).ok()?;
    file.take(READ_BYTES).read_to_end(&mut bytes).ok()?;
    of_text(&String::from_utf8_lossy(&bytes))
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
