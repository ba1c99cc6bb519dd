//! Policies of the simulated infra cluster.

use virtfleet_collector_core::{
    facts::Selector,
    labels::policy::{LabelPolicy, Mode, Rule, Source, Takeover},
};

/// A policy with these rules for all user clusters.
pub(super) fn policy(name: &str, rules: Vec<Rule>) -> LabelPolicy {
    LabelPolicy {
        name: name.to_owned(),
        uid: None,
        generation: 1,
        clusters: Selector::default(),
        dry_run: false,
        rules,
    }
}

/// Policies that never change: each would set one of
/// [`UNTOUCHED`](super::truth::UNTOUCHED) if its rule were ignored.
pub(super) fn fixed_policies() -> impl Iterator<Item = LabelPolicy> {
    let rule = |source: &str, to: &str, mode| Rule {
        source: Source::Key(source.to_owned()),
        target: Some(to.to_owned()),
        mode: Some(mode),
        takeover: Some(Takeover::Always),
    };
    let room = policy(
        "room",
        vec![rule(
            "rack.example.com/room",
            "rack.example.com/room",
            Mode::ReportDrift,
        )],
    );
    let hostname = rule("rack.example.com/room", "kubernetes.io/hostname", Mode::Follow);
    let pdu = rule("rack.example.com/pdu", "dry.example.com/pdu", Mode::Follow);
    let dry = LabelPolicy {
        dry_run: true,
        ..policy("dry", vec![pdu])
    };
    [room, policy("hostname", vec![hostname]), dry].into_iter()
}
