//! Step `settings`: makes the running agent use the settings on disk, or reports why it does not.

use virtfleet_agent_core::pass::{
    AgentState, RunOutcome, SettingsPlan, SettingsProblem, SettingsSeen, plan_settings, served_digest,
};
use virtfleet_agent_host::{Change, CommandError, Service};
use virtfleet_runtime::exit::Code;

use super::guest::{Guest, Report};

const UNIT: &str = "virtfleet-agent.service";
/// Maximum number of problems that are recorded.
const MAX_PROBLEMS: usize = 50;

pub(super) fn run(guest: &mut Guest<'_>) -> Report {
    let Some(services) = guest.services else {
        let message = "the root filesystem is not the running machine's; its services are left alone";
        return Report::new(RunOutcome::Skipped, message);
    };
    let service = match services.show(UNIT) {
        Ok(service) => service,
        Err(CommandError::Missing(_)) => return Report::new(RunOutcome::Skipped, "there is no systemd here"),
        Err(error) => return failed(error),
    };
    let problems = &guest.settings.problems;
    let seen = SettingsSeen {
        on_disk: guest.settings.digest(),
        problems: problems.len(),
        agent: agent(&service),
        restarted_for: guest.record.restarted_for.clone(),
    };
    let change = match plan_settings(&seen) {
        SettingsPlan::Applied => {
            return Report::new(RunOutcome::Ok, "the agent serves with the settings on disk");
        }
        SettingsPlan::AtItsStart => {
            let message = format!("{UNIT} does not run yet; it reads the settings when it starts");
            return Report::new(RunOutcome::Skipped, message);
        }
        SettingsPlan::Wrong => {
            let first = problems.first().map(ToString::to_string).unwrap_or_default();
            let more = problems.len().saturating_sub(1);
            let message = format!(
                "the settings on disk are not applied: {first}{}",
                if more > 0 {
                    format!(" (and {more} more)")
                } else {
                    String::new()
                }
            );
            let problems = problems.iter().take(MAX_PROBLEMS).map(|problem| SettingsProblem {
                file: problem.file.clone(),
                line: problem.line,
                path: problem.path.clone(),
                message: problem.to_string(),
            });
            return Report {
                problems: problems.collect(),
                ..Report::new(RunOutcome::Failed, message)
            };
        }
        SettingsPlan::Unreadable => {
            let message = format!(
                "{UNIT} was restarted for the settings on disk and does not serve with them; check that its user can \
                 read them, and see journalctl -u {UNIT}"
            );
            return Report::new(RunOutcome::Failed, message);
        }
        SettingsPlan::Restart => Change::RestartIfRunning,
        SettingsPlan::Start => Change::Start,
    };
    if let Err(error) = services.change(UNIT, change) {
        return failed(error);
    }
    guest.record.restarted_for = Some(seen.on_disk);
    let word = match change {
        Change::RestartIfRunning => "restarted",
        Change::Start => "started",
    };
    Report::new(
        RunOutcome::Ok,
        format!("the settings have changed; {UNIT} is being {word}"),
    )
}

fn failed(error: CommandError) -> Report {
    Report::new(RunOutcome::Failed, format!("{:#}", anyhow::Error::new(error)))
}

fn agent(service: &Service) -> AgentState {
    let digest = served_digest(&service.status).map(str::to_owned);
    let gave_up = service.result == "exit-code" && service.exit_code == i32::from(Code::Config.number());
    match service.active.as_str() {
        _ if !service.loaded => AgentState::Off,
        "active" | "reloading" => AgentState::Runs(digest),
        // The agent reports the settings that it serves with once it has read them, before its
        // first scrape ends.
        "activating" if digest.is_some() => AgentState::Runs(digest),
        "activating" | "deactivating" => AgentState::Starting,
        "failed" if gave_up => AgentState::GaveUp,
        _ => AgentState::Off,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_is_understood() {
        let service = |active: &str, code, status: &str| Service {
            loaded: true,
            active: active.into(),
            result: "exit-code".into(),
            exit_code: code,
            status: status.into(),
        };
        let says = "serving, settings 00000000000000aa";
        let runs = AgentState::Runs(Some("00000000000000aa".into()));
        for (service, expected) in [
            (Service::default(), AgentState::Off),
            (service("active", 0, says), runs.clone()),
            (service("active", 0, "serving"), AgentState::Runs(None)),
            (service("activating", 0, says), runs),
            (service("activating", 1, ""), AgentState::Starting),
            (service("deactivating", 0, says), AgentState::Starting),
            (service("failed", 78, ""), AgentState::GaveUp),
            (service("failed", 1, ""), AgentState::Off),
            (service("inactive", 0, ""), AgentState::Off),
        ] {
            assert_eq!(agent(&service), expected, "{service:?}");
        }
    }
}
