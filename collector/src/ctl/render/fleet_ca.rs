//! The fleet's authority of clients in user-data.

use std::path::Path;

use virtfleet_delivery::{
    payload::{Payload, TLS_CA_PATH},
    spec::Checked,
};

use crate::{
    ca::parse_authorities,
    ctl::{
        cli::ConnectionArgs,
        client::Client,
        console::Console,
        fail::Fail,
        input::{self, bytes},
    },
};

/// Refuses `--fleet-ca` where it would have no effect.
pub(super) fn check_use(checked: &Checked, given: Option<&Path>) -> Result<(), Fail> {
    let Some(file) = given else {
        return Ok(());
    };
    let file = file.display();
    match &checked.delivery.tls {
        Some(tls) if tls.enrolment && tls.client_ca.is_empty() => Ok(()),
        Some(tls) if tls.enrolment => Err(Fail::Usage(format!(
            "--fleet-ca {file}: the input names {} as tls.clientCA; remove one of them",
            tls.client_ca
        ))),
        _ => Err(Fail::Usage(format!(
            "--fleet-ca {file}: has no effect without tls: {{enrolment: true}} in the input"
        ))),
    }
}

/// The authority in PEM, from the file, else from the collector.
///
/// # Errors
/// Why it cannot be read, with the next step.
pub(super) fn read(given: Option<&Path>, connection: &ConnectionArgs) -> Result<Vec<u8>, String> {
    if let Some(file) = given {
        let shown = input::shown(file);
        return bytes(file).map_err(|error| format!("--fleet-ca {shown}: {error}"));
    }
    let text = Client::new(connection).and_then(|client| client.get_text("/api/v1/ca/clients.pem"));
    text.map(String::into_bytes)
        .map_err(|fail| format!("{fail}; or pass the file with --fleet-ca"))
}

/// Checks that the authority in the payload of an input with `tls.enrolment` can be used, and notes
/// its fingerprints, so that an admin can compare them.
///
/// # Errors
/// The problem with its line.
pub(super) fn describe(checked: &Checked, payload: &Payload, console: &mut Console<'_>) -> Result<(), Fail> {
    if !checked.delivery.tls.as_ref().is_some_and(|tls| tls.enrolment) {
        return Ok(());
    }
    let file = payload.files.iter().find(|file| file.path == TLS_CA_PATH);
    let content = file.map(|file| file.content.as_slice()).unwrap_or_default();
    let roots = parse_authorities("tls.clientCA", content).map_err(|error| Fail::Input(error.to_string()))?;
    for root in roots {
        console.note(&format!(
            "note: agents will accept collectors of the authority with SHA-256 {}; compare: virtfleetctl ca status -o wide",
            root.fingerprint
        ));
    }
    Ok(())
}
