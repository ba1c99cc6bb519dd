//! Names, and passes over DNS, in a machine.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::Machine;
use crate::{
    dns::{Order, Outcome, Watched, stage},
    wait::eventually,
};

impl Machine {
    /// Looks a name up as programs do: glibc, with `/etc/resolv.conf`.
    pub fn lookup(&self, name: &str) -> Result<()> {
        self.sh(&format!(
            "RES_OPTIONS='timeout:2 attempts:2' getent ahostsv4 {name}"
        ))
        .map(drop)
        .with_context(|| self.names())
    }

    /// Looks names up all along, made from a pattern of printf, e.g. `w%d.example`. Each twice at most, as programs do: systemd-resolved answers SERVFAIL to what it is
    /// just asking when it reloads.
    pub fn watch(&self, pattern: &str) -> Result<Watched> {
        Watched::start(self.launch("/bin/sh")?, pattern, 2)
    }

    /// How names are resolved, for messages.
    pub fn names(&self) -> String {
        let script = "cat /etc/resolv.conf; resolvectl --no-pager status; tail -n +1 /etc/systemd/resolved.conf.d/* \
                      /etc/systemd/network/*.d/* 2>/dev/null";
        self.try_sh(script)
            .map_or_else(|error| format!("{error:#}"), |(_, text)| text)
    }

    /// One pass by `dns-stage`, which must be among the machine's programs.
    pub fn stage(&self, order: &Order) -> Result<Outcome> {
        let order = Order {
            services: true,
            ..order.clone()
        };
        stage(self.launch("/usr/bin/dns-stage")?, &order)
    }

    /// `virtfleet-agent` with these words, whatever its exit code, and what it printed on standard output.
    pub fn agent(&self, words: &str) -> Result<(i32, String)> {
        self.try_sh(&format!("virtfleet-agent {words} 2>/dev/null"))
    }

    /// What the last pass over DNS has found.
    pub fn dns(&self) -> Result<Value> {
        let (_, text) = self.agent("dns -o json")?;
        serde_json::from_str(&text).with_context(|| format!("{text:?}"))
    }

    /// Waits until the last pass over DNS has found what is looked for.
    pub fn until_dns(&self, deadline: Duration, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        let wait = eventually(deadline, what, || {
            let state = self.dns()?;
            ensure!(holds(&state), "{state:#}");
            Ok(state)
        });
        wait.with_context(|| {
            let units = ["virtfleet-dns", "virtfleet-reconcile", "virtfleet-agent"];
            let journals = units.map(|unit| self.journal(unit).unwrap_or_default());
            format!("{}\n{}", self.names(), journals.join("\n"))
        })
    }

    /// The ids of the findings of that pass, each with its subject.
    pub fn dns_findings(&self) -> Result<Vec<String>> {
        let state = self.dns()?;
        let all = state["findings"].as_array().context("findings")?;
        let each = all.iter().map(|one| {
            let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            format!("{} {}", word(&one["id"]), word(&one["subject"]["name"]))
        });
        Ok(each.collect())
    }

    /// What is planned for DNS now.
    pub fn dns_plan(&self) -> Result<Value> {
        let (code, text) = self.agent("plan dns -o json")?;
        serde_json::from_str(&text).with_context(|| format!("{code}: {text:?}"))
    }

    /// An interface with that address, as NodeLocal DNS makes it: a dummy, or where the kernel has none one end of a cable that leads nowhere.
    pub fn interface(&self, name: &str, address: &str) -> Result<()> {
        self.sh(&format!(
            "ip link add {name} type dummy 2>/dev/null || ip link add {name} type veth peer name nowhere\n\
             ip address add {address} dev {name} && ip link set {name} up && ip address show dev {name}"
        ))
        .map(drop)
    }
}
