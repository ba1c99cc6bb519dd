//! A user cluster whose API server never stops to answer.

use serde_json::json;
use virtfleet_tests::{
    cluster::{
        ApiServer, Fault, Proxy,
        live::{Collector, WAIT_TIMEOUT, secret, user_cluster},
    },
    measure::usage,
    wait,
};

use super::clusters::until_state;

/// A user cluster whose API server never ends a response is Failed. The collector buffers at most
/// the maximum size of a response, and no log line or message repeats the response.
pub(super) fn costs_itself(infra: &ApiServer, tenant: &ApiServer, collector: &Collector) {
    let proxy = Proxy::start(tenant).unwrap();
    let peak = || usage::peak(collector.process.id()).unwrap();
    let before = peak();
    for (code, state, why) in [
        (200, "Failed", "a response has more than"),
        (500, "Unreachable", "the API server failed (500)"),
    ] {
        proxy.set(&[("/", Fault::Flood(code))]);
        infra.apply(&user_cluster("flood", "flood")).unwrap();
        let kubeconfig = proxy.kubeconfig(tenant.admin_user());
        infra.apply(&secret("flood", &kubeconfig)).unwrap();
        let flood = until_state(collector, "flood", state);
        let message = flood["message"].as_str().unwrap();
        assert!(message.contains(why) && message.len() < 400, "{message}");
        assert_eq!(flood["partial"], json!(true), "{flood:#}");
        for list in ["vms", "vms?cluster=prod"] {
            let list = collector.json(&format!("/api/v1/{list}")).unwrap();
            assert_eq!(list["partial"], json!(false));
        }
        infra.remove(&user_cluster("flood", "flood")).unwrap();
        infra.remove(&secret("flood", &kubeconfig)).unwrap();
        wait::eventually(WAIT_TIMEOUT, "it is gone", || {
            anyhow::ensure!(collector.cluster("flood").is_err());
            Ok(())
        })
        .unwrap();
    }
    let grown = peak() - before;
    assert!(grown < 64 << 20, "{grown} bytes more");
    let log = collector.process.log();
    let longest = log.lines().map(str::len).max().unwrap_or_default();
    assert!(longest < 4096, "a log line of {longest} bytes");
}
