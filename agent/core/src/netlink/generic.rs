//! Generic netlink (`linux/genetlink.h`): families with names, whose numbers the kernel assigns at
//! start.

use super::{attributes, put, short, text};

/// `GENL_ID_CTRL`: the family `nlctrl`, which resolves family names.
pub const CONTROL: u16 = 0x10;
/// `CTRL_CMD_GETFAMILY`.
const GET_FAMILY: u8 = 3;
/// `CTRL_ATTR_FAMILY_ID`.
const FAMILY_ID: u16 = 1;
/// `CTRL_ATTR_FAMILY_NAME`.
const FAMILY_NAME: u16 = 2;
/// `GENL_NAMSIZ`, including the NUL.
const NAME: usize = 16;
/// `struct genlmsghdr`: command, version, two reserved bytes.
pub(super) const HEAD: usize = 4;

/// Returns the header of a message to a family.
pub(super) fn head(command: u8) -> Vec<u8> {
    vec![command, 1, 0, 0]
}

/// Returns the body of the request for a family's number, sent to [`CONTROL`]. The kernel answers
/// `ENOENT` if it does not have the family.
pub fn family_request(name: &str) -> Vec<u8> {
    let mut body = head(GET_FAMILY);
    let mut value: Vec<u8> = name.bytes().filter(|byte| *byte != 0).take(NAME - 1).collect();
    value.push(0);
    put(&mut body, FAMILY_NAME, &value);
    body
}

/// Parses name and number of a family.
pub fn family(body: &[u8]) -> Option<(String, u16)> {
    let (mut name, mut number) = (None, None);
    for (kind, value) in attributes(body.get(HEAD..)?) {
        match kind {
            FAMILY_NAME => name = Some(text(value)),
            FAMILY_ID => number = short(value, 0),
            _ => {}
        }
    }
    Some((name?, number?))
}

#[cfg(test)]
mod tests {
    use super::{super::made, *};

    #[test]
    fn family_is_resolved_by_name() {
        let request = family_request("netdev");
        assert_eq!(request, [&[3, 1, 0, 0, 11, 0, 2, 0][..], b"netdev\0\0"].concat());
        let answer = [
            vec![1, 2, 0, 0],
            made::attribute(FAMILY_NAME, b"netdev\0"),
            made::attribute(FAMILY_ID, &20_u16.to_ne_bytes()),
            made::attribute(3, &1_u32.to_ne_bytes()),
        ]
        .concat();
        assert_eq!(family(&answer), Some(("netdev".to_owned(), 20)));
        // Neither the last attribute nor the padding before it is needed.
        for length in 0..answer.len() - 10 {
            assert_eq!(family(&answer[..length]), None, "{length}");
        }
        assert_eq!(
            family_request("a\0 name that is longer than any").len(),
            4 + 4 + 16
        );
    }
}
