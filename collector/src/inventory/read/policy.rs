//! A `LabelPropagation`.

use virtfleet_collector_core::labels::policy::{LabelPolicy, Mode, Rule, Source, Takeover};

use super::{
    field::{Field, Problem},
    objects::selector,
};

/// A `LabelPropagation`. A key with a slip of the pen would change what is asked for, so unknown ones are refused.
pub(in crate::inventory) fn policy(object: &Field<'_>) -> Result<LabelPolicy, Problem> {
    let spec = object.get("spec")?;
    spec.only(&["clusterSelector", "dryRun", "labels"])?;
    let rules = spec.get("labels")?;
    let listed = rules.items()?;
    if listed.is_empty() {
        return Err(rules.problem("required, with at least one label"));
    }
    Ok(LabelPolicy {
        name: object.at("metadata.name")?.required_text()?.to_owned(),
        generation: object.at("metadata.generation")?.whole()?.unwrap_or_default(),
        clusters: selector(&spec.get("clusterSelector")?)?,
        dry_run: spec.get("dryRun")?.flag()?,
        rules: listed.iter().map(rule).collect::<Result<_, _>>()?,
    })
}

fn rule(field: &Field<'_>) -> Result<Rule, Problem> {
    field.only(&["key", "prefix", "target", "mode", "takeover"])?;
    let text = |name| Ok(field.get(name)?.text()?.map(str::to_owned));
    let source = match (text("key")?, text("prefix")?) {
        (Some(key), None) => Source::Key(key),
        (None, Some(prefix)) => Source::Prefix(prefix),
        _ => return Err(field.problem("exactly one of key and prefix must be set")),
    };
    Ok(Rule {
        source,
        target: text("target")?,
        mode: word(
            &field.get("mode")?,
            &[
                ("Follow", Mode::Follow),
                ("InitialOnly", Mode::InitialOnly),
                ("FollowIfSafe", Mode::FollowIfSafe),
                ("ReportDrift", Mode::ReportDrift),
            ],
        )?,
        takeover: word(
            &field.get("takeover")?,
            &[
                ("Never", Takeover::Never),
                ("IfPlacementMatches", Takeover::IfPlacementMatches),
                ("Always", Takeover::Always),
            ],
        )?,
    })
}

/// One of a few words; none when it is absent.
fn word<T: Copy>(field: &Field<'_>, words: &[(&str, T)]) -> Result<Option<T>, Problem> {
    let Some(text) = field.text()? else {
        return Ok(None);
    };
    let known = words.iter().find(|(word, _)| *word == text);
    known.map(|(_, value)| Some(*value)).ok_or_else(|| {
        let all: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        field.problem(format_args!("{text:?} is not one of {}", all.join(", ")))
    })
}
