//! The guest's network and its nameservers.

use super::{super::world::NAMESERVERS, GuestState};

/// The guest's link, as a variable of the shell.
const LINK: &str = "link=$(basename $(dirname $(grep -l 02:00:00:00:00:01 /sys/class/net/*/address)))";

pub(super) const STATES: [GuestState; 7] = [
    GuestState {
        script: "agent-address-filtered",
        create: |world| world.filter(&[("to", "tcp dport 10911 drop")]),
        shows: |seen| seen.failure() == Some(("timeout", false)) && seen.node.ready == "True",
        undo: |world| world.unfilter(),
    },
    GuestState {
        script: "agent-unreachable",
        // Heartbeats cannot arrive either, and the Node is given up only after some time.
        create: |world| world.net.ip("route replace unreachable 10.0.2.15/32"),
        shows: |seen| seen.failure() == Some(("connect", false)),
        undo: |world| world.net.ip("route del unreachable 10.0.2.15/32"),
    },
    GuestState {
        script: "guest-network-lost",
        create: |world| world.filter(&[("to", "oif tap0 drop"), ("from", "iif tap0 drop")]),
        shows: |seen| seen.failure() == Some(("timeout", false)) && seen.node.ready == "Unknown",
        undo: |world| world.unfilter(),
    },
    GuestState {
        script: "guest-address-changed",
        create: |world| {
            let change = "ip address add 10.0.2.16/24 dev $link && ip address del 10.0.2.15/24 dev $link";
            world.machine.run(&format!("{LINK}; {change}"))?;
            world.net.ip("neighbour flush dev tap0")
        },
        shows: |seen| seen.failure() == Some(("connect", false)) && seen.node.ready == "True",
        undo: |world| {
            let change = "ip address add 10.0.2.15/24 dev $link && ip address del 10.0.2.16/24 dev $link";
            world.machine.run(&format!("{LINK}; {change}"))?;
            world.net.ip("neighbour flush dev tap0")
        },
    },
    GuestState {
        script: "dns-nameserver-dead",
        create: |world| {
            let rule = format!(
                "ip daddr {} meta l4proto {{ tcp, udp }} th dport 53 drop",
                NAMESERVERS[1]
            );
            world.filter(&[("from", &rule)])?;
            world.apply("dns")
        },
        shows: |seen| seen.has("dns-nameserver-dead") && !seen.has("dns-broken"),
        undo: |world| {
            world.unfilter()?;
            world.apply("dns")
        },
    },
    GuestState {
        script: "dns-broken",
        create: |world| {
            world.filter(&[("from", "meta l4proto { tcp, udp } th dport 53 drop")])?;
            world.apply("dns")
        },
        shows: |seen| seen.has("dns-broken"),
        undo: |world| {
            world.unfilter()?;
            world.apply("dns")
        },
    },
    GuestState {
        script: "virtio-fewer-queues",
        create: |world| {
            let set = format!("{LINK}; python3 /root/channels.py $link 1");
            world.machine.run(&set).map(drop)
        },
        shows: |seen| seen.has("virtio-nic-fewer-queues"),
        undo: |world| {
            let set = format!("{LINK}; python3 /root/channels.py $link 2");
            world.machine.run(&set).map(drop)
        },
    },
];
