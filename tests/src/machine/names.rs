//! Name lookups and DNS reconcile runs in a machine.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::Machine;
use crate::{
    dns::{Order, Outcome, Watched, stage},
    wait::eventually,
};

/// Maximum delay between an event and its journal entry, in seconds.
const SLACK: f64 = 0.5;

/// Start and end of each reload or restart of a service, from its journal (`short-unix`).
fn interruptions(journal: &str) -> Vec<(f64, f64)> {
    let mut windows: Vec<(f64, f64)> = Vec::new();
    for line in journal.lines() {
        let Some((head, text)) = line.split_once(" systemd[1]: ") else {
            continue;
        };
        let Some(at) = head.split(' ').next().and_then(|word| word.parse().ok()) else {
            continue;
        };
        let word = text.split(' ').next().unwrap_or_default();
        match word {
            "Reloading" | "Stopping" => windows.push((at, f64::INFINITY)),
            "Reloaded" | "Started" => windows
                .iter_mut()
                .last()
                .into_iter()
                .for_each(|window| window.1 = at),
            _ => {}
        }
    }
    windows
}

impl Machine {
    /// Resolves a name as programs do: through glibc and `/etc/resolv.conf`.
    pub fn lookup(&self, name: &str) -> Result<()> {
        self.sh(&format!(
            "RES_OPTIONS='timeout:2 attempts:2' getent ahostsv4 {name}"
        ))
        .map(drop)
        .with_context(|| self.names())
    }

    /// Starts continuous lookups of names made from a printf pattern, e.g. `w%d.example`. Each name
    /// is tried at most twice, as programs do: during a reload systemd-resolved answers pending
    /// queries with SERVFAIL.
    pub fn watch(&self, pattern: &str) -> Result<Watched> {
        Watched::start(self.launch("/bin/bash")?, pattern, "timeout:1 attempts:2")
    }

    /// The failed lookups that are not explained by a reload or restart of systemd-resolved. It
    /// closes its stub listener meanwhile: for milliseconds during a reload, longer on a busy
    /// machine. Queries in that time are refused at once.
    pub fn unexplained(&self, failed: &[String]) -> Result<Vec<String>> {
        let journal = self.sh(
            "journalctl --sync; journalctl --no-pager --boot --output=short-unix --unit=systemd-resolved",
        )?;
        let windows = interruptions(&journal);
        let explained = |line: &String| {
            let mut times = line
                .split_ascii_whitespace()
                .rev()
                .map_while(|word| word.parse::<f64>().ok());
            let (ended, begun) = (times.next(), times.next());
            let during = |window: &(f64, f64)| {
                begun.is_some_and(|begun| begun <= window.1 + SLACK)
                    && ended.is_some_and(|ended| ended >= window.0 - SLACK)
            };
            windows.iter().any(during)
        };
        Ok(failed.iter().filter(|line| !explained(line)).cloned().collect())
    }

    /// The process id of systemd-resolved, and whether it can reload; in that case the agent never
    /// restarts it while programs use it.
    pub fn resolved(&self) -> Result<(String, bool)> {
        let text = self.sh("systemctl show --property=MainPID --property=CanReload systemd-resolved")?;
        let process = text
            .lines()
            .find_map(|line| line.strip_prefix("MainPID="))
            .context("MainPID")?;
        Ok((process.to_owned(), text.contains("CanReload=yes")))
    }

    /// The state of name resolution, for messages.
    pub fn names(&self) -> String {
        let script = "cat /etc/resolv.conf; resolvectl --no-pager status; tail -n +1 /etc/systemd/resolved.conf.d/* \
                      /etc/systemd/network/*.d/* 2>/dev/null";
        self.try_sh(script)
            .map_or_else(|error| format!("{error:#}"), |(_, text)| text)
    }

    /// Makes one reconcile run with `dns-stage`, which must be among the machine's programs.
    pub fn stage(&self, order: &Order) -> Result<Outcome> {
        let order = Order {
            services: true,
            ..order.clone()
        };
        stage(self.launch("/usr/bin/dns-stage")?, &order)
    }

    /// Runs `virtfleet-agent` with these arguments; returns its exit code and standard output.
    pub fn agent(&self, words: &str) -> Result<(i32, String)> {
        self.try_sh(&format!("virtfleet-agent {words} 2>/dev/null"))
    }

    /// The status of the last DNS reconcile run.
    pub fn dns(&self) -> Result<Value> {
        let (_, text) = self.agent("dns -o json")?;
        serde_json::from_str(&text).with_context(|| format!("{text:?}"))
    }

    /// Waits until the status of the last DNS reconcile run satisfies `holds`.
    pub fn until_dns(&self, deadline: Duration, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        let wait = eventually(deadline, what, || {
            let state = self.dns()?;
            ensure!(holds(&state), "{state:#}");
            Ok(state)
        });
        wait.with_context(|| self.story())
    }

    /// The state of name resolution and the logs of the agent's units, for messages.
    pub fn story(&self) -> String {
        let journal = "journalctl --no-pager --boot --output=short-monotonic --unit='virtfleet-*' --unit=systemd-resolved";
        let journal = self
            .try_sh(journal)
            .map_or_else(|error| format!("{error:#}"), |(_, text)| text);
        format!("{}\n{journal}", self.names())
    }

    /// The ids of the findings of the last run, each with its subject.
    pub fn dns_findings(&self) -> Result<Vec<String>> {
        let state = self.dns()?;
        let all = state["findings"].as_array().context("findings")?;
        let each = all.iter().map(|one| {
            let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            format!("{} {}", word(&one["id"]), word(&one["subject"]["name"]))
        });
        Ok(each.collect())
    }

    /// The current DNS plan.
    pub fn dns_plan(&self) -> Result<Value> {
        let (code, text) = self.agent("plan dns -o json")?;
        serde_json::from_str(&text).with_context(|| format!("{code}: {text:?}"))
    }

    /// Adds an interface with that address, as NodeLocal DNSCache does: a dummy interface or, if
    /// the kernel has none, one end of an unconnected veth pair.
    pub fn interface(&self, name: &str, address: &str) -> Result<()> {
        self.sh(&format!(
            "ip link add {name} type dummy 2>/dev/null || ip link add {name} type veth peer name nowhere\n\
             ip address add {address} dev {name} && ip link set {name} up && ip address show dev {name}"
        ))
        .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reloads_and_restarts_are_read_from_the_journal() {
        let journal = "1.5 machine systemd[1]: Started systemd-resolved.service - Network Name Resolution.\n\
                       2.5 machine systemd[1]: Reloading systemd-resolved.service - Network Name Resolution...\n\
                       2.6 machine systemd-resolved[9]: Config file reloaded.\n\
                       2.7 machine systemd[1]: Reloaded systemd-resolved.service - Network Name Resolution.\n\
                       3.5 machine systemd[1]: Stopping systemd-resolved.service - Network Name Resolution...\n\
                       3.6 machine systemd[1]: Stopped systemd-resolved.service - Network Name Resolution.\n";
        assert_eq!(interruptions(journal), [(2.5, 2.7), (3.5, f64::INFINITY)]);
    }
}
