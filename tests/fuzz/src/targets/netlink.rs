//! What the kernel answers to a dump over netlink.

use virtfleet_agent_core::netlink::{
    Content, diag, dump_request, link, messages as read, neighbour, qdisc, route,
};

/// Messages, and each body as every kind of entry.
pub(super) fn messages(bytes: &[u8]) {
    let mut bodies = 0;
    for message in read(bytes) {
        if let Content::Entry(body) = message.content {
            bodies += body.len();
            entry(body);
        }
    }
    assert!(bodies <= bytes.len(), "no byte is read twice");
    entry(bytes);
    // A body that is sent reads back.
    let request = dump_request(18, 7, bytes);
    let mut back = read(&request);
    let first = back.next().map(|message| (message.sequence, message.content));
    assert_eq!(first, Some((7, Content::Entry(bytes))));
    assert_eq!(back.next(), None);
}

fn entry(body: &[u8]) {
    if let Some(socket) = diag::socket(body) {
        diag::state_name(usize::from(socket.state));
    }
    link::link(body);
    neighbour::neighbour(body);
    qdisc::qdisc(body);
    if route::route(body).is_some() {
        assert!(body.len() >= 12, "there is no route without its head");
    }
}
