//! The verb `plan`: what would be done to disks, DNS and queues.

use serde::Serialize;
use virtfleet_agent_core::{disks, dns, nic};
use virtfleet_agent_host::is_root;
use virtfleet_agent_provision::dns::Observed;
use virtfleet_runtime::exit::Code;

use super::{
    disks as disks_verb, disks_text, dns as dns_verb,
    failure::Failure,
    nic as nic_verb, print,
    verb::{Args, Subjects},
};
use crate::output::Output;

/// Plans of the requested domains.
#[derive(Default)]
struct Planned {
    disks: Option<disks::Plan>,
    dns: Option<Observed>,
    nic: Option<nic::Plan>,
}

/// Several plans, each under its domain's name.
#[derive(Serialize)]
struct Several {
    #[serde(skip_serializing_if = "Option::is_none")]
    disks: Option<disks::Plan>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dns: Option<dns::Plan>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nic: Option<nic::Plan>,
}

/// Prints the plans. With `detailed` the exit code is 3 if something is refused, 2 if there are
/// steps.
pub(super) fn plan(args: &Args, subjects: Subjects, output: Output, detailed: bool) -> Result<Code, Failure> {
    if !is_root() && (subjects.disks || subjects.dns) {
        return Err(
            anyhow::anyhow!("only root can inspect disks and leases: sudo virtfleet-agent plan; without root: virtfleet-agent plan nic").into(),
        );
    }
    let planned = Planned {
        disks: subjects.disks.then(|| disks_verb::plan(args)).transpose()?,
        dns: subjects.dns.then(|| dns_verb::plan(args)).transpose()?,
        nic: subjects.nic.then(|| nic_verb::plan(args)),
    };
    let worst = [
        planned.disks.as_ref().map(disks_verb::code),
        planned
            .dns
            .as_ref()
            .map(|observed| dns_verb::code(&observed.plan)),
        planned.nic.as_ref().map(nic_verb::code),
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
    print::text(&shown(planned, output)?)?;
    Ok(if detailed { worst } else { Code::Ok })
}

/// One plan alone, or several under their names.
fn shown(planned: Planned, output: Output) -> Result<String, serde_json::Error> {
    match planned {
        Planned {
            disks: Some(disks),
            dns: None,
            nic: None,
        } => output.render(&disks, disks_text::text),
        Planned {
            disks: None,
            dns: Some(dns),
            nic: None,
        } => output.render(&dns.plan, |_| dns_verb::text(&dns)),
        Planned {
            disks: None,
            dns: None,
            nic: Some(nic),
        } => output.render(&nic, nic_verb::text),
        Planned { disks, dns, nic } => {
            let texts = match output {
                Output::Text => vec![
                    disks.as_ref().map(disks_text::text),
                    dns.as_ref().map(dns_verb::text),
                    nic.as_ref().map(nic_verb::text),
                ],
                _ => Vec::new(),
            };
            let texts: Vec<String> = texts.into_iter().flatten().collect();
            let several = Several {
                disks,
                dns: dns.map(|observed| observed.plan),
                nic,
            };
            output.render(&several, |_| texts.join("\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{super::plan_file::read_plan, *};

    #[test]
    fn a_file_of_one_plan_and_of_several_is_read() {
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
        let of_nic = nic::Plan {
            online: vec![0],
            ..nic::Plan::default()
        };
        for (with_disks, with_nic) in [(false, false), (true, false), (false, true), (true, true)] {
            let planned = Planned {
                disks: with_disks.then(disks::Plan::default),
                dns: Some(observed.clone()),
                nic: with_nic.then(|| of_nic.clone()),
            };
            std::fs::write(&path, shown(planned, Output::Json).unwrap()).unwrap();
            assert_eq!(read_plan::<dns::Plan>(&path, "dns").unwrap(), plan);
            assert_eq!(read_plan::<disks::Plan>(&path, "disks").is_ok(), with_disks);
            let read = read_plan::<nic::Plan>(&path, "nic").ok();
            assert_eq!(read, with_nic.then(|| of_nic.clone()));
        }
        let alone = Planned {
            nic: Some(of_nic.clone()),
            ..Planned::default()
        };
        std::fs::write(&path, shown(alone, Output::Json).unwrap()).unwrap();
        assert_eq!(read_plan::<nic::Plan>(&path, "nic").unwrap(), of_nic);
        read_plan::<dns::Plan>(&path, "dns").unwrap_err();
    }

    #[test]
    fn a_missing_plan_file_is_reported_with_its_command() {
        let error = read_plan::<disks::Plan>(Path::new("/nonexistent"), "disks")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("the plan") && error.contains("plan disks -o json > FILE"),
            "{error}"
        );
    }
}
