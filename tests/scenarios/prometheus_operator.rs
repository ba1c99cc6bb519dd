//! The objects for prometheus-operator and for KKP's MLA: an API server with the real kinds accepts
//! them, and they request what the shipped settings of Prometheus do.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{collections::BTreeMap, fs, time::Duration};

use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::ApiServer,
    install::{Helm, prometheus_definitions},
    parts,
    process::Launch,
    skip, wait,
};
use virtfleet_wire::layered::{Node, parse_yaml};

use crate::expressions::{read, yaml};

const MONITORING: &str = "packaging/collector/kubernetes/monitoring";
const KKP_SCRAPING: &str = "packaging/collector/kubernetes/kkp-mla/scraping.yaml";
/// Maximum wait until the API server lists a new kind.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// Settings that an object of prometheus-operator has under the same name in another case.
const SAME: [&str; 9] = [
    "honor_labels",
    "honor_timestamps",
    "metrics_path",
    "sample_limit",
    "body_size_limit",
    "label_limit",
    "label_name_length_limit",
    "label_value_length_limit",
    "scheme",
];

fn objects(path: &str) -> Vec<Value> {
    parse_yaml(&read(path))
        .unwrap()
        .iter()
        .map(Node::to_json)
        .collect()
}

/// Jobs of `prometheus.yaml`, by name.
fn jobs() -> BTreeMap<String, Value> {
    let settings = yaml("packaging/collector/prometheus.yaml");
    let jobs = settings["scrape_configs"].as_array().unwrap().clone();
    let named = |job: Value| (job["job_name"].as_str().unwrap().to_owned(), job);
    jobs.into_iter().map(named).collect()
}

fn camel(name: &str) -> String {
    let mut parts = name.split('_');
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| text + &part[..1].to_uppercase() + &part[1..])
}

/// Keys of relabelling rules in camel case.
fn relabelling(rules: &Value) -> Value {
    let Some(rules) = rules.as_array() else {
        return Value::Null;
    };
    let rule = |rule: &Value| -> Value {
        let fields = rule.as_object().unwrap().iter();
        Value::Object(fields.map(|(key, value)| (camel(key), value.clone())).collect())
    };
    rules.iter().map(rule).collect()
}

#[test]
fn scrape_configs_request_what_the_settings_of_prometheus_do() {
    let jobs = jobs();
    let objects = objects(&format!("{MONITORING}/scrape.yaml"));
    let configs: Vec<&Value> = objects
        .iter()
        .filter(|object| object["kind"] == "ScrapeConfig")
        .collect();
    assert_eq!(configs.len(), 2);
    for config in configs {
        let spec = &config["spec"];
        let job = &jobs[spec["jobName"].as_str().unwrap()];
        for name in SAME {
            let (expected, found) = (&job[name], &spec[camel(name)]);
            // /sd sets the scheme of its targets; here the targets have none until then.
            let is_scheme = name == "scheme" && *found == "HTTPS";
            assert!(is_scheme || expected == found, "{name}: {expected}, {found}");
        }
        assert_eq!(spec["relabelings"], relabelling(&job["relabel_configs"]));
        assert_eq!(
            spec["metricRelabelings"],
            relabelling(&job["metric_relabel_configs"])
        );
        let urls = [
            &job["http_sd_configs"][0]["url"],
            &spec["httpSDConfigs"][0]["url"],
        ];
        assert_eq!(urls[0], urls[1]);
        assert_eq!(job["static_configs"], spec["staticConfigs"]);
        assert_eq!(
            spec["tlsConfig"]["serverName"],
            "virtfleet-collector.virtfleet.svc"
        );
    }
    let monitor = objects
        .iter()
        .find(|object| object["kind"] == "PodMonitor")
        .unwrap();
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["followRedirects"], false);
    assert_eq!(
        endpoint["relabelings"],
        json!([{"targetLabel": "job", "replacement": "virtfleet-collector"}])
    );
    // The pods of infra/deployment.yaml, by label and name of the port.
    let deployment = yaml("packaging/collector/kubernetes/infra/deployment.yaml");
    let template = &deployment["spec"]["template"];
    assert_eq!(
        monitor["spec"]["selector"]["matchLabels"],
        template["metadata"]["labels"]
    );
    let ports = template["spec"]["containers"][0]["ports"].as_array().unwrap();
    assert!(ports.iter().any(|port| port["name"] == endpoint["port"]));
}

/// The job for KKP's agent.
fn kkp_job() -> (String, Value) {
    let object = yaml(KKP_SCRAPING);
    let name = object["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("monitoring-scraping-"), "{name}");
    assert_eq!(object["metadata"]["namespace"], "mla-system");
    let text = object["data"]["custom-scrape-configs.yaml"].as_str().unwrap();
    let job = parse_yaml(text).unwrap()[0].to_json()[0].clone();
    (text.to_owned(), job)
}

/// KKP's agent limits a guest's page as Prometheus does.
#[test]
fn job_for_kkp_has_the_limits_of_the_settings_of_prometheus() {
    let (_, job) = kkp_job();
    let node = &jobs()["node"];
    for name in SAME
        .iter()
        .filter(|name| **name != "scheme" && **name != "honor_labels")
    {
        assert_eq!(job[name], node[name], "{name}");
    }
    // False is the default.
    assert!(job["honor_labels"].is_null() && node["honor_labels"] == false);
    assert_eq!(job["follow_redirects"], node["follow_redirects"]);
    assert_eq!(job["metric_relabel_configs"], node["metric_relabel_configs"]);
    assert_eq!(job["relabel_configs"][0], node["relabel_configs"][0]);
}

#[test]
fn tier3_promtool_accepts_the_job_for_kkp() {
    let test = "tier3_promtool_accepts_the_job_for_kkp";
    let Some(promtool) = skip::need(3, test, parts::promtool()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prometheus.yaml");
    let (job, _) = kkp_job();
    fs::write(&file, format!("scrape_configs:\n{job}")).unwrap();
    let said = Launch::new(&promtool)
        .args(["check", "config"])
        .arg(&file)
        .text(Duration::from_mins(1))
        .unwrap();
    assert!(said.contains("SUCCESS"), "{said}");
}

#[test]
fn tier3_api_server_with_the_operators_kinds_accepts_the_objects() {
    let test = "tier3_api_server_with_the_operators_kinds_accepts_the_objects";
    if skip::need(3, test, parts::kube_assets()).unwrap().is_none() {
        return;
    }
    let Some(definitions) = skip::need(3, test, prometheus_definitions()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let server = ApiServer::start(folder.path()).unwrap();
    server.install(&definitions).unwrap();
    server.namespace("monitoring").unwrap();
    let files = [
        "scrape.yaml",
        "prometheusrule.yaml",
        "prometheusrule-recording.yaml",
    ];
    let mut accepted = Vec::new();
    for mut object in files
        .iter()
        .flat_map(|file| objects(&format!("{MONITORING}/{file}")))
    {
        object["metadata"]["namespace"] = "monitoring".into();
        // With strict validation, an unknown field is an error instead of a warning.
        // Discovery lists a new kind a moment after its first request is answered.
        let path = wait::eventually(DISCOVERY_TIMEOUT, "the kind is listed", || {
            server.path_of(&object)
        });
        let path = path.unwrap();
        let (collection, name) = path.rsplit_once('/').unwrap();
        let create = |object: &Value| {
            let path = format!("{collection}?fieldValidation=Strict");
            server.admin().post(&path, object).unwrap()
        };
        let stored = create(&object).ok().unwrap();
        assert_eq!(
            stored["spec"],
            defaulted(&object["spec"], &stored["spec"]),
            "{name}"
        );
        accepted.push(name.to_owned());
        // The server validates: a field that the kind does not have is refused.
        object["metadata"]["name"] = "broken".into();
        object["spec"]["followRedirect"] = true.into();
        let refused = create(&object);
        assert_eq!(refused.code, 400, "{:?}", refused.body);
    }
    assert_eq!(accepted.len(), 5, "{accepted:?}");
}

/// Where the alerts say that their runbooks are.
fn runbooks(objects: &[Value]) -> Vec<&str> {
    let rule = objects
        .iter()
        .find(|object| object["kind"] == "PrometheusRule" && object["metadata"]["name"] == "virtfleet");
    let groups = rule.unwrap()["spec"]["groups"].as_array().unwrap();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    rules
        .map(|rule| rule["annotations"]["runbook_url"].as_str().unwrap())
        .collect()
}

/// With the chart, and with kustomize as `docs/alerts.md` shows it.
#[test]
fn tier3_alerts_link_to_runbooks_at_a_given_address() {
    let test = "tier3_alerts_link_to_runbooks_at_a_given_address";
    let Some(helm) = skip::need(3, test, Helm::new()).unwrap() else {
        return;
    };
    let address = "https://git.example.com/virtfleet/docs/runbooks";
    let file = format!("{MONITORING}/prometheusrule.yaml");
    let shipped = objects(&file);
    let expected: Vec<String> = runbooks(&shipped)
        .iter()
        .map(|path| path.replacen("docs/runbooks", address, 1))
        .collect();
    for end in ["", "/"] {
        let set = format!("monitoring.enabled=true,monitoring.runbookBaseUrl={address}{end}");
        let made = helm.objects(&["--set", &set]).unwrap();
        assert_eq!(runbooks(&made), expected);
    }
    let page = read("docs/alerts.md");
    let (_, rest) = page.split_once("```yaml\n").unwrap();
    let (kustomization, _) = rest.split_once("```\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    fs::write(path.join("kustomization.yaml"), kustomization).unwrap();
    fs::write(path.join("prometheusrule.yaml"), read(&file)).unwrap();
    let built = helm.kustomized(path.to_str().unwrap()).unwrap();
    assert_eq!(runbooks(&built), expected);
}

/// The object with the defaults that the server has added: `action` of relabelling rules.
fn defaulted(ours: &Value, stored: &Value) -> Value {
    match (ours, stored) {
        (Value::Object(ours), Value::Object(stored)) => {
            let both = ours.iter().map(|(key, value)| {
                (
                    key.clone(),
                    defaulted(value, stored.get(key).unwrap_or(&Value::Null)),
                )
            });
            let action = stored.get("action").filter(|_| !ours.contains_key("action"));
            let added = action.map(|action| ("action".to_owned(), action.clone()));
            Value::Object(both.chain(added).collect())
        }
        (Value::Array(ours), Value::Array(stored)) if ours.len() == stored.len() => ours
            .iter()
            .zip(stored)
            .map(|(ours, stored)| defaulted(ours, stored))
            .collect(),
        _ => ours.clone(),
    }
}
