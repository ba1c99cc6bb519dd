//! Metrics of others: text files, and pages in OpenMetrics.

use virtfleet_agent_core::textfile::{TextFamily, families};
use virtfleet_wire::exposition::{Line, Page, append_openmetrics, parse_line};

use super::input::text;

/// A text file. What it says, written on a page, is read as the same.
pub(super) fn textfile(bytes: &[u8]) {
    let text = text(bytes);
    for line in text.lines() {
        if let Ok(Line::Sample(sample)) = parse_line(line) {
            assert!(
                sample.labels.clone().all(|label| label.is_ok()),
                "labels were checked"
            );
        }
    }
    let Ok(found) = families(&text) else { return };
    assert_eq!(
        format!("{:?}", families(&format!("{text}\n"))),
        format!("{:?}", Ok::<_, ()>(&found))
    );
    for (name, family) in &found {
        assert!(!family.samples.is_empty(), "a family without samples is none");
        let page = written(name, family);
        let back = families(&page).expect("a page of ours can be read");
        assert_eq!(back.len(), 1, "{page}");
        let (kind, samples) = (back[name].kind, format!("{:?}", back[name].samples));
        assert_eq!((kind, samples), (family.kind, format!("{:?}", family.samples)));
    }
}

fn written(name: &str, family: &TextFamily) -> String {
    let mut page = Page::new();
    let mut writer = page.family(name, family.help.as_deref().unwrap_or_default(), family.kind);
    for sample in &family.samples {
        let labels: Vec<_> = sample
            .labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        writer.suffixed(sample.suffix, &labels, sample.value);
    }
    assert_eq!(page.samples(), family.samples.len());
    page.to_text()
}

/// A page in OpenMetrics. What of it comes onto our page can be read, and the bound on samples
/// holds.
pub(super) fn openmetrics(bytes: &[u8]) {
    let text = text(bytes);
    let mut page = Page::new();
    page.gauge("before", "Stands before it.", 1.0);
    let before = page.to_text();
    if append_openmetrics(&mut page, &text).is_err() {
        assert_eq!(
            page.to_text(),
            before,
            "what cannot be read leaves the page as it was"
        );
        return;
    }
    let after = page.to_text();
    let samples = after
        .lines()
        .map(|line| parse_line(line).expect("a page of ours can be read"))
        .filter(|line| matches!(line, Line::Sample(_)))
        .count();
    assert_eq!(samples, page.samples(), "{after}");
    let dropped = page.keep(samples / 2);
    assert_eq!(page.samples() + dropped, samples);
    assert!(after.starts_with(&page.to_text()));
}
