//! Messages of D-Bus, as systemd and others send them.

use virtfleet_agent_core::dbus::{
    Call, FIXED_BYTES, Header, MAX_MESSAGE_BYTES, Reader, Writer, unit_path, units,
};

/// A message with its header and its body.
pub(super) fn messages(bytes: &[u8]) {
    if let Ok(length) = Header::length(bytes) {
        assert!((FIXED_BYTES..=MAX_MESSAGE_BYTES).contains(&length));
    }
    if let Ok(header) = Header::parse(bytes) {
        assert_eq!(Header::length(bytes), Ok(header.length));
        assert!(header.body <= header.length && header.length <= bytes.len());
        body(&bytes[header.body..header.length], header.big);
    }
    body(bytes, false);
    body(bytes, true);
    if let Ok(text) = str::from_utf8(bytes) {
        written(text);
    }
}

fn body(bytes: &[u8], big: bool) {
    if let Ok(found) = units(Reader::new(bytes, big)) {
        assert!(found.len() * 9 <= bytes.len(), "a unit has nine texts and more");
    }
    let mut reader = Reader::new(bytes, big);
    while reader.variant().is_ok() {
        assert!(reader.position() <= bytes.len());
    }
    let mut reader = Reader::new(bytes, big);
    if let Ok(mut list) = reader.array(4) {
        while list.string().is_ok() {}
        assert!(list.position() <= reader.position());
    }
}

/// What is asked for with this text in it reads back.
fn written(text: &str) {
    let path = unit_path(text);
    assert!(
        path.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'/' || b == b'_')
    );
    let names = [text, "Id"];
    let bytes = Call::property("a.b", &path, &names).to_bytes(3);
    let header = Header::parse(&bytes).expect("a call of ours is a message");
    let mut reader = Reader::new(&bytes[header.body..], header.big);
    assert_eq!(reader.string(), Ok(text));
    assert_eq!(reader.string(), Ok("Id"));
    let mut writer = Writer::default();
    writer.string(text).u64(1);
    let bytes = writer.into_bytes();
    let mut reader = Reader::new(&bytes, false);
    assert_eq!((reader.string(), reader.u64()), (Ok(text), Ok(1)));
}
