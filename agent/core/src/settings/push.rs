//! Validation of `push`.

use std::time::Duration;

use virtfleet_wire::settings::{AgentConfig, PushSettings};

/// Minimum of `push.after`.
const MIN_AFTER: Duration = Duration::from_secs(1);

/// The parameters are the key and the message.
type Refuse<'a> = dyn FnMut(String, String) + 'a;

/// Reports problems, and disables push if there is one.
pub(super) fn check(config: &mut AgentConfig, refuse: &mut Refuse<'_>) {
    let mut problems = Vec::new();
    let (push, tls) = (&config.push, &config.server.tls);
    let mut missing = Vec::new();
    if push.collector.is_some() {
        // On the connection that it opens the agent is the TLS server, so it needs the same as a
        // listener.
        let is_set = |file: &Option<String>| file.as_ref().is_some_and(|file| !file.is_empty());
        let has_files = is_set(&tls.certificate) && is_set(&tls.key);
        if !(tls.enrolment || has_files) {
            missing.push("server.tls.enrolment: true, or server.tls.certificate and server.tls.key");
        }
        if !is_set(&tls.client_ca) {
            missing.push("server.tls.clientCA");
        }
    }
    if !missing.is_empty() {
        let message = format!(
            "the agent proves its identity to the collector, and needs {}",
            missing.join(", and ")
        );
        problems.push(("push".to_owned(), message));
    }
    if push.after.0 < MIN_AFTER {
        let message = format!("{} is too short; at least 1s", push.after);
        problems.push(("push.after".to_owned(), message));
    }
    let evidence = [
        ("push.tokenFile", "a join token", &push.token_file),
        (
            "push.kubeletCertificate",
            "a node proof",
            &push.kubelet_certificate,
        ),
    ];
    for (key, what, file) in evidence {
        let Some(file) = file else { continue };
        let message = if !file.starts_with('/') {
            Some(format!("{file:?} is not an absolute path"))
        } else if push.collector.is_none() {
            Some(format!(
                "{what} is for an agent that connects; set push.collector, too"
            ))
        } else if !tls.enrolment && missing.is_empty() {
            Some(format!(
                "{what} is for enrolment, but server.tls.enrolment is not set"
            ))
        } else {
            None
        };
        problems.extend(message.map(|message| (key.to_owned(), message)));
    }
    if !problems.is_empty() {
        config.push = PushSettings::default();
    }
    for (key, message) in problems {
        refuse(key, message);
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_wire::settings::Span;

    use super::*;

    /// The problems of settings that are valid but for a change.
    fn problems(change: impl Fn(&mut AgentConfig)) -> Vec<String> {
        let mut config = AgentConfig::default();
        config.push.collector = Some("collector.example:10913".parse().unwrap());
        config.server.tls.enrolment = true;
        config.server.tls.client_ca = Some("/ca.crt".to_owned());
        change(&mut config);
        let (before, mut found) = (config.push.clone(), Vec::new());
        check(&mut config, &mut |key, message| {
            found.push(format!("{key}: {message}"));
        });
        let expected = if found.is_empty() {
            before
        } else {
            PushSettings::default()
        };
        assert_eq!(config.push, expected, "{found:?}");
        found
    }

    #[test]
    fn a_tls_identity_is_needed() {
        assert!(problems(|_| ()).is_empty());
        assert!(problems(|config| config.push.token_file = Some("/token".to_owned())).is_empty());
        let files = |config: &mut AgentConfig| {
            config.server.tls.enrolment = false;
            config.server.tls.certificate = Some("/a.crt".to_owned());
            config.server.tls.key = Some("/a.key".to_owned());
        };
        assert!(problems(files).is_empty());
        for (change, expected) in [
            (
                (|config| config.server.tls.enrolment = false) as fn(&mut AgentConfig),
                "push: the agent proves its identity to the collector, and needs server.tls.enrolment: true, or \
                 server.tls.certificate and server.tls.key",
            ),
            (
                |config| config.server.tls.client_ca = Some(String::new()),
                "push: the agent proves its identity to the collector, and needs server.tls.clientCA",
            ),
        ] {
            assert_eq!(problems(change), [expected]);
        }
        // Without an address nothing is needed.
        assert!(problems(|config| *config = AgentConfig::default()).is_empty());
    }

    #[test]
    fn after_and_token_file_are_checked() {
        for (change, expected) in [
            (
                (|config| config.push.after = Span(Duration::from_millis(999))) as fn(&mut AgentConfig),
                "push.after: 999ms is too short; at least 1s",
            ),
            (
                |config| config.push.token_file = Some("token".to_owned()),
                "push.tokenFile: \"token\" is not an absolute path",
            ),
            (
                |config| {
                    config.push.token_file = Some("/token".to_owned());
                    config.push.collector = None;
                },
                "push.tokenFile: a join token is for an agent that connects; set push.collector, too",
            ),
            (
                |config| {
                    config.push.token_file = Some("/token".to_owned());
                    config.server.tls.enrolment = false;
                    config.server.tls.certificate = Some("/a.crt".to_owned());
                    config.server.tls.key = Some("/a.key".to_owned());
                },
                "push.tokenFile: a join token is for enrolment, but server.tls.enrolment is not set",
            ),
        ] {
            assert_eq!(problems(change), [expected]);
        }
    }
}
