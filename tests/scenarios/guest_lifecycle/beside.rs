//! The packaged agent in its unit's sandbox beside node_exporter in the same guest: the same families, labels and values.

use anyhow::{Result, ensure};
use virtfleet_tests::{
    guest::Guest as Machine,
    parity::{
        Page, Round,
        allowed::ALLOWED,
        judge,
        programs::{MOUNT_POINTS, Serve},
    },
    parts,
    sim::Guest,
    stage::Stage,
};

use crate::kit;

/// Where node_exporter lies and listens in the guest.
const PROGRAM: &str = "/usr/local/bin/node_exporter";
const ADDRESS: &str = "127.0.0.1:9100";
const ROUNDS: usize = 4;
/// Units that are left out: node_exporter's own default, which Debian's build narrows.
const UNITS: &str = ".+\\.(automount|device|mount|scope|slice)";
/// One series for each interrupt, as node_exporter has them.
const SETTINGS: &str = "set -e
cat >/etc/virtfleet/agent.d/20-beside.yaml <<END
apiVersion: virtfleet.io/v1alpha1
kind: AgentConfig
metrics: { interrupts: { perInterrupt: true } }
END
systemctl restart virtfleet-agent";

/// Puts node_exporter into the guest, asks both in turns, and fails with each difference that nothing explains.
pub(crate) fn says_the_same(stage: &Stage, who: &Guest, machine: &Machine) -> Result<()> {
    machine.write_file(PROGRAM, &std::fs::read(parts::node_exporter()?)?, "0755")?;
    let serve = Serve::defaults(None)?;
    let flags: Vec<_> = serve
        .collectors
        .iter()
        .map(|name| format!("--collector.{name}"))
        .collect();
    machine.run(SETTINGS)?;
    machine.run(&format!(
        "systemd-run --quiet --unit beside --uid nobody {PROGRAM} --web.listen-address={ADDRESS} \
         --collector.disable-defaults '--collector.filesystem.mount-points-exclude={MOUNT_POINTS}' \
         '--collector.systemd.unit-exclude={UNITS}' {}",
        flags.join(" ")
    ))?;
    let theirs = || -> Result<Page> {
        let ask = format!(
            "import urllib.request as r; print(r.urlopen('http://{ADDRESS}/metrics').read().decode())"
        );
        Page::read(&machine.run(&format!("python3 -c \"{ask}\""))?)
    };
    machine.run_until(
        &format!("python3 -c \"import urllib.request as r; r.urlopen('http://{ADDRESS}/metrics')\""),
        "node_exporter answers",
    )?;
    kit::page_until(
        stage,
        who,
        "/metrics",
        "the agent with its new settings",
        |page| page.contains("node_systemd_units{") && page.contains("type=\"NMI\""),
    )?;
    let rounds = (0..ROUNDS)
        .map(|_| {
            Ok(Round {
                before: theirs()?,
                ours: Page::read(&kit::page(stage, who, "/metrics")?)?,
                after: theirs()?,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    machine.run("systemctl stop beside; rm /etc/virtfleet/agent.d/20-beside.yaml")?;
    let verdict = judge(&rounds, ALLOWED);
    eprintln!(
        "{} collectors, {} families, {} series; {} differences are explained",
        serve.collectors.len(),
        verdict.compared.0,
        verdict.compared.1,
        verdict.explained.len()
    );
    ensure!(verdict.unexplained.is_empty(), "{verdict}");
    Ok(())
}
