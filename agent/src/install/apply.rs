//! Applies an installation plan. Every file is replaced atomically and is on the disk before the
//! next step.

use std::{path::Path, time::Duration};

use virtfleet_agent_host::{
    Commands, Tool, link_atomic, read_whole, remove_durably, sweep_directory, write_atomic,
};
use virtfleet_delivery::guest;

use super::{InstallError, Options, Outcome, Plan, io_error};

/// Timeout of a unit that is started synchronously at boot. Its job continues after that.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// Applies a plan. A unit that cannot be started causes a warning: the files are in place, and
/// systemd starts the unit at the next boot.
///
/// # Errors
/// A file cannot be written, or the user cannot be created. What was done until then stays; the run
/// can be repeated.
pub fn apply(options: &Options, plan: &Plan, commands: &dyn Commands) -> Result<Outcome, InstallError> {
    let mut outcome = Outcome::default();
    if let Some((own, agent)) = &plan.binary {
        let content = read_whole(own).map_err(io_error("read", own))?;
        write_atomic(&options.at(agent)?, &content, 0o755, None)?;
        outcome.written.push(agent.clone());
    }
    for file in &plan.files {
        write_atomic(&options.at(&file.path)?, &file.content, file.mode, None)?;
        outcome.written.push(file.path.clone());
    }
    for link in &plan.links {
        let path = options.at(&link.path)?;
        link_atomic(&path, &link.target).map_err(io_error("make the link", &path))?;
        outcome.written.push(link.path.clone());
    }
    for path in &plan.obsolete {
        let path_here = options.at(path)?;
        if remove_durably(&path_here).map_err(io_error("remove", &path_here))? {
            outcome.removed.push(path.clone());
        }
    }
    if plan.user {
        make_user(options, commands)?;
    }
    sweep(options);
    if options.is_live() {
        load_and_start(options, plan, commands, options.has_systemd(), &mut outcome);
    }
    if let Some(record) = &plan.record {
        write_atomic(&options.at(&record.path)?, &record.content, record.mode, None)?;
    }
    Ok(outcome)
}

/// Creates the user with systemd's own tool, else with useradd, which every distribution has.
fn make_user(options: &Options, commands: &dyn Commands) -> Result<(), InstallError> {
    // useradd refuses a relative one.
    let root = std::path::absolute(&options.root).map_err(io_error("find", &options.root))?;
    let root = root.display();
    let mut sysusers = Tool::new("systemd-sysusers");
    let mut useradd = Tool::new("useradd");
    if !options.is_live() {
        sysusers = sysusers.arg(format!("--root={root}"));
        useradd = useradd.args(["--root".to_owned(), root.to_string()]);
    }
    // With --root the file name is also one within that root.
    let sysusers = sysusers.arg("virtfleet.conf");
    if commands.check(&sysusers).is_ok() {
        return Ok(());
    }
    let useradd = useradd.args(["--system", "--user-group", "--no-create-home", "--home-dir", "/"]);
    let useradd = useradd.args(["--shell", "/usr/sbin/nologin", guest::USER]);
    commands.check(&useradd).map(drop).map_err(InstallError::User)
}

/// Removes temporary files of a killed run.
fn sweep(options: &Options) {
    let files = guest::files(&options.agent());
    let paths = files.iter().map(|file| file.path.as_str());
    let agent = options.agent();
    let mut folders: Vec<&Path> = paths
        .chain([agent.as_str(), virtfleet_delivery::INSTALLED])
        .filter_map(|path| Path::new(path).parent())
        .collect();
    folders.sort_unstable();
    folders.dedup();
    for folder in folders {
        let Ok(here) = options.folder(folder) else {
            continue;
        };
        sweep_directory(&here);
    }
}

fn load_and_start(
    options: &Options,
    plan: &Plan,
    commands: &dyn Commands,
    systemd: bool,
    outcome: &mut Outcome,
) {
    let changed = |what: &str| {
        plan.files.iter().any(|file| file.path.contains(what))
            || plan.links.iter().any(|link| link.path.contains(what))
    };
    let mut run = |tool: Tool, next: &str| match commands.check(&tool) {
        Ok(_) => true,
        Err(error) => {
            outcome.warnings.push(format!("{error}; {next}"));
            false
        }
    };
    // Its directories are empty after each boot. They belong to the group that was created above.
    let conf = "/etc/tmpfiles.d/virtfleet.conf";
    run(
        Tool::new("systemd-tmpfiles").args(["--create", conf]),
        "/run/virtfleet is created at the next boot",
    );
    if !systemd {
        outcome
            .warnings
            .push("systemd does not run here: nothing was started".to_owned());
        return;
    }
    if changed("/udev/") {
        run(
            Tool::new("udevadm").args(["control", "--reload"]),
            "until the next boot, only the timer detects new devices",
        );
    }
    if changed("/etc/systemd/") || !plan.obsolete.is_empty() || stale(commands) {
        run(
            Tool::new("systemctl").arg("daemon-reload"),
            "the units are read at the next boot",
        );
    }
    if !options.start {
        return;
    }
    let shipped: Vec<&str> = guest::units().collect();
    let mut started = Vec::new();
    // cloud-init may wait for this process. Only these two units may be waited for; all others are
    // ordered after cloud-init.
    for unit in guest::SYNCHRONOUS
        .into_iter()
        .filter(|unit| shipped.contains(unit))
    {
        if run(
            Tool::new("systemctl")
                .args(["start", unit])
                .deadline(START_TIMEOUT),
            &format!("see: journalctl -u {unit}"),
        ) {
            started.push(unit.to_owned());
        }
    }
    // First, because an earlier agent holds the port that the socket needs. The agent's unit starts
    // the socket.
    let other_unit = plan
        .files
        .iter()
        .any(|file| file.path.ends_with(guest::AGENT_UNIT));
    if plan.binary.is_some() || plan.record.is_some() || other_unit {
        run(
            Tool::new("systemctl").args(["try-restart", "--no-block", guest::AGENT_UNIT]),
            "the earlier agent continues until it is restarted",
        );
    }
    let later: Vec<&str> = guest::enabled()
        .filter(|unit| !guest::SYNCHRONOUS.contains(unit) && *unit != guest::AGENT_SOCKET)
        .collect();
    if run(
        Tool::new("systemctl")
            .args(["start", "--no-block"])
            .args(later.iter().copied()),
        "they start at the next boot",
    ) {
        started.extend(later.iter().map(|unit| (*unit).to_owned()));
    }
    outcome.started = started;
}

/// True if systemd has older unit texts than the disk, because an earlier run was killed before its
/// daemon-reload.
fn stale(commands: &dyn Commands) -> bool {
    let show = Tool::new("systemctl")
        .args(["show", "--property=NeedDaemonReload"])
        .args(guest::units());
    commands
        .run(&show)
        .is_ok_and(|done| done.stdout.contains("NeedDaemonReload=yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    use virtfleet_agent_host::{CommandOutput, FakeCommands};

    fn lines(plan: &Plan, systemd: bool, start: bool, commands: &FakeCommands) -> (Vec<String>, Outcome) {
        let options = Options {
            prefix: "/opt/virtfleet".into(),
            root: "/".into(),
            start,
        };
        let mut outcome = Outcome::default();
        load_and_start(&options, plan, commands, systemd, &mut outcome);
        (commands.take(), outcome)
    }

    fn fresh() -> Plan {
        Plan {
            binary: Some((
                "/proc/self/exe".into(),
                "/opt/virtfleet/bin/virtfleet-agent".to_owned(),
            )),
            files: guest::files("/opt/virtfleet/bin/virtfleet-agent"),
            links: guest::links(),
            obsolete: Vec::new(),
            user: false,
            record: None,
        }
    }

    #[test]
    fn only_units_before_cloud_init_are_started_synchronously() {
        let (lines, outcome) = lines(&fresh(), true, true, &FakeCommands::content());
        assert_eq!(
            lines,
            [
                "systemd-tmpfiles --create /etc/tmpfiles.d/virtfleet.conf",
                "udevadm control --reload",
                "systemctl daemon-reload",
                "systemctl start virtfleet-provision.service",
                "systemctl start virtfleet-dns.service",
                "systemctl try-restart --no-block virtfleet-agent.service",
                "systemctl start --no-block virtfleet-agent.service virtfleet-discard.timer \
                 virtfleet-reconcile.path virtfleet-reconcile.timer virtfleet-settings.path",
            ]
        );
        assert_eq!(outcome.warnings, [""; 0]);
        assert_eq!(outcome.started.len(), 7);
    }

    #[test]
    fn the_root_of_an_image_may_be_relative() {
        let options = Options {
            prefix: "/opt/virtfleet".into(),
            root: "mnt/image".into(),
            start: true,
        };
        let commands = FakeCommands::new(|line| line.starts_with("useradd").then(CommandOutput::default));
        make_user(&options, &commands).unwrap();
        let here = std::env::current_dir().unwrap();
        let root = here.join("mnt/image");
        let expected = format!("useradd --root {} --system ", root.display());
        let lines = commands.take();
        assert!(lines[1].starts_with(&expected), "{lines:?}");
    }

    #[test]
    fn a_failed_start_is_a_warning_and_the_rest_is_started() {
        let fails = |line: &str| {
            let code = i32::from(line == "systemctl start virtfleet-provision.service");
            Some(CommandOutput {
                code,
                ..CommandOutput::default()
            })
        };
        let (_, outcome) = lines(&fresh(), true, true, &FakeCommands::new(fails));
        assert!(
            outcome.warnings.len() == 1
                && outcome.warnings[0].ends_with("see: journalctl -u virtfleet-provision.service"),
            "{outcome:?}"
        );
        assert_eq!(outcome.started.len(), 6);
    }

    #[test]
    fn without_changes_nothing_is_reloaded_or_restarted() {
        let nothing = || Plan {
            binary: None,
            files: Vec::new(),
            links: Vec::new(),
            ..fresh()
        };
        let (calm, _) = lines(&nothing(), true, true, &FakeCommands::content());
        assert!(
            !calm
                .iter()
                .any(|line| line.contains("reload") && !line.contains("show")),
            "{calm:?}"
        );
        assert!(!calm.iter().any(|line| line.contains("restart")), "{calm:?}");
        let stale = |_: &str| {
            Some(CommandOutput {
                stdout: "NeedDaemonReload=no\n\nNeedDaemonReload=yes\n".to_owned(),
                ..CommandOutput::default()
            })
        };
        let (lines_, _) = lines(&nothing(), true, true, &FakeCommands::new(stale));
        assert!(
            lines_.contains(&"systemctl daemon-reload".to_owned()),
            "{lines_:?}"
        );
        let (quiet, _) = lines(&fresh(), true, false, &FakeCommands::content());
        assert!(!quiet.iter().any(|line| line.contains("start")), "{quiet:?}");
        let (none, outcome) = lines(&fresh(), false, true, &FakeCommands::content());
        assert_eq!(none.len(), 1);
        assert!(outcome.warnings[0].contains("systemd does not run here"));
    }
}
