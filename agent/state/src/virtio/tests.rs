use super::*;

#[test]
fn the_last_state_is_used_and_an_unusable_file_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots {
        rootfs: dir.path().to_owned(),
        procfs: dir.path().join("proc"),
        sysfs: dir.path().join("sys"),
        ..Roots::default()
    };
    let file = roots.root(NIC_STATE.path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let inspect = || inspect(&roots, "boot", &NicSettings::default(), false);
    let seen = inspect();
    assert!(seen.state.is_none() && seen.unusable.is_none() && seen.findings.is_empty());
    for (text, unusable) in [
        (r#"{"v": 1, "bootId": "another"}"#, None),
        (r#"{"v": 9, "bootId": "boot"}"#, Some("format 9, expected 1")),
        ("{", Some("not a state")),
    ] {
        std::fs::write(&file, text).unwrap();
        let seen = inspect();
        assert!(seen.state.is_none(), "{text}");
        let unusable_text = seen.unusable.unwrap_or_default();
        assert!(
            unusable_text.contains(unusable.unwrap_or_default()),
            "{unusable_text}"
        );
        assert_eq!(
            unusable_text.is_empty(),
            unusable.is_none(),
            "{text}: {unusable_text}"
        );
    }
    let state = NicState {
        boot_id: "boot".into(),
        refusals: vec!["eth0: busy".into()],
        ..sample::state()
    };
    std::fs::write(&file, serde_json::to_vec(&state).unwrap()).unwrap();
    let seen = inspect();
    assert_eq!(seen.state, Some(state));
    assert_eq!(seen.findings[0].id, "virtio-nic-refused");
}

#[test]
fn queues_are_shown_with_their_status() {
    let settings = NicSettings::default();
    let of = |state| Virtio::of(sample::machine(), state, None, &settings);
    let alone = of(None);
    assert_eq!(alone.queues(&alone.machine.nics[0]).unwrap(), "1 of 2 queues");
    let known = of(Some(sample::state()));
    assert_eq!(
        known.queues(&known.machine.nics[0]).unwrap(),
        "1 of 2 queues (differs)"
    );
    let mut single = known.machine.nics[0].clone();
    single.channels = single.channels.map(|_| virtfleet_agent_core::virtio::Channels {
        current: 1,
        possible: 1,
    });
    assert_eq!(known.queues(&single).unwrap(), "1 queue (differs)");
    let mut other = known.machine.nics[0].clone();
    other.mac = "another".into();
    assert_eq!(known.standing(&other), None);
}
