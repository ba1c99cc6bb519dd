//! `virtfleet-agent install --remove`: removes what `install` and the delivery have installed.
//! Settings, certificates, the user and provisioned state stay.

use std::collections::BTreeSet;

use virtfleet_agent_host::{Commands, Tool, is_directory, remove_durably};
use virtfleet_delivery::{INSTALLED, STATE, guest, words};

use super::{InstallError, Options, Outcome, io_error, plan::is_ours};

/// Files of the delivery, which would install everything again.
const DELIVERY: [&str; 9] = [
    "/etc/systemd/system/multi-user.target.wants/virtfleet-delivery.service",
    "/etc/systemd/system/virtfleet-delivery.service",
    "/etc/systemd/system/kubelet.service.d/20-virtfleet-delivery.conf",
    "/etc/systemd/system/containerd.service.d/20-virtfleet-delivery.conf",
    "/etc/systemd/system/setup.service.d/20-virtfleet-delivery.conf",
    "/etc/systemd/system/multi-user.target.d/20-virtfleet-delivery.conf",
    "/var/lib/virtfleet/delivery/deliver",
    "/var/lib/virtfleet/delivery/wanted",
    INSTALLED,
];

/// Stops the units, then removes them and all other files, the record last.
///
/// # Errors
/// A file cannot be removed. What was done until then stays; the run can be repeated.
pub fn remove(options: &Options, commands: &dyn Commands) -> Result<Outcome, InstallError> {
    let mut outcome = Outcome::default();
    let agent = options.agent();
    if options.has_systemd() && options.start {
        // Finished oneshot units are stopped too, so that systemd unloads them.
        let stop = Tool::new("systemctl").arg("stop").args(guest::units());
        if let Err(error) = commands.check(&stop) {
            outcome
                .warnings
                .push(format!("{error}; reboot to stop what is running"));
        }
    }
    let record = options.small_text(INSTALLED);
    let recorded = words(&record, "file").filter(|path| is_ours(path));
    let mut paths: BTreeSet<String> = recorded.map(str::to_owned).collect();
    paths.extend(guest::links().into_iter().map(|link| link.path));
    paths.extend(guest::files(&agent).into_iter().map(|file| file.path));
    paths.insert(agent);
    let last = DELIVERY.map(str::to_owned);
    for path in paths.into_iter().chain(last) {
        let here = options.at(&path)?;
        if remove_durably(&here).map_err(io_error("remove", &here))? {
            outcome.removed.push(path);
        }
    }
    if options.has_systemd() {
        for tool in [
            Tool::new("systemctl").arg("daemon-reload"),
            Tool::new("udevadm").args(["control", "--reload"]),
        ] {
            if let Err(error) = commands.check(&tool) {
                outcome.warnings.push(format!("{error}; reboot"));
            }
        }
    }
    if is_directory(&options.at(STATE)?) && outcome.removed.iter().any(|path| path.ends_with("/wanted")) {
        outcome.warnings.push(
            "user-data with the boot command installs everything again when cloud-init runs at boot: remove it there too"
                .to_owned(),
        );
    }
    Ok(outcome)
}
