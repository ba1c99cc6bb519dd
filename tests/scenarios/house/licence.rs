//! SPDX licence expressions: whether one can be met with what the house allows.

use super::rules::{LICENCE_EXCEPTIONS, LICENCES};

/// Whether `expression` can be met with allowed licences. `/` is the `OR` of old manifests. An
/// expression that cannot be read is an error that names the word.
///
/// Grammar (SPDX 2.3, annex D): `or = and {"OR" and}`, `and = term {"AND" term}`, `term = "(" or
/// ")" | id ["WITH" id]`.
pub(crate) fn allowed(expression: &str) -> Result<bool, String> {
    let text = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words: Vec<&str> = text.split_whitespace().rev().collect();
    let verdict = any(&mut words)?;
    match words.pop() {
        None => Ok(verdict),
        Some(word) => Err(format!("{expression:?}: unexpected {word:?}")),
    }
}

fn any(words: &mut Vec<&str>) -> Result<bool, String> {
    let mut verdict = all(words)?;
    while take(words, "OR") {
        verdict |= all(words)?;
    }
    Ok(verdict)
}

fn all(words: &mut Vec<&str>) -> Result<bool, String> {
    let mut verdict = term(words)?;
    while take(words, "AND") {
        verdict &= term(words)?;
    }
    Ok(verdict)
}

fn term(words: &mut Vec<&str>) -> Result<bool, String> {
    match words.pop() {
        Some("(") => {
            let verdict = any(words)?;
            if take(words, ")") {
                Ok(verdict)
            } else {
                Err("a parenthesis is not closed".to_owned())
            }
        }
        None | Some(")" | "OR" | "AND" | "WITH") => Err("a licence is missing".to_owned()),
        Some(licence) => {
            let verdict = LICENCES.contains(&licence);
            if !take(words, "WITH") {
                return Ok(verdict);
            }
            let exception = words.pop().ok_or("an exception is missing")?;
            Ok(verdict && LICENCE_EXCEPTIONS.contains(&exception))
        }
    }
}

fn take(words: &mut Vec<&str>, word: &str) -> bool {
    let next = words.last() == Some(&word);
    if next {
        words.pop();
    }
    next
}

#[test]
fn expressions_are_evaluated() {
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("GPL-3.0-only OR MIT", true),
        ("Apache-2.0 AND GPL-3.0-only", false),
        ("(MIT OR GPL-2.0-only) AND Unicode-3.0", true),
        ("MIT OR GPL-2.0-only AND GPL-3.0-only", true),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0 WITH Some-exception", false),
        ("Unlicense/MIT", true),
    ] {
        assert_eq!(allowed(expression), Ok(expected), "{expression}");
    }
    for bad in ["", "MIT OR", "(MIT", "MIT MIT", "MIT WITH", ")"] {
        allowed(bad).unwrap_err();
    }
}
