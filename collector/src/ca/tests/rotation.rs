use super::*;

fn rotated(authorities: &Authorities, kind: RootKind) -> Authorities {
    authorities.rotate(kind, NOW).unwrap()
}

#[test]
fn agents_of_the_previous_root_stay_valid() {
    let old = authorities();
    let before = agent(&old, ONE_DAY);
    let new = rotated(&old, RootKind::Agents);
    let after = agent(&new, ONE_DAY);
    for chain in [&before, &after] {
        check(chain, &new.agent_roots_pem(), Usage::Server).unwrap();
    }
    check(&after, &old.agent_roots_pem(), Usage::Server).unwrap_err();
    assert_eq!(
        new.client_roots_pem(),
        old.client_roots_pem(),
        "clients are unchanged"
    );
}

/// User-data of VMs cannot be changed: an agent that knows only the old root of clients must accept
/// the collector with a certificate of the new root.
#[test]
fn vms_with_an_older_clients_root_accept_the_collector() {
    let first = authorities();
    let second = rotated(&first, RootKind::Clients);
    let third = rotated(&second, RootKind::Clients);
    let chain = collector(&third, ONE_DAY);
    assert_eq!(chain.matches("BEGIN CERTIFICATE").count(), 3);
    for older in [&first, &second, &third] {
        let root = &older.roots(RootKind::Clients)[0].pem;
        check(&chain, root, Usage::Client).unwrap();
    }
    // Without the cross-signed certificates it is refused.
    let leaf = chain
        .split_inclusive("-----END CERTIFICATE-----\n")
        .next()
        .unwrap();
    check(leaf, &first.client_roots_pem(), Usage::Client).unwrap_err();
    // The chain vouches for clients only.
    check(&chain, &first.client_roots_pem(), Usage::Server).unwrap_err();
    check(&agent(&third, ONE_DAY), &first.client_roots_pem(), Usage::Client).unwrap_err();
}

#[test]
fn agents_have_no_cross_signed_certificates() {
    let new = rotated(&authorities(), RootKind::Agents);
    assert!(new.client_chain().is_empty());
    assert_eq!(agent(&new, ONE_DAY).matches("BEGIN CERTIFICATE").count(), 1);
}

#[test]
fn the_chain_is_bounded_and_can_be_shortened() {
    let mut authorities = authorities();
    let oldest = authorities.client_roots_pem();
    for _ in 0..3 {
        authorities = rotated(&authorities, RootKind::Clients);
    }
    check(&collector(&authorities, ONE_DAY), &oldest, Usage::Client).unwrap();
    let error = authorities
        .rotate(RootKind::Clients, NOW)
        .unwrap_err()
        .to_string();
    assert!(error.contains("--drop-oldest"), "{error}");
    let shorter = rotated(&authorities.without_oldest_link(), RootKind::Clients);
    let chain = collector(&shorter, ONE_DAY);
    check(&chain, &oldest, Usage::Client).unwrap_err();
    check(&chain, &shorter.roots(RootKind::Clients)[3].pem, Usage::Client).unwrap();
}

/// After a key may have leaked, certificates of the old root must not be accepted any more.
#[test]
fn previous_roots_can_be_distrusted_at_once() {
    let old = authorities();
    let before = agent(&old, ONE_DAY);
    let distrust = |root| Rotation {
        root,
        distrust_previous: true,
        drop_oldest: false,
    };
    let new = distrust(RootKind::Agents).apply(&old, NOW).unwrap();
    check(&before, &new.agent_roots_pem(), Usage::Server).unwrap_err();
    check(&agent(&new, ONE_DAY), &new.agent_roots_pem(), Usage::Server).unwrap();
    // User-data that is rendered from now on has the new root only. VMs with the old one still
    // accept collectors, until their user-data is replaced.
    let new = distrust(RootKind::Clients).apply(&old, NOW).unwrap();
    assert_eq!(new.roots(RootKind::Clients).len(), 1);
    assert_ne!(new.client_roots_pem(), old.client_roots_pem());
    let chain = collector(&new, ONE_DAY);
    check(&chain, &old.client_roots_pem(), Usage::Client).unwrap();
}

#[test]
fn the_number_of_roots_is_bounded() {
    let mut authorities = authorities();
    for _ in 0..7 {
        authorities = rotated(&authorities, RootKind::Agents);
    }
    let error = authorities.rotate(RootKind::Agents, NOW).unwrap_err();
    assert!(matches!(error, CaError::TooManyRoots { count: 8, .. }), "{error}");
    // It can still be read.
    Authorities::parse(&authorities.files()).unwrap();
}

#[test]
fn replaced_roots_are_removed_when_their_certificates_have_expired() {
    let lifetime = 7 * DAY;
    let new = rotated(&rotated(&authorities(), RootKind::Agents), RootKind::Clients);
    assert!(new.pruned(lifetime, NOW).is_none());
    assert!(new.pruned(lifetime, NOW + lifetime + DAY).is_none());
    let pruned = new.pruned(lifetime, NOW + lifetime + DAY + 1).unwrap();
    for kind in RootKind::ALL {
        assert_eq!(pruned.roots(kind), &new.roots(kind)[..1], "{kind}");
    }
    // VMs keep their user-data for longer than certificates live.
    assert_eq!(pruned.client_chain(), new.client_chain());
    let end = new.client_chain()[0].validity.not_after;
    assert!(pruned.pruned(lifetime, end).is_none());
    assert!(
        pruned
            .pruned(lifetime, end + 1)
            .unwrap()
            .client_chain()
            .is_empty()
    );
}

#[test]
fn a_cross_signed_certificate_ends_with_the_older_root() {
    let old = authorities();
    let later = NOW + 1000 * DAY;
    let new = old.rotate(RootKind::Clients, later).unwrap();
    let old_end = old.roots(RootKind::Clients)[0].validity.not_after;
    assert_eq!(new.client_chain()[0].validity.not_after, old_end);
    assert!(new.roots(RootKind::Clients)[0].validity.not_after > old_end);
}

#[test]
fn an_expired_root_of_clients_cannot_vouch_for_the_next_one() {
    let old = authorities();
    let end = old.roots(RootKind::Clients)[0].validity.not_after;
    let new = old.rotate(RootKind::Clients, end + DAY).unwrap();
    assert!(new.client_chain().is_empty());
    assert_eq!(
        old.rotate(RootKind::Agents, end + DAY)
            .unwrap()
            .roots(RootKind::Agents)
            .len(),
        2
    );
}

#[test]
fn the_status_names_the_next_step() {
    let status = |authorities: &Authorities, now| {
        CaStatus::of(authorities, "/ca", "example.org", DAY, now)
            .next_steps
            .join("\n")
    };
    let old = authorities();
    let text = status(&old, NOW);
    assert_eq!(
        text,
        "nothing to do; rotate the roots before 2035-07-03T00:00:00Z"
    );
    let end = old.roots(RootKind::Agents)[0].validity.not_after;
    let text = status(&old, end - 100 * DAY);
    assert!(
        text.contains("expires at 2035-12-30T00:00:00Z; rotate it: virtfleetctl ca rotate agents"),
        "{text}"
    );
    assert!(status(&old, end + 1).contains("root of clients"));
    assert!(status(&old, end + 1).contains("expired at"));
    let new = rotated(&rotated(&old, RootKind::Agents), RootKind::Clients);
    let text = status(&new, NOW);
    assert!(
        text.contains("replaced; trusted until 2026-01-03T00:00:00Z, then removed; nothing to do"),
        "{text}"
    );
    assert!(
        text.contains("user-data with an older root of clients is accepted until 2035-12-30T00:00:00Z"),
        "{text}"
    );
}

#[test]
fn the_status_has_public_data_only() {
    let mut authorities = rotated(&authorities(), RootKind::Clients);
    authorities.deny("0a".parse().unwrap());
    let status = CaStatus::of(&authorities, "/ca", "example.org", DAY, NOW);
    let roles: Vec<_> = status
        .roots
        .iter()
        .map(|root| (root.kind.as_str(), root.role.as_str()))
        .collect();
    assert_eq!(
        roles,
        [
            ("agents", "signs"),
            ("clients", "signs"),
            ("clients", "trusted"),
            ("clients", "cross-signed")
        ]
    );
    assert_eq!(status.denied_serials, 1);
    let text = serde_json::to_string(&status).unwrap();
    assert!(!text.contains("PRIVATE") && !text.contains("BEGIN"), "{text}");
}
