//! TCP sockets by state, from sock_diag (`linux/inet_diag.h`).

use super::number;

/// `TCPDIAG_GETSOCK`: dumps the TCP sockets of all address families (kernel:
/// `net/ipv4/inet_diag.c`, `inet_diag_dump_compat`). With `SOCK_DIAG_BY_FAMILY` the kernel would
/// scan its table once per family.
pub const GET: u16 = 18;
/// `struct inet_diag_req`.
const LENGTH: usize = 60;
/// Offset of `idiag_states`.
const STATES_AT: usize = 52;
/// All states up to closing, `1 << state` each.
const STATES: u32 = 0xfff;

/// Returns a request for the TCP sockets over IPv4 and IPv6, without details.
pub fn tcp_request() -> [u8; LENGTH] {
    let mut body = [0; LENGTH];
    body[STATES_AT..STATES_AT + 4].copy_from_slice(&STATES.to_ne_bytes());
    body
}

/// State of a listener (`TCP_LISTEN` in `net/tcp_states.h`).
const LISTEN: u32 = 10;

/// Returns a request for the listeners over IPv4 and IPv6. The kernel then scans its table of
/// listeners only, however many connections there are.
pub fn listener_request() -> [u8; LENGTH] {
    let mut body = tcp_request();
    body[STATES_AT..STATES_AT + 4].copy_from_slice(&(1_u32 << LISTEN).to_ne_bytes());
    body
}

/// Local port in an entry of the dump. `None` if it is truncated.
pub fn local_port(body: &[u8]) -> Option<u16> {
    // `idiag_sport` of `struct inet_diag_sockid`, in network byte order.
    Some(u16::from_be_bytes(body.get(4..6)?.try_into().ok()?))
}

/// State and queues of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    /// State, from 1 (`TCP_ESTABLISHED`).
    pub state: u8,
    /// Unread bytes; for a listener, connections that are not accepted yet.
    pub receive_queue: u32,
    /// Unacknowledged bytes; for a listener, its backlog limit.
    pub transmit_queue: u32,
}

/// Parses an entry of the dump. `None` if it is truncated.
pub fn socket(body: &[u8]) -> Option<Socket> {
    Some(Socket {
        state: *body.get(1)?,
        receive_queue: number(body, 56)?,
        transmit_queue: number(body, 60)?,
    })
}

/// Name of a state as in node_exporter.
pub fn state_name(state: usize) -> &'static str {
    const NAMES: [&str; 11] = [
        "established",
        "syn_sent",
        "syn_recv",
        "fin_wait1",
        "fin_wait2",
        "time_wait",
        "close",
        "close_wait",
        "last_ack",
        "listen",
        "closing",
    ];
    state
        .checked_sub(1)
        .and_then(|index| NAMES.get(index).copied())
        .unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_entry_is_parsed() {
        let mut body = [0; 72];
        body[1] = 10;
        body[4..6].copy_from_slice(&9100_u16.to_be_bytes());
        body[56] = 3;
        body[60] = 128;
        let found = socket(&body).unwrap();
        assert_eq!(
            (found.state, found.receive_queue, found.transmit_queue),
            (10, 3, 128)
        );
        assert_eq!(socket(&body[..63]), None);
        assert_eq!((local_port(&body), local_port(&body[..5])), (Some(9100), None));
        for (request, states) in [(tcp_request(), 12), (listener_request(), 1)] {
            assert_eq!(request.iter().map(|byte| byte.count_ones()).sum::<u32>(), states);
        }
    }

    #[test]
    fn names_of_states() {
        assert_eq!(
            ["unknown", "established", "listen", "closing", "unknown"],
            [0, 1, 10, 11, 12].map(state_name)
        );
    }
}
