//! Serial numbers of certificates.

use std::{fmt, str::FromStr};

use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::pki_types::CertificateDer;

use super::CaError;

/// Maximum size in bytes (RFC 5280, 4.1.2.2).
const MAX_SERIAL_BYTES: usize = 20;
/// Size of the numbers that this authority chooses, in bytes.
const RANDOM_SERIAL_BYTES: usize = 16;

/// Serial number of a certificate, without leading zeros. Prints as lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial(Vec<u8>);

/// Text that is not a serial number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a serial number: use 1 to 40 hexadecimal digits, optionally separated by ':'")]
pub struct InvalidSerial(String);

impl Serial {
    /// A random number. Its first two bits are `01`, so that it is positive and always 32 digits
    /// long.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> Result<Self, CaError> {
        let mut bytes = [0; RANDOM_SERIAL_BYTES];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| CaError::Random)?;
        bytes[0] = (bytes[0] & 0x3f) | 0x40;
        Ok(Self(bytes.to_vec()))
    }

    /// The serial number of a certificate; none if it cannot be parsed.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        Self::from_bytes(parsed.raw_serial())
    }

    /// From bytes, most significant first.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let first = bytes.iter().position(|byte| *byte != 0)?;
        let digits = &bytes[first..];
        (digits.len() <= MAX_SERIAL_BYTES).then(|| Self(digits.to_vec()))
    }

    /// The bytes, most significant first.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Serial {
    type Err = InvalidSerial;
    fn from_str(text: &str) -> Result<Self, InvalidSerial> {
        let invalid = || InvalidSerial(text.chars().take(80).collect());
        // `openssl x509 -text` separates bytes by colons.
        let digits: String = text.chars().filter(|c| *c != ':').collect();
        if digits.is_empty() || digits.len() > 2 * (MAX_SERIAL_BYTES + 1) {
            return Err(invalid());
        }
        let padded = format!("{}{digits}", if digits.len() % 2 == 1 { "0" } else { "" });
        let byte = |pair: &[u8]| {
            let pair = std::str::from_utf8(pair)
                .ok()
                .filter(|pair| pair.bytes().all(|b| b.is_ascii_hexdigit()))?;
            u8::from_str_radix(pair, 16).ok()
        };
        let bytes: Option<Vec<u8>> = padded.as_bytes().chunks(2).map(byte).collect();
        bytes
            .and_then(|bytes| Self::from_bytes(&bytes))
            .ok_or_else(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_other_tools_are_read() {
        let serial: Serial = "0a1b2c".parse().unwrap();
        for same in ["A1B2C", "0A:1B:2C", "000a1b2c"] {
            assert_eq!(same.parse::<Serial>().unwrap(), serial);
        }
        assert_eq!(serial.to_string(), "0a1b2c");
        for wrong in ["", "0", "00:00", "xy", "+1", "1 2", &"1".repeat(41), "é1"] {
            wrong.parse::<Serial>().unwrap_err();
        }
    }

    #[test]
    fn random_serials_are_positive_and_of_one_length() {
        let (one, other) = (Serial::random().unwrap(), Serial::random().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.to_string().len(), 32);
        assert!(one.as_bytes()[0] & 0x80 == 0);
        assert_eq!(one.to_string().parse::<Serial>().unwrap(), one);
    }
}
