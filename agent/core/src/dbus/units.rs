//! Reply to `ListUnits` of systemd's manager: `a(ssssssouso)` (org.freedesktop.systemd1(5)).

use super::{Reader, WireError};

/// Unit that systemd has loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit<'bytes> {
    /// Name with suffix.
    pub name: &'bytes str,
    /// `loaded`, `not-found`, `masked`, …
    pub load: &'bytes str,
    /// `active`, `inactive`, `failed`, …
    pub active: &'bytes str,
    pub path: &'bytes str,
}

/// Parses the units in a reply.
///
/// # Errors
///
/// The reply is malformed.
pub fn units(mut body: Reader<'_>) -> Result<Vec<Unit<'_>>, WireError> {
    let mut rows = body.array(8)?;
    let mut units = Vec::new();
    while !rows.is_at_end() {
        rows.align(8)?;
        let name = rows.string()?;
        let _description = rows.string()?;
        let load = rows.string()?;
        let active = rows.string()?;
        let _sub = rows.string()?;
        let _followed = rows.string()?;
        let path = rows.string()?;
        let _job = rows.u32()?;
        let _job_type = rows.string()?;
        let _job_path = rows.string()?;
        units.push(Unit {
            name,
            load,
            active,
            path,
        });
    }
    Ok(units)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::Writer, *};

    fn body() -> Vec<u8> {
        let mut body = Writer::default();
        body.array(8, |rows| {
            for name in ["a.service", "b.timer"] {
                rows.align(8)
                    .string(name)
                    .string("What it is")
                    .string("loaded")
                    .string("active");
                rows.string("running")
                    .string("")
                    .string("/unit")
                    .u32(0)
                    .string("")
                    .string("/");
            }
        });
        body.into_bytes()
    }

    #[test]
    fn units_of_a_reply() {
        let body = body();
        let found = units(Reader::new(&body, false)).unwrap();
        assert_eq!(found.len(), 2);
        let expected = Unit {
            name: "b.timer",
            load: "loaded",
            active: "active",
            path: "/unit",
        };
        assert_eq!(found[1], expected);
        assert_eq!(units(Reader::new(&[0; 8], false)), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(at in any::<prop::sample::Index>(), byte: u8, cut in any::<prop::sample::Index>()) {
            let mut body = body();
            let place = at.index(body.len());
            body[place] = byte;
            body.truncate(cut.index(body.len() + 1));
            units(Reader::new(&body, false)).ok();
        }
    }
}
