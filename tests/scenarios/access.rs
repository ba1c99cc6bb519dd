//! Who may read a collector without a cluster: static tokens and client certificates over TLS, with
//! real programs. A tenant's token asks for another tenant in every path.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{fs, net::SocketAddr, path::PathBuf, sync::Mutex, thread};

use anyhow::ensure;
use rcgen::ExtendedKeyUsagePurpose::ClientAuth;
use serde_json::Value;
use virtfleet_tests::{
    access::{self, Api, READ_PATHS},
    bins, client_hello,
    pki::{self, Authority},
    ports,
    process::{Launch, Process},
    sim::{self, Options},
    stage::{Beat, STAGE_TIMEOUT, Stage},
    wait,
};

const TENANT: &str = "token-of-the-tenant-of-cluster-a";
const ADMIN: &str = "token-of-the-admin";

/// A fleet of two tenants, `cluster-a` and `cluster-b`, each in a namespace of its name, behind a
/// collector that authenticates its clients.
struct Guarded {
    stage: Stage,
    collector: Process,
    api: Api,
    address: SocketAddr,
    clients: Authority,
    folder: PathBuf,
}

impl Guarded {
    fn new(more: &str) -> Self {
        let options = Options {
            guests: 4,
            hosts: 2,
            zones: 2,
            clusters: 2,
            ..Options::default()
        };
        let stage = Stage::new(options).unwrap();
        let folder = stage.path().join("guarded");
        fs::create_dir(&folder).unwrap();
        let (address, clients) = (stage.api, Authority::new("clients").unwrap());
        access::api_certificate(&clients, &folder).unwrap();
        let tokens = folder.join("tokens");
        let lines = [
            access::token_line(TENANT, "tenant,namespace:cluster-a"),
            access::token_line(ADMIN, "admin,all"),
        ];
        access::write_tokens(&tokens, &lines.concat()).unwrap();
        let at = folder.display();
        let server = format!(
            "server:\n  address: \"{address}\"\n  tls: {{ certificate: {at}/api.pem, key: {at}/api.key, clientCA: {at}/ca.pem }}\n  \
             access: {{ tokens: {}, {more} }}",
            tokens.display()
        );
        let plain = format!("server: {{ address: \"{address}\" }}");
        let config = stage.collector_config(Beat::default()).replace(&plain, &server);
        let file = folder.join("collector.yaml");
        // Nothing listens there.
        let prometheus = format!("prometheus: {{ url: \"http://{}\" }}\n", ports::free().unwrap());
        fs::write(&file, config + "log: { format: json }\n" + &prometheus).unwrap();
        let collector = Launch::new(bins::collector().unwrap())
            .args(["serve", "--config"])
            .arg(&file)
            .start(&folder)
            .unwrap();
        let api = Api::new(address, &clients).unwrap();
        wait::eventually(STAGE_TIMEOUT, "all agents are up", || {
            let up = api.names(ADMIN, "/api/v1/vms?agent=up")?;
            ensure!(up.len() == 4, "{up:?}");
            Ok(())
        })
        .unwrap();
        Self {
            stage,
            collector,
            api,
            address,
            clients,
            folder,
        }
    }

    /// The lines of the audit log.
    fn audit(&self) -> Vec<Value> {
        let log = self.collector.log();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["target"] == "audit").collect()
    }
}

#[test]
fn a_token_reads_its_own_tenant_in_every_path() {
    let guarded = Guarded::new("redactInfra: true");
    let (api, plan) = (&guarded.api, &guarded.stage.plan);
    let (ours, theirs): (Vec<_>, Vec<_>) = plan.guests.iter().partition(|guest| guest.cluster == "cluster-a");
    let (own, other) = (ours[0], theirs[0]);
    // Names of guests repeat in each cluster, so only what differs can be a leak.
    let secret = |guest: &&&_| -> Vec<String> {
        let guest: &sim::Guest = guest;
        vec![
            guest.uid.clone(),
            guest.firmware.to_string(),
            guest.address.ip().to_string(),
        ]
    };
    let mut secrets: Vec<String> = theirs.iter().flat_map(|guest| secret(&guest)).collect();
    secrets.push("cluster-b".to_owned());
    secrets.extend(
        plan.hosts
            .iter()
            .flat_map(|host| [host.name.clone(), host.zone.clone()]),
    );
    secrets.push(plan.region.clone());
    let mut paths = READ_PATHS.map(str::to_owned).to_vec();
    for (filter, value) in [
        ("namespace", "cluster-b"),
        ("cluster", "cluster-b"),
        ("node", &plan.hosts[0].name),
        ("zone", &plan.hosts[0].zone),
        ("region", &plan.region),
        ("q", &other.name),
    ] {
        paths.push(format!("/api/v1/vms?{filter}={value}"));
    }
    paths.push(format!("/api/v1/vms/cluster-a/{}", own.name));
    // The paths echo the name, so it is not one of the secrets.
    for rest in ["", "/drain"] {
        paths.push(format!("/api/v1/hosts/any-host{rest}"));
    }
    for list in ["events", "migrations", "targets"] {
        for (filter, value) in [("cluster", "cluster-b"), ("namespace", "cluster-b")] {
            paths.push(format!("/api/v1/{list}?{filter}={value}"));
        }
    }
    paths.push("/api/v1/queues?cluster=cluster-b".to_owned());
    for path in &paths {
        let (status, text) = api.text(Some(TENANT), path).unwrap();
        assert_eq!(
            status,
            if access::is_for_whole_fleet(path) {
                403
            } else {
                200
            },
            "{path}: {text}"
        );
        for secret in &secrets {
            assert!(!access::has_name(&text, secret), "{path}: {secret} in {text}");
        }
    }
    hidden_vms_are_missing(&guarded, &own.name, &other.name);
    let listed = api.names(TENANT, "/api/v1/vms").unwrap();
    assert_eq!(listed.len(), ours.len());
    assert!(
        listed.iter().all(|name| name.starts_with("cluster-a/")),
        "{listed:?}"
    );
    // An admin sees all names as they are.
    assert_eq!(api.names(ADMIN, "/api/v1/vms").unwrap().len(), plan.guests.len());
    assert_eq!(api.names(ADMIN, "/api/v1/hosts").unwrap()[0], plan.hosts[0].name);
    audit_has_lines(&guarded);
}

/// A hidden VM is answered as one that does not exist, also its page.
fn hidden_vms_are_missing(guarded: &Guarded, own: &str, other: &str) {
    let api = &guarded.api;
    for (path, there, missing) in [
        ("/api/v1/vms/NS/NAME", "cluster-b", "cluster-z"),
        ("/vm/NS/NAME/metrics", "cluster-b", "cluster-z"),
        ("/api/v1/vms/NS/NAME/history", "cluster-b", "cluster-z"),
    ] {
        let ask = |namespace: &str| {
            let path = path.replace("NS", namespace).replace("NAME", other);
            let (status, text) = api.text(Some(TENANT), &path).unwrap();
            (status, text.replace(namespace, "NS"))
        };
        assert_eq!(ask(there).0, 404);
        assert_eq!(ask(there), ask(missing), "{path}");
        let there = path.replace("NS", there).replace("NAME", other);
        // No Prometheus answers.
        let expected = if path.ends_with("/history") { 502 } else { 200 };
        // A busy machine answers one pull late.
        let status = || api.text(Some(ADMIN), &there).unwrap().0;
        wait::until(STAGE_TIMEOUT, &there, || status() == expected).unwrap();
    }
    // A tenant does not see which server there is, and what it said.
    let history = format!("/api/v1/vms/cluster-a/{own}/history");
    let (_, text) = api.text(Some(ADMIN), &history).unwrap();
    assert!(text.contains("the collector's Prometheus: "), "{text}");
    let (status, text) = api.text(Some(TENANT), &history).unwrap();
    assert_eq!(status, 502, "{text}");
    assert!(
        text.contains("the collector's Prometheus gave no history"),
        "{text}"
    );
    assert_eq!(api.text(None, &history).unwrap().0, 401);
    let page = format!("/vm/cluster-a/{own}/metrics");
    // A busy machine answers one pull late.
    wait::eventually(STAGE_TIMEOUT, "its own page", || {
        let (status, text) = api.text(Some(TENANT), &page)?;
        ensure!(
            status == 200 && text.contains("node_memory_MemTotal_bytes"),
            "{status}: {text}"
        );
        Ok(())
    })
    .unwrap();
}

/// The audit log has the denied request and the read across tenants, and no token.
fn audit_has_lines(guarded: &Guarded) {
    let audit = guarded.audit();
    let of = |caller: &str, result: &str| {
        let found = audit
            .iter()
            .find(|line| line["caller"] == caller && line["result"] == result);
        found
            .unwrap_or_else(|| panic!("{caller} {result}: {audit:#?}"))
            .clone()
    };
    let denied = of("tenant", "denied");
    assert_eq!(
        (&denied["reason"], &denied["method"]),
        (&"forbidden".into(), &"GET".into())
    );
    for path in ["/metrics", "/api/v1/placement", "/api/v1/hosts/any-host/drain"] {
        let is_logged = audit.iter().any(|line| line["path"] == path);
        assert!(is_logged, "{path}: {audit:#?}");
    }
    assert_eq!(of("admin", "allowed")["authentication"], "static_token");
    assert!(
        audit
            .iter()
            .all(|line| line["caller"] != "tenant" || line["result"] == "denied")
    );
    let log = guarded.collector.log();
    assert!(
        !log.contains(TENANT) && !log.contains(ADMIN),
        "no token is logged"
    );
}

#[test]
fn credentials_of_each_kind_are_checked() {
    let guarded = Guarded::new("certificates: [{ name: tenant.test, scope: [\"namespace:cluster-a\"] }]");
    let Guarded {
        api, clients, folder, ..
    } = &guarded;
    for (token, status, part) in [
        (None, 401, "no credentials"),
        (Some("a-wrong-token"), 401, "the token is unknown"),
        (Some(""), 401, "not a bearer token"),
    ] {
        let (found, text) = api.text(token, "/api/v1/vms").unwrap();
        assert!(
            found == status && text.contains(part) && !text.contains("\"remedy\":\"\""),
            "{token:?}: {text}"
        );
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(api.text(None, path).unwrap().0, 200, "{path}");
    }
    let with = |name: &str, uri: &str, dns: &[&str]| {
        let identity = clients.issue(name, uri, dns, ClientAuth).unwrap();
        pki::write(folder, name, clients, &identity).unwrap();
        Api::with_certificate(guarded.address, clients.client_config(&identity).unwrap())
    };
    let count = |api: &Api, token: &str| api.names(token, "/api/v1/vms").unwrap().len();
    let tenant = with("tenant", "spiffe://clients/tenant", &["tenant.test"]);
    // The certificate decides, whatever token comes with it.
    assert_eq!(count(&tenant, ADMIN), 2);
    assert_eq!(tenant.text(None, "/metrics").unwrap().0, 403);
    let prometheus = with("prometheus", "spiffe://clients/prometheus", &[]);
    assert_eq!(count(&prometheus, TENANT), 4);
    assert_eq!(prometheus.text(None, "/metrics").unwrap().0, 200);
    let agent = with("agent", "spiffe://virtfleet.test/vmi/cluster-a/a/b", &[]);
    agent.text(Some(ADMIN), "/api/v1/vms").unwrap_err();

    // virtfleetctl sends a token from a file, and the file of tokens can be changed at any time.
    let file = folder.join("token");
    fs::write(&file, TENANT).unwrap();
    let url = format!("https://localhost:{}", guarded.address.port());
    let ctl = |args: &[&str]| {
        let launch = access::ctl().unwrap().args(["--server", &url, "--cacert"]);
        let launch = launch.arg(folder.join("ca.pem")).arg("--token-file").arg(&file);
        launch.args(args).said(STAGE_TIMEOUT).unwrap()
    };
    let (code, said) = ctl(&["vms", "--no-headers"]);
    assert!(
        code == 0 && said.lines().count() == 2 && !said.contains("cluster-b"),
        "{said}"
    );
    assert_eq!(
        ctl(&["vm", &format!("cluster-b/{}", guarded.stage.plan.guests[1].name)]).0,
        4
    );
    let (tokens, line) = (folder.join("tokens"), access::token_line(ADMIN, "admin,all"));
    access::write_tokens(&tokens, &line).unwrap();
    wait::eventually(STAGE_TIMEOUT, "the token is revoked", || {
        let (code, said) = ctl(&["vms"]);
        ensure!(code == 1 && said.contains("the token is unknown"), "{said}");
        Ok(())
    })
    .unwrap();
    access::write_tokens(&tokens, &format!("not a line of the file\n{line}")).unwrap();
    wait::eventually(STAGE_TIMEOUT, "the broken file is reported", || {
        api.text(Some(ADMIN), "/api/v1/vms")?;
        ensure!(
            guarded
                .collector
                .log()
                .contains("changed static tokens cannot be used"),
            "not yet"
        );
        Ok(())
    })
    .unwrap();
    assert_eq!(count(api, ADMIN), 4, "an unchanged token is kept");
    fs::remove_file(tokens).unwrap();
    wait::eventually(STAGE_TIMEOUT, "without the file no token is valid", || {
        let (status, text) = api.text(Some(ADMIN), "/api/v1/vms")?;
        ensure!(status == 401, "{text}");
        Ok(())
    })
    .unwrap();
}

/// Paths that neither [`READ_PATHS`] nor a test of its own has, with the reason.
const OTHER_PATHS: [&str; 5] = [
    // Public: no data of the fleet.
    "/",
    "/web/{file}",
    "/healthz",
    // Public roots, for every caller; 404 without enrolment.
    "/api/v1/ca/clients.pem",
    // A stream: a_stream_has_only_its_own_tenant_and_ends_with_its_rights.
    "/api/v1/watch",
];

/// A path that is added to the API cannot be left out of the tests of rights.
#[test]
fn every_path_that_reads_has_a_test_of_its_rights() {
    let guarded = Guarded::new("redactInfra: true");
    let (status, text) = guarded.api.text(Some(ADMIN), "/api/v1/openapi.json").unwrap();
    assert_eq!(status, 200);
    let document: Value = serde_json::from_str(&text).unwrap();
    let paths = document["paths"].as_object().unwrap().iter();
    let mut reads: Vec<&str> = paths
        .filter(|(_, methods)| methods.get("get").is_some())
        .map(|(path, _)| path.as_str())
        .collect();
    let named = [
        "/api/v1/vms/{namespace}/{name}",
        "/vm/{namespace}/{name}/metrics",
        "/api/v1/vms/{namespace}/{name}/history",
        "/api/v1/hosts/{name}",
        "/api/v1/hosts/{name}/drain",
    ];
    reads.retain(|path| !(READ_PATHS.contains(path) || OTHER_PATHS.contains(path) || named.contains(path)));
    assert_eq!(reads, Vec::<&str>::new(), "add them to READ_PATHS, or to a test");
    for path in ["/", "/healthz"] {
        let (status, text) = guarded.api.text(None, path).unwrap();
        assert!(status == 200 && !text.contains("cluster-"), "{path}: {text}");
    }
    let roots = guarded.api.text(Some(TENANT), "/api/v1/ca/clients.pem");
    assert_eq!(roots.unwrap().0, 404);
}

#[test]
fn a_client_of_tls_1_2_is_refused() {
    let guarded = Guarded::new("redactInfra: true");
    client_hello::refuses_tls_1_2(|| std::net::TcpStream::connect(guarded.address)).unwrap();
}

/// The VM of a guest runs on another infra node.
fn move_guest(guarded: &Guarded, guest: &sim::Guest) {
    let hosts = &guarded.stage.plan.hosts;
    let to = &hosts[(guest.host + 1) % hosts.len()];
    let text = sim::vmi(guest, &to.name);
    guarded.stage.write_vmi(guest, &text).unwrap();
}

/// The infra node of a guest in the last change of it in a stream.
fn infra_node(text: &str, guest: &sim::Guest) -> Option<String> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let changes = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let vms = changes.flat_map(|change| change["vms"].as_array().cloned().unwrap_or_default());
    let mut own = vms.filter(|vm| vm["namespace"] == *guest.cluster && vm["name"] == *guest.name);
    own.next_back()?["infraNode"].as_str().map(str::to_owned)
}

#[test]
fn a_stream_has_only_its_own_tenant_and_ends_with_its_rights() {
    let guarded = Guarded::new("redactInfra: true");
    let guests = &guarded.stage.plan.guests;
    let of = |cluster: &str| guests.iter().find(|guest| guest.cluster == cluster).unwrap();
    let (own, other) = (of("cluster-a"), of("cluster-b"));
    for (token, expected) in [("a-wrong-token", 401), ("", 401)] {
        let (status, text) = guarded.api.stream(token, "/api/v1/watch", |_| false).unwrap();
        assert_eq!(status, expected, "{text}");
    }
    let known = guarded
        .api
        .text(Some(TENANT), &format!("/api/v1/vms/{}/{}", own.cluster, own.name));
    let known: Value = serde_json::from_str(&known.unwrap().1).unwrap();
    // Of the tenant's own VM only a pseudonym of the infra node is known.
    let known = known["infraNode"].as_str().unwrap().to_owned();
    let has_moved =
        |text: &str, guest: &sim::Guest, from: &str| infra_node(text, guest).is_some_and(|node| node != from);
    let from = &guarded.stage.plan.hosts[other.host].name;
    let [seen, seen_by_admin] = [(); 2].map(|()| Mutex::new(String::new()));
    let watch = |token, seen: &Mutex<String>, is_last: &dyn Fn(&str) -> bool| {
        let stream = guarded.api.stream(token, "/api/v1/watch", |text| {
            text.clone_into(&mut seen.lock().unwrap());
            is_last(text)
        });
        stream.unwrap()
    };
    let (status, text) = thread::scope(|scope| {
        let stream = scope.spawn(|| watch(TENANT, &seen, &|_| false));
        let admin = scope.spawn(|| watch(ADMIN, &seen_by_admin, &|text| has_moved(text, other, from)));
        wait::eventually(STAGE_TIMEOUT, "both streams are open", || {
            let open = [&seen, &seen_by_admin].map(|seen| seen.lock().unwrap().contains("event: ready"));
            ensure!(open == [true, true], "{open:?}");
            Ok(())
        })
        .unwrap();
        // The tenant's own change comes after that of the other, so it would be the second event.
        move_guest(&guarded, other);
        assert_eq!(admin.join().unwrap().0, 200);
        move_guest(&guarded, own);
        wait::eventually(STAGE_TIMEOUT, "the tenant sees its own", || {
            let text = seen.lock().unwrap();
            ensure!(has_moved(&text, own, &known), "{text}");
            Ok(())
        })
        .unwrap();
        let left = access::token_line(ADMIN, "admin,all");
        access::write_tokens(&guarded.folder.join("tokens"), &left).unwrap();
        stream.join().unwrap()
    });
    assert_eq!(status, 200);
    assert!(text.contains("event: end"), "{text}");
    let hosts = guarded
        .stage
        .plan
        .hosts
        .iter()
        .flat_map(|host| [host.name.clone(), host.zone.clone()]);
    let secrets = [
        other.uid.clone(),
        other.address.ip().to_string(),
        "cluster-b".to_owned(),
    ];
    for secret in hosts.chain(secrets) {
        assert!(!access::has_name(&text, &secret), "{secret} in {text}");
    }
    let denied = guarded.api.stream(TENANT, "/api/v1/watch", |_| false).unwrap();
    assert_eq!(denied.0, 401, "{}", denied.1);
}

/// Without a cluster and without a flag, the collector is on this machine.
#[test]
fn virtfleetctl_without_a_cluster_uses_this_machine() {
    let free = ports::free().unwrap();
    let (code, said) = access::ctl().unwrap().arg("vms").said(STAGE_TIMEOUT).unwrap();
    assert!(code == 1 && said.contains("http://127.0.0.1:10912"), "{said}");
    let direct = access::ctl()
        .unwrap()
        .args(["vms", "--server", &format!("http://{free}")]);
    let (code, said) = direct.said(STAGE_TIMEOUT).unwrap();
    assert!(code == 1 && said.contains(&free.to_string()), "{said}");
    for (args, part) in [
        (&["--via", "port-forward"][..], "--via requires a kubeconfig"),
        (
            &["--kubeconfig", "/nonexistent/config"],
            "/nonexistent/config cannot be used",
        ),
        (
            &["--service-account", "a"],
            "--service-account requires a kubeconfig",
        ),
    ] {
        let launch = access::ctl().unwrap().arg("vms").args(args);
        let (code, said) = launch.said(STAGE_TIMEOUT).unwrap();
        assert!(code == 2 && said.contains(part), "{args:?}: {said}");
    }
}
