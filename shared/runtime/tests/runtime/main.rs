//! Tests of the server and of TLS on loopback sockets, in one program.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failing test panics")]

mod client;
mod identity;
mod opened;
mod pki;
mod server;
