//! Simulates systemd on the stage: mounts units as last reloaded, and records requests.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use virtfleet_agent_host::{CommandError, CommandOutput, Commands, SystemCommands, Tool};

/// The unit folder.
const UNITS: &str = "/etc/systemd/system";
/// Copy of the units as of the last reload.
const READ: &str = "/run/read-units";
/// A test's script that is run at every reload.
pub const ON_READ: &str = "/run/on-read";
/// The recorded requests, one per line.
pub(super) const ASKED: &str = "/run/asked";

/// Simulates `systemctl` and `udevadm` on a stage; runs all other programs.
#[derive(Debug, Clone, Copy, Default)]
pub struct StagedSystemd;

impl Commands for StagedSystemd {
    fn run(&self, tool: &Tool) -> Result<CommandOutput, CommandError> {
        let args: Vec<&str> = tool.args.iter().filter_map(|arg| arg.to_str()).collect();
        match (tool.program.to_str(), args.as_slice()) {
            (Some("udevadm"), _) => Ok(CommandOutput::default()),
            (Some("systemctl"), ["daemon-reload"]) => {
                note("daemon-reload");
                SystemCommands.run(&Tool::new("sh").args([
                    "-c",
                    &format!(
                        "rm -rf {READ} && mkdir -p {UNITS} && cp -a {UNITS} {READ} && if [ -e {ON_READ} ]; then sh {ON_READ}; fi"
                    ),
                ]))
            }
            (Some("systemctl"), ["start", "--", unit]) => {
                note(&format!("start {unit}"));
                start(unit)
            }
            (Some("systemctl"), ["show", .., unit]) => {
                let state = if Path::new(READ).join(unit).exists() {
                    "loaded"
                } else {
                    "not-found"
                };
                let stdout = format!("LoadState={state}\nActiveState=inactive\n");
                Ok(CommandOutput {
                    stdout,
                    ..CommandOutput::default()
                })
            }
            (Some("systemctl"), words) => {
                note(&words.join(" "));
                Ok(CommandOutput {
                    code: i32::from(words.first() == Some(&"is-enabled")),
                    ..CommandOutput::default()
                })
            }
            _ => SystemCommands.run(tool),
        }
    }

    fn run_with_lock(&self, tool: &Tool, lock: &File) -> Result<CommandOutput, CommandError> {
        SystemCommands.run_with_lock(tool, lock)
    }
}

fn note(what: &str) {
    let file = fs::OpenOptions::new().create(true).append(true).open(ASKED);
    drop(file.and_then(|mut file| file.write_all(format!("{what}\n").as_bytes())));
}

/// Starts a unit as of the last reload.
fn start(unit: &str) -> Result<CommandOutput, CommandError> {
    let failed = |why: &str| {
        Ok(CommandOutput {
            code: 5,
            stderr: format!("Failed to start {unit}: {why}"),
            ..CommandOutput::default()
        })
    };
    let Ok(text) = fs::read_to_string(Path::new(READ).join(unit)) else {
        return failed("Unit not found.");
    };
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    if let (Some(what), Some(place), Some("bind")) = (value("What=/"), value("Where="), value("Options=")) {
        let whole = value("AssertPathIsMountPoint=").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let is_mounted = mounts.lines().any(|line| line.split(' ').nth(1) == Some(whole));
        let source = value("AssertPathIsDirectory=").unwrap_or_default();
        if !is_mounted || !Path::new(source).is_dir() {
            return failed("Assertion failed.");
        }
        let tool = Tool::new("mount").args(["--bind", "--"]);
        return SystemCommands.run(&tool.arg(format!("/{what}")).arg(place));
    }
    let (Some(what), Some(place)) = (value("What=/dev/disk/by-uuid/"), value("Where=")) else {
        return failed("it has neither What= nor Where=");
    };
    // systemd creates the mount point, too.
    if let Err(error) = fs::create_dir_all(place) {
        return failed(&error.to_string());
    }
    let found = SystemCommands.run(&Tool::new("findfs").arg(format!("UUID={what}")))?;
    let device = PathBuf::from(found.stdout.trim());
    let options = value("Options=").unwrap_or("defaults");
    let kind = value("Type=").unwrap_or("auto");
    SystemCommands.run(
        &Tool::new("mount")
            .args(["-t", kind, "-o", options, "--"])
            .arg(device)
            .arg(place),
    )
}
