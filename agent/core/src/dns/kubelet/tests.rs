use virtfleet_wire::settings::DnsManage;

use super::*;
use crate::dns::{
    Asked,
    fixtures::{asked, conf, healthy, network_manager, plain, resolved},
    plan::{DnsStep, Plan, plan},
};

const FOLDER: &str = "/etc/kubernetes/kubelet.conf.d";
const DROP_IN: &str = "/etc/kubernetes/kubelet.conf.d/90-virtfleet.conf";

fn kubelet(reads: Option<&str>) -> Kubelet {
    Kubelet {
        path: "/var/lib/kubelet/config.yaml".to_owned(),
        resolv_conf: reads.map(str::to_owned),
        others: reads.map(str::to_owned),
        config: Some("/var/lib/kubelet/config.yaml".to_owned()),
        config_dir: Some(FOLDER.to_owned()),
        ..Kubelet::default()
    }
}

fn with(mut seen: Seen, kubelet: Kubelet) -> Seen {
    seen.kubelet = Some(kubelet);
    seen
}

/// Files that the plan writes and removes, by path.
fn files(plan: &Plan) -> Vec<(&str, Option<&str>)> {
    let each = plan.steps.iter().filter_map(|step| match step {
        DnsStep::WriteFile { path, text, .. } => Some((path.as_str(), Some(text.as_str()))),
        DnsStep::RemoveFile { path } => Some((path.as_str(), None)),
        _ => None,
    });
    each.collect()
}

fn how(seen: &Seen) -> String {
    let plan = plan(&asked(), seen, &healthy("10.0.0.1"));
    let found = plan.advice.into_iter().find_map(|advice| match advice {
        Advice::KubeletResolvConf { how, .. } => Some(how),
        _ => None,
    });
    found.unwrap_or_default()
}

#[test]
fn kubelet_is_configured_by_a_drop_in() {
    let seen = with(resolved("10.0.0.1", ""), kubelet(None));
    let first = plan(&asked(), &seen, &healthy("10.0.0.1"));
    let expected = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nresolvConf: /run/systemd/resolve/resolv.conf\n";
    let [(DROP_IN, Some(text))] = files(&first)[..] else {
        panic!("{:?}", first.steps)
    };
    assert_eq!(text, header() + expected);
    assert!(ours::is_ours(text));
    // Once applied it stays, and `off` removes it.
    let mut done = seen.clone();
    done.files.insert(DROP_IN.to_owned(), text.to_owned());
    done.kubelet.as_mut().unwrap().resolv_conf = Some(UPSTREAMS.to_owned());
    let again = plan(&asked(), &done, &healthy("10.0.0.1"));
    assert!(again.steps.is_empty() && again.advice.is_empty(), "{again:?}");
    let off = Asked {
        manage: DnsManage::Off,
        ..asked()
    };
    assert_eq!(files(&plan(&off, &done, &[])), [(DROP_IN, None)]);
    // A file of another owner is not overwritten.
    let mut theirs = seen;
    theirs
        .files
        .insert(DROP_IN.to_owned(), "resolvConf: /x\n".to_owned());
    let left = plan(&asked(), &theirs, &healthy("10.0.0.1"));
    assert!(left.steps.is_empty());
    assert_eq!(left.refusals[0].facts[0].1, DROP_IN);
    // It does not block other steps.
    theirs.links[0].given[0].conf = conf("169.254.20.10 10.0.0.1", "", "");
    theirs.upstreams = Some("nameserver 169.254.20.10\nnameserver 10.0.0.1\n".to_owned());
    let others = plan(&asked(), &theirs, &healthy("10.0.0.1"));
    assert_eq!(others.refusals, left.refusals);
    assert!(
        files(&others).iter().any(|one| one.0 == ours::RESOLVED),
        "{others:?}"
    );
    assert!(!others.steps.iter().any(DnsStep::is_kubelets));
}

#[test]
fn only_unusable_files_are_replaced() {
    let steps = |kubelet: Kubelet| {
        let seen = with(resolved("10.0.0.1", ""), kubelet);
        plan(&asked(), &seen, &healthy("10.0.0.1")).steps.len()
    };
    assert_eq!(steps(kubelet(Some(UPSTREAMS))), 0);
    assert_eq!(steps(kubelet(Some(""))), 0);
    let file = |text: Option<&str>| Kubelet {
        text: text.map(str::to_owned),
        ..kubelet(Some("/etc/kubernetes/resolv.conf"))
    };
    assert_eq!(steps(file(Some("nameserver 10.0.0.7\n"))), 0);
    assert_eq!(steps(file(Some("nameserver 127.0.0.1\n"))), 1);
    assert_eq!(steps(file(None)), 1);
    assert_eq!(steps(kubelet(Some(STUB))), 1);
}

#[test]
fn advice_names_file_or_flag_without_drop_ins() {
    let line = "resolvConf: /run/systemd/resolve/resolv.conf";
    let seen = with(resolved("10.0.0.1", ""), kubelet(None));
    assert!(how(&seen).contains(DROP_IN) && how(&seen).contains(line));
    let mut file = seen.clone();
    file.kubelet.as_mut().unwrap().config_dir = None;
    assert!(plan(&asked(), &file, &healthy("10.0.0.1")).steps.is_empty());
    assert!(how(&file).starts_with(&format!("set `{line}` in /var/lib/kubelet/config.yaml, ")));
    let mut flag = seen;
    let told = flag.kubelet.as_mut().unwrap();
    told.by_flag = true;
    told.flag_in = Some("/etc/default/kubelet".to_owned());
    assert!(plan(&asked(), &flag, &healthy("10.0.0.1")).steps.is_empty());
    let text = how(&flag);
    assert!(
        text.starts_with("set --resolv-conf=/run/systemd/resolve/resolv.conf in /etc/default/kubelet"),
        "{text}"
    );
}

#[test]
fn own_file_is_written_with_the_drop_in_and_kept_while_kubelet_runs() {
    let mut seen = with(network_manager("10.0.0.1", ""), kubelet(None));
    seen.resolv_conf.text = Some("nameserver 127.0.0.1\n".to_owned());
    let first = plan(&asked(), &seen, &healthy("10.0.0.1"));
    let written: Vec<&str> = files(&first).iter().map(|one| one.0).collect();
    assert_eq!(written, [ours::FOR_KUBELET, DROP_IN]);
    // kubelet is configured after NetworkManager has loaded the agent's configuration.
    seen.links[0].given[0].conf = conf("10.0.0.1 169.254.20.10", "", "");
    let first = plan(&asked(), &seen, &healthy("10.0.0.1"));
    let written: Vec<&str> = files(&first).iter().map(|one| one.0).collect();
    assert_eq!(written, [ours::NETWORK_MANAGER, ours::FOR_KUBELET]);
    // After `off` kubelet uses the agent's file until it restarts.
    let mut off = with(plain("10.0.0.1", ""), kubelet(None));
    off.files.insert(ours::FOR_KUBELET.to_owned(), header());
    assert!(!kubelet_reads(&off));
    off.kubelet.as_mut().unwrap().started_ns = Some(1);
    assert!(kubelet_reads(&off));
}

#[test]
fn kubelet_file_follows_answering_nameservers_in_every_mode() {
    let reads = kubelet(Some(ours::FOR_KUBELET));
    let mut seen = with(plain("10.0.0.1", ""), reads);
    seen.last_good = Some(conf("10.0.0.9", "", ""));
    seen.files.insert(
        ours::FOR_KUBELET.to_owned(),
        conf("10.0.0.9", "", "").text(&header()),
    );
    for manage in [DnsManage::Off, DnsManage::ReportOnly, DnsManage::Auto] {
        let asked = Asked { manage, ..asked() };
        let text = |answers: &str| match plan(&asked, &seen, &healthy(answers)).kubelet {
            Some(DnsStep::WriteFile { text, .. }) => text,
            _ => String::new(),
        };
        // It is dead, and the one in use answers.
        assert!(text("10.0.0.1").contains("\nnameserver 10.0.0.1\n"), "{manage:?}");
        // All are dead: the current file is kept.
        assert_eq!(text(""), "", "{manage:?}");
    }
    seen.files
        .insert(ours::FOR_KUBELET.to_owned(), "nameserver 10.0.0.7\n".to_owned());
    assert_eq!(plan(&asked(), &seen, &healthy("10.0.0.1")).kubelet, None);
}

/// At boot kubelet does not run yet, and its flags may be in an unknown file.
#[test]
fn drop_in_stays_while_kubelets_folder_is_unknown() {
    let mut told = kubelet(None);
    told.config_dir = None;
    let mut seen = with(resolved("10.0.0.1", ""), told);
    let text = format!("{}resolvConf: {}\n", header(), ours::FOR_KUBELET);
    seen.files.insert(DROP_IN.to_owned(), text);
    seen.files.insert(
        ours::FOR_KUBELET.to_owned(),
        conf("10.0.0.1", "", "").text(&header()),
    );
    let plan = |seen: &Seen| plan(&asked(), seen, &healthy("10.0.0.1"));
    assert_eq!(files(&plan(&seen)), []);
    // It runs and reads no folder: the drop-in has no effect.
    seen.kubelet.as_mut().unwrap().started_ns = Some(1);
    assert_eq!(files(&plan(&seen)), [(DROP_IN, None)]);
}
