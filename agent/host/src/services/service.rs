//! State of systemd services and jobs for them, through `systemctl`. Never waits for a job: a
//! oneshot service that waits for a job queued behind its own would deadlock.

use std::time::Duration;

use crate::{CommandError, Commands, Tool};

/// A guest whose CPU is stolen takes many seconds to answer.
const TIMEOUT: Duration = Duration::from_secs(30);
const PROPERTIES: &str = "--property=LoadState,ActiveState,Result,ExecMainStatus,StatusText";

/// State of a service (`systemctl show`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// True if the unit exists.
    pub loaded: bool,
    /// `active`, `activating`, `inactive`, `failed`, …
    pub active: String,
    /// Result of its last run: `success`, `exit-code`, `watchdog`, …
    pub result: String,
    /// Exit code of its main process, if it has exited.
    pub exit_code: i32,
    /// Status text of its main process (`STATUS=` of sd_notify(3)).
    pub status: String,
}

/// A job for a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    RestartIfRunning,
    Start,
}

/// systemd's service manager.
pub trait Services {
    /// State of a unit.
    ///
    /// # Errors
    /// `systemctl` failed.
    fn show(&self, unit: &str) -> Result<Service, CommandError>;
    /// Queues a job without waiting for it.
    ///
    /// # Errors
    /// `systemctl` failed.
    fn change(&self, unit: &str, change: Change) -> Result<(), CommandError>;
}

/// systemd through `systemctl`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Systemctl<C>(pub C);

impl<C: Commands> Services for Systemctl<C> {
    fn show(&self, unit: &str) -> Result<Service, CommandError> {
        let tool = Tool::new("systemctl").args(["show", PROPERTIES, unit]);
        let done = self.0.check(&tool.deadline(TIMEOUT))?;
        let mut service = Service::default();
        for (key, value) in done.stdout.lines().filter_map(|line| line.split_once('=')) {
            match key {
                "LoadState" => service.loaded = value == "loaded",
                "ActiveState" => value.clone_into(&mut service.active),
                "Result" => value.clone_into(&mut service.result),
                "ExecMainStatus" => service.exit_code = value.parse().unwrap_or_default(),
                "StatusText" => value.clone_into(&mut service.status),
                _ => {}
            }
        }
        Ok(service)
    }

    fn change(&self, unit: &str, change: Change) -> Result<(), CommandError> {
        let verb = match change {
            Change::RestartIfRunning => "try-restart",
            Change::Start => "start",
        };
        let tool = Tool::new("systemctl").args([verb, "--no-block", unit]);
        self.0.check(&tool.deadline(TIMEOUT)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CommandOutput, command::fake::FakeCommands};

    #[test]
    fn the_output_of_systemctl_is_parsed() {
        let commands = FakeCommands::new(|_| {
            Some(CommandOutput {
                stdout: "LoadState=loaded\nActiveState=failed\nResult=exit-code\nExecMainStatus=78\nStatusText=a=b\n".into(),
                ..CommandOutput::default()
            })
        });
        let service = Systemctl(commands).show("u.service").unwrap();
        let expected = Service {
            loaded: true,
            active: "failed".into(),
            result: "exit-code".into(),
            exit_code: 78,
            status: "a=b".into(),
        };
        assert_eq!(service, expected);
    }

    #[test]
    fn jobs_are_queued_without_waiting() {
        let systemctl = Systemctl(FakeCommands::content());
        systemctl.change("u.service", Change::RestartIfRunning).unwrap();
        systemctl.change("u.service", Change::Start).unwrap();
        assert_eq!(
            systemctl.0.take(),
            [
                "systemctl try-restart --no-block u.service",
                "systemctl start --no-block u.service"
            ]
        );
    }
}
