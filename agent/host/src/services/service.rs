//! systemd's services: what one is doing, and asking for another state of it. Through `systemctl`, never waiting for a job:
//! a oneshot that waits for a job behind its own would wait for ever.

use std::time::Duration;

use crate::{CommandError, Commands, Tool};

const DEADLINE: Duration = Duration::from_secs(10);
const PROPERTIES: &str = "--property=LoadState,ActiveState,Result,ExecMainStatus,StatusText";

/// A service as systemd sees it (`systemctl show`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// Whether there is such a unit.
    pub loaded: bool,
    /// `active`, `activating`, `inactive`, `failed`, …
    pub active: String,
    /// How it last ended: `success`, `exit-code`, `watchdog`, …
    pub result: String,
    /// The exit code of its main process, when it ended.
    pub exit_code: i32,
    /// What its main process says of itself (`STATUS=` of sd_notify(3)).
    pub status: String,
}

/// What can be asked of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Restart it if it runs.
    RestartIfRunning,
    /// Start it.
    Start,
}

/// systemd, as far as services go.
pub trait Services {
    /// What a unit is doing.
    fn show(&self, unit: &str) -> Result<Service, CommandError>;
    /// Queues a job and does not wait for it.
    fn change(&self, unit: &str, change: Change) -> Result<(), CommandError>;
}

/// systemd by its own tool.
#[derive(Debug, Clone, Copy, Default)]
pub struct Systemctl<C>(pub C);

impl<C: Commands> Services for Systemctl<C> {
    fn show(&self, unit: &str) -> Result<Service, CommandError> {
        let tool = Tool::new("systemctl").args(["show", PROPERTIES, unit]);
        let done = self.0.check(&tool.deadline(DEADLINE))?;
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
        self.0.check(&tool.deadline(DEADLINE)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Done, command::fake::FakeCommands};

    #[test]
    fn what_systemctl_prints_is_read() {
        let commands = FakeCommands::new(|_| {
            Some(Done {
                stdout: "LoadState=loaded\nActiveState=failed\nResult=exit-code\nExecMainStatus=78\nStatusText=a=b\n".into(),
                ..Done::default()
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
    fn jobs_are_queued_and_not_waited_for() {
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
