//! The web page in a real browser: tests/web/page.mjs drives headless Chromium against a real
//! collector with sick VMs of several kinds, and against one that requires a token.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{env, fs, path::Path, time::Duration};

use anyhow::ensure;
use serde_json::json;
use virtfleet_tests::{
    access, bins,
    parts::{self, Browser},
    pki::Authority,
    ports,
    process::{Launch, Process},
    prometheus_past,
    sim::{self, Fault, Options},
    skip,
    stage::{Beat, STAGE_TIMEOUT, Stage},
    wait,
};

/// Timeout of the script in the browser: it takes half a minute on two free cores.
const SCRIPT_TIMEOUT: Duration = Duration::from_mins(4);
const TENANT: &str = "token-of-the-tenant-of-cluster-a";
/// What a hostile guest or admin may write into a text.
const HOSTILE: &str = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>";

fn stage() -> Stage {
    let options = Options {
        guests: 24,
        hosts: 6,
        zones: 3,
        clusters: 2,
        faults: vec![(Fault::WrongVm, 1), (Fault::Claims, 1)],
        ..Options::default()
    };
    Stage::new(options).unwrap()
}

/// Guests without fault of the simulated fleet.
fn honest(stage: &Stage) -> Vec<sim::Guest> {
    let guests = stage.plan.guests.iter();
    guests.filter(|guest| guest.fault.is_none()).cloned().collect()
}

/// A collector of the same fleet that requires a token.
fn secured(stage: &Stage) -> (Process, String) {
    let folder = stage.path().join("secured");
    fs::create_dir(&folder).unwrap();
    let address = ports::free().unwrap();
    let tokens = folder.join("tokens");
    let line = access::token_line(TENANT, "tenant,namespace:cluster-a");
    access::write_tokens(&tokens, &line).unwrap();
    let authority = Authority::new("page").unwrap();
    access::api_certificate(&authority, &folder).unwrap();
    let plain = format!("server: {{ address: \"{}\" }}", stage.api);
    let at = folder.display();
    let server = format!(
        "server: {{ address: \"{address}\", tls: {{ certificate: {at}/api.pem, key: {at}/api.key }}, \
         access: {{ tokens: {at}/tokens }} }}"
    );
    let config = stage.collector_config(Beat::default()).replace(&plain, &server);
    let file = folder.join("collector.yaml");
    fs::write(&file, config).unwrap();
    let mut collector = Launch::new(bins::collector().unwrap())
        .args(["serve", "--config"])
        .arg(&file)
        .start(&folder)
        .unwrap();
    collector
        .wait_for(STAGE_TIMEOUT, "it is ready", |_| {
            let api = access::Api::new(address, &authority)?;
            api.get(None, "/readyz")?.ok()
        })
        .unwrap();
    (collector, format!("https://{address}"))
}

/// Runs a script of tests/web.
fn script(browser: &Browser, name: &str) -> Launch {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("web").join(name);
    Launch::new(&browser.node)
        .arg(file)
        .env("VIRTFLEET_MODULES", &browser.modules)
        .env("VIRTFLEET_CHROMIUM", &browser.chromium)
}

#[test]
fn the_page_shows_a_sick_fleet_live_tier3() {
    let test = "the_page_shows_a_sick_fleet_live_tier3";
    let Some(browser) = skip::need(3, test, parts::browser()).unwrap() else {
        return;
    };
    let past = parts::prometheus().and_then(|_| parts::promtool());
    if skip::need(3, test, past).unwrap().is_none() {
        return;
    }
    let mut stage = stage();
    let guests = honest(&stage);
    let host = |guest: &sim::Guest| stage.plan.hosts[guest.host].name.clone();
    // A VM that the tenant may see, so that its page can be tested as well.
    let sick = &guests[0];
    let mut others = guests.iter().skip(1);
    let moved = others.find(|guest| guest.cluster == "cluster-a").unwrap();
    let from = host(moved);
    let broken = others
        .map(host)
        .find(|name| *name != from && *name != host(sick))
        .unwrap();
    let to = stage.plan.hosts.iter().map(|host| host.name.clone());
    let to = to
        .into_iter()
        .find(|name| *name != from && *name != broken)
        .unwrap();
    let message = format!("low-level IO error {HOSTILE}");
    stage
        .write_vmi(sick, &sim::paused_vmi(sick, &host(sick), &message))
        .unwrap();
    for (file, text) in [
        ("infra/resting.yaml", sim::stopped_vm("cluster-a", "resting")),
        ("infra/nodes.yaml", sim::nodes_without(&stage.plan, &broken)),
    ] {
        stage.write_manifest(file, &text).unwrap();
    }
    let has_past = [(moved.cluster.as_str(), moved.name.as_str())];
    let (_prometheus, past) = prometheus_past::start(stage.path(), &has_past, "job=\"node\"").unwrap();
    stage.set_settings(format!("prometheus: {{ url: \"http://{past}\" }}\n"));
    stage.start_collector(Beat::default()).unwrap();
    let count = stage.plan.guests.len() + 1;
    wait::eventually(STAGE_TIMEOUT, "all agents have been pulled", || {
        let waiting = stage.json("/api/v1/vms?agent=waiting")?;
        let waiting = waiting["items"].as_array().map_or(0, Vec::len);
        ensure!(waiting == 0, "{waiting} have not");
        Ok(())
    })
    .unwrap();
    let (_secured, address) = secured(&stage);
    let name = |guest: &sim::Guest| json!({ "namespace": guest.cluster, "name": guest.name });
    let mut move_of = name(moved);
    move_of["file"] = stage.manifest(moved).display().to_string().into();
    move_of["from"] = from.into();
    move_of["to"] = to.into();
    let fleet = json!({
        "count": count,
        "paused": name(sick),
        "moved": move_of,
        "stopped": { "namespace": "cluster-a", "name": "resting" },
        "host": broken,
    });
    let secured = json!({
        "base": address, "tenant": TENANT, "namespace": "cluster-a",
    });
    let pictures = env::var_os("VIRTFLEET_PICTURES").unwrap_or_default();
    let (code, said) = script(&browser, "page.mjs")
        .env("VIRTFLEET_BASE", format!("http://{}", stage.api))
        .env("VIRTFLEET_SECURED", secured.to_string())
        .env("VIRTFLEET_FLEET", fleet.to_string())
        .env("VIRTFLEET_PICTURES", pictures)
        .said(SCRIPT_TIMEOUT)
        .unwrap();
    assert_eq!(code, 0, "{said}");
    println!("{said}");
}
