//! Machines on which another program owns `/etc/resolv.conf` and writes it repeatedly: the
//! requested nameservers stay in use, `off` restores the file, and a crash never leaves the machine
//! without a nameserver.

mod kit;
mod more;

use anyhow::{Context as _, Result, ensure};
use kit::{LATER, LONG, NEW, OLD, Owner, World, guests, needed, order, settings};
use virtfleet_tests::{dns::Order, guest::Suite, machine::Options, skip, wait::eventually};
use virtfleet_wire::settings::DnsManage;

const TIER: u8 = 2;
const SOON: std::time::Duration = std::time::Duration::from_secs(10);

/// As Debian's ifupdown starts it.
const DHCLIENT: &str = "[Unit]\nAfter=network-pre.target\nBefore=network.target\n[Service]\nType=forking\nPIDFile=/run/dhclient.eth0.pid\n\
    ExecStart=/usr/sbin/dhclient -4 -v -i -pf /run/dhclient.eth0.pid -lf /var/lib/dhcp/dhclient.eth0.leases -I -df \
    /var/lib/dhcp/dhclient6.eth0.leases eth0\n[Install]\nWantedBy=multi-user.target\n";
/// Its settings. The root's resolvconf is systemd-resolved's, which does not run here.
const DHCPCD_CONF: &str = "option domain_name_servers, domain_search\nenv resolvconf=none\nnoarp\n";
/// It wants to set up the kernel's side of its link, and a container's `/proc/sys` is read-only.
const DHCPCD: &str = "[Unit]\nAfter=network-pre.target\nBefore=network.target\n[Service]\nPrivateMounts=yes\n\
    ExecStart=/bin/sh -c 'mount -o bind /proc/sys/net /proc/sys/net && mount -o remount,bind,rw /proc/sys/net && \
    exec /usr/sbin/dhcpcd --nobackground -4 eth0'\n[Install]\nWantedBy=multi-user.target\n";

/// dhclient, which writes a plain file.
fn dhclient() -> Owner {
    Owner {
        root: || guests(Suite::Bookworm),
        options: || {
            Options::default()
                .file("/etc/resolv.conf", "")
                .file("/etc/systemd/system/dhclient.service", DHCLIENT)
                .enable("dhclient.service")
                .mask("systemd-networkd.service")
                .mask("systemd-resolved.service")
        },
        prepare: "",
        named: ["by /etc/resolv.conf", "dhclient runs"],
        unit: "dhclient.service",
        leased: "grep name-servers /var/lib/dhcp/dhclient.eth0.leases | tail -n 1 | grep -q \"$1\"",
    }
}

/// dhcpcd, which also writes a plain file, unless its configuration has `nohook resolv.conf`. That
/// setting is left to the builder of the image.
fn dhcpcd() -> Owner {
    Owner {
        root: || guests(Suite::Trixie),
        options: || {
            Options::default()
                .file("/etc/resolv.conf", "")
                .file("/etc/dhcpcd.conf", DHCPCD_CONF)
                .file("/etc/systemd/system/dhcpcd.service", DHCPCD)
                .enable("dhcpcd.service")
                .mask("systemd-networkd.service")
                .mask("systemd-resolved.service")
        },
        prepare: "",
        named: ["by /etc/resolv.conf", "dhcpcd runs"],
        unit: "dhcpcd.service",
        leased: "dhcpcd -4 -U eth0 | grep domain_name_servers | grep -q \"$1\"",
    }
}

/// A full cycle: `report-only`, applied by hand, restored by `off`, applied at boot.
///
/// Where the file is the owner's own, one lookup may fail: `dhclient-script` of Debian 13 truncates
/// the file at each renewal before it writes to it.
fn life(test: &str, owner: &Owner) -> Result<()> {
    let Some(root) = skip::need(TIER, test, needed(owner))? else {
        return Ok(());
    };
    let options = (owner.options)().agent(&settings("report-only"));
    let mut world = World::boot(owner, &root, "10.66.0.11", options)?;
    // NetworkManager shows a lease before it tells anybody.
    let before = world.settled(OLD)?;
    // The boot's own pass does not wait for a lease where it only looks.
    world.machine.sh("virtfleet-agent apply --stage dns")?;
    world.says(owner)?;

    world.set(&settings("auto"))?;
    world.apply()?;
    // A renewal that was under way writes the file once more; the watch then requests another pass.
    let written = world.settled(NEW)?;
    ensure!(
        written.contains("search tenant.svc.cluster.local svc.cluster.local cluster.local"),
        "{written}"
    );
    world.says(owner)?;
    world.at_rest()?;
    world.apply()?;
    ensure!(
        world.resolv_conf()? == written,
        "the second pass has changed something"
    );

    world.set(&settings("off"))?;
    world.apply()?;
    // systemd-resolved may write its file a moment after its reload.
    eventually(SOON, "what was there", || {
        let after = world.resolv_conf()?;
        ensure!(after == before, "restored {after} instead of {before}");
        Ok(())
    })?;
    let ours = world.ours()?;
    ensure!(ours.is_empty(), "left behind: {ours}");
    eventually(SOON, "restored", || world.uses(OLD))?;

    // By the unit of the boot, from here on.
    world.set(&settings("auto"))?;
    world.machine.reboot()?;
    world.machine.is_active("virtfleet-dns.service")?;
    world.keeps(NEW).context("at boot")?;
    world.hand_out(owner, "10.66.0.13")?;
    world.keeps(NEW).context("renewed")?;
    world.at_rest()?;
    world.machine.sh(&format!("systemctl restart {}", owner.unit))?;
    world.leased(owner, "10.66.0.13")?;
    world.keeps(NEW).context("its service restarted")?;
    world.machine.reboot()?;
    world.leased(owner, "10.66.0.13")?;
    world.keeps(NEW).context("booted again")?;
    world.says(owner)?;

    world.set(&settings("off"))?;
    world.apply()?;
    eventually(SOON, "off", || world.answered_by("off"))?;
    // What DHCP gives by now comes back with its next word.
    world.machine.sh(&format!("systemctl restart {}", owner.unit))?;
    eventually(LONG, "the owner's own nameserver", || world.uses(LATER))
}

#[test]
fn tier2_dhclient_and_a_plain_file() {
    life("tier2_dhclient_and_a_plain_file", &dhclient()).unwrap();
}

/// DHCP hands out the address that the cache will take, beside a good one.
fn collision(test: &str, owner: &Owner) -> Result<()> {
    let Some(root) = skip::need(TIER, test, needed(owner))? else {
        return Ok(());
    };
    let options = (owner.options)().agent("dns:\n  manage: auto");
    let mut world = World::boot(owner, &root, "169.254.20.10,10.66.0.11", options)?;
    eventually(LONG, "only the good one", || world.uses(OLD))?;
    // The cache starts, and has no upstream nameserver.
    world.machine.sh(
        "ip link add nodelocaldns type dummy 2>/dev/null || ip link add nodelocaldns type veth peer name nowhere\n\
         ip address add 169.254.20.10/32 dev nodelocaldns && ip link set nodelocaldns up",
    )?;
    world.uses(OLD)?;
    world.hand_out(owner, "169.254.20.10,10.66.0.13")?;
    world.apply()?;
    // NetworkManager shows a lease before it tells anybody.
    eventually(LONG, "what DHCP gives by now", || world.uses(LATER))?;
    world.machine.sh(&format!("systemctl restart {}", owner.unit))?;
    world.leased(owner, "169.254.20.10,10.66.0.13")?;
    eventually(LONG, "its service restarted", || world.uses(LATER))
}

#[test]
fn tier2_dhclient_and_a_collision() {
    collision("tier2_dhclient_and_a_collision", &dhclient()).unwrap();
}

/// Killed at every point of taking over and of giving back.
fn crashes(test: &str, owner: &Owner) -> Result<()> {
    let Some(root) = skip::need(TIER, test, needed(owner))? else {
        return Ok(());
    };
    let program = virtfleet_tests::bins::dns_stage()?;
    let options = (owner.options)().program("dns-stage", program);
    let world = World::boot_renewing(owner, &root, "10.66.0.11", options, 110)?;
    // dhclient writes its lease down before the file.
    eventually(LONG, "before", || world.uses(OLD))?;
    let mut kills = 0;
    for manage in [DnsManage::Auto, DnsManage::Off] {
        for point in 1.. {
            let to = |manage, kill_at, recover_only| {
                world.stage(&Order {
                    kill_at,
                    recover_only,
                    ..order(manage)
                })
            };
            let (from, before, after) = match manage {
                DnsManage::Off => (DnsManage::Auto, NEW, OLD),
                _ => (DnsManage::Off, OLD, NEW),
            };
            // A renewal that was under way when our hook came writes the file once more: in a guest
            // the watch has another pass then.
            let passed = |manage, by| {
                let pass = || {
                    let outcome = to(manage, None, false)?;
                    ensure!(
                        outcome.error.is_none() && outcome.refusals.is_empty(),
                        "{outcome:?}"
                    );
                    world.uses(by).with_context(|| format!("{outcome:?}"))
                };
                pass().or_else(|_| pass())
            };
            passed(from, before).with_context(|| format!("{manage:?}, before point {point}"))?;
            let outcome = to(manage, Some(point), false)?;
            let at = || format!("{manage:?}, point {point}: {:?}", outcome.points.last());
            ensure!(
                outcome.error.is_none() && outcome.refusals.is_empty(),
                "{outcome:?}"
            );
            world.answered_by("crashed").with_context(at)?;
            to(manage, None, true).with_context(at)?;
            world
                .uses(before)
                .or_else(|_| world.uses(after))
                .with_context(at)?;
            passed(manage, after).with_context(at)?;
            if !outcome.killed {
                break;
            }
            kills += 1;
        }
    }
    println!("killed at {kills} points; names resolved after each");
    ensure!(kills >= 8, "{kills}");
    Ok(())
}

/// Routes of others are there, so no link is configured again: what is written, and what is given
/// back, holds at run time and when networkd starts again.
fn live(test: &str, owner: &Owner) -> Result<()> {
    let Some(root) = skip::need(TIER, test, needed(owner))? else {
        return Ok(());
    };
    let options = (owner.options)().agent(&settings("auto"));
    let mut world = World::boot(owner, &root, "10.66.0.11", options)?;
    eventually(LONG, "at boot", || world.uses(NEW))?;
    let pass = |world: &World, manage: &str, by: u8| -> Result<()> {
        let route = "ip route replace 10.99.0.0/24 dev eth0 proto 80";
        world.machine.sh(route)?;
        world.set(&settings(manage))?;
        world.machine.sh("virtfleet-agent apply --stage dns")?;
        eventually(SOON, manage, || world.uses(by))?;
        let routes = world.machine.sh("ip route show proto 80")?;
        ensure!(
            routes.contains("10.99.0.0/24"),
            "a link was configured again: {routes}"
        );
        Ok(())
    };
    let restarted = |world: &World, by: u8| {
        world.machine.sh(&format!("systemctl restart {}", owner.unit))?;
        eventually(LONG, "its service restarted", || world.uses(by))
    };
    pass(&world, "off", OLD)?;
    let ours = world.ours()?;
    ensure!(ours.is_empty(), "left behind: {ours}");
    restarted(&world, OLD)?;
    pass(&world, "auto", NEW)?;
    restarted(&world, NEW)?;
    let yaml = world.machine.sh("ls /etc/netplan 2>/dev/null || true")?;
    ensure!(!yaml.contains("virtfleet"), "{yaml}");
    world.machine.reboot()?;
    world.leased(owner, "10.66.0.11")?;
    eventually(LONG, "booted again", || world.uses(NEW))?;
    pass(&world, "off", OLD)?;
    world.machine.reboot()?;
    eventually(LONG, "booted without ours", || world.uses(OLD))
}

#[test]
fn tier2_dhclient_and_crashes() {
    crashes("tier2_dhclient_and_crashes", &dhclient()).unwrap();
}

/// Without `nohook resolv.conf`, dhcpcd overwrites the file at each renewal, and the agent reports
/// it; with the setting, dhcpcd leaves the file alone.
#[test]
fn tier2_dhcpcd() {
    let test = "tier2_dhcpcd";
    let play = || -> Result<()> {
        let owner = dhcpcd();
        let Some(root) = skip::need(TIER, test, needed(&owner))? else {
            return Ok(());
        };
        let options = (owner.options)().agent(&settings("report-only"));
        let mut world = World::boot(&owner, &root, "10.66.0.11", options)?;
        let before = world.settled(OLD)?;
        // The boot's own pass does not wait so long for a lease where it only looks.
        world.machine.sh("virtfleet-agent apply --stage dns")?;
        world.says(&owner)?;
        world.set(&settings("auto"))?;
        // A renewal in between writes the file over.
        eventually(LONG, "applied", || {
            world.apply()?;
            world.uses(NEW)
        })?;
        world.says(&owner)?;
        let told = world.machine.sh("virtfleet-agent plan dns")?;
        ensure!(told.contains("nohook resolv.conf"), "{told}");
        let hookless = format!("{DHCPCD_CONF}nohook resolv.conf\n");
        world.machine.write("/etc/dhcpcd.conf", &hookless)?;
        world.machine.reboot()?;
        world.leased(&owner, "10.66.0.11")?;
        world.apply()?;
        world.keeps(NEW).context("booted")?;
        world.hand_out(&owner, "10.66.0.13")?;
        world.keeps(NEW).context("renewed")?;
        world.at_rest()?;
        world.says(&owner)?;
        world.set(&settings("off"))?;
        world.apply()?;
        let after = world.settled(OLD)?;
        ensure!(after == before, "restored {after} instead of {before}");
        Ok(())
    };
    play().unwrap();
}
