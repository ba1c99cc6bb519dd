//! What `/proc/cpuinfo` says of the processors.

use std::{fs::File, io::Read as _};

use super::look::Look;

/// As much as the first processor's lines take, several times over.
const FIRST: u64 = 16 << 10;

/// Whether they give random numbers themselves: `rdrand` among the `flags` of x86, `rng` among the `Features` of Arm. None where neither line is there.
pub(super) fn random(look: &Look<'_>) -> Option<bool> {
    let mut bytes = Vec::new();
    let file = File::open(look.roots.proc("cpuinfo")).ok()?;
    file.take(FIRST).read_to_end(&mut bytes).ok()?;
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
    fn flags_of_both_architectures() {
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
