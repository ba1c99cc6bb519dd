//! Tier 3: `virtfleet-collector doctor` and `check-config` against a real API server, with the
//! shipped rights.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use virtfleet_tests::{
    bins,
    cluster::{
        ApiServer,
        live::{self, WAIT_TIMEOUT},
    },
    install::shipped,
    parts, ports,
    process::Launch,
    skip, wait,
};

fn apply(server: &ApiServer, path: &str) {
    for object in shipped(path).unwrap() {
        server.apply(&object).unwrap();
    }
}

/// Exit code, and each line as `status what`.
fn doctor(config: &Path) -> Result<(Option<i32>, Vec<String>)> {
    let launch = Launch::new(bins::collector()?).args(["doctor", "-o", "json", "--config"]);
    let output = launch.arg(config).output(WAIT_TIMEOUT)?;
    let lines: Vec<Value> = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let word = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    for line in &lines {
        ensure!(
            word(line, "status") == "ok" || !word(line, "next").is_empty(),
            "{line}"
        );
    }
    let lines = lines
        .iter()
        .map(|line| format!("{} {}", word(line, "status"), word(line, "what")));
    Ok((output.status.code(), lines.collect()))
}

#[test]
fn the_doctor_names_what_is_missing_and_nothing_with_the_shipped_rights_tier3() {
    let test = "the_doctor_names_what_is_missing_and_nothing_with_the_shipped_rights_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let infra = live::infra(root).unwrap();
    apply(&infra, "infra/namespace.yaml");
    apply(&infra, "infra/rbac.yaml");
    let account = infra.service_account("virtfleet", "virtfleet-collector").unwrap();
    let inventory = live::settings(root, &infra.kubeconfig(&account), "").unwrap();
    let content = format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: CollectorConfig\ninventory: {inventory}\n\
         server: {{ address: \"{}\", access: {{ tokenReview: {{}} }} }}\nleaderElection: {{ namespace: virtfleet, service: virtfleet-collector-leader }}\n\
         enrolment: {{ trustDomain: t }}\n\
         mla: {{ queue: {{ folder: {}/queues, maxBytes: 16777216, maxBytesPerStream: 1048576 }} }}\n",
        ports::free().unwrap(),
        root.display()
    );
    let config = root.join("collector.yaml");
    fs::write(&config, &content).unwrap();
    let expected = [
        "ok settings",
        "ok scrape.tls",
        "ok API server",
        "ok rights",
        "ok drain",
        "ok volumes",
        // Optional, and not used: no failure and no warning.
        "skip ClusterSources",
        "ok definitions",
        "skip node conditions",
        "ok enrolment.secret",
        "warn lease",
        "ok mla.queue.folder",
        "ok mla.fleet",
        "ok prometheus",
        "ok open files",
        "ok server.address",
        "ok ingest",
    ];
    wait::eventually(WAIT_TIMEOUT, "the rights are granted", || {
        let (code, lines) = doctor(&config)?;
        ensure!(code == Some(0) && lines == expected, "{code:?} {lines:?}");
        Ok(())
    })
    .unwrap();

    let binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/virtfleet-collector";
    infra.admin().delete(binding).unwrap().ok().unwrap();
    let binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/virtfleet/rolebindings/virtfleet-collector";
    infra.admin().delete(binding).unwrap().ok().unwrap();
    infra
        .admin()
        .delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/guesthealths.virtfleet.io")
        .unwrap()
        .ok()
        .unwrap();
    wait::eventually(WAIT_TIMEOUT, "what is missing is named", || {
        let (code, lines) = doctor(&config)?;
        let missing = [
            "fail right list nodes",
            "warn right create events.events.k8s.io",
            "warn right create secrets",
            "fail right update secrets",
            "fail enrolment.secret",
            "fail right create endpointslices.discovery.k8s.io",
            "fail right create tokenreviews.authentication.k8s.io",
            "fail right create subjectaccessreviews.authorization.k8s.io",
            "fail definition GuestHealth",
            "warn drain",
            "warn volumes",
        ];
        let all = missing.iter().all(|one| lines.iter().any(|line| line == one));
        ensure!(code == Some(1) && all, "{code:?} {lines:?}");
        Ok(())
    })
    .unwrap();

    // What `serve` could not load, check-config names.
    let check = |content: String| {
        fs::write(&config, content).unwrap();
        let launch = Launch::new(bins::collector().unwrap()).args(["check-config", "--config"]);
        let output = launch.arg(&config).output(WAIT_TIMEOUT).unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    assert_eq!(check(content.clone()).0, Some(0));
    let (code, said) = check(content.replace("infra.kubeconfig", "nowhere.kubeconfig"));
    assert!(
        code == Some(78) && said.contains("nowhere.kubeconfig"),
        "{code:?} {said}"
    );
    let tls = "scrape: { tls: { ca: /nowhere/ca.pem, certificate: /nowhere/c.pem, key: /nowhere/k.pem, trustDomain: t } }\n";
    let (code, said) = check(content + tls);
    assert!(
        code == Some(78) && said.contains("scrape.tls.ca: /nowhere/ca.pem cannot be read"),
        "{code:?} {said}"
    );
}
