//! Upper and lower case as in Go: Unicode's simple mappings, one character for one character.

pub(super) fn lower(text: &str) -> String {
    let convert = |c: char| match c {
        // Its simple mapping; the full one has two characters.
        '\u{130}' => 'i',
        _ => single(c.to_lowercase()).unwrap_or(c),
    };
    text.chars().map(convert).collect()
}

pub(super) fn upper(text: &str) -> String {
    text.chars()
        .map(|c| single(c.to_uppercase()).unwrap_or_else(|| simple_upper(c)))
        .collect()
}

fn single(mut mapped: impl Iterator<Item = char>) -> Option<char> {
    let first = mapped.next();
    first.filter(|_| mapped.next().is_none())
}

/// Simple mapping of a character whose full one has several characters: Greek letters with a
/// subscript iota have one, all others map to themselves (UnicodeData.txt, field 12).
fn simple_upper(c: char) -> char {
    let offset = match c {
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => 8,
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => 9,
        _ => 0,
    };
    char::from_u32(u32::from(c) + offset).unwrap_or(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_character_stays_one_character() {
        assert_eq!(lower("aBÉΣİ"), "abéσi");
        assert_eq!(upper("aBéßᾀᾳǰ"), "ABÉßᾈᾼǰ");
    }
}
