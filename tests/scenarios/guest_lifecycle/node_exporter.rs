//! The packaged agent in its unit's sandbox beside node_exporter in the same guest: the same
//! families, labels and values.

use anyhow::{Context as _, Result, ensure};
use virtfleet_agent_metrics::COLLECTORS;
use virtfleet_tests::{
    guest::Guest as Machine,
    parity::{
        Page, Round,
        allowed::{ALLOWED, MACHINE},
        judge,
        programs::{MOUNT_POINTS, Serve},
    },
};

/// Where node_exporter lies and listens in the guest.
const PROGRAM: &str = "/usr/local/bin/node_exporter";
const THEIRS: &str = "127.0.0.1:9100";
const OURS: &str = "127.0.0.1:10999";
/// Rounds of scrapes; each round scrapes both programs.
const SCRAPE_ROUNDS: usize = 8;
/// Units that are left out: node_exporter's own default, which Debian's build narrows.
const UNITS: &str = ".+\\.(automount|device|mount|scope|slice)";
/// One series for each interrupt, as node_exporter has them; and no TLS, so that both are asked
/// alike.
const SETTINGS: &str = "cat >/etc/virtfleet/agent.d/20-beside.yaml <<END
apiVersion: virtfleet.io/v1alpha1
kind: AgentConfig
server: { listeners: [{ name: beside, address: \"127.0.0.1:10999\", plain: true }] }
metrics: { interrupts: { perInterrupt: true } }
END
systemctl restart virtfleet-agent";
/// Asks theirs, ours and theirs again, over connections that stay: what one process more or one
/// connection less does to memory and sockets is the same in all three.
const ASK: &str = "import http.client, sys
theirs, ours, path, rounds = sys.argv[1:]
links = {'before': (http.client.HTTPConnection(theirs), '/metrics'), 'ours': (http.client.HTTPConnection(ours), path)}
links['after'] = links['before']
for number in range(-1, int(rounds)):
    pages = {}
    for name in ['before', 'ours', 'after']:
        link, place = links[name]
        link.request('GET', place)
        answer = link.getresponse()
        pages[name] = answer.read()
        assert answer.status == 200, (name, answer.status, pages[name])
    for name, page in pages.items():
        open(f'/root/beside/{name}{number}', 'wb').write(page)
";

/// Starts node_exporter, which was brought with the agent, asks both in turns, and fails with each
/// difference that nothing explains.
pub(crate) fn says_the_same(machine: &Machine) -> Result<()> {
    machine.run(&format!(
        "install -m 0755 /root/virtfleet/node_exporter {PROGRAM}"
    ))?;
    machine.run(SETTINGS)?;
    let serve = Serve::defaults(None)?;
    let theirs: Vec<_> = serve
        .collectors
        .iter()
        .map(|name| format!("--collector.{name}"))
        .collect();
    let only_ours: Vec<_> = COLLECTORS
        .iter()
        .filter(|entry| !serve.collectors.contains(&entry.name))
        .map(|entry| format!("exclude[]={}", entry.name))
        .collect();
    machine.run(&format!(
        "systemd-run --quiet --unit beside --uid nobody {PROGRAM} --web.listen-address={THEIRS} \
         --collector.disable-defaults '--collector.filesystem.mount-points-exclude={MOUNT_POINTS}' \
         '--collector.systemd.unit-exclude={UNITS}' --collector.textfile.directory= {}",
        theirs.join(" ")
    ))?;
    machine.run_until(
        "curl -sf http://127.0.0.1:9100/metrics >/dev/null && curl -sf http://127.0.0.1:10999/readyz >/dev/null",
        "both answer",
    )?;
    machine.run("mkdir -p /root/beside")?;
    machine.write_file("/root/beside/ask.py", ASK.as_bytes(), "0644")?;
    let path = format!("/metrics?{}", only_ours.join("&"));
    machine.run(&format!(
        "python3 /root/beside/ask.py {THEIRS} {OURS} '{path}' {SCRAPE_ROUNDS}"
    ))?;
    let page = |name: &str, number: usize| -> Result<Page> {
        let bytes = machine.read_file(&format!("/root/beside/{name}{number}"))?;
        Page::read(str::from_utf8(&bytes).context("a page is text")?)
    };
    let rounds = (0..SCRAPE_ROUNDS)
        .map(|number| {
            Ok(Round {
                before: page("before", number)?,
                ours: page("ours", number)?,
                after: page("after", number)?,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    machine.run("systemctl stop beside; rm /etc/virtfleet/agent.d/20-beside.yaml")?;
    let verdict = judge(&rounds, ALLOWED, MACHINE);
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
