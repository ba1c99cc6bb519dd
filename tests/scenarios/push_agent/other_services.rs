//! What listens at the collector's port is another program.

use std::{
    io::Write as _,
    net::{SocketAddr, TcpListener},
    thread,
};

use virtfleet_tests::process::Launch;

use super::doctor_says;
use crate::agent_stage::{AgentStage, SOON};

/// Answers each connection with these bytes, and keeps it open.
fn another_service(banner: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Ends with the test's process.
    thread::spawn(move || {
        let mut held = Vec::new();
        while let Ok((mut stream, _)) = listener.accept() {
            drop(stream.write_all(banner));
            held.push(stream);
        }
    });
    address
}

#[test]
fn another_service_at_the_collectors_port_is_named_with_a_command_that_shows_it() {
    let stage = AgentStage::pushing();
    for banner in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"220 mail.example ESMTP\r\n",
    ] {
        let address = another_service(banner);
        stage.configure_push(&address.to_string(), "1s");
        let agent = stage.start();
        let named = format!("no collector of this fleet at {address}");
        let command = format!("head -c 3 </dev/tcp/127.0.0.1/{}", address.port());
        doctor_says(&stage, &[&named, &command]);
        agent.terminate(SOON).unwrap();
        // What the doctor tells to run.
        let run = Launch::new("bash")
            .arg("-c")
            .arg(format!("{command} | od -An -tx1"));
        let shown = run.text(SOON).unwrap();
        assert!(!shown.contains("16 03 01"), "{shown}");
    }
}
