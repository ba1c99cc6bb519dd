//! What is shipped as an example works as it is: settings, units, scrape configuration.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use rcgen::ExtendedKeyUsagePurpose::ClientAuth;

use virtfleet_agent_host::Roots;
use virtfleet_agent_state::settings;
use virtfleet_collector::config::CollectorConfig;
use virtfleet_tests::{
    access, bins, parts,
    pki::{self, Authority},
    ports,
    process::{Launch, Process},
    scrape::Client,
    skip, wait,
};
use virtfleet_wire::layered::{Fragment, parse_yaml};

/// A bearer token.
const TOKEN: &str = "a-token-of-a-reader";

/// Maximum time of one step of a test.
const STEP_TIMEOUT: Duration = Duration::from_mins(1);

fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn problems(file: &Path) -> Vec<String> {
    settings::load(&Roots::default(), Some(file))
        .problems
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn the_agents_default_settings_lack_nothing_but_certificates() {
    let problems = problems(&shipped("packaging/agent.yaml"));
    assert!(
        problems.len() == 1 && problems[0].contains("server.tls.certificate"),
        "{problems:?}"
    );
}

#[test]
fn the_collectors_example_settings_are_valid() {
    let path = shipped("packaging/collector/collector.yaml");
    let fragment = Fragment {
        file: path.display().to_string(),
        text: fs::read_to_string(&path).unwrap(),
    };
    let loaded = CollectorConfig::load(&[fragment]);
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
}

/// The settings of the infra cluster, from which kustomize makes the ConfigMap.
fn packaged_settings() -> String {
    fs::read_to_string(shipped("packaging/collector/kubernetes/infra/collector.yaml")).unwrap()
}

#[test]
fn the_packaged_api_authenticates_every_client() {
    let text = packaged_settings();
    let load = |text: String| {
        CollectorConfig::load(&[Fragment {
            file: "collector.yaml".to_owned(),
            text,
        }])
    };
    let loaded = load(text.clone());
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    let server = &loaded.value.server;
    assert!(!server.is_plain() && loaded.value.issues_api_certificate());
    let without = |words: &[&str]| {
        let lines = text.lines();
        let lines = lines.filter(|line| !words.iter().any(|word| line.contains(word)));
        load(lines.collect::<Vec<_>>().join("\n"))
    };
    let neither = without(&["tokenReview"]);
    assert!(
        neither.problems[0]
            .to_string()
            .contains("an authentication of clients"),
        "{:?}",
        neither.problems
    );
    // What the probes ask is served on the port that they name, and by nothing else.
    let deployment =
        fs::read_to_string(shipped("packaging/collector/kubernetes/infra/deployment.yaml")).unwrap();
    let probes = server.probe_address.as_deref().unwrap();
    let (_, port) = probes.rsplit_once(':').unwrap();
    assert!(deployment.contains(&format!("name: probes, containerPort: {port}")));
    assert_eq!(deployment.matches("port: probes").count(), 2, "{deployment}");
}

/// Starts a collector with the packaged settings, with files and ports of the test.
fn packaged_collector(folder: &Path, api: SocketAddr, probes: SocketAddr) -> Process {
    let clients = Authority::new("clients").unwrap();
    let of_api = pki::write(
        folder,
        "server",
        &clients,
        &clients.server("api", api.ip()).unwrap(),
    )
    .unwrap();
    fs::rename(&of_api.ca, folder.join("clients-ca.pem")).unwrap();
    fs::rename(&of_api.certificate, folder.join("server.crt")).unwrap();
    // An admin, and an agent whose certificate the same authority has signed by mistake.
    for (name, identity) in [
        ("admin", clients.collector().unwrap()),
        (
            "agent",
            clients
                .issue("a", "spiffe://d/vmi/a/b/c", &[], ClientAuth)
                .unwrap(),
        ),
    ] {
        pki::write(folder, name, &clients, &identity).unwrap();
    }
    fs::create_dir(folder.join("inventory")).unwrap();
    // There is no cluster in this test, so a static token stands for one that the cluster verifies.
    let line = access::token_line(TOKEN, "reader,namespace:none");
    access::write_tokens(&folder.join("tokens"), &line).unwrap();
    fs::write(folder.join("token"), TOKEN).unwrap();
    // There is no authority of a cluster either, so the certificate is given.
    let files = [
        ("certificate", "server.crt"),
        ("key", "server.key"),
        ("clientCA", "clients-ca.pem"),
    ];
    let files = files.map(|(key, name)| format!("    {key}: {}/{name}\n", folder.display()));
    let text = packaged_settings()
        .replace("  access:\n", &format!("  tls:\n{}  access:\n", files.concat()))
        .replace("tokenReview: {}", &format!("tokens: {}/tokens", folder.display()))
        .replace(
            "  cluster: {}",
            &format!("  folder: {}/inventory", folder.display()),
        )
        .replace(
            "enrolment:",
            &format!("enrolment:\n  folder: {}/ca", folder.display()),
        )
        .replace("0.0.0.0:10912", &api.to_string())
        .replace("0.0.0.0:10914", &probes.to_string());
    let config = folder.join("collector.yaml");
    fs::write(&config, text).unwrap();
    Launch::new(bins::collector().unwrap())
        .args(["serve", "--config"])
        .arg(&config)
        .start(folder)
        .unwrap()
}

#[test]
fn the_packaged_api_answers_clients_with_credentials_and_probes_without() {
    let folder = tempfile::tempdir().unwrap();
    let (api, probes) = (ports::free().unwrap(), ports::free().unwrap());
    let _collector = packaged_collector(folder.path(), api, probes);
    let probe = |path: &str| Client::plain(probes, STEP_TIMEOUT)?.get(path);
    wait::eventually(STEP_TIMEOUT, "it is ready", || probe("/readyz")?.ok().map(drop)).unwrap();
    assert_eq!(probe("/healthz").unwrap().status.as_u16(), 200);
    for path in ["/", "/api/v1/vms", "/metrics", "/sd"] {
        assert_eq!(probe(path).unwrap().status.as_u16(), 404, "{path}");
    }
    let file = |name: &str| folder.path().join(name);
    let launch = || {
        Launch::new(bins::ctl().unwrap())
            .args(["vms", "--server", &format!("https://{api}"), "--cacert"])
            .arg(file("clients-ca.pem"))
    };
    let with = |name: &str| {
        let launch = launch().arg("--cert").arg(file(&format!("{name}.pem")));
        launch
            .arg("--key")
            .arg(file(&format!("{name}.key")))
            .said(STEP_TIMEOUT)
            .unwrap()
    };
    assert_eq!(with("admin").0, 0);
    assert_ne!(with("agent").0, 0, "an agent's");
    let (code, said) = launch().said(STEP_TIMEOUT).unwrap();
    assert!(code == 1 && said.contains("no credentials"), "{said}");
    let with_token = launch().arg("--token-file").arg(file("token"));
    assert_eq!(with_token.said(STEP_TIMEOUT).unwrap().0, 0);
    Client::plain(api, STEP_TIMEOUT)
        .and_then(|mut plain| plain.get("/api/v1/vms"))
        .unwrap_err();
}

/// Whoever applies one makes no UserCluster that stays without kubeconfig.
#[test]
fn an_example_of_a_platform_is_one_user_cluster() {
    for name in ["kkp", "kkp-namespaced", "gardener"] {
        let file = format!("packaging/collector/kubernetes/examples/usercluster-{name}.yaml");
        let objects = parse_yaml(&fs::read_to_string(shipped(&file)).unwrap()).unwrap();
        let kinds: Vec<_> = objects.iter().map(|one| one.to_json()["kind"].clone()).collect();
        assert_eq!(kinds, ["UserCluster"], "{file}");
    }
}

#[test]
fn no_hardening_option_of_the_unit_hides_what_is_measured() {
    let unit = fs::read_to_string(shipped("packaging/systemd/virtfleet-agent.service")).unwrap();
    for hides in [
        "ProtectProc=",
        "ProcSubset=",
        "PrivateDevices=",
        "PrivateNetwork=",
        "PrivateTmp=",
        "PrivateUsers=",
        "ProtectHome=",
        "ProtectHostname=",
        "ProtectClock=",
        "ProtectKernelModules=",
        "RestrictFileSystems=",
        "InaccessiblePaths=",
        "TemporaryFileSystem=",
    ] {
        assert!(
            !unit.lines().any(|line| line.trim_start().starts_with(hides)),
            "{hides} hides metrics"
        );
    }
    for needed in [
        "Type=notify",
        "ExecStartPre=-+/usr/bin/virtfleet-agent state",
        "RestartPreventExitStatus=78",
        "Restart=always",
        "StartLimitIntervalSec=0",
        "DevicePolicy=closed",
        "DeviceAllow=block-* r",
        "ReadWritePaths=-/run/virtfleet/ask",
    ] {
        assert!(unit.lines().any(|line| line == needed), "{needed} is missing");
    }
}

#[test]
fn tier3_prometheus_accepts_the_scrape_configuration() {
    let test = "tier3_prometheus_accepts_the_scrape_configuration";
    let Some(promtool) = skip::need(3, test, parts::promtool()).unwrap() else {
        return;
    };
    for name in ["prometheus.yaml", "prometheus-direct.yaml"] {
        // The certificates are not there, so only the syntax can be checked.
        let said = Launch::new(&promtool)
            .args(["check", "config", "--syntax-only"])
            .arg(shipped(&format!("packaging/collector/{name}")))
            .text(Duration::from_secs(30))
            .unwrap();
        assert!(said.contains("SUCCESS"), "{name}: {said}");
    }
}

/// A Service gives one replica's own metrics, now one's and now the other's.
#[test]
fn each_replica_is_a_target_and_the_fleet_is_scraped_once() {
    let read = |name: &str| fs::read_to_string(shipped(name)).unwrap();
    let scrape = read("packaging/collector/prometheus.yaml");
    let deployment = read("packaging/collector/kubernetes/infra/deployment.yaml");
    let (once, own) = scrape.split_once("- job_name: virtfleet-collector ").unwrap();
    for (wanted, named) in [
        (
            "label: app.kubernetes.io/name=virtfleet-collector",
            "{ app.kubernetes.io/name: virtfleet-collector }",
        ),
        ("port_name], regex: api,", "{ name: api, containerPort: 10912 }"),
        ("names: [virtfleet]", "namespace: virtfleet"),
    ] {
        assert!(
            own.contains(wanted) && deployment.contains(named),
            "{wanted}: {named}"
        );
    }
    assert!(own.contains("role: pod\n") && own.contains("target_label: pod }"));
    assert!(!own.contains("static_configs") && !once.contains("kubernetes_sd_configs"));
    let leader = "virtfleet-collector-leader";
    assert!(once.contains("/metrics/fleet") && once.contains(&format!("{leader}.virtfleet.svc:10912/sd")));
    // A certificate names the Service of all replicas.
    assert!(once.contains("server_name: virtfleet-collector.virtfleet.svc"));
    let certificate = read("packaging/collector/kubernetes/api-certificate/kustomization.yaml");
    assert!(certificate.contains("for virtfleet-collector.virtfleet.svc"));
    let of_leader = deployment.split_once(&format!("name: {leader}\n")).unwrap().1;
    assert!(of_leader.contains("{ name: api, port: 10912 }") && !of_leader.contains("selector"));
    let settings = read("packaging/collector/kubernetes/infra/collector.yaml");
    let rights = read("packaging/collector/kubernetes/infra/rbac.yaml");
    assert!(settings.contains(&format!("service: {leader}\n")) && rights.contains(&format!("[{leader}]")));
    assert!(deployment.contains("fieldPath: status.podIP"));
}

/// A guest may export what it likes under its own job, so a query that names no job joins what is
/// forged.
#[test]
fn every_documented_query_names_its_job() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut texts = vec![root.join("README.md")];
    texts.extend(
        fs::read_dir(root.join("docs"))
            .unwrap()
            .map(|entry| entry.unwrap().path()),
    );
    let mut queries = 0;
    for path in texts
        .iter()
        .filter(|path| path.extension().is_some_and(|kind| kind == "md"))
    {
        let text = fs::read_to_string(path).unwrap();
        for block in text.split("```promql\n").skip(1) {
            let block = block.split("```").next().unwrap();
            let query: Vec<_> = block
                .lines()
                .filter(|line| !line.trim_start().starts_with('#'))
                .collect();
            let query = query.join(" ");
            for (at, _) in query
                .match_indices("node_")
                .chain(query.match_indices("virtfleet_"))
            {
                let starts =
                    query[..at].ends_with(|before: char| !before.is_ascii_alphanumeric() && before != '_');
                let rest = query[at..].trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
                if at > 0 && !starts {
                    continue;
                }
                queries += 1;
                let selector = rest.strip_prefix('{').and_then(|rest| rest.split('}').next());
                assert!(
                    selector.is_some_and(|selector| selector.contains("job=")),
                    "{}: {query}",
                    path.display()
                );
            }
        }
    }
    assert!(queries >= 6, "{queries}");
}
