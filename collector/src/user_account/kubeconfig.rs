//! Kubeconfigs of user clusters: that of an admin, of which only the server and its authority are
//! used further, and that of the collector.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::config::{AuthInfo, Kubeconfig};
use serde_json::json;
use virtfleet_runtime::tls::Validity;
use virtfleet_wire::layered::to_yaml;

use crate::access::token_claims::UnverifiedClaims;

/// The API server of a user cluster, as the collector reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UserServer {
    /// `https://host:port`.
    pub(crate) url: String,
    /// The authority of the API server in PEM.
    pub(crate) authority: String,
}

impl UserServer {
    /// A kubeconfig that the collector accepts.
    pub(crate) fn kubeconfig(&self, token: &str) -> String {
        to_yaml(&json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "user-cluster",
            "clusters": [{ "name": "user-cluster", "cluster": {
                "server": self.url, "certificate-authority-data": STANDARD.encode(&self.authority),
            } }],
            "users": [{ "name": "virtfleet-collector", "user": { "token": token } }],
            "contexts": [{ "name": "user-cluster", "context": {
                "cluster": "user-cluster", "user": "virtfleet-collector",
            } }],
        }))
    }

    /// The collector's kubeconfig `text`, if it is for this server.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) fn check(&self, text: &[u8]) -> Result<Kubeconfig, &'static str> {
        let parsed = std::str::from_utf8(text)
            .ok()
            .and_then(|text| Kubeconfig::from_yaml(text).ok());
        let parsed = parsed.ok_or("it is not a kubeconfig")?;
        let cluster = parsed.clusters.first().and_then(|one| one.cluster.as_ref());
        let cluster = cluster.ok_or("it names no API server")?;
        if cluster.server.as_deref() != Some(self.url.as_str()) {
            return Err("it names another API server");
        }
        if cluster.certificate_authority_data.as_deref() != Some(STANDARD.encode(&self.authority).as_str()) {
            return Err("it has another authority");
        }
        Ok(parsed)
    }
}

/// The token in a kubeconfig; empty if it has none.
pub(crate) fn token_of(kubeconfig: &Kubeconfig) -> String {
    let users = kubeconfig.auth_infos.iter();
    let user = users.into_iter().find_map(|one| one.auth_info.as_ref());
    user.and_then(token).unwrap_or_default()
}

fn token(user: &AuthInfo) -> Option<String> {
    serde_json::to_value(user).ok()?["token"]
        .as_str()
        .map(str::to_owned)
}

/// The period in which the credentials of a kubeconfig's current context are valid, by what they
/// say themselves; none if they do not.
pub(crate) fn validity(kubeconfig: &[u8]) -> Option<Validity> {
    let parsed = Kubeconfig::from_yaml(std::str::from_utf8(kubeconfig).ok()?).ok()?;
    let context = parsed.current_context.as_deref()?;
    let context = parsed.contexts.iter().find(|one| one.name == context)?;
    let user = context.context.as_ref()?.user.as_deref()?;
    let user = parsed.auth_infos.iter().find(|one| one.name == user)?;
    let user = user.auth_info.as_ref()?;
    if let Some(token) = token(user).filter(|token| !token.is_empty()) {
        let claims = UnverifiedClaims::of(&token);
        let not_after = claims.expires?;
        return Some(Validity {
            not_before: claims.issued.unwrap_or(not_after),
            not_after,
        });
    }
    let certificate = STANDARD.decode(user.client_certificate_data.as_ref()?).ok()?;
    Validity::of_first(&certificate).ok()
}

/// Where a kubeconfig has the authority of the API server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Authority {
    /// In the kubeconfig, in PEM.
    Data(String),
    File(String),
    None,
}

/// What matters of a kubeconfig's context.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KubeconfigFacts {
    pub(crate) server: String,
    pub(crate) authority: Authority,
    runs_program: bool,
    /// It does not verify the API server.
    is_insecure: bool,
    has_proxy: bool,
}

impl KubeconfigFacts {
    /// The facts of a context.
    ///
    /// # Errors
    /// What the kubeconfig lacks.
    pub(crate) fn of(kubeconfig: &Kubeconfig, context: Option<&str>) -> Result<Self, String> {
        let context = context.ok_or("it has no current context; set --context")?;
        let named = kubeconfig.contexts.iter().find(|one| one.name == context);
        let found = named
            .and_then(|one| one.context.as_ref())
            .ok_or_else(|| format!("it has no context {context:?}"))?;
        let cluster = kubeconfig.clusters.iter().find(|one| one.name == found.cluster);
        let cluster = cluster
            .and_then(|one| one.cluster.as_ref())
            .ok_or_else(|| format!("it has no cluster {:?}", found.cluster))?;
        let user = found.user.as_deref().unwrap_or_default();
        let user = kubeconfig.auth_infos.iter().find(|one| one.name == user);
        let user = user.and_then(|one| one.auth_info.as_ref());
        let decode = |data: &String| {
            let bytes = STANDARD.decode(data).ok()?;
            String::from_utf8(bytes).ok()
        };
        let authority = match (
            &cluster.certificate_authority_data,
            &cluster.certificate_authority,
        ) {
            (Some(data), _) => {
                let pem = decode(data).ok_or("its certificate-authority-data is not PEM in base64")?;
                Authority::Data(pem)
            }
            (None, Some(file)) => Authority::File(file.clone()),
            (None, None) => Authority::None,
        };
        Ok(Self {
            server: cluster.server.clone().unwrap_or_default(),
            authority,
            runs_program: user.is_some_and(|user| user.exec.is_some() || user.auth_provider.is_some()),
            is_insecure: cluster.insecure_skip_tls_verify == Some(true),
            has_proxy: cluster.proxy_url.is_some(),
        })
    }

    /// What the collector's kubeconfig will not have of it.
    pub(crate) fn warnings(&self) -> Vec<&'static str> {
        let mut warnings = Vec::new();
        if self.runs_program {
            warnings.push(
                "it runs a program for its credentials (exec or auth-provider); the collector gets a token of its own",
            );
        }
        if self.is_insecure {
            warnings.push(
                "insecure-skip-tls-verify: any server could answer here; the collector verifies the API server",
            );
        }
        if self.has_proxy {
            warnings.push("proxy-url: the collector connects without a proxy");
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    fn facts(cluster: &str, user: &str, context: Option<&str>) -> Result<KubeconfigFacts, String> {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {cluster}}}]\nusers: [{{name: u, user: {user}}}]\n"
        );
        KubeconfigFacts::of(&Kubeconfig::from_yaml(&text).unwrap(), context)
    }

    #[test]
    fn what_the_collector_would_refuse_is_named() {
        let plain = facts(
            "{server: 'https://a:1', certificate-authority-data: YWJj}",
            "{token: t}",
            Some("c"),
        )
        .unwrap();
        assert_eq!(
            (plain.server.as_str(), &plain.authority, plain.warnings().len()),
            ("https://a:1", &Authority::Data("abc".into()), 0)
        );
        let odd = facts(
            "{server: 'https://a:1', insecure-skip-tls-verify: true, proxy-url: 'http://p'}",
            "{exec: {command: x, apiVersion: client.authentication.k8s.io/v1}}",
            Some("c"),
        )
        .unwrap();
        assert_eq!(odd.authority, Authority::None);
        let warnings = odd.warnings().join("; ");
        for word in ["exec", "insecure-skip-tls-verify", "proxy-url"] {
            assert!(warnings.contains(word), "{warnings}");
        }
        let file = facts(
            "{server: 'https://a:1', certificate-authority: /ca}",
            "{}",
            Some("c"),
        );
        assert_eq!(file.unwrap().authority, Authority::File("/ca".into()));
        for (context, word) in [(None, "--context"), (Some("d"), "no context \"d\"")] {
            let error = facts("{server: 'https://a:1'}", "{}", context).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn the_validity_is_that_of_the_token_or_the_certificate_of_the_current_context() {
        let of = |user: &str, context: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: {context}\n\
                 contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
                 users: [{{name: other, user: {{token: t}}}}, {{name: u, user: {user}}}]\n"
            );
            validity(text.as_bytes())
        };
        let token = |claims: &str| format!("{{token: h.{}.s}}", URL_SAFE_NO_PAD.encode(claims));
        let period = |not_before, not_after| {
            Some(Validity {
                not_before,
                not_after,
            })
        };
        assert_eq!(of(&token(r#"{"iat":5,"exp":7}"#), "c"), period(5, 7));
        assert_eq!(of(&token(r#"{"exp":7}"#), "c"), period(7, 7));
        assert_eq!(of(&token(r#"{"exp":7}"#), "d"), None, "no such context");
        for user in ["{token: t}", "{}", "{client-certificate-data: '!'}"] {
            assert_eq!(of(user, "c"), None, "{user}");
        }
        let mut made = rcgen::CertificateParams::default();
        made.not_before = rcgen::date_time_ymd(2020, 1, 1);
        made.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let made = made.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let user = format!("{{client-certificate-data: {}}}", STANDARD.encode(made.pem()));
        assert_eq!(of(&user, "c"), period(1_577_836_800, 1_893_456_000));
        assert_eq!(validity(b"{"), None);
    }

    #[test]
    fn the_collectors_kubeconfig_has_the_token_inline_and_one_server() {
        let server = UserServer {
            url: "https://a:6443".into(),
            authority: "pem".into(),
        };
        let text = server.kubeconfig("h.c.s");
        let parsed = server.check(text.as_bytes()).unwrap();
        assert_eq!(parsed.current_context.as_deref(), Some("user-cluster"));
        assert_eq!(token_of(&parsed), "h.c.s");
        assert!(text.contains("certificate-authority-data: cGVt"), "{text}");
        for (other, word) in [
            (
                UserServer {
                    url: "https://b:6443".into(),
                    ..server.clone()
                },
                "another API server",
            ),
            (
                UserServer {
                    authority: "new".into(),
                    ..server.clone()
                },
                "another authority",
            ),
        ] {
            assert!(other.check(text.as_bytes()).unwrap_err().contains(word));
        }
        assert!(server.check(b"{").is_err());
    }
}
