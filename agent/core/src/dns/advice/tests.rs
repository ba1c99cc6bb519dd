use super::*;

#[test]
fn every_advice_is_a_sentence() {
    let text = |advice: Advice| advice.to_string();
    let nameservers = vec!["10.0.0.1".parse().unwrap(), "fd00::a".parse().unwrap()];
    assert!(text(Advice::LastGood { nameservers }).ends_with("10.0.0.1, fd00::a"));
    assert!(text(Advice::Dhcpcd { link: "eth0".into() }).contains("nohook resolv.conf"));
    assert!(
        text(Advice::OptionsNotHonoured {
            options: vec!["ndots:5".into(), "rotate".into()]
        })
        .contains("ndots:5 rotate")
    );
    assert!(
        text(Advice::NetworkManagerLinks {
            links: vec!["eth0".into(), "eth1".into()]
        })
        .contains("resolvectl revert eth0")
    );
    let config = "kubelet's command line".to_owned();
    assert!(text(Advice::KubeletFileMissing { config }).contains(ours::FOR_KUBELET));
    assert!(text(Advice::OriginalLost).contains("/etc/resolv.conf"));
    assert!(
        text(Advice::LocalDomain {
            domain: "cluster.local".into()
        })
        .contains("cluster.local")
    );
    let kubelet = Advice::KubeletResolvConf {
        config: "/var/lib/kubelet/config.yaml".into(),
        reads: "/etc/resolv.conf".into(),
        because: "which is a stub".into(),
        instead: UPSTREAMS.into(),
        how: "set it".into(),
    };
    assert!(text(kubelet.clone()).ends_with(", which is a stub: set it"));
    let json = serde_json::to_string(&kubelet).unwrap();
    assert_eq!(serde_json::from_str::<Advice>(&json).unwrap(), kubelet);
}
