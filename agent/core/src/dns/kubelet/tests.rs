use virtfleet_wire::settings::{DnsManage, DnsPolicy};

use super::*;
use crate::dns::{
    Asked,
    fixtures::{asked, conf, healthy, ips, network_manager, plain, resolved},
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
    // One that pods cannot reach is enough; kubelet gives them the first three.
    assert_eq!(
        steps(file(Some("nameserver 10.0.0.7\nnameserver 127.0.0.1\n"))),
        1
    );
    assert_eq!(
        steps(file(Some("nameserver fe80::1%2\nnameserver 10.0.0.7\n"))),
        1
    );
    let four = "nameserver 10.0.0.7\nnameserver 10.0.0.8\nnameserver fd80::9\nnameserver fe80::1%2\n";
    assert_eq!(steps(file(Some(four))), 0);
}

/// Files of public reports (kubernetes #49675, #140844) and of a router that advertises itself.
#[test]
fn nameservers_that_pods_cannot_reach_are_replaced_by_the_others() {
    let text = |seen: &Seen, answer: &str| {
        let first = plan(&asked(), seen, &healthy(answer));
        let text = |path: &str| {
            let files = files(&first);
            let file = files.iter().find(|one| one.0 == path);
            file.and_then(|one| one.1).unwrap_or_default().to_owned()
        };
        let servers = text(ours::FOR_KUBELET);
        let servers: Vec<String> = servers
            .lines()
            .filter_map(|line| line.strip_prefix("nameserver "))
            .map(str::to_owned)
            .collect();
        (
            servers,
            text(DROP_IN).contains(&format!("\nresolvConf: {}\n", ours::FOR_KUBELET)),
        )
    };
    for (servers, lost) in [
        ("fe80::29c:2ff:fea9:fdd0%2 10.0.0.1", "fe80::29c:2ff:fea9:fdd0%2"),
        ("10.0.0.1 127.0.0.1", "127.0.0.1"),
        ("10.0.0.2 10.0.0.1 fe80::1%eth0 fd80::7", "fe80::1%eth0"),
    ] {
        let file = format!("nameserver {}\n", servers.replace(' ', "\nnameserver "));
        let usable = resolv::parse(&file).nameservers;
        let usable: Vec<String> = usable.iter().map(ToString::to_string).collect();
        let mut seen = with(plain("", ""), kubelet(None));
        seen.links.clear();
        seen.resolv_conf.text = Some(file.clone());
        let (given, configured) = text(&seen, &usable.join(" "));
        assert!(configured && !given.is_empty(), "{servers}: {given:?}");
        assert!(
            !given.iter().any(|one| lost.starts_with(one.as_str())),
            "{given:?}"
        );
        // The finding names only those.
        let advice = plan(&asked(), &seen, &healthy(&usable.join(" "))).notes;
        assert!(
            advice[0].contains(&format!("which contains {lost}: pods cannot reach")),
            "{advice:?}"
        );
        // systemd-resolved lists them too.
        let mut seen = with(resolved("", ""), kubelet(Some(UPSTREAMS)));
        seen.links.clear();
        seen.told = resolv::parse(&file);
        seen.upstreams = Some(file);
        let (given, configured) = text(&seen, &usable.join(" "));
        assert!(configured && !given.is_empty(), "{servers}: {given:?}");
    }
    // What the agent writes itself counts, not what is there now.
    let mut seen = with(plain("10.0.0.1", ""), kubelet(None));
    seen.links[0].given[0].conf = resolv::parse("nameserver 10.0.0.1\nnameserver fe80::1%eth0\n");
    assert_eq!(
        text(&seen, "10.0.0.1 fe80::1"),
        (vec!["10.0.0.1".to_owned()], true)
    );
    let mut seen = with(resolved("10.0.0.1 fe80::1", ""), kubelet(Some(UPSTREAMS)));
    seen.links[0].given[0].conf = conf("10.0.0.1", "", "");
    let own = Asked {
        nameservers: ips("10.0.0.1"),
        policy: DnsPolicy::None,
        ..asked()
    };
    let first = plan(&own, &seen, &healthy("10.0.0.1"));
    assert!(files(&first).iter().all(|one| one.0 != DROP_IN), "{first:?}");
    // Nothing else is known: no drop-in, but the finding.
    let mut seen = with(plain("", ""), kubelet(None));
    seen.links.clear();
    seen.resolv_conf.text = Some("nameserver fe80::1%eth0\n".to_owned());
    let alone = plan(&asked(), &seen, &healthy("fe80::1"));
    assert!(files(&alone).iter().all(|one| one.0 != DROP_IN), "{alone:?}");
    assert!(alone.notes[0].contains(SUITABLE_FILE), "{:?}", alone.notes);
}

/// Guest with a plain file and no link.
fn file(text: &str, kubelet: Kubelet) -> Seen {
    let mut seen = with(plain("", ""), kubelet);
    seen.links.clear();
    seen.resolv_conf.text = Some(text.to_owned());
    seen
}

/// systemd-resolved may know no nameserver, may run beside a plain file, or may be gone.
#[test]
fn file_of_resolved_is_given_only_if_pods_reach_its_nameservers() {
    let named = |seen: &Seen| {
        let first = plan(&asked(), seen, &healthy("fe80::1 10.0.0.1"));
        let drop_in = files(&first).into_iter().find(|one| one.0 == DROP_IN);
        let text = drop_in.and_then(|one| one.1).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("resolvConf: "));
        line.unwrap_or_default().to_owned()
    };
    let lost = "nameserver fe80::1%eth0\nnameserver 10.0.0.1\n";
    for upstreams in ["# none\n", "nameserver 10.0.0.9\n"] {
        let mut seen = file(lost, kubelet(None));
        seen.upstreams = Some(upstreams.to_owned());
        assert_eq!(named(&seen), ours::FOR_KUBELET, "{upstreams}");
    }
    // Pods reach no nameserver of the guest's file.
    let mut seen = file("nameserver 127.0.0.1\n", kubelet(None));
    seen.upstreams = Some("nameserver 10.0.0.9\n".to_owned());
    let found = wrong(&seen, &kubelet(None), None, &conf("127.0.0.1", "", ""));
    assert_eq!(found.unwrap().1, UPSTREAMS);
    let mut seen = with(resolved("10.0.0.1", ""), kubelet(None));
    assert_eq!(named(&seen), UPSTREAMS);
    for upstreams in [None, Some("# none\n".to_owned())] {
        seen.upstreams = upstreams;
        let found = wrong(&seen, &kubelet(None), None, &conf("10.0.0.1", "", ""));
        assert_eq!(found.unwrap().1, ours::FOR_KUBELET);
    }
    let gone = || kubelet(Some(UPSTREAMS));
    assert_eq!(named(&file("nameserver 10.0.0.1\n", gone())), ours::RESOLV_CONF);
    let mut seen = file(lost, gone());
    assert_eq!(named(&seen), ours::FOR_KUBELET);
    // A drop-in of an earlier run is in effect, not overridden.
    let before = drop_in_file(DROP_IN.to_owned(), ours::RESOLV_CONF);
    seen.files.insert(before.path, before.text);
    for (reads, expected) in [(ours::RESOLV_CONF, "apply dns"), (STUB, "is overridden")] {
        seen.kubelet.as_mut().unwrap().resolv_conf = Some(reads.to_owned());
        assert!(how(&seen).contains(expected), "{}", how(&seen));
    }
}

#[test]
fn file_that_the_advice_names_is_written() {
    let text = "nameserver fe80::1%eth0\nnameserver 10.0.0.1\n";
    let no_folder = Kubelet {
        config_dir: None,
        ..kubelet(None)
    };
    let by_flag = Kubelet {
        by_flag: true,
        ..kubelet(None)
    };
    for kubelet in [no_folder, by_flag] {
        let mut seen = file(text, kubelet);
        let plan = |asked: &Asked, seen: &Seen| plan(asked, seen, &healthy("fe80::1 10.0.0.1"));
        assert!(how(&seen).contains(ours::FOR_KUBELET), "{}", how(&seen));
        let first = plan(&asked(), &seen);
        let written: Vec<&str> = files(&first).iter().map(|one| one.0).collect();
        assert_eq!(written, [ours::FOR_KUBELET]);
        // With `report-only`, too.
        let Some(DnsStep::WriteFile { path, text, .. }) = first.kubelet.clone() else {
            panic!("{first:?}")
        };
        assert_eq!(text, conf("10.0.0.1", "", "").text(&header()));
        let off = Asked {
            manage: DnsManage::Off,
            ..asked()
        };
        assert_eq!(plan(&off, &seen).kubelet, None);
        seen.files.insert(path, text);
        let again = plan(&asked(), &seen);
        assert!(again.steps.is_empty() && again.kubelet.is_none(), "{again:?}");
    }
}

/// Each change of the drop-in needs a restart of kubelet.
#[test]
fn drop_in_stays_while_pods_cannot_reach_a_known_nameserver() {
    let told = |mut seen: Seen| {
        let drop_in = drop_in_file(DROP_IN.to_owned(), ours::FOR_KUBELET);
        seen.files.insert(drop_in.path, drop_in.text);
        let text = conf("10.0.0.1", "", "").text(&header());
        seen.files.insert(ours::FOR_KUBELET.to_owned(), text);
        let mut kubelet = kubelet(None);
        kubelet.resolv_conf = Some(ours::FOR_KUBELET.to_owned());
        with(seen, kubelet)
    };
    let changed = |seen: &Seen| {
        let plan = plan(&asked(), seen, &healthy("10.0.0.1 10.0.0.2 10.0.0.3 fe80::1"));
        files(&plan).iter().any(|one| one.0 == DROP_IN)
    };
    // A link that the agent does not configure, until systemd-resolved lists its nameserver again.
    let mut seen = told(resolved("10.0.0.1", ""));
    assert!(changed(&seen));
    let lost = "nameserver 10.0.0.2\nnameserver 10.0.0.3\nnameserver 10.0.0.1\nnameserver fe80::1%3\n";
    seen.upstreams = Some(lost.to_owned());
    assert!(!changed(&seen));
    // Not if an admin has configured a file that pods can use.
    let kubelet = seen.kubelet.as_mut().unwrap();
    kubelet.others = Some("/etc/kubernetes/resolv.conf".to_owned());
    kubelet.text = Some("nameserver 10.0.0.7\n".to_owned());
    assert!(changed(&seen));
    // The fourth nameserver is in use when one of the others does not answer.
    let seen = told(plain("10.0.0.1 10.0.0.2 10.0.0.3 fe80::1", ""));
    assert!(!changed(&seen));
    assert!(changed(&told(plain("10.0.0.1 10.0.0.2 10.0.0.3", ""))));
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
