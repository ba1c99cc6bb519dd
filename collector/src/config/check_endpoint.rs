//! Validation of credentials for a server of the operator.

use super::endpoint::{EndpointAuth, EndpointHeader, EndpointTls};

/// Reports the problems; `path` is that of the server's settings.
pub(super) fn credentials(
    path: &str,
    tls: &EndpointTls,
    headers: &[EndpointHeader],
    auth: &EndpointAuth,
    report: &mut impl FnMut(&str, String),
) {
    match (&tls.certificate, &tls.key) {
        (Some(_), None) => report(
            &format!("{path}.tls.key"),
            format!("required, because {path}.tls.certificate is set"),
        ),
        (None, Some(_)) => report(
            &format!("{path}.tls.certificate"),
            format!("required, because {path}.tls.key is set"),
        ),
        _ => {}
    }
    for (at, header) in headers.iter().enumerate() {
        if header.value.is_some() == header.file.is_some() {
            report(
                &format!("{path}.headers[{at}]"),
                "exactly one of value and file must be set".to_owned(),
            );
        }
    }
    match (&auth.username, &auth.password_file, &auth.token_file) {
        (Some(_), Some(_), None) | (None, None, _) => {}
        (_, _, Some(_)) => report(
            &format!("{path}.auth.tokenFile"),
            "username or passwordFile is set, too; use one of both ways".to_owned(),
        ),
        (Some(_), None, None) => report(
            &format!("{path}.auth.passwordFile"),
            "required, because username is set".to_owned(),
        ),
        (None, Some(_), None) => report(
            &format!("{path}.auth.username"),
            "required, because passwordFile is set".to_owned(),
        ),
    }
}
