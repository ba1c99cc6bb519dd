use virtfleet_wire::layered::Fragment;

use super::*;

const VALID: &str = "apiVersion: virtfleet.io/v1alpha1
kind: CollectorConfig
inventory: {folder: /srv/fleet}
scrape:
  interval: 15s
  allowCIDRs: [10.0.0.0/8, 127.0.0.0/8]
  tls: {ca: /ca.pem, certificate: /c.pem, key: /k.pem, trustDomain: example.org}
";

const HEAD: &str = "apiVersion: virtfleet.io/v1alpha1\nkind: CollectorConfig\n";

fn problems(text: &str) -> Vec<String> {
    let text = format!("{HEAD}{text}");
    let fragment = Fragment {
        file: "c.yaml".into(),
        text,
    };
    let found = CollectorConfig::load(&[fragment]).problems;
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn valid_settings_are_applied_completely() {
    let fragment = Fragment {
        file: "c.yaml".into(),
        text: VALID.into(),
    };
    let loaded = CollectorConfig::load(&[fragment]);
    assert_eq!(loaded.problems, []);
    let config = loaded.value;
    assert_eq!(config.inventory.folder, "/srv/fleet");
    assert_eq!(
        (config.scrape.interval, config.scrape.timeout),
        (Span::seconds(15), Span::seconds(10))
    );
    assert!(config.server.is_plain());
    let rules = config.dial_rules();
    assert_eq!(rules.port(), 10911);
    rules.check("127.0.0.1".parse().unwrap()).unwrap();
    rules.check("192.168.0.1".parse().unwrap()).unwrap_err();
}

#[test]
fn agents_are_pulled_with_all_of_scrape_tls_or_not_at_all() {
    assert_eq!(problems(""), Vec::<String>::new());
    let config = CollectorConfig::default();
    assert!(!config.scrape.tls.is_set() && !config.dial_rules().pulls());
    let found = problems("scrape: {tls: {trustDomain: t}}\n");
    assert_eq!(found.len(), 2, "{found:?}");
    for key in ["scrape.tls.ca: ", "scrape.tls.certificate: "] {
        assert!(found.iter().any(|problem| problem.contains(key)), "{found:?}");
    }
}

#[test]
fn each_problem_has_its_line_and_key() {
    let tls = "scrape: {tls: {ca: a, certificate: c, key: k, trustDomain: t}}\n";
    for (text, expected) in [
        ("server: {address: nowhere}\n", "c.yaml:3: server.address: "),
        (
            "server: {address: '0.0.0.0:10912'}\n",
            "c.yaml:3: server.address: ",
        ),
        (
            "server: {address: '0.0.0.0:10912', tls: {certificate: c, key: k}}\n",
            "c.yaml:3: server.address: ",
        ),
        (
            "server: {probeAddress: nowhere}\n",
            "c.yaml:3: server.probeAddress: ",
        ),
        ("server:\n  tls: {certificate: c}\n", "server.tls.key: "),
        (
            "server:\n  tls: {clientCA: c}\n",
            "c.yaml:4: server.tls.clientCA: ",
        ),
        ("inventory:\n  folder: ''\n", "c.yaml:4: inventory.folder: "),
        ("inventory:\n  foldr: x\n", "c.yaml:4: inventory.foldr: "),
        (
            "inventory:\n  folder: /x\n  cluster: {}\n",
            "c.yaml:4: inventory.folder: ",
        ),
        (
            "inventory:\n  cluster: {context: x}\n",
            "c.yaml:4: inventory.cluster.context: ",
        ),
        (
            "inventory:\n  cluster: {namespaces: [a, a]}\n",
            "inventory.cluster.namespaces[1]",
        ),
        (
            "inventory:\n  cluster: {userClusters: {allowCIDRs: []}}\n",
            "inventory.cluster.userClusters.allowCIDRs: ",
        ),
        (
            "inventory:\n  cluster: {userClusters: {maxNodes: 0}}\n",
            "c.yaml:4: inventory.cluster.userClusters.maxNodes: ",
        ),
        ("labels: {parallel: 0}\n", "c.yaml:3: labels.parallel: "),
        ("labels: {recheck: 10ms}\n", "c.yaml:3: labels.recheck: "),
        (
            "labels: {confirmChange: 2h}\n",
            "c.yaml:3: labels.confirmChange: ",
        ),
        (
            "labels: {confirmRemoval: 2h}\n",
            "c.yaml:3: labels.confirmRemoval: ",
        ),
        (
            "leaderElection: {renewSeconds: 15}\n",
            "c.yaml:3: leaderElection.renewSeconds: ",
        ),
        ("leaderElection: {name: A_b}\n", "c.yaml:3: leaderElection.name: "),
        (
            "leaderElection: {service: 1a}\n",
            "c.yaml:3: leaderElection.service: ",
        ),
        (
            "leaderElection: {enabled: false, service: to-leader}\n",
            "c.yaml:3: leaderElection.service: requires leaderElection.enabled",
        ),
    ] {
        let found = problems(&format!("{text}{tls}"));
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "{text}: {found:?}"
        );
    }
    for (line, expected) in [
        ("interval: 0s", "scrape.interval: "),
        ("timeout: 31s", "c.yaml:4: scrape.timeout: "),
        ("concurrency: 0", "c.yaml:4: scrape.concurrency: "),
        ("port: 0", "c.yaml:4: scrape.port: "),
        ("port: 70000", "c.yaml:4: scrape.port: "),
        ("allowCIDRs: []", "c.yaml:4: scrape.allowCIDRs: "),
        ("allowCIDRs: [10.0.0.1/33]", "scrape.allowCIDRs"),
        ("maxReportBytes: 300000", "c.yaml:4: scrape.maxReportBytes: "),
        ("maxMetricsBytes: 0", "c.yaml:4: scrape.maxMetricsBytes: "),
    ] {
        let tls = "  tls: {ca: a, certificate: c, key: k, trustDomain: t}\n";
        let found = problems(&format!("scrape:\n  {line}\n{tls}"));
        assert!(
            found.iter().any(|problem| problem.contains(expected)),
            "{line}: {found:?}"
        );
    }
    let found = problems(&format!(
        "server: {{address: '0.0.0.0:10912', tls: {{certificate: c, key: k, clientCA: a}}}}\n{tls}"
    ));
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn enrolment_pulls_agents_without_files() {
    let text = format!("{HEAD}enrolment: {{trustDomain: example.org}}\n");
    let loaded = CollectorConfig::load(&[Fragment {
        file: "c.yaml".into(),
        text,
    }]);
    assert_eq!(loaded.problems, []);
    let config = loaded.value;
    assert!(config.pulls_agents() && config.dial_rules().pulls());
    assert_eq!(config.trust_domain(), Some("example.org"));
    let enrolment = config.enrolment.unwrap();
    assert_eq!(enrolment.lifetime.to_string(), "24h");
    assert_eq!(enrolment.folder, "/var/lib/virtfleet-collector");
}

#[test]
fn each_problem_of_enrolment_has_its_line_and_key() {
    let cluster = "inventory: {cluster: {}}\n";
    for (text, expected) in [
        ("enrolment: {}\n".to_owned(), "enrolment.trustDomain: required"),
        (
            "enrolment: {trustDomain: Example}\n".to_owned(),
            "c.yaml:3: enrolment.trustDomain: \"Example\" is not",
        ),
        (
            "enrolment: {trustDomain: a, lifetime: 9m}\n".to_owned(),
            "c.yaml:3: enrolment.lifetime: must be 10m to 2160h",
        ),
        (
            "enrolment: {trustDomain: a, lifetime: 2161h}\n".to_owned(),
            "c.yaml:3: enrolment.lifetime: ",
        ),
        (
            "enrolment: {trustDomain: a, folder: ''}\n".to_owned(),
            "c.yaml:3: enrolment.folder: empty",
        ),
        (
            "enrolment: {trustDomain: a, secret: b}\n".to_owned(),
            "c.yaml:3: enrolment.secret: has no effect with inventory.folder",
        ),
        (
            "enrolment: {trustDomain: a, agentsSecret: b}\n".to_owned(),
            "c.yaml:3: enrolment.agentsSecret: has no effect",
        ),
        (
            format!("{cluster}enrolment: {{trustDomain: a, folder: /b}}\n"),
            "c.yaml:4: enrolment.folder: has no effect with inventory.cluster",
        ),
        (
            format!("{cluster}enrolment: {{trustDomain: a, secret: A_b}}\n"),
            "c.yaml:4: enrolment.secret: \"A_b\" is not a valid name",
        ),
        (
            format!("{cluster}enrolment: {{trustDomain: a, agentsSecret: b, clientsSecret: b}}\n"),
            "c.yaml:4: enrolment.clientsSecret: b is also enrolment.agentsSecret",
        ),
        (
            "enrolment: {trustDomain: a}\nscrape: {tls: {ca: a, certificate: c, key: k, trustDomain: b}}\n"
                .to_owned(),
            "c.yaml:4: scrape.tls.trustDomain: must be enrolment.trustDomain, a",
        ),
    ] {
        let found = problems(&text);
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn each_problem_of_prometheus_has_its_key() {
    for (settings, expected) in [
        ("{}", "prometheus.url: required"),
        ("{url: 'http://10.0.0.1:9090'}", "prometheus.url: "),
        ("{url: 'https://a?x=y'}", "prometheus.url: has a query"),
        (
            "{url: 'https://a', timeout: 2m}",
            "prometheus.timeout: must be 1s to 1m",
        ),
        ("{url: 'https://a', labels: {a-b: c}}", "prometheus.labels.a-b: "),
        (
            "{url: 'https://a', labels: {name: c}}",
            "prometheus.labels.name: the query sets",
        ),
        (
            "{url: 'https://a', tls: {serverName: 'a b'}}",
            "prometheus.tls.serverName: ",
        ),
        (
            "{url: 'https://a', tls: {key: k}}",
            "prometheus.tls.certificate: required",
        ),
        (
            "{url: 'https://a', headers: [{name: 'a b', value: v}]}",
            "prometheus.headers[0].name: ",
        ),
        (
            "{url: 'https://a', headers: [{name: a}]}",
            "prometheus.headers[0]: exactly one",
        ),
        (
            "{url: 'https://a', headers: [{name: Authorization, value: v}], auth: {tokenFile: t}}",
            "prometheus.headers[0].name: auth is set",
        ),
        (
            "{url: 'https://a', auth: {username: u}}",
            "prometheus.auth.passwordFile: ",
        ),
    ] {
        let found = problems(&format!("prometheus: {settings}\n"));
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "{settings}: {found:?}"
        );
    }
    for settings in [
        "{url: 'http://127.0.0.1:9090/prometheus'}",
        "{url: 'http://prometheus:9090', insecure: true, labels: {infra_cluster: a}}",
        "{url: 'https://mimir', headers: [{name: X-Scope-OrgID, value: a}], auth: {username: u, passwordFile: p}}",
    ] {
        assert_eq!(
            problems(&format!("prometheus: {settings}\n")),
            Vec::<String>::new(),
            "{settings}"
        );
    }
}

#[test]
fn each_problem_of_access_has_its_key() {
    for (text, expected) in [
        (
            "server: {access: {tokenReview: {}}}\n",
            "server.access.tokenReview: ",
        ),
        (
            "server: {address: '0.0.0.0:1', access: {tokens: f}}\n",
            "c.yaml:3: server.address: ",
        ),
        ("server: {access: {tokens: ''}}\n", "server.access.tokens: "),
        ("server: {access: {redactKey: k}}\n", "server.access.redactKey: "),
        (
            "server: {access: {otherCertificates: [everyone]}}\n",
            "server.access.otherCertificates: ",
        ),
        (
            "server: {access: {certificates: [{name: a, scope: [all]}]}}\n",
            "server.access.certificates: ",
        ),
        (
            "inventory: {cluster: {}}\nserver: {access: {tokenReview: {cache: 6m}}}\n",
            "server.access.tokenReview.cache: ",
        ),
        (
            "inventory: {cluster: {}}\nserver: {access: {tokenReview: {audiences: [], clusterTokens: false}}}\n",
            "server.access.tokenReview.audiences: ",
        ),
    ] {
        let found = problems(text);
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn tokens_replace_the_client_certificate() {
    let tls = "tls: {certificate: c, key: k}";
    for access in [
        "{tokens: f}",
        "{tokenReview: {}}",
        "{tokenReview: {cache: 5m}, tokens: f, redactInfra: true}",
    ] {
        let text = format!(
            "inventory: {{cluster: {{}}}}\nserver: {{address: '0.0.0.0:10912', {tls}, access: {access}}}\n"
        );
        assert_eq!(problems(&text), Vec::<String>::new(), "{access}");
    }
    let wrong = "certificates: [{name: a, scope: [x]}, {scope: [all]}]";
    let text = format!("server: {{tls: {{certificate: c, key: k, clientCA: a}}, access: {{{wrong}}}}}\n");
    let found = problems(&text);
    for part in [
        "certificates[0].scope: \"x\" is not a scope",
        "certificates[1].name: required",
    ] {
        assert!(
            found.iter().any(|problem| problem.contains(part)),
            "{part}: {found:?}"
        );
    }
}

#[test]
fn the_port_for_agents_is_off_and_its_settings_are_checked() {
    assert_eq!(CollectorConfig::default().ingest, None);
    let enrolment = "enrolment: {trustDomain: d}\n";
    assert_eq!(
        problems(&format!("{enrolment}ingest: {{}}\n")),
        Vec::<String>::new()
    );
    for (text, parts) in [
        ("ingest: {}\n", &["ingest: has no effect"][..]),
        (
            "enrolment: {trustDomain: d}\ningest: {address: ':10913', maxAge: 500ms}\n",
            &["ingest.address: ", "ingest.maxAge: "],
        ),
        (
            "enrolment: {trustDomain: d}\nserver: {address: '127.0.0.1:10913'}\ningest: {address: \
             '127.0.0.1:10913', handshakeTimeout: 2m}\n",
            &["is also server.address", "ingest.handshakeTimeout: "],
        ),
        (
            "enrolment: {trustDomain: d}\ningest: {maxConnections: 0}\n",
            &["ingest.maxConnections: "],
        ),
        (
            "enrolment: {trustDomain: d}\ningest: {maxUnverified: 0, maxUnverifiedPerPeer: 0}\n",
            &["ingest.maxUnverified: ", "ingest.maxUnverifiedPerPeer: "],
        ),
    ] {
        let found = problems(text);
        assert_eq!(found.len(), parts.len(), "{found:?}");
        for part in parts {
            assert!(
                found.iter().any(|problem| problem.contains(part)),
                "{part}: {found:?}"
            );
        }
    }
}

#[test]
fn pulls_are_frequent_enough_for_streams() {
    let slow = "enrolment: {trustDomain: d}\nscrape: {interval: 3m}\n";
    assert_eq!(problems(slow), Vec::<String>::new());
    let found = problems(&format!("{slow}mla: {{}}\n"));
    let expected = "c.yaml:4: scrape.interval: must be at most 2m with mla";
    assert!(found[0].starts_with(expected), "{found:?}");
}

#[test]
fn mla_is_off_and_its_settings_are_checked() {
    assert_eq!(CollectorConfig::default().mla, None);
    let enrolment = "enrolment: {trustDomain: d}\n";
    let fleet = |more: &str| format!("mla: {{fleet: {{remoteWrite: {{url: 'https://a/push'{more}}}}}}}\n");
    for good in [
        "mla: {}\n".to_owned(),
        fleet(""),
        fleet(", auth: {username: u, passwordFile: /p}, headers: [{name: X-Scope-OrgID, value: a}]"),
        fleet(", tls: {ca: /a, certificate: /c, key: /k, serverName: a.example}"),
    ] {
        assert_eq!(
            problems(&format!("{enrolment}{good}")),
            Vec::<String>::new(),
            "{good}"
        );
    }
    assert_eq!(problems("mla: {}\n").len(), 1, "it pulls no agents");
    for (text, expected) in [
        (
            "mla: {queue: {folder: ''}}\n".to_owned(),
            "c.yaml:4: mla.queue.folder: empty",
        ),
        (
            "mla: {queue: {maxBytes: 5}}\n".to_owned(),
            "c.yaml:4: mla.queue.maxBytes: 5 is less than 16777216",
        ),
        (
            "mla:\n  queue:\n    maxBytes: 20000000\n".to_owned(),
            "mla.queue.maxBytesPerStream: must be at most mla.queue.maxBytes, 20000000",
        ),
        (
            "mla: {queue: {maxAge: 1s}}\n".to_owned(),
            "c.yaml:4: mla.queue.maxAge: ",
        ),
        (
            "mla: {flush: {interval: 2m}}\n".to_owned(),
            "c.yaml:4: mla.flush.interval: ",
        ),
        (
            "mla: {flush: {sync: 1ms}}\n".to_owned(),
            "c.yaml:4: mla.flush.sync: ",
        ),
        (
            "mla: {batch: {maxBytes: 1}}\n".to_owned(),
            "c.yaml:4: mla.batch.maxBytes: ",
        ),
        (
            "mla: {series: {maxPerVm: 3, maxPerStream: 2}}\n".to_owned(),
            "mla.series.maxPerStream: must be at least mla.series.maxPerVm, 3",
        ),
        (
            "mla: {fleet: {}}\n".to_owned(),
            "mla.fleet.remoteWrite.url: required",
        ),
        (
            "mla:\n  fleet:\n    remoteWrite: {url: 'http://a/push'}\n".to_owned(),
            "c.yaml:6: mla.fleet.remoteWrite.url: http:// shows",
        ),
        (
            "mla: {fleet: {remoteWriet: {}}}\n".to_owned(),
            "mla.fleet.remoteWriet: unknown key (did you mean remoteWrite?)",
        ),
        (
            fleet(", tls: {certificate: /c}"),
            "mla.fleet.remoteWrite.tls.key: required",
        ),
        (
            fleet(", auth: {username: u}"),
            "mla.fleet.remoteWrite.auth.passwordFile: required",
        ),
        (
            fleet(", auth: {username: u, passwordFile: /p, tokenFile: /t}"),
            "mla.fleet.remoteWrite.auth.tokenFile: ",
        ),
        (fleet(", headers: [{name: A}]"), "exactly one of value and file"),
        (
            fleet(", headers: [{name: Host, value: a}]"),
            "mla.fleet.remoteWrite.headers[0].name: Host: the header belongs",
        ),
        (
            fleet("").replace("fleet: {", "fleet: {externalLabels: {__replica__: a}, "),
            "mla.fleet.externalLabels.__replica__: ",
        ),
        (
            fleet("").replace("fleet: {", "fleet: {relabel: [{action: hashmod}], "),
            "mla.fleet.relabel[0]",
        ),
        (
            fleet("").replace("fleet: {", "fleet: {placementLabels: [{source: Zones}], "),
            "(did you mean Zone?)",
        ),
    ] {
        let found = problems(&format!("{enrolment}{text}"));
        assert!(
            found.iter().any(|problem| problem.contains(expected)),
            "{text}: {found:?}"
        );
    }
}
