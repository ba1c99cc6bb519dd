//! `virtfleet-agent install --remove`: what `install` and the delivery have put into the guest goes; settings, certificates, the
//! user and what was provisioned stay.

use std::collections::BTreeSet;

use virtfleet_agent_host::{Commands, Tool, remove_durably};
use virtfleet_delivery::{INSTALLED, STATE, guest, words};

use super::{InstallError, Options, Outcome, io_error, plan::is_ours};

/// What the delivery has put there: it would bring everything back.
const DELIVERY: [&str; 7] = [
    "/etc/systemd/system/multi-user.target.wants/virtfleet-delivery.service",
    "/etc/systemd/system/virtfleet-delivery.service",
    "/etc/systemd/system/kubelet.service.d/20-virtfleet-delivery.conf",
    "/etc/systemd/system/containerd.service.d/20-virtfleet-delivery.conf",
    "/var/lib/virtfleet/delivery/deliver",
    "/var/lib/virtfleet/delivery/wanted",
    INSTALLED,
];

/// Stops the units, then removes them with everything else, the record last.
///
/// Errors: something that cannot be removed. What was done until then stays done; run it again.
pub fn remove(options: &Options, commands: &dyn Commands) -> Result<Outcome, InstallError> {
    let mut outcome = Outcome::default();
    let agent = options.agent();
    if options.has_systemd() && options.start {
        // Oneshots that ran are stopped, too, so that systemd forgets them.
        let stop = Tool::new("systemctl").arg("stop").args(guest::units());
        if let Err(error) = commands.check(&stop) {
            outcome.warnings.push(format!("{error}; reboot to end what runs"));
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
    if options.at(STATE)?.is_dir() && outcome.removed.iter().any(|path| path.ends_with("/wanted")) {
        outcome.warnings.push(
            "user-data with the boot command brings everything back while cloud-init runs at boot: take it out of there, too"
                .to_owned(),
        );
    }
    Ok(outcome)
}
