//! What was set, as table, JSON or YAML, and notes.

use std::fmt::Write as _;

use serde_json::{Value, json};
use virtfleet_collector_core::disk_serials::{DiskDecision, NODE_LABELS, SerialDecision};
use virtfleet_wire::layered::to_yaml;

use crate::ctl::{
    table::{Cell, Table, Tone},
    text::count,
};

/// Result of a command.
#[derive(Debug)]
pub(super) struct SerialReport {
    pub(super) dry_run: bool,
    /// VMs that were left out because they are not nodes of a user cluster.
    pub(super) left_out: usize,
    pub(super) vms: Vec<VmSerials>,
}

#[derive(Debug)]
pub(super) struct VmSerials {
    /// Empty if unknown.
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) decisions: Vec<DiskDecision>,
    /// Why nothing was set.
    pub(super) error: Option<String>,
}

struct DiskResult<'a> {
    word: &'static str,
    serial: Option<&'a str>,
    reason: Option<String>,
}

impl VmSerials {
    fn title(&self) -> String {
        if self.namespace.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }

    fn result<'a>(&self, decision: &'a DiskDecision) -> DiskResult<'a> {
        let (word, serial, reason) = match &decision.serial {
            SerialDecision::Set(serial) if self.error.is_some() => ("failed", Some(serial.as_str()), None),
            SerialDecision::Set(serial) => ("set", Some(serial.as_str()), None),
            SerialDecision::Has(serial) => ("unchanged", Some(serial.as_str()), None),
            SerialDecision::Skip(reason) => ("skipped", None, Some(reason.to_string())),
        };
        DiskResult { word, serial, reason }
    }

    /// Number of serials that were set, or would be.
    fn set(&self) -> usize {
        let results = self.decisions.iter().map(|decision| self.result(decision).word);
        results.filter(|word| *word == "set").count()
    }
}

impl SerialReport {
    /// Whether a VM could not be read or changed.
    pub(super) fn has_failed(&self) -> bool {
        self.vms.iter().any(|vm| vm.error.is_some())
    }

    /// The output in a format of `-o`.
    pub(super) fn text(&self, output: &str, colour: bool) -> String {
        match output {
            "json" => format!("{:#}\n", self.json()),
            "yaml" => to_yaml(&self.json()),
            _ => self.table(colour),
        }
    }

    fn json(&self) -> Value {
        let disk = |vm: &VmSerials, decision: &DiskDecision| {
            let result = vm.result(decision);
            json!({
                "index": decision.index, "disk": decision.disk,
                "result": result.word, "serial": result.serial, "reason": result.reason,
            })
        };
        let vm = |vm: &VmSerials| {
            let disks: Vec<Value> = vm.decisions.iter().map(|decision| disk(vm, decision)).collect();
            json!({ "namespace": vm.namespace, "name": vm.name, "error": vm.error, "disks": disks })
        };
        let items: Vec<Value> = self.vms.iter().map(vm).collect();
        json!({ "dryRun": self.dry_run, "leftOut": self.left_out, "items": items })
    }

    fn table(&self, colour: bool) -> String {
        let mut table = Table::new(&["NAMESPACE", "VM", "DISK", "SERIAL", "RESULT"]);
        for vm in &self.vms {
            let mut row = |disk: &str, serial: Option<&str>, result: &str, tone: Tone| {
                table.rows.push(vec![
                    Cell::new(&vm.namespace),
                    Cell::new(&vm.name),
                    Cell::new(disk),
                    Cell::maybe(serial),
                    Cell::toned(result, tone),
                ]);
            };
            if vm.decisions.is_empty() {
                match vm.error {
                    Some(_) => row("", None, "failed", Tone::Bad),
                    None => row("", None, "no disks", Tone::Dim),
                }
            }
            for decision in &vm.decisions {
                let result = vm.result(decision);
                let (text, tone) = match (result.word, result.reason) {
                    ("set", _) if self.dry_run => ("set (dry run)".to_owned(), Tone::Good),
                    ("set", _) => ("set".to_owned(), Tone::Good),
                    ("failed", _) => ("failed".to_owned(), Tone::Bad),
                    (word, Some(reason)) => (format!("{word}: {reason}"), Tone::Dim),
                    (word, None) => (word.to_owned(), Tone::Plain),
                };
                row(&decision.disk, result.serial, &text, tone);
            }
        }
        if table.rows.is_empty() {
            return String::new();
        }
        let mut text = String::new();
        for line in table.lines(true, colour, usize::MAX) {
            writeln!(text, "{line}").ok();
        }
        text
    }

    /// Notes for standard error: errors, VMs that were left out, and what follows.
    pub(super) fn notes(&self) -> Vec<String> {
        let failed = self.vms.iter().filter_map(|vm| {
            let why = vm.error.as_ref()?;
            Some(format!("error: {}: {why}", vm.title()))
        });
        let mut notes: Vec<String> = failed.collect();
        if self.left_out > 0 {
            notes.push(format!(
                "{} without the label {} left out; to include one, name it",
                count(self.left_out, "VM"),
                NODE_LABELS.join(" or ")
            ));
        }
        notes.push(self.summary());
        notes
    }

    fn summary(&self) -> String {
        let counts = self.vms.iter().map(VmSerials::set).filter(|count| *count > 0);
        let counts: Vec<usize> = counts.collect();
        if self.vms.is_empty() {
            return "No VM is selected.".to_owned();
        }
        if counts.is_empty() {
            return "No serial is to be set; nothing was changed.".to_owned();
        }
        let serials = count(counts.iter().sum(), "serial");
        let vms = count(counts.len(), "VM");
        let done = if self.dry_run {
            format!("Dry run: {serials} of {vms} to be set, nothing was changed; --yes sets them.")
        } else {
            format!("{serials} of {vms} set.")
        };
        format!(
            "{done} Guests see them after the next start of their VM; until then a running VM has the condition \
             RestartRequired: drain its Node, then virtctl restart NAME -n NAMESPACE"
        )
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_collector_core::disk_serials::NoSerialReason;

    use super::*;

    fn decision(index: usize, disk: &str, serial: SerialDecision) -> DiskDecision {
        DiskDecision {
            index,
            disk: disk.to_owned(),
            serial,
        }
    }

    fn report(dry_run: bool) -> SerialReport {
        let vm = |name: &str, error: Option<&str>| VmSerials {
            namespace: "blue".to_owned(),
            name: name.to_owned(),
            decisions: vec![
                decision(0, "root", SerialDecision::Has("root".into())),
                decision(1, "cloudinit", SerialDecision::Skip(NoSerialReason::NoVolume)),
                decision(2, "w-1-data", SerialDecision::Set("data".into())),
            ],
            error: error.map(str::to_owned),
        };
        let missing = VmSerials {
            namespace: String::new(),
            name: "w-3".to_owned(),
            decisions: Vec::new(),
            error: Some("there is none".to_owned()),
        };
        SerialReport {
            dry_run,
            left_out: 1,
            vms: vec![vm("w-1", None), vm("w-2", Some("denied")), missing],
        }
    }

    #[test]
    fn failures_are_rows_and_notes() {
        let report = report(false);
        assert!(report.has_failed());
        insta::assert_snapshot!("disks_set_serials", report.text("table", false));
        assert_eq!(
            report.notes(),
            [
                "error: blue/w-2: denied",
                "error: w-3: there is none",
                "1 VM without the label cluster.x-k8s.io/cluster-name or mcm.gardener.cloud/cluster left out; to include \
                 one, name it",
                "1 serial of 1 VM set. Guests see them after the next start of their VM; until then a running VM has the \
                 condition RestartRequired: drain its Node, then virtctl restart NAME -n NAMESPACE",
            ]
        );
        let disks = &report.json()["items"][1]["disks"];
        assert_eq!(
            *disks,
            json!([
                { "index": 0, "disk": "root", "result": "unchanged", "serial": "root", "reason": null },
                { "index": 1, "disk": "cloudinit", "result": "skipped", "serial": null,
                  "reason": "the VM has no volume with this name" },
                { "index": 2, "disk": "w-1-data", "result": "failed", "serial": "data", "reason": null },
            ])
        );
    }

    #[test]
    fn a_dry_run_and_an_empty_result_say_that_nothing_changed() {
        let mut dry = report(true);
        dry.vms.truncate(1);
        assert!(!dry.has_failed() && dry.text("table", false).contains("set (dry run)"));
        let note = "Dry run: 1 serial of 1 VM to be set, nothing was changed; --yes sets them. Guests";
        assert!(dry.notes()[1].starts_with(note));
        dry.vms[0].decisions.pop();
        assert_eq!(dry.notes()[1], "No serial is to be set; nothing was changed.");
        dry.vms.clear();
        assert_eq!(
            (dry.text("table", false).as_str(), dry.summary().as_str()),
            ("", "No VM is selected.")
        );
    }
}
