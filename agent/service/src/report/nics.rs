//! `nics`: the network interfaces that are devices of the VM. Bridges, tunnels and veths appear
//! only in `identity.interfaces`: a node may have hundreds.

use virtfleet_agent_host::{Roots, exists, link_name, list};
use virtfleet_agent_state::virtio::Virtio;
use virtfleet_wire::report::{Section, SectionStatus};

use super::files::{line, number, object};

pub(super) fn read(roots: &Roots, devices: &Virtio) -> Section {
    let Ok(names) = list(&roots.sys("class/net")) else {
        return Section {
            status: SectionStatus::Failed,
            ..Section::default()
        };
    };
    let items = names
        .into_iter()
        .filter(|name| exists(&roots.sys(format!("class/net/{name}/device"))))
        .map(|name| {
            let at = |path: &str| roots.sys(format!("class/net/{name}/{path}"));
            let queues = list(&at("queues")).unwrap_or_default();
            let count = |kind: &str| queues.iter().filter(|queue| queue.starts_with(kind)).count();
            // virtio without a link speed reports -1, and an interface that is down returns an
            // error.
            let speed = number::<i64>(&at("speed")).filter(|speed| *speed > 0);
            let seen = devices.machine.nics.iter().find(|nic| nic.name == name);
            let channels = seen.and_then(|nic| nic.channels);
            let standing = seen.and_then(|nic| devices.standing(nic));
            object([
                ("name", Some(name.clone().into())),
                ("mac", line(&at("address")).map(Into::into)),
                ("mtu", number::<u64>(&at("mtu")).map(Into::into)),
                ("driver", link_name(&at("device/driver")).map(Into::into)),
                ("operstate", line(&at("operstate")).map(Into::into)),
                ("speedMbps", speed.map(Into::into)),
                ("rxQueues", Some(count("rx-").into())),
                ("txQueues", Some(count("tx-").into())),
                ("device", seen.and_then(|nic| nic.device.clone()).map(Into::into)),
                ("channels", channels.map(|channels| channels.current.into())),
                (
                    "channelsPossible",
                    channels.map(|channels| channels.possible.into()),
                ),
                ("standing", standing.map(Into::into)),
                ("dhcpMtu", seen.and_then(|nic| nic.dhcp_mtu).map(Into::into)),
            ])
        })
        .collect();
    Section {
        status: SectionStatus::Ok,
        items,
        ..Section::default()
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_state::virtio::sample;
    use virtfleet_wire::settings::NicSettings;

    use super::*;

    #[test]
    fn an_interface_has_its_queues_and_their_state() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            sysfs: dir.path().to_owned(),
            ..Roots::default()
        };
        for name in ["eth0", "eth1"] {
            std::fs::create_dir_all(roots.sys(format!("class/net/{name}/device"))).unwrap();
        }
        let settings = NicSettings::default();
        let devices = Virtio::of(sample::machine(), Some(sample::state()), None, &settings);
        let items = read(&roots, &devices).items;
        let [known, other] = items.as_slice() else {
            panic!("{items:?}")
        };
        let told = ["device", "channels", "channelsPossible", "standing", "dhcpMtu"];
        let values: Vec<String> = told.iter().map(|key| known[*key].to_string()).collect();
        assert_eq!(values, ["\"virtio1\"", "1", "2", "\"differs\"", "1450"]);
        assert!(told.iter().all(|key| other[*key].is_null()), "{other}");
    }
}
