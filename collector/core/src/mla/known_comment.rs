//! Parses the comments of a family that the last page had. A page has up to two for each family.

use std::borrow::Cow;

use virtfleet_wire::exposition::{Line, MetricType};

/// Parses `# HELP name text` and `# TYPE name type`, where `family` is the name, which was
/// validated on the last page, and `kind` is the type. None if the line has to be parsed by
/// [`parse_line`](virtfleet_wire::exposition::parse_line): it has another name, type or form, or
/// is malformed.
pub(super) fn parse_known_comment<'text>(
    line: &'text str,
    family: &str,
    kind: Option<MetricType>,
) -> Option<Line<'text>> {
    let (word, rest) = line.strip_prefix("# ")?.split_at_checked("HELP ".len())?;
    let text = rest.strip_prefix(family)?.strip_prefix(' ')?;
    let name = rest.get(..family.len()).filter(|name| !name.is_empty())?;
    match word {
        "HELP " => {
            let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t' | b'\r'));
            let bytes = text.as_bytes();
            let is_plain = !is_blank(bytes.first()) && !is_blank(bytes.last()) && !text.contains('\\');
            is_plain.then_some(Line::Help(name, Cow::Borrowed(text)))
        }
        "TYPE " => kind
            .filter(|kind| kind.as_str() == text)
            .map(|kind| Line::Type(name, kind)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use virtfleet_wire::exposition::parse_line;

    use super::*;

    #[test]
    fn usual_comments_are_known() {
        let parse = |line: &'static str| parse_known_comment(line, "node_load1", Some(MetricType::Gauge));
        let help = parse("# HELP node_load1 1m load average.");
        assert!(matches!(help, Some(Line::Help("node_load1", text)) if text == "1m load average."));
        let kind = parse("# TYPE node_load1 gauge");
        assert!(matches!(kind, Some(Line::Type("node_load1", MetricType::Gauge))));
        for other in [
            "# HELP node_load15 15m load average.",
            "# HELP node_load1 a\\nb",
            "# HELP node_load1  a",
            "# TYPE node_load1 counter",
            "# TYPE node_load1 gauge ",
            "# EOF",
            "#",
            "node_load1 1",
        ] {
            assert!(parse(other).is_none(), "{other}");
        }
        assert!(parse_known_comment("# HELP  text", "", None).is_none());
    }

    proptest! {
        #[test]
        fn a_known_comment_is_parsed_as_by_itself(
            family in "[ab]{1,2}",
            begin in "# ?(HELP|TYPE) ?",
            rest in "[ab]{0,2}[ \t]?(gauge|[ab\\\\ \t\ré]{0,5})",
        ) {
            let line = format!("{begin}{rest}");
            if let Some(known) = parse_known_comment(&line, &family, Some(MetricType::Gauge)) {
                let expected = parse_line(&line);
                prop_assert_eq!(format!("{:?}", Ok::<_, ()>(known)), format!("{expected:?}"));
            }
        }
    }
}
