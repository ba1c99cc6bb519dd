//! From when to when a certificate is valid: the first one of a PEM file (RFC 7468), of which no more is read than the way to its
//! `Validity` (RFC 5280, 4.1; X.690 for DER). Nothing is verified.

/// Seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// It is not valid before.
    pub not_before: i64,
    /// It is not valid after.
    pub not_after: i64,
}

/// Why there are no dates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// No certificate begins or ends in the file.
    #[error("it holds no certificate")]
    None,
    /// Between the two lines is no base64.
    #[error("its certificate is no base64")]
    Base64,
    /// What the base64 says is no certificate.
    #[error("its certificate is not as X.509 has it")]
    Der,
}

/// The dates of the first certificate in `pem`.
pub fn validity(pem: &str) -> Result<Validity, CertificateError> {
    let (_, rest) = pem
        .split_once("-----BEGIN CERTIFICATE-----")
        .ok_or(CertificateError::None)?;
    let (text, _) = rest
        .split_once("-----END CERTIFICATE-----")
        .ok_or(CertificateError::None)?;
    let der = base64(text).ok_or(CertificateError::Base64)?;
    dates(&der).ok_or(CertificateError::Der)
}

/// Base64 with blanks and line ends anywhere (RFC 4648, 4).
fn base64(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0_u32);
    for letter in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => break,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from((bits >> held) & 0xff).ok()?);
            bits &= (1 << held) - 1;
        }
    }
    Some(bytes)
}

const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

fn dates(der: &[u8]) -> Option<Validity> {
    let (certificate, _) = element(der, SEQUENCE)?;
    let (signed, _) = element(certificate, SEQUENCE)?;
    let rest = element(signed, VERSION).map_or(signed, |(_, rest)| rest);
    let (_, rest) = element(rest, INTEGER)?;
    let (_algorithm, rest) = element(rest, SEQUENCE)?;
    let (_issuer, rest) = element(rest, SEQUENCE)?;
    let (validity, _) = element(rest, SEQUENCE)?;
    let (not_before, rest) = time(validity)?;
    let (not_after, _) = time(rest)?;
    Some(Validity {
        not_before,
        not_after,
    })
}

/// What the element at the start holds, when it has this tag, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = digits
                .iter()
                .fold(0, |length, digit| length << 8 | usize::from(*digit));
            (length, rest)
        }
        _ => return None,
    };
    (*found == tag).then(|| rest.split_at_checked(length))?
}

/// A time, which ends in `Z` (RFC 5280, 4.1.2.5), and what follows it.
fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (text, rest, century) = if let Some((text, rest)) = element(bytes, UTC_TIME) {
        let century = if *text.first()? >= b'5' { "19" } else { "20" };
        (text, rest, century)
    } else {
        let (text, rest) = element(bytes, GENERALIZED_TIME)?;
        (text, rest, "")
    };
    let text = format!("{century}{}", str::from_utf8(text).ok()?);
    let digits = text.strip_suffix('Z')?;
    if digits.len() != 14 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let field = |from: usize, to: usize| digits.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (field(0, 4)?, field(4, 6)?, field(6, 8)?);
    let (hour, minute, second) = (field(8, 10)?, field(10, 12)?, field(12, 14)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some((seconds, rest))
}

/// Days since 1970 of a date of the Gregorian calendar; years begin in March, so that the leap day is the last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLE: &str = include_str!("certificate_sample.pem");

    #[test]
    fn dates_of_a_certificate_behind_other_blocks() {
        let expected = Validity {
            not_before: 1_795_317_066,
            not_after: 1_826_853_066,
        };
        assert_eq!(validity(SAMPLE), Ok(expected));
        let keyed = format!("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n{SAMPLE}");
        assert_eq!(validity(&keyed), Ok(expected));
    }

    #[test]
    fn what_holds_none_is_said() {
        let wrap = |text: &str| format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        for (text, error) in [
            (String::new(), CertificateError::None),
            ("-----BEGIN CERTIFICATE-----\nMIIB".into(), CertificateError::None),
            (wrap("M!"), CertificateError::Base64),
            (wrap(""), CertificateError::Der),
            (wrap("MIIBAAAA"), CertificateError::Der),
        ] {
            assert_eq!(validity(&text), Err(error), "{text}");
        }
    }

    #[test]
    fn base64_as_rfc_4648_has_it() {
        for (text, bytes) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
        ] {
            assert_eq!(base64(text).unwrap(), bytes.as_bytes());
        }
    }

    #[test]
    fn both_kinds_of_time() {
        for (tag, text, seconds) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (GENERALIZED_TIME, "20240229120000Z", Some(1_709_208_000)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, "2402291200Z", None),
            (UTC_TIME, "241329120000Z", None),
            (UTC_TIME, "240229120000+", None),
            (INTEGER, "240229120000Z", None),
        ] {
            let bytes = [&[tag, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
            assert_eq!(time(&bytes).map(|(seconds, _)| seconds), seconds, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(at in any::<prop::sample::Index>(), byte: u8, noise in proptest::collection::vec(any::<u8>(), 0..60)) {
            let (_, rest) = SAMPLE.split_once("CERTIFICATE-----").unwrap();
            let mut der = base64(rest.split_once("-----").unwrap().0).unwrap();
            let place = at.index(der.len());
            der[place] = byte;
            dates(&der);
            dates(&der[..place]);
            dates(&noise);
            validity(&String::from_utf8_lossy(&noise)).ok();
        }
        #[test]
        fn no_text_panics(text in "[-A-Za-z0-9+/=\n]{0,200}") {
            base64(&text);
            validity(&format!("-----BEGIN CERTIFICATE-----{text}-----END CERTIFICATE-----")).ok();
        }
    }
}
