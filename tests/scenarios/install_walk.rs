//! Tier 3: the commands of README.md and docs/install.md, read from the pages: from nothing to the
//! first VM, check, upgrade and removal. On a real API server, with the settings, the account and
//! the certificate that the chart makes. `make bench-install` prints the number of commands, and
//! the time.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

mod machine;
mod page;

use std::{
    ffi::OsStr,
    fs,
    io::Read as _,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use virtfleet_tests::{
    access, bins,
    cluster::{self, ApiServer, MERGE_PATCH, kubevirt, live::WAIT_TIMEOUT},
    install::{self, RELEASE},
    parts, ports,
    process::{Launch, Process},
    scrape::Client,
    sim::{
        Guest, Options, Plan,
        enrol::{AgentHost, AgentSpec},
    },
    skip, wait,
};

use self::machine::AdminMachine;
use crate::expressions::read;

/// The page.
const PAGE: &str = "docs/install.md";
/// The registry that the page names.
const REGISTRY: &str = "registry.example.org";
/// The namespace of a kubeconfig that names none.
const NAMESPACE: &str = "default";
/// The infra node.
const HOST: &str = "host-1";
/// Maximum number of commands from nothing to the first VM.
const MAX_COMMANDS: usize = 6;
/// Maximum time from the chart to the first VM.
const MAX_WALK: Duration = Duration::from_mins(5);
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/virtfleet/deployments/virtfleet-collector";

/// An infra cluster, and the machine of its admin. No kubelet and no KubeVirt runs here: this does
/// their work.
struct Walk {
    // In drop order.
    collector: Option<Process>,
    server: ApiServer,
    machine: AdminMachine,
    /// Address of the collector's API.
    api: SocketAddr,
    probes: SocketAddr,
    /// What the first VM is like.
    guest: Guest,
    folder: tempfile::TempDir,
}

impl Walk {
    /// `address` is one of this machine that is not loopback.
    fn new(helm: PathBuf, address: IpAddr) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let server = ApiServer::start(folder.path())?;
        kubevirt::install(&server)?;
        server.namespace(NAMESPACE)?;
        server.apply(&cluster::infra_node(HOST, &[]))?;
        let options = Options {
            guests: 1,
            clusters: 1,
            port: ports::free()?.port(),
            ..Options::default()
        };
        let mut plan = Plan::new(&options)?;
        let (api, probes) = (ports::free_on(address)?, ports::free()?);
        let path = |name: &str| folder.path().join(name);
        // What differs here: addresses, and the account.
        let settings = json!({
            "inventory": { "cluster": { "kubeconfig": path("kubeconfig") } },
            "server": { "address": api.to_string(), "probeAddress": probes.to_string() },
            // In a pod it is the namespace of the pod.
            "leaderElection": { "namespace": RELEASE },
            "scrape": {
                "interval": "1s", "timeout": "1s", "port": options.port, "allowCIDRs": ["127.0.0.0/8"],
            },
        });
        let admin = server.kubeconfig(server.admin_user());
        let machine = AdminMachine::new(&path("machine"), helm, settings.to_string(), &admin, REGISTRY)?;
        Ok(Self {
            collector: None,
            server,
            machine,
            api,
            probes,
            guest: plan.guests.remove(0),
            folder,
        })
    }

    fn get(&self, path: &str) -> Result<Value> {
        self.server.admin().get(path)?.ok()
    }

    /// Runs a command of the page, and does what the cluster does then. Returns the agent of a new
    /// VM.
    fn follow(&mut self, command: &str) -> Result<Option<AgentHost>> {
        self.machine.run(command)?;
        if command.starts_with("helm install ") {
            self.run_pods()?;
        }
        let mut agent = None;
        for object in self.kubectl()? {
            if object["kind"] == "VirtualMachine" {
                agent = Some(self.run_vm(&object)?);
            }
        }
        Ok(agent)
    }

    /// What kubelet and controllers do: mount settings and certificate, start the program as its
    /// account, make it the endpoint of its Service, and report it as available.
    fn run_pods(&mut self) -> Result<()> {
        let folder = self.folder.path();
        let deployment = self.get(DEPLOYMENT)?;
        self.is_published(&deployment["spec"]["template"]["spec"]["containers"][0]["image"])?;
        let settings = self.get("/api/v1/namespaces/virtfleet/configmaps/virtfleet-settings")?;
        let settings = settings["data"]["collector.yaml"].as_str().context("settings")?;
        // The Secret is mounted there.
        let settings = settings.replace("/etc/virtfleet/tls", &folder.display().to_string());
        let config = folder.join("collector.yaml");
        fs::write(&config, settings)?;
        let secret = self.get("/api/v1/namespaces/virtfleet/secrets/virtfleet-collector-tls")?;
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            fs::write(folder.join(name), decoded(&secret["data"][name])?)?;
        }
        let account = self.server.service_account(RELEASE, "virtfleet-collector")?;
        fs::write(folder.join("kubeconfig"), self.server.kubeconfig(&account))?;
        let collector = Launch::new(bins::collector()?)
            .args(["serve", "--config"])
            .arg(&config)
            .env("POD_IP", self.api.ip().to_string())
            .start(folder)?;
        wait::eventually(WAIT_TIMEOUT, "the collector is ready", || {
            let answer = Client::plain(self.probes, WAIT_TIMEOUT)?.get("/readyz")?;
            answer.ok().map(drop).with_context(|| collector.log())
        })?;
        install::connect_service(&self.server, self.api)?;
        let status = json!({ "status": {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
        } });
        let path = format!("{DEPLOYMENT}/status");
        self.server.admin().patch(&path, MERGE_PATCH, &status)?.ok()?;
        self.collector = Some(collector);
        Ok(())
    }

    /// Fails unless the page has copied the image into the registry.
    fn is_published(&self, image: &Value) -> Result<()> {
        let image = image.as_str().context("no image")?;
        let made = self.machine.made()?;
        ensure!(
            made.contains(&format!("'docker://{image}'")),
            "{image} is not published by:\n{made}"
        );
        Ok(())
    }

    /// What kubectl does, if it was called. Returns the applied objects.
    fn kubectl(&self) -> Result<Vec<Value>> {
        let Some(arguments) = self.machine.kubectl_call()? else {
            return Ok(Vec::new());
        };
        let arguments: Vec<&str> = arguments.lines().collect();
        let mut objects = match arguments[..] {
            ["create", "secret", "generic", name, from] => {
                let file = Path::new(from.strip_prefix("--from-file=").context("no file")?);
                let key = file.file_name().and_then(OsStr::to_str).context("no key")?;
                vec![json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
                    "data": { key: BASE64_STANDARD.encode(fs::read(self.machine.at(file))?) },
                })]
            }
            ["apply", "-f", file] => install::objects(&fs::read_to_string(self.machine.at(file))?)?,
            ["delete", "labelpropagations", "--all"] => {
                let path = "/apis/virtfleet.io/v1alpha1/labelpropagations";
                self.server.admin().delete(path)?.ok()?;
                Vec::new()
            }
            _ => bail!("kubectl {arguments:?} is not known to this test"),
        };
        for object in &mut objects {
            object["metadata"]["namespace"] = NAMESPACE.into();
            self.server.apply(object)?;
        }
        Ok(objects)
    }

    /// What KubeVirt and the guest do: the VM runs, and its user-data, from the Secret, installs an
    /// agent from the agent disk. It accepts collectors of the authority in the user-data.
    fn run_vm(&self, vm: &Value) -> Result<AgentHost> {
        let volumes = vm["spec"]["template"]["spec"]["volumes"]
            .as_array()
            .context("volumes")?;
        let disk = volumes.iter().find(|volume| volume["name"] == "agent");
        self.is_published(&disk.context("no agent disk")?["containerDisk"]["image"])?;
        let secret = |volume: &Value| {
            let name = &volume["cloudInitNoCloud"]["secretRef"]["name"];
            name.as_str().map(str::to_owned)
        };
        let secret = volumes.iter().find_map(secret).context("no user-data")?;
        let secret = self.get(&format!("/api/v1/namespaces/{NAMESPACE}/secrets/{secret}"))?;
        let packed = decoded(&secret["data"]["userdata"])?;
        let mut user_data = String::new();
        GzDecoder::new(packed.as_slice()).read_to_string(&mut user_data)?;
        for part in [
            format!("sha256 {}\n", AdminMachine::sum_of_agent()),
            "disk virtfleet virtfleet-agent\n".to_owned(),
        ] {
            ensure!(user_data.contains(&part), "no {part:?} in {user_data}");
        }
        let name = vm["metadata"]["name"].as_str().context("a name")?;
        let address = self.guest.address.ip().to_string();
        let vmi = cluster::vmi(NAMESPACE, name)
            .phase("Running")
            .on(HOST)
            .with("/spec/domain/firmware", json!({ "uuid": self.guest.firmware }))
            .interface("default", &self.guest.mac, &[&address]);
        let vmi = self.server.apply(&vmi)?;
        self.server.apply(&cluster::launcher(&vmi, &[&address]))?;
        let guest = Guest {
            name: name.to_owned(),
            cluster: NAMESPACE.to_owned(),
            uid: vmi["metadata"]["uid"].as_str().context("a UID")?.to_owned(),
            ..self.guest.clone()
        };
        let file = self.folder.path().join("authority.pem");
        fs::write(&file, certificates(&user_data))?;
        let host = AgentHost::new(&file)?;
        drop(host.run(AgentSpec::honest(&guest)?)?);
        Ok(host)
    }

    /// Fails unless the command shows a VM whose agent answers.
    fn shows_an_agent(&self, command: &str) -> Result<()> {
        let said = self.machine.run(command)?;
        let mut lines = said.lines().filter(|line| line.starts_with(NAMESPACE));
        let answers = |line: &str| line.split_whitespace().any(|word| word == "up");
        let log = self.collector.as_ref().map(Process::log);
        ensure!(lines.any(answers), "{said}{}", log.unwrap_or_default());
        Ok(())
    }
}

/// The content of a value of a Secret.
fn decoded(value: &Value) -> Result<Vec<u8>> {
    Ok(BASE64_STANDARD.decode(value.as_str().context("a key is missing")?)?)
}

/// The certificates in a text, without indentation.
fn certificates(text: &str) -> String {
    let (mut pem, mut is_inside) = (String::new(), false);
    for line in text.lines().map(str::trim) {
        is_inside |= line == "-----BEGIN CERTIFICATE-----";
        if is_inside {
            pem.push_str(line);
            pem.push('\n');
        }
        is_inside &= line != "-----END CERTIFICATE-----";
    }
    pem
}

#[test]
fn install_walk_has_few_commands_and_the_readme_shows_the_same() {
    let blocks = page::blocks(&read(PAGE));
    let first = &blocks[0];
    assert!(first.len() <= MAX_COMMANDS, "{first:#?}");
    // After a pipe, kubectl would store the empty output of a command that fails.
    assert!(first.iter().all(|command| !command.contains('|')), "{first:#?}");
    assert!(
        first.last().unwrap().starts_with("virtfleetctl vms"),
        "{first:#?}"
    );
    let readme = read("README.md");
    let section = page::section(&readme, "Install").unwrap();
    assert_eq!(page::blocks(section), blocks[..1]);
}

#[test]
fn tier3_install_walk_from_the_chart_to_the_first_vm() {
    let test = "tier3_install_walk_from_the_chart_to_the_first_vm";
    let needs = || -> Result<(PathBuf, Ipv4Addr)> {
        parts::kube_assets()?;
        for program in ["make", "mke2fs", "debugfs"] {
            skip::program(program)?;
        }
        Ok((parts::helm()?.join("helm"), access::own_network()?))
    };
    let Some((helm, address)) = skip::need(3, test, needs()).unwrap() else {
        return;
    };
    let blocks = page::blocks(&read(PAGE));
    let mut walk = Walk::new(helm, address.into()).unwrap();
    before_the_chart(&walk);

    let (mut began, mut joined, mut agent) = (None, None, None);
    for command in &blocks[0] {
        if command.starts_with("helm install ") {
            began = Some(Instant::now());
        }
        if command.starts_with("virtfleetctl vms") {
            wait::eventually(WAIT_TIMEOUT, "the first VM has joined", || {
                walk.shows_an_agent(command)
            })
            .unwrap();
            joined = began.map(|began| began.elapsed());
            continue;
        }
        let new = walk.follow(command);
        agent = new
            .unwrap_or_else(|error| panic!("{command}: {error:#}"))
            .or(agent);
    }
    let joined = joined.unwrap();
    assert!(agent.is_some(), "the page starts no VM");
    println!(
        "{} commands; from the chart to the first VM: {:.1} s",
        blocks[0].len(),
        joined.as_secs_f64()
    );
    assert!(joined < MAX_WALK, "{joined:?}");

    after_the_chart(&walk);
    for command in blocks[1..].iter().flatten() {
        if command.starts_with("helm upgrade ") {
            what_is_missing_is_named(&walk);
        }
        walk.follow(command)
            .unwrap_or_else(|error| panic!("{command}: {error:#}"));
        if command.starts_with("helm upgrade ") {
            let deployment = walk.get(DEPLOYMENT).unwrap();
            let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
            assert_eq!(*image, format!("{REGISTRY}/virtfleet-collector:NEW"));
            walk.is_published(image).unwrap();
        }
    }
    let deployment = walk.server.admin().get(DEPLOYMENT).unwrap();
    assert_eq!(deployment.code, 404, "the page removes the collector");
    assert!(walk.machine.at("out/virtfleet.yaml").is_file(), "krew's manifest");
}

/// Exit code and output of virtfleetctl with the kubeconfig of an admin.
fn ctl(walk: &Walk, arguments: &[&str]) -> (i32, String) {
    let launch = Launch::new(bins::ctl().unwrap()).args(arguments);
    let launch = launch.arg("--kubeconfig").arg(walk.machine.kubeconfig());
    launch.said(WAIT_TIMEOUT).unwrap()
}

/// The checks as `status what`, and the exit code.
fn check(walk: &Walk) -> (i32, Vec<String>, String) {
    let (code, said) = ctl(walk, &["install", "check", "-o", "json"]);
    let results: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    let mut lines = Vec::new();
    for result in results.as_array().unwrap() {
        let text = |key: &str| result[key].as_str().unwrap_or_default();
        assert!(text("status") == "ok" || !text("next").is_empty(), "{result}");
        lines.push(format!("{} {}", text("status"), text("what")));
    }
    (code, lines, said)
}

fn before_the_chart(walk: &Walk) {
    let (code, lines, said) = check(walk);
    assert_eq!(code, 1);
    let expected = ["ok API server", "ok kubevirt.io", "ok caller", "fail Deployment"];
    assert_eq!(lines, expected);
    assert!(said.contains("helm install virtfleet"), "{said}");
    let (code, said) = ctl(walk, &["install", "--dry-run"]);
    assert_eq!(code, 0, "{said}");
    let creates = said
        .lines()
        .filter(|line| line.trim_end().ends_with("create"))
        .count();
    assert!(creates > 20 && !said.contains("unknown"), "{said}");
}

fn after_the_chart(walk: &Walk) {
    let expected = [
        "ok API server",
        "ok kubevirt.io",
        "ok caller",
        "ok Deployment",
        "ok version of the manifests",
        "ok roles",
        "ok definitions",
        "ok certificate of the API",
        "ok settings",
        "skip user clusters",
        "skip monitoring objects",
        "ok rights",
        "ok drain",
        "ok volumes",
        "skip ClusterSources",
        "skip node conditions",
        "ok enrolment.secret",
        "ok enrolment.secret",
        "ok lease",
        "ok API of the collector",
        "ok version of the collector",
        "ok versions of the agents",
        "ok agents",
        "skip labels",
    ];
    // The API server lists new kinds only after a while.
    wait::eventually(WAIT_TIMEOUT, "all checks succeed", || {
        let (code, lines, said) = check(walk);
        ensure!(
            code == 0 && lines.starts_with(&expected.map(str::to_owned)),
            "{said}"
        );
        Ok(())
    })
    .unwrap();
    let (_, said) = ctl(walk, &["install", "--dry-run"]);
    assert!(said.contains("exists"), "{said}");
}

/// A right that is gone, and a certificate.
fn what_is_missing_is_named(walk: &Walk) {
    let admin = walk.server.admin();
    for path in [
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/virtfleet-collector",
        "/api/v1/namespaces/virtfleet/secrets/virtfleet-collector-tls",
    ] {
        admin.delete(path).unwrap().ok().unwrap();
    }
    wait::eventually(WAIT_TIMEOUT, "what is missing is named", || {
        let (_, lines, said) = check(walk);
        for line in ["fail certificate of the API", "fail right list pods"] {
            ensure!(lines.iter().any(|found| found == line), "{line}: {said}");
        }
        Ok(())
    })
    .unwrap();
}
