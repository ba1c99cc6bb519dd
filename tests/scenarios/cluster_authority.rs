//! Tier 3: the fleet's authority in Secrets of a real API server, with the shipped rights: several
//! collectors create it at once, one rotates it, all follow.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::{
        ApiServer, MERGE_PATCH, User,
        live::{self, WAIT_TIMEOUT},
    },
    parts,
    pki::{self, Authority},
    skip, wait,
};
use virtfleet_wire::layered::{Node, parse_yaml};

const SECRET: &str = "/api/v1/namespaces/virtfleet/secrets/virtfleet-ca";

/// An infra cluster with the shipped namespaces and rights.
fn infra(root: &Path) -> (ApiServer, User) {
    let infra = live::infra(root).unwrap();
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/collector/kubernetes");
    for path in ["infra/namespace.yaml", "infra/rbac.yaml"] {
        let text = fs::read_to_string(top.join(path)).unwrap();
        for object in parse_yaml(&text).unwrap().iter().map(Node::to_json) {
            infra.apply(&object).unwrap();
        }
    }
    infra.until_rights_apply().unwrap();
    let account = infra.service_account("virtfleet", "virtfleet-collector").unwrap();
    (infra, account)
}

fn collector(root: &Path, name: &str, kubeconfig: &str, enrolment: &str) -> live::Collector {
    let folder = root.join(name);
    fs::create_dir_all(&folder).unwrap();
    let inventory = live::settings(&folder, kubeconfig, "").unwrap();
    let more = format!(
        "leaderElection: {{ namespace: virtfleet }}\nenrolment: {{ trustDomain: {}{enrolment} }}\n",
        pki::TRUST_DOMAIN
    );
    live::Collector::start_with(&folder, &inventory, &more).unwrap()
}

/// `kind role sha256` of each root.
fn roots(collector: &live::Collector) -> Result<Vec<String>> {
    let status = collector.json("/api/v1/ca")?;
    let roots = status["roots"].as_array().context("roots")?;
    let word = |root: &Value, key: &str| root[key].as_str().unwrap_or_default().to_owned();
    Ok(roots
        .iter()
        .map(|root| {
            format!(
                "{} {} {}",
                word(root, "kind"),
                word(root, "role"),
                word(root, "sha256")
            )
        })
        .collect())
}

/// Waits until all have the same roots, of these kinds and roles.
fn until_roots(collectors: &[live::Collector], expected: &[&str]) -> Vec<String> {
    wait::eventually(WAIT_TIMEOUT, &format!("{expected:?}"), || {
        let all = collectors.iter().map(roots).collect::<Result<BTreeSet<_>>>()?;
        ensure!(all.len() == 1, "{all:?}");
        let roots = all.into_iter().next().context("a collector")?;
        let kinds: Vec<_> = roots
            .iter()
            .filter_map(|root| Some(root.rsplit_once(' ')?.0))
            .collect();
        ensure!(kinds == expected, "{roots:?}");
        Ok(roots)
    })
    .unwrap()
}

/// Rotates with the collector that leads; returns what it prints. A busy machine may change the
/// leader.
fn rotate(collectors: &[live::Collector], root: &str) -> String {
    wait::eventually(WAIT_TIMEOUT, "the leader rotates", || {
        let leader = collectors.iter().find(|one| one.leads().unwrap_or(false));
        leader.context("no leader")?.ctl(&["ca", "rotate", root])
    })
    .unwrap()
}

fn a_standby_names_the_leader(collectors: &[live::Collector]) {
    wait::eventually(WAIT_TIMEOUT, "a standby names the leader", || {
        let leads = collectors.iter().map(live::Collector::leads);
        let leads = leads.collect::<Result<Vec<_>>>()?;
        let standby = leads.iter().position(|leads| !leads).context("no standby")?;
        let error = collectors[standby]
            .ctl(&["ca", "rotate", "clients"])
            .err()
            .context("rotated")?;
        ensure!(
            format!("{error:#}").contains("this collector is a standby"),
            "{error:#}"
        );
        Ok(())
    })
    .unwrap();
}

/// Waits until the collector refuses to rotate the agents' root for this reason.
fn until_refuses(collector: &live::Collector, reason: &str) {
    wait::eventually(WAIT_TIMEOUT, reason, || {
        let error = collector.ctl(&["ca", "rotate", "agents"]).unwrap_err();
        ensure!(format!("{error:#}").contains(reason), "{error:#}");
        Ok(())
    })
    .unwrap();
}

fn refused(server: &ApiServer) -> Vec<String> {
    let entries = server.audit().unwrap().into_iter();
    entries
        .filter(|entry| entry.user.starts_with("system:serviceaccount:") && entry.code == 403)
        .map(|entry| format!("{} {}", entry.verb, entry.resource))
        .collect()
}

#[test]
fn collectors_share_and_rotate_one_authority_tier3() {
    let test = "collectors_share_and_rotate_one_authority_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let (infra, account) = infra(root);
    let kubeconfig = infra.kubeconfig(&account);
    let start = |name: &str| collector(root, name, &kubeconfig, "");

    // All create it at once; one wins, and the others read what it wrote.
    let collectors = [start("a"), start("b"), start("c")];
    let first = until_roots(&collectors, &["agents signs", "clients signs"]);
    let data = || infra.admin().get(SECRET).unwrap().ok().unwrap()["data"].clone();
    assert!(data()["agents.key"].is_string() && data()["clients.key"].is_string());

    // Only the leader rotates; a standby names it.
    wait::eventually(WAIT_TIMEOUT, "one leads", || {
        let leaders = collectors.iter().filter(|one| one.leads().unwrap_or(false));
        ensure!(leaders.count() == 1);
        Ok(())
    })
    .unwrap();
    let before = data();
    a_standby_names_the_leader(&collectors);
    assert_eq!(data(), before);
    let shown = rotate(&collectors, "clients");
    assert!(
        shown.contains("cross-signed") && !shown.contains("PRIVATE"),
        "{shown}"
    );
    let rotated = until_roots(
        &collectors,
        &[
            "agents signs",
            "clients signs",
            "clients trusted",
            "clients crossSigned",
        ],
    );
    assert_eq!(
        rotated[2].rsplit_once(' ').unwrap().1,
        first[1].rsplit_once(' ').unwrap().1
    );
    // User-data gets both roots.
    let pem = collectors[0].text("/api/v1/ca/clients.pem").unwrap();
    assert_eq!(pem.matches("BEGIN CERTIFICATE").count(), 2);

    // What an admin denies by hand is followed, too.
    let patch = json!({ "stringData": { "deny": "0a1b # worker-3\n" } });
    infra
        .admin()
        .patch(SECRET, MERGE_PATCH, &patch)
        .unwrap()
        .ok()
        .unwrap();
    wait::eventually(WAIT_TIMEOUT, "all have the deny list", || {
        for collector in &collectors {
            let status = collector.json("/api/v1/ca")?;
            ensure!(status["deniedSerials"] == 1, "{status}");
        }
        Ok(())
    })
    .unwrap();
    rotate(&collectors, "agents");
    for collector in &collectors {
        let status = collector.json("/api/v1/ca").unwrap();
        assert_eq!(status["deniedSerials"], 1, "a rotation keeps it");
    }

    // A restart reads the same.
    let before = until_roots(
        &collectors,
        &[
            "agents signs",
            "agents trusted",
            "clients signs",
            "clients trusted",
            "clients crossSigned",
        ],
    );
    drop(collectors);
    let again = start("d");
    again.until_ready().unwrap();
    wait::eventually(WAIT_TIMEOUT, "a restart reads the same", || {
        let now = roots(&again)?;
        ensure!(now == before, "{now:?} instead of {before:?}");
        Ok(())
    })
    .unwrap();

    // The Secret is deleted: the authority in use stays, and no other one replaces it.
    infra.admin().delete(SECRET).unwrap().ok().unwrap();
    again.until_leads().unwrap();
    until_refuses(&again, "has no authority");
    assert_eq!(infra.admin().get(SECRET).unwrap().code, 404);
    assert_eq!(roots(&again).unwrap(), before);
    assert_eq!(refused(&infra), Vec::<String>::new());
}

#[test]
fn roots_of_cert_manager_are_followed_and_never_written_tier3() {
    let test = "roots_of_cert_manager_are_followed_and_never_written_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let (infra, account) = infra(root);
    let secret = |name: &str, authority: &Authority| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": { "namespace": "virtfleet", "name": name },
            "stringData": { "tls.crt": authority.pem(), "tls.key": authority.key_pem() },
        })
    };
    let authority = |name: &str| Authority::new(name).unwrap();
    infra.apply(&secret("agents-ca", &authority("agents 1"))).unwrap();
    infra
        .apply(&secret("clients-ca", &authority("clients 1")))
        .unwrap();
    let rules = json!([{ "apiGroups": [""], "resources": ["secrets"],
                         "resourceNames": ["agents-ca", "clients-ca"], "verbs": ["get", "list", "watch"] }]);
    infra
        .grant("cert-manager", &account, Some("virtfleet"), &rules)
        .unwrap();
    infra.until_rights_apply().unwrap();
    let with = ", agentsSecret: agents-ca, clientsSecret: clients-ca";
    let collectors = [collector(root, "a", &infra.kubeconfig(&account), with)];
    let kinds = ["agents signs", "clients signs"];
    let first = until_roots(&collectors, &kinds);
    let status = collectors[0].json("/api/v1/ca").unwrap();
    assert_eq!(status["roots"][0]["managedBy"], "the Secret virtfleet/agents-ca");
    collectors[0].until_leads().unwrap();
    until_refuses(
        &collectors[0],
        "managed by the Secret virtfleet/agents-ca; rotate it there",
    );
    infra.apply(&secret("agents-ca", &authority("agents 2"))).unwrap();
    wait::eventually(WAIT_TIMEOUT, "the renewed root is used", || {
        let now = roots(&collectors[0])?;
        ensure!(now[0] != first[0] && now[1] == first[1], "{now:?}");
        Ok(())
    })
    .unwrap();
    let secrets = infra
        .admin()
        .get("/api/v1/namespaces/virtfleet/secrets")
        .unwrap()
        .ok()
        .unwrap();
    let names: BTreeSet<_> = secrets["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|secret| secret["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, BTreeSet::from(["agents-ca", "clients-ca"]));
    assert_eq!(refused(&infra), Vec::<String>::new());
}
