//! Tier 3: the webhook for Gardener's OperatingSystemConfigs, as its chart configures it, on a real
//! API server with a definition of that kind.
#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

mod objects;

use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::ensure;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;
use virtfleet_tests::{
    bins,
    cluster::{ApiServer, Client, MERGE_PATCH, live::WAIT_TIMEOUT},
    install::Helm,
    parts, pki, ports,
    process::{Launch, Process},
    scrape, skip, wait,
};

use self::objects::{COLLECTION, NAMESPACE, definition, namespace, osc};
use crate::expressions::read;

/// Where node-agent writes the binary of the image.
const EXTRACTED_PATH: &str = "/opt/virtfleet/gardener/virtfleet-agent";
/// Annotation of an object that gets no agent.
const IGNORE_ANNOTATION: &str = "virtfleet.io/ignore";
/// Annotation with the digests of what was added.
const OWNED_ITEMS_ANNOTATION: &str = "virtfleet.io/owned-items";
/// Images of two versions of the agent.
const IMAGES: [&str; 2] = ["registry.example.org/agent:1", "registry.example.org/agent:2"];

/// An API server of a seed, with the chart's webhook.
struct Seed {
    server: ApiServer,
    folder: TempDir,
    /// Arguments of the container in the chart.
    arguments: Vec<String>,
    webhook: SocketAddr,
    probes: SocketAddr,
}

impl Seed {
    /// Renders the chart, and applies what does not need a cluster with nodes.
    fn new(helm: &Helm) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = ApiServer::start(folder.path()).unwrap();
        server.install(&[definition()]).unwrap();
        let authority = pki::Authority::new("seed").unwrap();
        let [webhook, probes] = [(); 2].map(|()| ports::free().unwrap());
        let identity = authority.server("webhook", webhook.ip()).unwrap();
        pki::write(folder.path(), "webhook", &authority, &identity).unwrap();

        let ca = folder.path().join("ca.pem");
        // After this time, an API server admits the object without the webhook.
        let set = format!("agent.image={},tls.source=secret,timeoutSeconds=30", IMAGES[0]);
        let fleet_ca = format!("fleetCA={}", ca.display());
        let bundle = format!("tls.caBundle={}", ca.display());
        let arguments = ["--set", &set, "--set-file", &fleet_ca, "--set-file", &bundle];
        let rendered = helm.gardener_objects(&arguments).unwrap();
        let of_kind = |kind: &str| {
            rendered
                .iter()
                .find(|object| object["kind"] == kind)
                .unwrap()
                .clone()
        };
        for (name, text) in of_kind("ConfigMap")["data"].as_object().unwrap() {
            fs::write(folder.path().join(name), text.as_str().unwrap()).unwrap();
        }
        let deployment = of_kind("Deployment");
        let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
        let arguments = arguments.as_array().unwrap().iter();
        // The API server of a test reaches no Service.
        let mut configuration = of_kind("MutatingWebhookConfiguration");
        let client = &mut configuration["webhooks"][0]["clientConfig"];
        assert_eq!(client["caBundle"], STANDARD.encode(authority.pem()));
        assert_eq!(client["service"]["path"], "/mutate");
        client.as_object_mut().unwrap().remove("service");
        client["url"] = format!("https://{webhook}/mutate").into();
        server.apply(&configuration).unwrap();
        Self {
            arguments: arguments
                .map(|argument| argument.as_str().unwrap().to_owned())
                .collect(),
            server,
            folder,
            webhook,
            probes,
        }
    }

    /// Starts the webhook as the chart does, with another image.
    fn start(&self, image: &str) -> Process {
        let path = |name: &str| -> PathBuf { self.folder.path().join(name) };
        let folder = self.folder.path().display().to_string();
        let arguments = self.arguments.iter().map(|argument| {
            argument
                .replace("/etc/virtfleet/delivery/", &format!("{folder}/"))
                .replace(IMAGES[0], image)
        });
        let mut process = Launch::new(bins::collector().unwrap())
            .args(arguments)
            .arg(format!("--address={}", self.webhook))
            .arg(format!("--probe.address={}", self.probes))
            .arg(format!("--tls.certificate={}", path("webhook.pem").display()))
            .arg(format!("--tls.key={}", path("webhook.key").display()))
            .start(self.folder.path())
            .unwrap();
        process.wait_for_line("admitting", WAIT_TIMEOUT).unwrap();
        process
    }

    fn admin(&self) -> &Client {
        self.server.admin()
    }

    /// Creates an object.
    fn create(&self, object: &Value) -> Value {
        self.admin().post(COLLECTION, object).unwrap().ok().unwrap()
    }

    /// A merge patch, as `kubectl annotate` sends it.
    fn annotate(&self, name: &str, key: &str, value: &str) -> Value {
        let change = json!({"metadata": {"annotations": {key: value}}});
        let path = format!("{COLLECTION}/{name}");
        self.admin()
            .patch(&path, MERGE_PATCH, &change)
            .unwrap()
            .ok()
            .unwrap()
    }

    /// Waits until the API server uses the webhook.
    fn until_used(&self) {
        let dry_run = format!("{COLLECTION}?dryRun=All");
        wait::eventually(WAIT_TIMEOUT, "the API server uses the webhook", || {
            let made = self.admin().post(&dry_run, &osc("probe", "reconcile"))?.ok()?;
            ensure!(image(&made).is_some(), "{made:#}");
            Ok(())
        })
        .unwrap();
    }
}

/// The image of the binary in an object.
fn image(object: &Value) -> Option<&str> {
    let mut files = object["spec"]["files"].as_array()?.iter();
    let binary = files.find(|file| file["path"] == EXTRACTED_PATH)?;
    binary["content"]["imageRef"]["image"].as_str()
}

fn without_changes(made: &Value, asked: &Value) {
    assert_eq!(made["spec"], asked["spec"]);
    assert_eq!(made["metadata"]["annotations"], asked["metadata"]["annotations"]);
}

/// What a machine gets. The kind's definition keeps no unknown field, so all fields are Gardener's.
fn has_the_agent(made: &Value, asked: &Value) {
    let theirs = &asked["spec"]["files"].as_array().unwrap()[..];
    let files = made["spec"]["files"].as_array().unwrap();
    assert_eq!(files[..theirs.len()], *theirs, "those of others stay first");
    let paths: Vec<&str> = files.iter().map(|file| file["path"].as_str().unwrap()).collect();
    let paths = &paths[theirs.len()..];
    assert_eq!(
        paths,
        [
            EXTRACTED_PATH,
            "/etc/virtfleet/tls/ca.crt",
            "/etc/virtfleet/agent.d/50-delivery.yaml"
        ]
    );
    let settings = &files[theirs.len() + 2]["content"]["inline"];
    assert!(
        settings["data"].as_str().unwrap().contains("enrolment: true"),
        "{settings}"
    );
    assert_eq!(settings["encoding"], "");
    let units = made["spec"]["units"].as_array().unwrap();
    assert_eq!((units.len(), &units[0]), (2, &asked["spec"]["units"][0]));
    let text = read("shared/delivery/src/text/gardener-delivery.service").replace("@AGENT@", EXTRACTED_PATH);
    let unit = json!({
        "name": "virtfleet-delivery.service", "command": "start", "enable": true, "content": text,
        "filePaths": paths,
    });
    assert_eq!(units[1], unit);
}

#[test]
fn gardeners_machines_get_the_agent_by_the_shipped_webhook_tier3() {
    let test = "gardeners_machines_get_the_agent_by_the_shipped_webhook_tier3";
    let needs = || {
        parts::kube_assets()?;
        Helm::new()
    };
    let Some(helm) = skip::need(3, test, needs()).unwrap() else {
        return;
    };
    let seed = Seed::new(&helm);
    seed.server.apply(&namespace(NAMESPACE, &[])).unwrap();
    let process = seed.start(IMAGES[0]);
    seed.until_used();

    let asked = osc("pool-1", "reconcile");
    let made = seed.create(&asked);
    assert_eq!(image(&made), Some(IMAGES[0]));
    has_the_agent(&made, &asked);

    // User-data stays as it is: it would replace machines.
    let provision = osc("pool-1-init", "provision");
    without_changes(&seed.create(&provision), &provision);
    let mut ignored = osc("pool-2", "reconcile");
    ignored["metadata"]["annotations"][IGNORE_ANNOTATION] = "true".into();
    without_changes(&seed.create(&ignored), &ignored);

    // gardenlet writes its own lists again: nothing is stored, so there is no new generation.
    let path = format!("{COLLECTION}/pool-1");
    let mut again = made.clone();
    again["spec"] = asked["spec"].clone();
    let written = seed.admin().put(&path, &again).unwrap().ok().unwrap();
    assert_eq!(written["spec"], made["spec"]);
    assert_eq!(
        written["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
    let mut longer = again;
    let theirs = json!({"path": "/etc/theirs", "content": {"inline": {"encoding": "", "data": "x"}}});
    longer["spec"]["files"].as_array_mut().unwrap().push(theirs);
    has_the_agent(&seed.admin().put(&path, &longer).unwrap().ok().unwrap(), &longer);

    // Somebody else has one of the paths.
    let mut foreign = osc("pool-3", "reconcile");
    let file = json!({"path": EXTRACTED_PATH, "content": {"inline": {"encoding": "", "data": "theirs"}}});
    foreign["spec"]["files"].as_array_mut().unwrap().push(file);
    let answer = seed.admin().post(COLLECTION, &foreign).unwrap();
    let warning = format!("virtfleet: spec.files has another {EXTRACTED_PATH}");
    assert!(
        answer.warnings.iter().any(|text| text.contains(&warning)),
        "{:?}",
        answer.warnings
    );
    without_changes(&answer.ok().unwrap(), &foreign);

    // Other namespaces.
    for (name, labels) in [
        ("shoot--a--ignored", json!({"virtfleet.io/ignore": "true"})),
        (
            "shoot--a--other",
            json!({"shoot.gardener.cloud/provider": "openstack"}),
        ),
        ("garden", json!({"gardener.cloud/role": "garden"})),
    ] {
        let labels = labels.as_object().unwrap().clone();
        let labels: Vec<_> = labels
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str().unwrap()))
            .collect();
        seed.server.apply(&namespace(name, &labels)).unwrap();
        let mut elsewhere = osc("pool-1", "reconcile");
        elsewhere["metadata"]["namespace"] = name.into();
        without_changes(&seed.server.apply(&elsewhere).unwrap(), &elsewhere);
    }
    let page = scrape::Client::plain(seed.probes, WAIT_TIMEOUT)
        .unwrap()
        .get("/metrics");
    let page = page.unwrap().ok().unwrap();
    let page = page.text().unwrap();
    let counted =
        |result: &str| format!("virtfleet_gardener_webhook_admissions_total{{result=\"{result}\"}}");
    let conflicts = page
        .lines()
        .find_map(|line| line.strip_prefix(&counted("conflict")));
    assert_eq!(conflicts.map(str::trim), Some("1"), "{page}");

    upgrade_and_removal(&seed, process);
}

/// A new image, an object that is being deleted, the annotation on an object with the agent, and
/// no webhook.
fn upgrade_and_removal(seed: &Seed, process: Process) {
    let mut leaving = osc("pool-4", "reconcile");
    leaving["metadata"]["finalizers"] = json!(["example.org/held"]);
    seed.create(&leaving);
    seed.admin()
        .delete(&format!("{COLLECTION}/pool-4"))
        .unwrap()
        .ok()
        .unwrap();
    process.terminate(Duration::from_secs(20)).unwrap();

    let process = seed.start(IMAGES[1]);
    seed.until_used();
    let before = seed
        .admin()
        .get(&format!("{COLLECTION}/pool-1"))
        .unwrap()
        .ok()
        .unwrap();
    let upgraded = seed.annotate("pool-1", "gardener.cloud/timestamp", "now");
    assert_eq!(image(&upgraded), Some(IMAGES[1]));
    let mut expected = before["spec"].clone();
    for file in expected["files"].as_array_mut().unwrap() {
        if file["path"] == EXTRACTED_PATH {
            file["content"]["imageRef"]["image"] = IMAGES[1].into();
        }
    }
    assert_eq!(upgraded["spec"], expected, "all else stays, in its place");
    // `spec` is immutable by now.
    assert_eq!(
        image(&seed.annotate("pool-4", "gardener.cloud/timestamp", "now")),
        Some(IMAGES[0])
    );

    let removed = seed.annotate("pool-1", IGNORE_ANNOTATION, "true");
    let mut expected = osc("pool-1", "reconcile");
    let theirs = json!({"path": "/etc/theirs", "content": {"inline": {"encoding": "", "data": "x"}}});
    expected["spec"]["files"].as_array_mut().unwrap().push(theirs);
    assert_eq!(removed["spec"], expected["spec"]);
    assert!(
        removed["metadata"]["annotations"]
            .get(OWNED_ITEMS_ANNOTATION)
            .is_none(),
        "{removed:#}"
    );

    let log = process.log();
    assert!(log.contains("patched") && !log.contains("panicked"), "{log}");
    process.terminate(Duration::from_secs(20)).unwrap();
    let asked = osc("pool-5", "reconcile");
    without_changes(&seed.create(&asked), &asked);
}
