//! Settings in YAML, reports in JSON, and the words in both.

use virtfleet_wire::{
    duration::Span,
    ids::{MacAddr, Uuid},
    layered::{Expect, Fragment, load, parse_yaml, to_yaml},
    report::{GuestReport, MAX_REPORT_BYTES},
    settings::{AGENT_CONFIG_KIND, AgentConfig, CONFIG_API_VERSION},
};

use super::input::text;

const KEEP: &[&str] = &["server", "log"];

/// Fragments of settings (a NUL between them): whatever they say there is a value, which can be
/// written and read.
pub(super) fn settings(bytes: &[u8]) {
    let text = text(bytes);
    let name = |number: usize| format!("{number}.yaml");
    let fragments: Vec<Fragment> = text
        .split('\0')
        .take(4)
        .enumerate()
        .map(|(number, text)| Fragment {
            file: name(number),
            text: text.to_owned(),
        })
        .collect();
    let expect = Expect {
        api_version: CONFIG_API_VERSION,
        kind: AGENT_CONFIG_KIND,
    };
    let loaded = load::<AgentConfig>(&fragments, expect, KEEP);
    for problem in &loaded.problems {
        assert!(problem.file != "(merged)", "{problem:?}");
    }
    assert!(
        loaded.skipped.len() <= loaded.problems.len(),
        "what is left out is said"
    );
    let json = serde_json::to_value(&loaded.value).expect("settings can be written");
    let back: AgentConfig = serde_json::from_value(json.clone()).expect("settings of ours can be read");
    assert_eq!(
        serde_json::to_value(&back).expect("settings can be written"),
        json
    );
}

/// Any YAML: what was read, written again, reads as the same.
pub(super) fn yaml(bytes: &[u8]) {
    let text = text(bytes);
    let Ok(documents) = parse_yaml(&text) else { return };
    for document in documents {
        let json = document.to_json();
        let written = to_yaml(&json);
        let back = parse_yaml(&written).unwrap_or_else(|error| panic!("{error}: {written:?} of {json:?}"));
        let back: Vec<_> = back.iter().map(virtfleet_wire::layered::Node::to_json).collect();
        assert_eq!(back, [json], "{written:?}");
    }
}

/// A guest's report: one that is read can be written within the limit, and read again.
pub(super) fn report(bytes: &[u8]) {
    let Ok(report) = GuestReport::from_json(bytes) else {
        return;
    };
    let json = report
        .clone()
        .to_json_within_limit()
        .expect("a report can be written");
    assert!(json.len() <= MAX_REPORT_BYTES);
    let back = GuestReport::from_json(&json).expect("a report of ours can be read");
    assert_eq!(
        serde_json::to_value(&back).ok(),
        serde_json::to_value(&report).ok(),
        "nothing is lost below the limit"
    );
}

/// Words with a form of their own: what is printed of them reads as the same.
pub(super) fn words(bytes: &[u8]) {
    let text = text(bytes);
    if let Ok(span) = text.parse::<Span>() {
        assert_eq!(span.to_string().parse(), Ok(span));
    }
    if let Ok(uuid) = text.parse::<Uuid>() {
        assert_eq!(uuid.to_string().parse(), Ok(uuid));
    }
    if let Ok(address) = text.parse::<MacAddr>() {
        assert_eq!(address.to_string().parse(), Ok(address));
    }
}
