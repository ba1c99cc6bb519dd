//! Tier 3: who may read a collector on a real API server, with the shipped roles: a token reads
//! what RBAC grants its user, and virtfleetctl finds the collector by a kubeconfig.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

mod stage;

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::ensure;
use serde_json::{Value, json};
use virtfleet_tests::{access, cluster::live::WAIT_TIMEOUT, parts, skip, wait};

use self::stage::{AUDIENCE, AccessStage, CACHE, STATIC};

#[test]
fn a_token_reads_what_rbac_grants_tier3() {
    let test = "a_token_reads_what_rbac_grants_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let stage = AccessStage::new("").unwrap();
    let api = &stage.api;
    let reader = stage.token("team-a", "reader", &[AUDIENCE]).unwrap();
    let vms = |token: &str| api.names(token, "/api/v1/vms");

    // Without a right: which one is missing.
    let (status, said) = api.text(Some(&reader), "/api/v1/vms").unwrap();
    assert_eq!(status, 403, "{said}");
    for part in [
        "system:serviceaccount:team-a:reader",
        "get vms.virtfleet.io",
        "kubectl auth can-i",
        "virtfleet-viewer",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    stage
        .bind("team-a", "reader", "team-a", "virtfleet-viewer")
        .unwrap();
    wait::eventually(WAIT_TIMEOUT, "the binding works", || {
        let found = vms(&reader)?;
        ensure!(found == ["team-a/vm-1", "team-a/vm-2"], "{found:?}");
        Ok(())
    })
    .unwrap();
    // Kubernetes' own role has the same right.
    let viewer = stage.token("team-b", "viewer", &[AUDIENCE]).unwrap();
    stage.bind("team-b", "viewer", "team-b", "view").unwrap();
    stage.aggregate("view", "virtfleet-viewer").unwrap();
    wait::eventually(WAIT_TIMEOUT, "view has the right", || {
        let found = vms(&viewer)?;
        ensure!(found == ["team-b/vm-1"], "{found:?}");
        Ok(())
    })
    .unwrap();

    stage.attack(&reader);

    // A removed binding counts within the time for which rights are remembered.
    stage.unbind("team-a", "reader").unwrap();
    let removed = Instant::now();
    let mut last_allowed = removed;
    wait::eventually(WAIT_TIMEOUT, "the binding is gone", || {
        let sent = Instant::now();
        let (status, said) = api.text(Some(&reader), "/api/v1/vms")?;
        if status == 200 {
            last_allowed = sent;
        }
        ensure!(status == 403, "{status}: {said}");
        Ok(())
    })
    .unwrap();
    // The API server needs a moment itself. A slow answer does not count.
    let counted = last_allowed.duration_since(removed);
    assert!(counted < CACHE + Duration::from_secs(5), "{counted:?}");

    // Cluster-wide: everything, and a line in the audit log.
    let admin = stage.token("team-a", "admin", &[AUDIENCE]).unwrap();
    stage.bind_cluster("team-a", "admin", "virtfleet-viewer").unwrap();
    wait::eventually(WAIT_TIMEOUT, "the cluster-wide binding works", || {
        ensure!(vms(&admin)?.len() == 3);
        Ok(())
    })
    .unwrap();
    assert_eq!(api.text(Some(&admin), "/metrics").unwrap().0, 200);
    let audit = stage.audit();
    let of = |name: &str, result: &str| {
        let caller = format!("system:serviceaccount:team-a:{name}");
        let found = audit
            .iter()
            .find(|line| line["caller"] == *caller && line["result"] == result);
        found
            .unwrap_or_else(|| panic!("{caller} {result}: {audit:#?}"))
            .clone()
    };
    let denied = of("reader", "denied");
    assert_eq!(
        (&denied["reason"], &denied["authentication"]),
        (&json!("forbidden"), &json!("token_review"))
    );
    assert!(
        denied["groups"]
            .as_str()
            .unwrap()
            .contains("system:serviceaccounts:team-a"),
        "{denied}"
    );
    assert_eq!(of("admin", "allowed")["path"], "/api/v1/vms");
    let log = stage.log();
    for token in [&reader, &viewer, &admin] {
        assert!(!log.contains(token.as_str()) && !log.contains(token.rsplit('.').next().unwrap()));
    }
}

#[test]
fn a_token_that_is_not_for_the_collector_is_refused_tier3() {
    let test = "a_token_that_is_not_for_the_collector_is_refused_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let mut stage = AccessStage::new("").unwrap();
    let status = |stage: &AccessStage, token: &str| stage.api.text(Some(token), "/api").unwrap().0;
    let good = stage.token("team-a", "reader", &[AUDIENCE]).unwrap();
    assert_eq!(status(&stage, &good), 200);
    let of_cluster = stage.token("team-a", "reader", &[]).unwrap();
    assert_eq!(status(&stage, &of_cluster), 200, "as kubectl has it");
    // Tokens that the test signs itself, with the API server's key.
    let signed = |audience: &str, expires: i64| stage.sign("team-a", "reader", audience, expires).unwrap();
    assert_eq!(status(&stage, &signed(AUDIENCE, 600)), 200);
    let tampered = {
        let (head, signature) = good.rsplit_once('.').unwrap();
        format!("{head}.{}", signature.chars().rev().collect::<String>())
    };
    for (what, token) in [
        (
            "wrong audience",
            stage.token("team-a", "reader", &["another-service"]).unwrap(),
        ),
        ("expired", signed(AUDIENCE, -60)),
        ("tampered", tampered),
        (
            "another issuer's",
            stage.sign_with_another_key("team-a", "reader").unwrap(),
        ),
        ("no token at all", "x".to_owned()),
    ] {
        let (status, said) = stage.api.text(Some(&token), "/api/v1/vms").unwrap();
        assert_eq!(status, 401, "{what}: {said}");
        assert!(said.contains("--audience virtfleet-collector"), "{said}");
    }
    // A token of a deleted account.
    let gone = stage.token("team-a", "gone", &[AUDIENCE]).unwrap();
    assert_eq!(status(&stage, &gone), 200);
    stage.infra.delete_service_account("team-a", "gone").unwrap();
    wait::eventually(WAIT_TIMEOUT, "its token is refused", || {
        let (status, said) = stage.api.text(Some(&gone), "/api")?;
        ensure!(status == 401, "{status}: {said}");
        Ok(())
    })
    .unwrap();

    // A static token needs no API server. All others are refused without one, never admitted.
    let own = |stage: &AccessStage| stage.api.names(STATIC, "/api/v1/vms").unwrap();
    assert_eq!(own(&stage), ["team-b/vm-1"]);
    let fresh = stage.token("team-a", "fresh", &[AUDIENCE]).unwrap();
    stage.infra.stop();
    let (code, said) = stage.api.text(Some(&fresh), "/api/v1/vms").unwrap();
    assert!(
        code == 503 && said.contains("access_unavailable"),
        "{code}: {said}"
    );
    wait::eventually(WAIT_TIMEOUT, "a remembered caller is refused, too", || {
        let (code, said) = stage.api.text(Some(&good), "/api/v1/vms")?;
        ensure!(code == 503, "{code}: {said}");
        Ok(())
    })
    .unwrap();
    assert_eq!(own(&stage), ["team-b/vm-1"]);
}

#[test]
fn join_tokens_are_created_and_revoked_with_the_role_of_admins_tier3() {
    let test = "join_tokens_are_created_and_revoked_with_the_role_of_admins_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let stage = AccessStage::with_ingest().unwrap();
    let [viewer, admin] = ["viewer", "admin"].map(|name| {
        let token = stage.token("team-a", name, &[AUDIENCE]).unwrap();
        let role = format!("virtfleet-{name}");
        stage.bind_cluster("team-a", name, &role).unwrap();
        token
    });
    let (api, tokens) = (&stage.api, "/api/v1/tokens");
    wait::eventually(WAIT_TIMEOUT, "the viewer reads the whole fleet", || {
        ensure!(api.names(&viewer, "/api/v1/vms")?.len() == 3);
        Ok(())
    })
    .unwrap();
    let creation = json!({ "cluster": "cluster-of-team-a" });
    // Only the leader creates one.
    let created = wait::eventually(WAIT_TIMEOUT, "the admin creates a token", || {
        let (status, said) = api.post(&admin, tokens, &creation)?;
        ensure!(status == 200, "{status}: {said}");
        Ok(said)
    });
    let created: Value = serde_json::from_str(&created.unwrap()).unwrap();
    let revoke = format!("{tokens}/{}/revoke", created["id"].as_str().unwrap());
    let revocation = json!({});
    for (path, body) in [(tokens, &creation), (revoke.as_str(), &revocation)] {
        let (status, said) = api.post(&viewer, path, body).unwrap();
        assert_eq!(status, 403, "{path}: {said}");
        for part in ["update jointokens.virtfleet.io", "virtfleet-admin"] {
            assert!(said.contains(part), "{path}: {said}");
        }
    }
    let listed = || api.names(&admin, tokens).unwrap().len();
    assert_eq!(listed(), 1);
    let (status, said) = api.post(&admin, &revoke, &revocation).unwrap();
    assert_eq!(status, 200, "{said}");
    assert_eq!(listed(), 0);
}

#[test]
fn virtfleetctl_finds_the_collector_by_a_kubeconfig_tier3() {
    let test = "virtfleetctl_finds_the_collector_by_a_kubeconfig_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let Some(address) = skip::need(3, test, access::own_network()).unwrap() else {
        return;
    };
    let stage = AccessStage::at(address.into(), "").unwrap();
    stage.service().unwrap();
    let run = |kubeconfig: &str, args: &[&str]| {
        let file = access::write_kubeconfig(stage.folder(), "ctl.kubeconfig", kubeconfig).unwrap();
        let launch = access::ctl().unwrap().env("KUBECONFIG", file);
        launch.args(args).said(WAIT_TIMEOUT).unwrap()
    };

    let listed = |said: &str| said.lines().filter(|line| line.starts_with("team-")).count();

    // An admin needs no flag. No pod is ready here, because there is no kubelet, so the collector
    // gets a token of the shipped account through the service proxy.
    let admin = stage.infra.kubeconfig(stage.infra.admin_user());
    let (code, said) = run(&admin, &["vms", "--no-headers"]);
    assert!(code == 0 && listed(&said) == 3, "{said}");
    assert!(
        stage
            .audit()
            .iter()
            .any(|line| line["caller"] == "system:serviceaccount:virtfleet:virtfleetctl")
    );

    // A tenant reads as a ServiceAccount, if it may create that account's tokens.
    stage
        .bind("team-a", "reader", "team-a", "virtfleet-viewer")
        .unwrap();
    let tenant = stage.infra.service_account("team-a", "reader").unwrap();
    let kubeconfig = stage.infra.kubeconfig(&tenant);
    let (code, said) = run(&kubeconfig, &["vms"]);
    assert_eq!(code, 1, "{said}");
    for part in [
        "serviceaccounts \"reader\" is forbidden",
        "pods is forbidden",
        "--service-account",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let rules = json!([{ "apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"] }]);
    stage
        .infra
        .grant("tokens", &tenant, Some("team-a"), &rules)
        .unwrap();
    wait::eventually(WAIT_TIMEOUT, "the tenant reads its VMs", || {
        let (code, said) = run(&kubeconfig, &["vms", "--no-headers"]);
        ensure!(
            code == 0 && listed(&said) == 2 && !said.contains("team-b"),
            "{said}"
        );
        Ok(())
    })
    .unwrap();
    let (code, said) = run(&kubeconfig, &["vm", "team-b/vm-1"]);
    assert!(code == 4 && said.contains("there is no VM team-b/vm-1"), "{said}");

    // A token from a file, for users that may create none; and the proxy reveals nothing without.
    let file = stage.folder().join("token");
    fs::write(&file, stage.token("team-a", "reader", &[AUDIENCE]).unwrap()).unwrap();
    let (code, said) = run(
        &kubeconfig,
        &["vms", "--token-file", file.to_str().unwrap(), "--no-headers"],
    );
    assert!(code == 0 && listed(&said) == 2, "{said}");
    let proxy = "/api/v1/namespaces/virtfleet/services/https:virtfleet-collector:api/proxy/api/v1/vms";
    let answer = stage.infra.admin().get(proxy).unwrap();
    // The API server has used the admin's own token and not passed it on.
    assert_eq!(
        (answer.code, &answer.body["error"]["code"]),
        (401, &json!("unauthenticated"))
    );
}
