//! Queues of a network interface in a real guest: raised by hand, seen in interrupts and counters
//! under traffic, raised by a reconcile when a vCPU comes, and put back.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use virtfleet_tests::{
    guest::{self, Disk, Guest, Network, Scene, Seed, Start, Suite, Vm},
    process::{Launch, Process},
    real::{self, AGENT},
    skip,
};

/// Maximum time of an operation of the agent, under emulation on a busy machine.
const AGENT_TIMEOUT: Duration = Duration::from_mins(3);
/// The guest's only interface, by name.
const NIC: &str = "nic=$(basename $(dirname $(grep -l 02:00:00:00:00:01 /sys/class/net/*/address)))";

/// Sends each datagram back.
const ECHO: &str =
    "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('10.0.2.2', 9000))
print('ready', flush=True)
while True:\n d, a = s.recvfrom(2048); s.sendto(d, a)";
/// `ethtool -L $1 combined $2`, which the image need not have: `struct ethtool_channels`,
/// `ETHTOOL_SCHANNELS` (0x3d) after `ETHTOOL_GCHANNELS` (0x3c).
const CHANNELS: &str = "import array, fcntl, socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); b = array.array('I', [0x3c] + [0] * 8)
r = struct.pack('16sP', sys.argv[1].encode(), b.buffer_info()[0])
fcntl.ioctl(s, 0x8946, r); b[0] = 0x3d; b[8] = int(sys.argv[2]); fcntl.ioctl(s, 0x8946, r)";
/// Many flows, each a few hundred datagrams there and back.
const FLOWS: &str = "import socket
for flow in range(16):
 s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(('10.0.2.2', 9000))
 for n in range(60):
  for attempt in range(20):
   s.send(b'x' * 400)
   try: s.recv(2048); break
   except socket.timeout: pass
  else: raise SystemExit('no answer')";

struct World<'a> {
    guest: &'a Guest,
    _echo: Process,
}

impl World<'_> {
    /// Writes the settings file, without a reconcile request.
    fn set(&self, nic: &str) -> Result<()> {
        let text = format!(
            "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nserver:\n  listeners:\n  - {{name: default, address: \"127.0.0.1:10911\", plain: true}}\nnic: {nic}\n"
        );
        self.guest
            .write_file("/etc/virtfleet/agent.yaml", text.as_bytes(), "0644")
    }

    /// A verb of the agent with its exit code.
    fn agent(&self, words: &str, code: i32) -> Result<String> {
        let said = self.guest.sh_within(&format!("{AGENT} {words}"), AGENT_TIMEOUT)?;
        ensure!(
            said.code == code,
            "{words}: exit code {}: {}{}",
            said.code,
            said.stdout,
            said.stderr
        );
        Ok(said.stdout)
    }

    fn plan(&self, code: i32) -> Result<Value> {
        Ok(serde_json::from_str(
            &self.agent("plan nic -o json --detailed-exitcode", code)?,
        )?)
    }

    fn state(&self) -> Result<Value> {
        let text = self.guest.run("cat /run/virtfleet/state/nic.json")?;
        let state: Value = serde_json::from_str(&text)?;
        let nics = state["nics"].as_object().context("interfaces")?;
        ensure!(nics.len() == 1, "{state:#}");
        Ok(nics.values().next().unwrap().clone())
    }

    /// Queues in use, as the kernel shows them.
    fn queues(&self) -> Result<usize> {
        let count = self
            .guest
            .run(&format!("{NIC}; ls -d /sys/class/net/$nic/queues/tx-* | wc -l"))?;
        Ok(count.parse()?)
    }

    /// How often each interrupt of the interface's queues came, `input.0`, `output.0` and so on, by
    /// its name.
    fn interrupts(&self) -> Result<Vec<(String, u64)>> {
        let text = self.guest.run(&format!(
            "{NIC}; device=$(basename $(readlink -f /sys/class/net/$nic/device)); grep \"$device-.*put\" /proc/interrupts"
        ))?;
        let each = text.lines().map(|line| {
            let name = line.split_whitespace().last().unwrap_or_default();
            let counts = line
                .split_whitespace()
                .skip(1)
                .map_while(|word| word.parse::<u64>().ok());
            let (_, queue) = name.split_once('-').unwrap_or_default();
            (queue.to_owned(), counts.sum())
        });
        Ok(each.collect())
    }

    /// Traffic of many flows from each CPU, there and back, and how many interrupts each queue had
    /// of it.
    fn traffic(&self) -> Result<Vec<(String, u64)>> {
        let before = self.interrupts()?;
        self.guest.write_file("/tmp/flows.py", FLOWS.as_bytes(), "0644")?;
        self.guest.run_within(
            "for cpu in $(seq 0 $(($(nproc) - 1))); do taskset -c $cpu python3 /tmp/flows.py & all=\"$all $!\"; done; for one in $all; do wait $one || exit 1; done",
            AGENT_TIMEOUT,
        )?;
        let after = self.interrupts()?;
        let came = after.into_iter().zip(before);
        Ok(came.map(|((name, now), (_, then))| (name, now - then)).collect())
    }
}

fn echo(scene: &Scene) -> Result<Process> {
    let mut echo = Launch::new("/usr/bin/python3")
        .args(["-c", ECHO])
        .in_namespace(scene.namespace()?.name())
        .start(scene.path())?;
    echo.wait_for_line("ready", AGENT_TIMEOUT)?;
    Ok(echo)
}

#[test]
fn tier4_queues_follow_the_cpus() {
    let test = "tier4_queues_follow_the_cpus";
    guest::play(test, |scene| {
        if skip::need(4, test, guest::needs(Suite::Bookworm))?.is_none() {
            return Ok(());
        }
        let folder = real::agent_folder(scene.path())?;
        let network = r#"{"links": [{"id": "nic", "type": "phy", "ethernet_mac_address": "02:00:00:00:00:01"}],
            "networks": [{"id": "n", "link": "nic", "type": "ipv4", "ip_address": "10.0.2.15/24"}], "services": []}"#;
        let vm = Vm::new("queues")
            .suite(Suite::Bookworm)
            .cpus(2, 3)
            .network(Network::Tap)
            .nic_queues(3)
            .seed(Seed::config_drive("queues").network(network))
            .disk(Disk::folder("agent", &folder, real::DISK_LABEL).read_only());
        let guest = scene.start(&vm, Start::Booted)?;
        let world = World {
            guest: &guest,
            _echo: echo(scene)?,
        };
        guest.run("mount -o ro LABEL=virtfleet /mnt && mkdir -p /etc/virtfleet")?;
        world.set("{multiqueue: report-only}")?;
        guest.run_within("/mnt/virtfleet-agent install", AGENT_TIMEOUT)?;

        // As the kernel sets it up, then as somebody leaves it behind.
        assert_eq!(world.queues()?, 2);
        guest.write_file("/tmp/channels.py", CHANNELS.as_bytes(), "0644")?;
        guest.run(&format!("{NIC}; python3 /tmp/channels.py $nic 1"))?;
        assert_eq!(world.queues()?, 1);
        let before = world.traffic()?;
        assert!(
            before
                .iter()
                .all(|(name, count)| *count == 0 || name.ends_with(".0")),
            "{before:?}"
        );

        let plan = world.plan(2)?;
        assert_eq!(plan["steps"].as_array().map(Vec::len), Some(1), "{plan:#}");
        assert_eq!(
            (&plan["steps"][0]["from"], &plan["steps"][0]["to"]),
            (&1.into(), &2.into())
        );
        world.agent("apply --stage reconcile", 0)?;
        assert_eq!(world.queues()?, 1, "report-only is left to a person");
        let tree = world.agent("virtio", 0)?;
        assert!(
            tree.contains("1 of 3 queues") && tree.contains("sudo virtfleet-agent apply nic"),
            "{tree}"
        );
        let said = world.agent("apply nic", 0)?;
        assert!(
            said.contains("2 queues instead of 1") && said.contains("spread"),
            "{said}"
        );
        assert_eq!(world.queues()?, 2);
        let nothing = world.plan(0)?;
        assert!(nothing["steps"].as_array().unwrap().is_empty(), "{nothing:#}");
        let after = world.traffic()?;
        for queue in ["output.0", "output.1", "input.0", "input.1"] {
            assert!(
                after.iter().any(|(name, count)| name == queue && *count > 0),
                "{queue}: {after:?}"
            );
        }
        let xps = guest.run(&format!("{NIC}; cat /sys/class/net/$nic/queues/tx-[01]/xps_cpus"))?;
        assert_eq!(xps.split_whitespace().count(), 2, "{xps}");

        // A vCPU comes: udev asks for a reconcile.
        world.set("{multiqueue: auto}")?;
        guest.plug_cpu()?;
        guest.run_until_within(
            &format!("{NIC}; test -e /sys/class/net/$nic/queues/tx-2"),
            "a queue for the new vCPU",
            AGENT_TIMEOUT,
        )?;
        world.agent("apply --stage reconcile", 0)?;
        let state = world.state()?;
        assert_eq!(
            (&state["standing"], &state["ours"], &state["before"]),
            (&"spread".into(), &3.into(), &1.into())
        );
        // Counters of each queue at that change: both had traffic.
        for way in ["rx", "tx"] {
            let packets = state["baseline"][way].as_array().unwrap();
            assert_eq!(packets.len(), 3, "{state:#}");
            assert!(packets[..2].iter().all(|one| one.as_u64() > Some(0)), "{state:#}");
        }
        world.plan(0)?;
        let last = world.traffic()?;
        assert!(
            last.iter().any(|(name, count)| name == "output.2" && *count > 0),
            "{last:?}"
        );

        world.set("{multiqueue: off}")?;
        world.agent("apply --stage reconcile", 0)?;
        assert_eq!(world.queues()?, 1);
        world.traffic()?;
        assert_eq!(world.state()?["ours"], Value::Null);
        guest.power_off()
    });
}
