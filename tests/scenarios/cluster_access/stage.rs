//! An infra cluster with two tenants, and a collector with the shipped rights that authenticates
//! its clients.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, SigningKey as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use virtfleet_tests::{
    access::{self, Api, READ_PATHS},
    bins,
    cluster::{
        self, ApiServer,
        live::{self, WAIT_TIMEOUT},
    },
    install,
    pki::{Authority, TRUST_DOMAIN},
    ports,
    process::{Launch, Process},
    scrape, wait,
};
use virtfleet_wire::layered::{Node, parse_yaml};

/// The audience of tokens for the collector.
pub(crate) const AUDIENCE: &str = "virtfleet-collector";
/// A static token for the namespace team-b.
pub(crate) const STATIC: &str = "a-static-token-for-team-b";
/// Time for which the collector remembers callers and rights.
pub(crate) const CACHE: Duration = Duration::from_secs(2);

const RBAC: &str = "rbac.authorization.k8s.io";

/// The infra cluster and its collector.
pub(crate) struct AccessStage {
    collector: Process,
    pub(crate) infra: ApiServer,
    pub(crate) api: Api,
    address: SocketAddr,
    folder: TempDir,
}

impl AccessStage {
    /// A collector on loopback; `more` has further settings of `server.access`.
    pub(crate) fn new(more: &str) -> Result<Self> {
        Self::at(IpAddr::V4(Ipv4Addr::LOCALHOST), more)
    }

    /// A collector on loopback to which agents connect, so that it has join tokens.
    pub(crate) fn with_ingest() -> Result<Self> {
        let settings = format!(
            "enrolment: {{ trustDomain: {TRUST_DOMAIN} }}\ningest: {{ address: \"{}\" }}\n",
            ports::free()?
        );
        Self::build(IpAddr::V4(Ipv4Addr::LOCALHOST), "", &settings)
    }

    /// A collector on another address of this machine.
    pub(crate) fn at(address: IpAddr, more: &str) -> Result<Self> {
        Self::build(address, more, "")
    }

    fn build(address: IpAddr, more: &str, settings: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let root = folder.path();
        let infra = live::infra(root)?;
        for file in ["namespace", "rbac", "access"] {
            apply_shipped(&infra, &format!("infra/{file}.yaml"))?;
        }
        for name in ["host-shared", "host-of-team-b"] {
            let zone = format!("zone-of-{name}");
            infra.apply(&cluster::infra_node(
                name,
                &[("topology.kubernetes.io/zone", &zone)],
            ))?;
        }
        for (namespace, name, host) in [
            ("team-a", "vm-1", "host-shared"),
            ("team-a", "vm-2", "host-shared"),
            ("team-b", "vm-1", "host-of-team-b"),
        ] {
            if infra.fetch(&namespace_object(namespace))?.is_none() {
                infra.namespace(namespace)?;
                infra.apply(&live::user_cluster(&format!("cluster-of-{namespace}"), namespace))?;
            }
            infra.apply(&cluster::vmi(namespace, name).phase("Running").on(host))?;
        }
        infra.until_rights_apply()?;
        let account = infra.service_account("virtfleet", "virtfleet-collector")?;
        let inventory = live::settings(root, &infra.kubeconfig(&account), "")?;
        let authority = Authority::new("api")?;
        access::api_certificate(&authority, root)?;
        access::write_tokens(
            &root.join("tokens"),
            &access::token_line(STATIC, "static,namespace:team-b"),
        )?;
        let (address, probes) = (ports::free_on(address)?, ports::free()?);
        let at = root.display();
        let config = root.join("collector.yaml");
        let text = format!(
            "apiVersion: virtfleet.io/v1alpha1\nkind: CollectorConfig\ninventory: {inventory}\n\
             server:\n  address: \"{address}\"\n  probeAddress: \"{probes}\"\n  tls: {{ certificate: {at}/api.pem, key: {at}/api.key }}\n  \
             access: {{ tokenReview: {{ cache: {}s }}, tokens: {at}/tokens, {more} }}\n\
             leaderElection: {{ namespace: virtfleet }}\nlog: {{ format: json }}\n{settings}",
            CACHE.as_secs()
        );
        fs::write(&config, text)?;
        let collector = Launch::new(bins::collector()?)
            .args(["serve", "--config"])
            .arg(&config)
            .start(root)?;
        wait::eventually(WAIT_TIMEOUT, "the collector is ready", || {
            scrape::Client::plain(probes, WAIT_TIMEOUT)?
                .get("/readyz")?
                .ok()
                .map(drop)
        })?;
        let api = Api::new(address, &authority)?;
        wait::eventually(WAIT_TIMEOUT, "the collector has all VMs", || {
            let found = api.names(STATIC, "/api/v1/vms")?;
            ensure!(found == ["team-b/vm-1"], "{found:?}");
            Ok(())
        })?;
        Ok(Self {
            collector,
            infra,
            api,
            address,
            folder,
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Everything that the collector has logged.
    pub(crate) fn log(&self) -> String {
        self.collector.log()
    }

    /// The lines of the audit log.
    pub(crate) fn audit(&self) -> Vec<Value> {
        let log = self.log();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["target"] == "audit").collect()
    }

    /// A token of a ServiceAccount, which is created; without audiences one for the API server.
    pub(crate) fn token(&self, namespace: &str, name: &str, audiences: &[&str]) -> Result<String> {
        let user = self.infra.service_account(namespace, name)?;
        if audiences.is_empty() {
            return Ok(user.token);
        }
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": { "audiences": audiences, "expirationSeconds": 600 },
        });
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let answer = self.infra.admin().post(&path, &request)?.ok()?;
        Ok(answer["status"]["token"].as_str().context("no token")?.to_owned())
    }

    /// A token that the test signs with the API server's key; it expires in so many seconds.
    pub(crate) fn sign(&self, namespace: &str, name: &str, audience: &str, expires: i64) -> Result<String> {
        let key = fs::read_to_string(self.infra.folder().join("accounts.key"))?;
        self.sign_with(&KeyPair::from_pem(&key)?, namespace, name, audience, expires)
    }

    /// As [`AccessStage::sign`], with a key that the API server does not know.
    pub(crate) fn sign_with_another_key(&self, namespace: &str, name: &str) -> Result<String> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        self.sign_with(&key, namespace, name, AUDIENCE, 600)
    }

    fn sign_with(
        &self,
        key: &KeyPair,
        namespace: &str,
        name: &str,
        audience: &str,
        expires: i64,
    ) -> Result<String> {
        self.infra.service_account(namespace, name)?;
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}");
        let account = self.infra.admin().get(&path)?.ok()?;
        let now = jiff::Timestamp::now().as_second();
        let claims = json!({
            "aud": [audience], "exp": now + expires, "iat": now - 3600, "nbf": now - 3600,
            "iss": "https://kubernetes.default.svc", "sub": format!("system:serviceaccount:{namespace}:{name}"),
            "kubernetes.io": {
                "namespace": namespace, "serviceaccount": { "name": name, "uid": account["metadata"]["uid"] },
            },
        });
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let head = format!(
            "{}.{}",
            encode(&json!({ "alg": "ES256", "typ": "JWT" })),
            encode(&claims)
        );
        let signature = fixed_signature(&key.sign(head.as_bytes())?)?;
        Ok(format!("{head}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Binds a ServiceAccount of `of` to a ClusterRole in a namespace.
    pub(crate) fn bind(&self, of: &str, account: &str, namespace: &str, role: &str) -> Result<()> {
        let binding = json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
            "metadata": { "namespace": namespace, "name": account },
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role },
            "subjects": [{ "kind": "ServiceAccount", "namespace": of, "name": account }],
        });
        self.infra.apply(&binding).map(drop)
    }

    /// Removes a binding of [`AccessStage::bind`].
    pub(crate) fn unbind(&self, namespace: &str, account: &str) -> Result<()> {
        let path = format!("/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings/{account}");
        self.infra.admin().delete(&path)?.ok().map(drop)
    }

    /// Binds a ServiceAccount to a ClusterRole in all namespaces.
    pub(crate) fn bind_cluster(&self, of: &str, account: &str, role: &str) -> Result<()> {
        let binding = json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": account },
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role },
            "subjects": [{ "kind": "ServiceAccount", "namespace": of, "name": account }],
        });
        self.infra.apply(&binding).map(drop)
    }

    /// Adds the rules of a role to another one that aggregates it, as a controller manager does.
    /// Fails if the label that it would select by is missing.
    pub(crate) fn aggregate(&self, into: &str, role: &str) -> Result<()> {
        let get = |name: &str| {
            let path = format!("/apis/{RBAC}/v1/clusterroles/{name}");
            self.infra.admin().get(&path)?.ok()
        };
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{into}");
        let source = get(role)?;
        ensure!(source["metadata"]["labels"][&label] == "true", "{source:#}");
        let selectors = get(into)?["aggregationRule"]["clusterRoleSelectors"].to_string();
        ensure!(selectors.contains(&label), "{selectors}");
        let rules = json!({ "rules": source["rules"] });
        let path = format!("/apis/{RBAC}/v1/clusterroles/{into}");
        self.infra
            .admin()
            .patch(&path, cluster::MERGE_PATCH, &rules)?
            .ok()
            .map(drop)
    }

    /// The collector's Service, with this collector as its endpoint.
    pub(crate) fn service(&self) -> Result<()> {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "namespace": "virtfleet", "name": "virtfleet-collector" },
            "spec": { "ports": [{ "name": "api", "port": 10912, "targetPort": self.address.port() }] },
        });
        self.infra.apply(&service)?;
        install::connect_service(&self.infra, self.address)
    }

    /// A token for team-a asks for team-b in every path and filter.
    pub(crate) fn attack(&self, token: &str) {
        let secrets = ["team-b", "host-of-team-b", "zone-of-host-of-team-b"];
        let mut paths = READ_PATHS.map(str::to_owned).to_vec();
        paths.push("/api/v1/vms/team-a/vm-1".to_owned());
        for (path, filters) in [
            (
                "vms",
                &["namespace", "cluster", "node", "zone", "region", "q"][..],
            ),
            ("hosts", &["zone", "region"]),
            ("findings", &["namespace", "cluster"]),
            ("labels", &["namespace", "cluster", "node", "key"]),
            ("labels/inputs", &["namespace", "cluster", "node"]),
            ("events", &["namespace", "name", "cluster", "node", "zone"]),
            ("migrations", &["namespace", "name", "cluster", "host", "zone"]),
            (
                "targets",
                &["namespace", "cluster", "node", "zone", "region", "q"],
            ),
            ("queues", &["cluster"]),
        ] {
            for (filter, value) in filters
                .iter()
                .flat_map(|filter| secrets.map(|value| (filter, value)))
            {
                paths.push(format!("/api/v1/{path}?{filter}={value}"));
                paths.push(format!("/api/v1/{path}?limit=1&continue={value}"));
            }
        }
        for path in &paths {
            let (status, text) = self.api.text(Some(token), path).unwrap();
            // A position of a list has a form of its own, which the error repeats.
            if status == 400 && path.contains("continue=") {
                continue;
            }
            assert_eq!(
                status,
                if access::is_for_whole_fleet(path) {
                    403
                } else {
                    200
                },
                "{path}: {text}"
            );
            for secret in secrets {
                assert!(!access::has_name(&text, secret), "{path}: {secret} in {text}");
            }
        }
        let answers = ["team-b", "team-z"].map(|namespace| {
            let (status, text) = self
                .api
                .text(Some(token), &format!("/api/v1/vms/{namespace}/vm-1"))
                .unwrap();
            (status, text.replace(namespace, "NS"))
        });
        assert_eq!(answers[0].0, 404);
        assert_eq!(answers[0], answers[1]);
    }
}

fn namespace_object(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

fn apply_shipped(server: &ApiServer, path: &str) -> Result<()> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/collector/kubernetes");
    let text = fs::read_to_string(top.join(path))?;
    let documents = parse_yaml(&text).map_err(|problem| anyhow::anyhow!("{path}: {problem:?}"))?;
    for object in documents.iter().map(Node::to_json) {
        server.apply(&object)?;
    }
    Ok(())
}

/// An ECDSA signature in the form of a JSON Web Token (RFC 7518, 3.4): two numbers of 32 bytes,
/// from the ASN.1 sequence of two integers.
fn fixed_signature(der: &[u8]) -> Result<Vec<u8>> {
    let number = |rest: &[u8]| -> Result<(Vec<u8>, usize)> {
        let length = usize::from(*rest.get(1).context("length")?);
        let bytes = rest.get(2..2 + length).context("number")?;
        let bytes: Vec<u8> = bytes.iter().copied().skip_while(|byte| *byte == 0).collect();
        ensure!(bytes.len() <= 32, "{} bytes", bytes.len());
        Ok(([vec![0; 32 - bytes.len()], bytes].concat(), 2 + length))
    };
    let body = der.get(2..).context("sequence")?;
    let (first, used) = number(body)?;
    let (second, _) = number(&body[used..])?;
    Ok([first, second].concat())
}
