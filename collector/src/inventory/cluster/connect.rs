//! Clients of API servers: of the infra cluster by the settings, of a user cluster by its kubeconfig Secret.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Client, Config,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};

use crate::config::ClusterInventory;

/// How long a connection may take until TLS is up.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer that is not a watch may keep still.
const READ: Duration = Duration::from_secs(15);
/// The most bytes of a kubeconfig.
const MAX_KUBECONFIG: usize = 256 * 1024;

/// Two clients of one API server.
#[derive(Clone)]
pub(super) struct Clients {
    /// For watches, which are silent for minutes; whoever uses it limits each wait.
    pub(super) watching: Client,
    /// For everything else: an answer that does not come ends the request.
    pub(super) asking: Client,
}

/// Clients of the infra cluster. A token file is read again every minute by kube itself, and so is the service account's CA.
pub(super) async fn infra(settings: &ClusterInventory) -> anyhow::Result<Clients> {
    install_crypto();
    let config = match &settings.kubeconfig {
        Some(file) => {
            let text = Kubeconfig::read_from(file)
                .with_context(|| format!("inventory.cluster.kubeconfig: cannot use {file}"))?;
            let options = KubeConfigOptions {
                context: settings.context.clone(),
                ..KubeConfigOptions::default()
            };
            Config::from_custom_kubeconfig(text, &options)
                .await
                .with_context(|| format!("inventory.cluster.kubeconfig: cannot use {file}"))?
        }
        None => Config::incluster().context(
            "inventory.cluster: there is no service account here; run in a pod, or set inventory.cluster.kubeconfig",
        )?,
    };
    clients(config).context("inventory.cluster: cannot make a client")
}

/// Clients of a user cluster. Errors: what is wrong with its kubeconfig, never any part of it that is secret.
pub(super) async fn tenant(secret: &Secret, key: &str) -> Result<Clients, String> {
    install_crypto();
    let bytes = secret.data.as_ref().and_then(|data| data.get(key));
    let bytes = bytes.ok_or_else(|| format!("the Secret has no key {key:?}"))?;
    if bytes.0.len() > MAX_KUBECONFIG {
        return Err(format!("the kubeconfig has more than {MAX_KUBECONFIG} bytes"));
    }
    let text = std::str::from_utf8(&bytes.0).map_err(|_| "the kubeconfig is not UTF-8 text".to_owned())?;
    // The parser's message may quote the text, and with it a token.
    let kubeconfig =
        Kubeconfig::from_yaml(text).map_err(|_| "the kubeconfig is not a valid kubeconfig".to_owned())?;
    check(&kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| format!("the kubeconfig cannot be used: {error}"))?;
    clients(config).map_err(|error| format!("the kubeconfig cannot be used: {error}"))
}

/// Refuses what would let whoever writes the Secret reach into the collector: programs, files, plain HTTP.
fn check(kubeconfig: &Kubeconfig) -> Result<(), String> {
    let refuse = |what: &str| Err(format!("the kubeconfig is refused: {what}"));
    for user in &kubeconfig.auth_infos {
        let Some(user) = &user.auth_info else { continue };
        let AuthInfo {
            exec,
            auth_provider,
            token_file,
            client_certificate,
            client_key,
            ..
        } = user;
        if exec.is_some() || auth_provider.is_some() {
            return refuse(
                "it runs a program (exec or auth-provider); use a token or client-certificate-data",
            );
        }
        for (name, file) in [
            ("tokenFile", token_file),
            ("client-certificate", client_certificate),
            ("client-key", client_key),
        ] {
            if file.is_some() {
                return refuse(&format!("{name} names a file; put the data into the kubeconfig"));
            }
        }
    }
    for cluster in kubeconfig
        .clusters
        .iter()
        .filter_map(|named| named.cluster.as_ref())
    {
        if cluster.certificate_authority.is_some() {
            return refuse("certificate-authority names a file; use certificate-authority-data");
        }
        if cluster.proxy_url.is_some() {
            return refuse("proxy-url is not supported");
        }
        let server = cluster.server.as_deref().unwrap_or_default();
        if !server.starts_with("https://") {
            return refuse("server must begin with https://");
        }
    }
    Ok(())
}

fn clients(mut config: Config) -> Result<Clients, kube::Error> {
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = None;
    let watching = Client::try_from(config.clone())?;
    config.read_timeout = Some(READ);
    config.reset_reader_on_write = true;
    let asking = Client::try_from(config)?;
    Ok(Clients { watching, asking })
}

/// Two crates may each bring a provider, and then rustls does not choose by itself.
fn install_crypto() {
    // Refused only when there is one already.
    rustls::crypto::ring::default_provider().install_default().ok();
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;

    use super::*;

    async fn problem(user: &str, cluster: &str) -> Option<String> {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {cluster}}}]\nusers: [{{name: u, user: {user}}}]\n"
        );
        let secret = Secret {
            data: Some(BTreeMap::from([(
                "kubeconfig".to_owned(),
                ByteString(text.into_bytes()),
            )])),
            ..Secret::default()
        };
        tenant(&secret, "kubeconfig").await.err()
    }

    #[tokio::test]
    async fn a_secret_runs_no_program_and_reads_no_file() {
        let server = "{server: 'https://127.0.0.1:1'}";
        assert_eq!(problem("{token: t}", server).await, None);
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
            ("{token: t}", "{server: 'http://h'}", "https://"),
            ("{token: hunter2", server, "not a valid kubeconfig"),
        ] {
            let found = problem(user, cluster).await.unwrap_or_default();
            assert!(
                found.contains(word) && !found.contains("hunter2"),
                "{user}: {found}"
            );
        }
        let missing = tenant(&Secret::default(), "kubeconfig").await.err().unwrap();
        assert!(missing.contains("no key"), "{missing}");
    }
}
