//! Converts a `LabelPropagation` into a policy. Unknown keys are errors: a misspelling could write
//! labels on every Node of a fleet.

use virtfleet_collector_core::labels::{
    guard,
    policy::{LabelPolicy, Mode, Rule, Source, Takeover},
};

use super::{
    field::{Field, Problem},
    objects::selector,
};

pub(in crate::inventory) fn policy(object: &Field<'_>) -> Result<LabelPolicy, Problem> {
    let metadata = object.get("metadata")?;
    let spec = object.get("spec")?;
    spec.only(&["clusterSelector", "dryRun", "labels"])?;
    let labels = spec.get("labels")?;
    if !labels.is_there() {
        return Err(labels.problem("required: the labels to copy, each with key or prefix"));
    }
    Ok(LabelPolicy {
        name: metadata.get("name")?.required_text()?.to_owned(),
        uid: metadata.get("uid")?.parsed()?,
        generation: metadata.get("generation")?.whole()?.unwrap_or_default(),
        clusters: selector(&spec.get("clusterSelector")?)?,
        dry_run: spec.get("dryRun")?.flag()?,
        rules: labels.items()?.iter().map(rule).collect::<Result<_, _>>()?,
    })
}

fn rule(field: &Field<'_>) -> Result<Rule, Problem> {
    field.only(&["key", "prefix", "target", "mode", "takeover"])?;
    let (key, prefix, target) = (field.get("key")?, field.get("prefix")?, field.get("target")?);
    let source = match (key.text()?, prefix.text()?) {
        (Some(text), None) => {
            check_key(&key, text)?;
            if let Some(text) = target.text()? {
                check_key(&target, text)?;
            }
            Source::Key(text.to_owned())
        }
        (None, Some(text)) => Source::Prefix(text.to_owned()),
        (Some(_), Some(_)) => return Err(field.problem("key and prefix exclude each other")),
        (None, None) => return Err(field.problem("needs key or prefix, not empty")),
    };
    Ok(Rule {
        source,
        target: target.text()?.map(str::to_owned),
        mode: one_of(
            &field.get("mode")?,
            &[
                ("Follow", Mode::Follow),
                ("InitialOnly", Mode::InitialOnly),
                ("FollowIfSafe", Mode::FollowIfSafe),
                ("ReportDrift", Mode::ReportDrift),
            ],
        )?,
        takeover: one_of(
            &field.get("takeover")?,
            &[
                ("Never", Takeover::Never),
                ("IfPlacementMatches", Takeover::IfPlacementMatches),
                ("Always", Takeover::Always),
            ],
        )?,
    })
}

fn check_key(field: &Field<'_>, key: &str) -> Result<(), Problem> {
    guard::check_key(key).map_err(|rule| field.problem(rule))
}

fn one_of<T: Copy>(field: &Field<'_>, known: &[(&str, T)]) -> Result<Option<T>, Problem> {
    let Some(text) = field.text()? else {
        return Ok(None);
    };
    let found = known.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| Some(*value)).ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        field.problem(format_args!("{text:?} is not one of {}", names.join(", ")))
    })
}
