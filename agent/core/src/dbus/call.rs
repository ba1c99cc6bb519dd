//! D-Bus method calls with string arguments.

use super::Writer;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call<'a> {
    /// Bus name, e.g. `org.freedesktop.systemd1`.
    pub destination: &'a str,
    pub path: &'a str,
    pub interface: &'a str,
    pub member: &'a str,
    pub texts: &'a [&'a str],
    /// Last argument, an array of strings, if the method has one.
    pub list: Option<&'a [&'a str]>,
}

impl<'a> Call<'a> {
    /// Returns a call without arguments.
    pub fn new(destination: &'a str, path: &'a str, interface: &'a str, member: &'a str) -> Self {
        Self {
            destination,
            path,
            interface,
            member,
            texts: &[],
            list: None,
        }
    }
    /// Returns a call that reads a property; `names` are interface and property.
    pub fn property(destination: &'a str, path: &'a str, names: &'a [&'a str; 2]) -> Self {
        Self {
            texts: names,
            ..Self::new(destination, path, "org.freedesktop.DBus.Properties", "Get")
        }
    }

    /// Serialises the message; it does not start the service.
    pub fn to_bytes(&self, serial: u32) -> Vec<u8> {
        const METHOD_CALL: u8 = 1;
        const NO_AUTO_START: u8 = 2;
        let mut body = Writer::default();
        for text in self.texts {
            body.string(text);
        }
        let mut signature = "s".repeat(self.texts.len());
        if let Some(list) = self.list {
            signature.push_str("as");
            body.array(4, |body| {
                for text in list {
                    body.string(text);
                }
            });
        }
        let body = body.into_bytes();
        let mut message = Writer::default();
        message.byte(b'l').byte(METHOD_CALL).byte(NO_AUTO_START).byte(1);
        message
            .u32(u32::try_from(body.len()).unwrap_or(u32::MAX))
            .u32(serial);
        message.array(8, |fields| {
            for (code, kind, value) in [
                (1, "o", self.path),
                (2, "s", self.interface),
                (3, "s", self.member),
                (6, "s", self.destination),
            ] {
                fields.align(8).byte(code).signature(kind).string(value);
            }
            if !signature.is_empty() {
                fields.align(8).byte(8).signature("g").signature(&signature);
            }
        });
        message.align(8);
        let mut bytes = message.into_bytes();
        bytes.extend(body);
        bytes
    }
}

/// Returns the object path of a unit, escaped like systemd's `bus_label_escape`.
pub fn unit_path(name: &str) -> String {
    let mut path = "/org/freedesktop/systemd1/unit/".to_owned();
    if name.is_empty() {
        path.push('_');
    }
    for (at, byte) in name.bytes().enumerate() {
        if byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit()) {
            path.push(byte.into());
        } else {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            path.push('_');
            path.push(HEX[usize::from(byte >> 4)].into());
            path.push(HEX[usize::from(byte & 15)].into());
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Header, Kind, Reader},
        *,
    };

    #[test]
    fn unit_paths_are_escaped() {
        for (name, path) in [
            ("kubelet.service", "kubelet_2eservice"),
            ("getty@tty1.service", "getty_40tty1_2eservice"),
            ("3.mount", "_33_2emount"),
            ("", "_"),
        ] {
            assert_eq!(unit_path(name), format!("/org/freedesktop/systemd1/unit/{path}"));
        }
    }

    #[test]
    fn call_is_a_complete_message() {
        let names = ["org.freedesktop.systemd1.Service", "Type"];
        let mut call = Call::property("org.freedesktop.systemd1", "/unit", &names);
        call.list = Some(&["a", "b"]);
        let bytes = call.to_bytes(5);
        let header = Header::parse(&bytes).unwrap();
        assert_eq!(header.length, bytes.len());
        assert_eq!((header.kind, header.serial), (Kind::Call, 5));
        let mut body = Reader::new(&bytes[header.body..], header.big);
        assert_eq!(body.string(), Ok(names[0]));
        assert_eq!(body.string(), Ok(names[1]));
        let mut list = body.array(4).unwrap();
        assert_eq!((list.string(), list.string()), (Ok("a"), Ok("b")));
        assert!(list.is_at_end() && body.is_at_end());
    }
}
