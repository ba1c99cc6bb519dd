//! The verb `plan`: what would be done to disks and DNS, and files of such plans.

use std::path::Path;

use anyhow::Context as _;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use virtfleet_agent_core::{disks, dns};
use virtfleet_runtime::exit::Code;

use super::{Args, Subjects, disks as disks_verb, dns as dns_verb, print, verbs::Failure};
use crate::{
    host::{is_root, read_text},
    output::Output,
    provision::dns::Observed,
};

/// A plan is a few KiB a disk.
const MOST_PLAN: usize = 4 << 20;

/// Plans of several subjects, each under its name.
#[derive(Serialize)]
struct Both {
    disks: disks::Plan,
    dns: dns::Plan,
}

/// The plans, and with `detailed` what they come to as an exit code: 3 something is refused, 2 something is to be done.
pub(super) fn plan(args: &Args, subjects: Subjects, output: Output, detailed: bool) -> Result<Code, Failure> {
    if !is_root() {
        return Err(
            anyhow::anyhow!("only root can look at disks and leases; sudo virtfleet-agent plan").into(),
        );
    }
    let disks = subjects.disks.then(|| disks_verb::plan(args)).transpose()?;
    let dns = subjects.dns.then(|| dns_verb::plan(args)).transpose()?;
    let worst = [
        disks.as_ref().map(disks_verb::code),
        dns.as_ref().map(|observed| dns_verb::code(&observed.plan)),
    ];
    let worst = worst
        .into_iter()
        .flatten()
        .max_by_key(|code| match code {
            Code::Refused => 2,
            Code::Changes => 1,
            _ => 0,
        })
        .unwrap_or(Code::Ok);
    print::text(&shown(disks, dns, output)?)?;
    Ok(if detailed { worst } else { Code::Ok })
}

/// One plan as it is, two under their names.
fn shown(
    disks: Option<disks::Plan>,
    dns: Option<Observed>,
    output: Output,
) -> Result<String, serde_json::Error> {
    match (disks, dns) {
        (Some(disks), None) => output.render(&disks, disks_verb::text),
        (None, Some(dns)) => output.render(&dns.plan, |_| dns_verb::text(&dns)),
        (Some(disks), Some(dns)) => {
            let text = match output {
                Output::Text => dns_verb::text(&dns),
                _ => String::new(),
            };
            let both = Both { disks, dns: dns.plan };
            output.render(&both, |both| format!("{}\n{text}", disks_verb::text(&both.disks)))
        }
        (None, None) => Ok(String::new()),
    }
}

/// A plan of `plan -o json`: of this subject alone, or of several.
pub(super) fn read_plan<T: DeserializeOwned>(path: &Path, subject: &str) -> anyhow::Result<T> {
    let how = format!("virtfleet-agent plan {subject} -o json > FILE writes one");
    let shown = path.display();
    let text = read_text(path, MOST_PLAN)
        .with_context(|| format!("the plan that is to be applied cannot be read from {shown}; {how}"))?;
    let part = |value: &mut Value| {
        let several = value.get("disks").is_some_and(Value::is_object) && value.get("dns").is_some();
        match value.get_mut(subject) {
            Some(part) if several => part.take(),
            _ => value.take(),
        }
    };
    serde_json::from_str(&text)
        .and_then(|mut value: Value| serde_json::from_value(part(&mut value)))
        .with_context(|| format!("{shown} holds no plan of {subject}; {how}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_one_plan_and_of_two_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        let plan = dns::Plan {
            notes: vec!["note".to_owned()],
            ..dns::Plan::default()
        };
        let observed = Observed {
            seen: dns::Seen::default(),
            plan: plan.clone(),
        };
        for disks in [None, Some(disks::Plan::default())] {
            let of_disks = disks.is_some();
            let text = shown(disks, Some(observed.clone()), Output::Json).unwrap();
            std::fs::write(&path, text).unwrap();
            assert_eq!(read_plan::<dns::Plan>(&path, "dns").unwrap(), plan);
            let other = read_plan::<disks::Plan>(&path, "disks");
            assert_eq!(other.is_ok(), of_disks);
        }
    }

    #[test]
    fn a_plan_that_is_not_there_is_told_with_how_to_get_one() {
        let error = read_plan::<disks::Plan>(Path::new("/nonexistent"), "disks")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("the plan") && error.contains("plan disks -o json > FILE"),
            "{error}"
        );
    }
}
