//! KubeVirt's downwardMetrics: the name of the host, as virt-handler writes it.
//!
//! On a disk it has vhostmd's format: a 16-byte header of four big-endian words (signature `mvbd`,
//! busy flag, sum of the body's bytes, length of the body), then XML, in a file of 256 KiB. Over
//! virtio-serial it is only the XML.

pub const DISK_BYTES: usize = 256 * 1024;
const HEADER: usize = 16;

/// Reason why a disk has no metrics.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoMetrics {
    #[error("not a downwardMetrics disk")]
    Foreign,
    /// The host is writing; retry later.
    #[error("the host is writing it")]
    Busy,
    /// Header and body do not match, or the body is not text.
    #[error("the body does not match its header")]
    Damaged,
}

/// Whether a disk begins like a downwardMetrics disk, which no other tool recognises.
pub fn is_disk(first: &[u8]) -> bool {
    first.starts_with(b"mvbd")
}

/// Returns the XML on a disk after checking it against the header.
///
/// # Errors
///
/// The disk has no signature, the host is writing, or header and body do not match.
pub fn body(disk: &[u8]) -> Result<&str, NoMetrics> {
    let word = |index: usize| -> Option<u32> {
        let bytes = disk.get(index * 4..index * 4 + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    };
    if !is_disk(disk) {
        return Err(NoMetrics::Foreign);
    }
    let (Some(flag), Some(sum), Some(length)) = (word(1), word(2), word(3)) else {
        return Err(NoMetrics::Damaged);
    };
    if flag != 0 {
        return Err(NoMetrics::Busy);
    }
    let end = usize::try_from(length)
        .ok()
        .and_then(|length| HEADER.checked_add(length));
    let body = end
        .and_then(|end| disk.get(HEADER..end))
        .ok_or(NoMetrics::Damaged)?;
    let counted = body
        .iter()
        .fold(0u32, |sum, byte| sum.wrapping_add((*byte).into()));
    if counted != sum {
        return Err(NoMetrics::Damaged);
    }
    std::str::from_utf8(body).map_err(|_| NoMetrics::Damaged)
}

/// Returns the value of `HostName` in the XML: `<metric
/// …><name>HostName</name><value>…</value></metric>`.
///
/// It searches only for these elements and is no XML parser; only virt-handler writes this
/// document.
pub fn host_name(xml: &str) -> Option<String> {
    xml.split("<metric ").skip(1).find_map(|metric| {
        let metric = metric.split("</metric>").next()?;
        if element(metric, "name")? != "HostName" {
            return None;
        }
        let value = element(metric, "value")?;
        let plain = !value.is_empty()
            && value.len() <= 253
            && value
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        plain.then(|| value.to_owned())
    })
}

fn element<'x>(xml: &'x str, name: &str) -> Option<&'x str> {
    let (_, after) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = after.split_once(&format!("</{name}>"))?;
    Some(text.trim())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const XML: &str = "<metrics>\n  <metric type=\"string\" context=\"host\">\n    <name>HostName</name>\n    \
        <value>infra-7</value>\n  </metric>\n  <metric type=\"real64\" context=\"host\" unit=\"s\">\n    \
        <name>Time</name>\n    <value>1.5</value>\n  </metric>\n</metrics>\n";

    fn disk(flag: u32, xml: &str) -> Vec<u8> {
        let sum = xml.bytes().fold(0u32, |sum, byte| sum + u32::from(byte));
        let length = u32::try_from(xml.len()).unwrap();
        let mut disk = b"mvbd".to_vec();
        for word in [flag, sum, length] {
            disk.extend(word.to_be_bytes());
        }
        disk.extend(xml.bytes());
        disk.resize(DISK_BYTES, 0);
        disk
    }

    #[test]
    fn host_name_is_parsed() {
        assert_eq!(
            host_name(body(&disk(0, XML)).unwrap()).as_deref(),
            Some("infra-7")
        );
        for xml in [
            "",
            "<metric ",
            "<metric ><name>HostName</name></metric>",
            &XML.replace("infra-7", "a<b"),
        ] {
            assert_eq!(host_name(xml), None, "{xml}");
        }
        let other = XML.replace("HostName", "Vendor");
        assert_eq!(host_name(&other), None);
    }

    #[test]
    fn busy_foreign_or_damaged_disks_are_errors() {
        assert_eq!(body(&disk(1, XML)), Err(NoMetrics::Busy));
        assert_eq!(body(&[0; 512]), Err(NoMetrics::Foreign));
        assert_eq!(body(b"mvbd"), Err(NoMetrics::Damaged));
        let mut flipped = disk(0, XML);
        flipped[20] ^= 1;
        assert_eq!(body(&flipped), Err(NoMetrics::Damaged));
        let mut long = disk(0, XML);
        long[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(body(&long), Err(NoMetrics::Damaged));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(tail in prop::collection::vec(any::<u8>(), 0..64), xml in "(<metric |<name>|</name>|HostName|<value>|</value>|x){0,20}") {
            let mut disk = b"mvbd".to_vec();
            disk.extend(tail);
            drop(body(&disk));
            host_name(&xml);
        }
    }
}
