//! Checks a user cluster's kubeconfig. It must give its author access to nothing but that cluster's
//! API server: no programs, no files, no proxy, no HTTP, no unverified TLS, no path under which
//! another service could answer.

use std::net::IpAddr;

use http::{Uri, uri::Scheme};
use kube::config::{AuthInfo, Cluster, Kubeconfig};
use virtfleet_wire::layered::has_alias;

use crate::{dial_guard::DialGuard, host_port::host_and_port};

/// Maximum size of a kubeconfig, bytes.
pub(in crate::inventory::cluster) const MAX_KUBECONFIG: usize = 256 * 1024;

/// Reads and checks a kubeconfig.
///
/// # Errors
/// What is wrong with it and how to fix it, without any secret part of it.
pub(super) fn read(bytes: &[u8], guard: &DialGuard) -> Result<Kubeconfig, String> {
    if bytes.len() > MAX_KUBECONFIG {
        return Err(format!("the kubeconfig has more than {MAX_KUBECONFIG} bytes"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "the kubeconfig is not UTF-8 text".to_owned())?;
    let rejected = |why: String| format!("the kubeconfig is rejected: {why}");
    // The parsers' messages may quote the text, which may contain a token.
    let invalid = || "the kubeconfig is not a valid kubeconfig".to_owned();
    // A few hundred bytes with aliases expand to all that the parser's limits allow: 64 MiB.
    if has_alias(text).map_err(|_| invalid())? {
        let why = "it has YAML aliases (*name); write the values in their places";
        return Err(rejected(why.to_owned()));
    }
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| invalid())?;
    check(&kubeconfig, guard).map_err(rejected)?;
    Ok(kubeconfig)
}

fn check(kubeconfig: &Kubeconfig, guard: &DialGuard) -> Result<(), String> {
    let users = kubeconfig.auth_infos.iter();
    users
        .filter_map(|named| named.auth_info.as_ref())
        .try_for_each(user)?;
    let clusters = kubeconfig.clusters.iter();
    clusters
        .filter_map(|named| named.cluster.as_ref())
        .try_for_each(|one| cluster(one, guard))
}

fn user(user: &AuthInfo) -> Result<(), String> {
    let AuthInfo {
        exec,
        auth_provider,
        token_file,
        client_certificate,
        client_key,
        ..
    } = user;
    if exec.is_some() || auth_provider.is_some() {
        return Err(
            "it runs a program (exec or auth-provider); use a token or client-certificate-data".into(),
        );
    }
    for (name, file) in [
        ("tokenFile", token_file),
        ("client-certificate", client_certificate),
        ("client-key", client_key),
    ] {
        if file.is_some() {
            return Err(format!("{name} names a file; put the data into the kubeconfig"));
        }
    }
    Ok(())
}

fn cluster(cluster: &Cluster, guard: &DialGuard) -> Result<(), String> {
    if cluster.certificate_authority.is_some() {
        return Err("certificate-authority names a file; use certificate-authority-data".into());
    }
    if cluster.proxy_url.is_some() {
        return Err("proxy-url is not supported".into());
    }
    if cluster.insecure_skip_tls_verify == Some(true) {
        return Err(
            "insecure-skip-tls-verify is set, so any server could answer; set certificate-authority-data"
                .into(),
        );
    }
    let (host, port) = origin(cluster.server.as_deref().unwrap_or_default())?;
    match host.parse::<IpAddr>() {
        Ok(address) => guard
            .check((address, port).into())
            .map_err(|why| format!("server: {why}")),
        // Its addresses are checked at each connection.
        Err(_) => Ok(()),
    }
}

/// Checks the form of a kubeconfig's server, as the collector does.
///
/// # Errors
/// What is wrong.
pub(crate) fn check_server(server: &str) -> Result<(), String> {
    origin(server).map(drop)
}

/// Host and port of a server of the form `https://host[:port]`.
///
/// # Errors
/// What is wrong. The text itself is not included: it may contain a password.
fn origin(server: &str) -> Result<(String, u16), String> {
    let refuse = |what: &str| {
        Err(format!(
            "server {what}; it must be https://host:port and nothing else"
        ))
    };
    let Ok(uri) = server.parse::<Uri>() else {
        return refuse("is not a URL");
    };
    if uri.scheme() != Some(&Scheme::HTTPS) {
        return refuse("does not begin with https://");
    }
    let authority = uri
        .authority()
        .map(http::uri::Authority::as_str)
        .unwrap_or_default();
    if authority.contains('@') {
        return refuse("has a user");
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() || server.contains(['?', '#']) {
        return refuse("has a path or a query");
    }
    let (host, port) = host_and_port(&uri);
    if host.is_empty() || port == 0 {
        return refuse("has no host or an invalid port");
    }
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dial_guard::tests::guard;

    fn problem(user: &str, cluster: &str) -> Option<String> {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {cluster}}}]\nusers: [{{name: u, user: {user}}}]\n"
        );
        read(text.as_bytes(), &guard(&[])).err()
    }

    #[test]
    fn a_secret_runs_no_program_and_reads_no_file() {
        let server = "{server: 'https://203.0.113.1:6443'}";
        assert_eq!(problem("{token: t}", server), None);
        for (user, cluster, word) in [
            ("{exec: {command: /bin/true}}", server, "exec"),
            (
                "{auth-provider: {name: gcp, config: {}}}",
                server,
                "auth-provider",
            ),
            ("{tokenFile: /etc/passwd}", server, "tokenFile"),
            (
                "{client-certificate: /c, client-key: /k}",
                server,
                "client-certificate",
            ),
            (
                "{token: t}",
                "{server: 'https://h', certificate-authority: /c}",
                "certificate-authority",
            ),
            (
                "{token: t}",
                "{server: 'https://h', proxy-url: 'http://p'}",
                "proxy-url",
            ),
            (
                "{token: t}",
                "{server: 'https://h', insecure-skip-tls-verify: true}",
                "insecure-skip-tls-verify",
            ),
            ("{token: hunter2", server, "not a valid kubeconfig"),
        ] {
            let found = problem(user, cluster).unwrap_or_default();
            assert!(
                found.contains(word) && !found.contains("hunter2"),
                "{user}: {found}"
            );
        }
    }

    /// A context that is not the current one, and another document, count as well.
    #[test]
    fn every_part_of_a_secret_is_checked() {
        let good = "current-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n\
                    clusters: [{name: c, cluster: {server: 'https://203.0.113.1'}}]\n";
        let (token, exec) = (
            "{name: u, user: {token: t}}",
            "{name: v, user: {exec: {command: a}}}",
        );
        let problem = |text: String| read(text.as_bytes(), &guard(&[])).err();
        assert_eq!(problem(format!("{good}users: [{token}]\n")), None);
        let many = (0..500).map(|n| format!(", {{name: n{n}, user: {{token: t}}}}"));
        let many: String = many.collect();
        assert_eq!(problem(format!("{good}users: [{token}{many}]\n")), None);
        let large = "x".repeat(MAX_KUBECONFIG);
        for (rest, word) in [
            (format!("users: [{token}, {exec}]\n"), "runs a program"),
            (
                format!("users: [{token}]\n---\nusers: [{exec}]\n"),
                "runs a program",
            ),
            (format!("users: [&u {token}, *u]\n"), "YAML aliases"),
            (format!("x: {large}\n"), "more than 262144 bytes"),
        ] {
            let found = problem(format!("{good}{rest}")).unwrap_or_default();
            assert!(found.contains(word), "{found}");
        }
    }

    #[test]
    fn a_server_is_a_bare_origin() {
        let of = |server: &str| problem("{token: t}", &format!("{{server: '{server}'}}"));
        for good in [
            "https://api.example.org",
            "https://api.example.org/",
            "https://api.example.org:6443",
            "https://[2001:db8::1]:6443",
        ] {
            assert_eq!(of(good), None, "{good}");
        }
        for bad in [
            "",
            "/",
            "api.example.org:6443",
            "http://api.example.org",
            "https://",
            "https://:443",
            "https://user:hunter2@api.example.org",
            "https://api.example.org/latest/meta-data",
            "https://api.example.org/?a=b",
            "https://api.example.org/#a",
            "https://api.example.org#a",
        ] {
            let found = of(bad).unwrap_or_default();
            assert!(
                found.contains("server ") && !found.contains("hunter2"),
                "{bad:?}: {found}"
            );
        }
    }

    #[test]
    fn a_server_is_no_address_of_the_infra_cluster() {
        let of = |server: &str| problem("{token: t}", &format!("{{server: '{server}'}}"));
        for (bad, word) in [
            ("https://127.0.0.1:6443", "loopback"),
            ("https://[::1]:6443", "loopback"),
            ("https://[::ffff:127.0.0.1]:6443", "loopback"),
            ("https://169.254.169.254", "link-local"),
            ("https://[fe80::1]", "link-local"),
            ("https://10.96.0.10:443", "service"),
            ("https://0.0.0.0:443", "unspecified"),
            ("https://198.51.100.7:6443", "infra cluster's own API server"),
        ] {
            let found = of(bad).unwrap_or_default();
            assert!(found.contains(word), "{bad}: {found}");
        }
        assert_eq!(
            of("https://198.51.100.7:443"),
            None,
            "another port is another server"
        );
        let opened = read(
            b"clusters: [{name: c, cluster: {server: 'https://10.96.3.4:6443'}}]",
            &guard(&["10.96.0.0/12"]),
        );
        assert_eq!(
            opened.map(drop),
            Ok(()),
            "hosted control planes in the service range"
        );
    }
}
