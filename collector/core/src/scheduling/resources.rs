//! CPU and memory, and Kubernetes' quantities.

use std::{
    fmt,
    ops::{AddAssign, Sub},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// CPU and memory.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceAmounts {
    /// CPU in thousandths of a core.
    pub cpu_milli: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
}

impl ResourceAmounts {
    /// Whether `other` fits into it.
    pub fn holds(self, other: Self) -> bool {
        other.cpu_milli <= self.cpu_milli && other.memory_bytes <= self.memory_bytes
    }

    /// Whether both amounts are 0.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl AddAssign for ResourceAmounts {
    fn add_assign(&mut self, other: Self) {
        self.cpu_milli = self.cpu_milli.saturating_add(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
    }
}

impl Sub for ResourceAmounts {
    type Output = Self;
    /// Not below 0.
    fn sub(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_sub(other.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
        }
    }
}

/// A text that is no quantity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidQuantity;

impl fmt::Display for InvalidQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a quantity such as 500m, 2 or 4Gi")
    }
}

impl std::error::Error for InvalidQuantity {}

/// Suffixes with their factors in thousandths.
const SUFFIXES: [(&str, f64); 14] = [
    ("Ki", 1_024e3),
    ("Mi", 1_048_576e3),
    ("Gi", 1_073_741_824e3),
    ("Ti", 1_099_511_627_776e3),
    ("Pi", 1_125_899_906_842_624e3),
    ("Ei", 1.152_921_504_606_847e21),
    ("n", 1e-6),
    ("u", 1e-3),
    ("m", 1.0),
    ("k", 1e6),
    ("M", 1e9),
    ("G", 1e12),
    ("T", 1e15),
    ("P", 1e18),
];

/// A quantity of Kubernetes in thousandths, rounded up, e.g. `500m`, `2`, `0.5`, `4Gi`, `1e3`.
/// Large values are exact to 53 bits.
///
/// # Errors
/// The text is no quantity, or is negative.
pub fn parse_quantity(text: &str) -> Result<u64, InvalidQuantity> {
    let suffix = SUFFIXES.iter().find(|(suffix, _)| text.ends_with(suffix));
    let (number, factor) = match suffix {
        Some((suffix, factor)) => (&text[..text.len() - suffix.len()], *factor),
        None => (text, 1e3),
    };
    let is_digit = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | 'e' | 'E' | '-');
    if !number.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '+')
        || !number.chars().all(is_digit)
    {
        return Err(InvalidQuantity);
    }
    let number: f64 = number.parse().map_err(|_| InvalidQuantity)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the number is not negative, and the cast saturates"
    )]
    let milli = (number * factor).ceil() as u64;
    Ok(milli)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        for (text, milli) in [
            ("2", 2000),
            ("500m", 500),
            ("0.5", 500),
            (".5", 500),
            ("+1", 1000),
            ("100u", 1),
            ("1e3", 1_000_000),
            ("4Gi", 4 * 1_073_741_824_000),
            ("1536Mi", 1536 * 1_048_576_000),
            ("16393524Ki", 16_393_524 * 1_024_000),
            ("1500M", 1_500_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(parse_quantity(text), Ok(milli), "{text}");
        }
        for text in ["", "-1", "Gi", "1 Gi", "four", "1Gib", "inf", "nan", "--1", "1e"] {
            assert_eq!(parse_quantity(text), Err(InvalidQuantity), "{text}");
        }
        assert_eq!(parse_quantity("1e300"), Ok(u64::MAX), "bounded");
    }

    #[test]
    fn both_amounts_must_fit() {
        let amounts = |cpu_milli, memory_bytes| ResourceAmounts {
            cpu_milli,
            memory_bytes,
        };
        assert!(amounts(2, 2).holds(amounts(2, 2)));
        assert!(!amounts(2, 2).holds(amounts(3, 1)) && !amounts(2, 2).holds(amounts(1, 3)));
        assert_eq!(amounts(2, 2) - amounts(3, 1), amounts(0, 1));
    }
}
