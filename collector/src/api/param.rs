//! Query parameters as values: what each may hold, and the words that the OpenAPI document and the errors use.

use std::time::Duration;

use serde_json::{Value, json};

/// One query parameter.
#[derive(Debug)]
pub(super) struct Param {
    /// As it stands in the query.
    pub(super) name: &'static str,
    /// What it does, in one sentence.
    pub(super) about: &'static str,
    /// What it may hold.
    pub(super) rule: Rule,
}

/// What a parameter may hold.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rule {
    /// Any text; several (`a,b`, or given twice) mean "one of these".
    Names,
    /// These words; several mean "one of these".
    Words(&'static [&'static str]),
    /// Any text, once.
    Text,
    /// A whole number within these bounds.
    Number(u64, u64),
    /// A length of time of at most so many seconds.
    Span(u64),
}

impl Param {
    /// Whether several values may be given.
    pub(super) fn takes_many(&self) -> bool {
        matches!(self.rule, Rule::Names | Rule::Words(_))
    }

    /// Its Parameter Object, OpenAPI 3.1.1, section 4.8.12.
    pub(super) fn openapi(&self) -> Value {
        let schema = match self.rule {
            Rule::Names => json!({ "type": "array", "items": { "type": "string" } }),
            Rule::Words(words) => json!({ "type": "array", "items": { "type": "string", "enum": words } }),
            Rule::Text => json!({ "type": "string" }),
            Rule::Number(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
            Rule::Span(_) => json!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h)$" }),
        };
        let mut object = json!({
            "name": self.name, "in": "query", "description": self.about, "required": false, "schema": schema,
        });
        if self.takes_many() {
            object["style"] = "form".into();
            object["explode"] = true.into();
        }
        object
    }
}

const fn names(name: &'static str, about: &'static str) -> Param {
    Param {
        name,
        about,
        rule: Rule::Names,
    }
}

/// Selects VMs.
pub(super) const VM_FILTERS: &[Param] = &[
    names("namespace", "Only VMs of these namespaces."),
    names("cluster", "Only VMs that serve these user clusters."),
    names("node", "Only VMs on these infra nodes."),
    names("zone", "Only VMs on infra nodes of these zones."),
    names("region", "Only VMs on infra nodes of these regions."),
    Param {
        name: "state",
        about: "Only VMs in these states.",
        rule: Rule::Words(&[
            "stopped",
            "starting",
            "running",
            "migrating",
            "paused",
            "stopping",
            "succeeded",
            "failed",
            "unknown",
        ]),
    },
    Param {
        name: "agent",
        about: "Only VMs whose agent is so.",
        rule: Rule::Words(&["up", "silent", "waiting", "off", "disabled"]),
    },
    Param {
        name: "q",
        about: "Only VMs whose name holds this text; upper and lower case are the same.",
        rule: Rule::Text,
    },
];

/// Selects hosts.
pub(super) const HOST_FILTERS: &[Param] = &[
    names("zone", "Only hosts of these zones."),
    names("region", "Only hosts of these regions."),
    Param {
        name: "ready",
        about: "Only hosts whose Ready condition is so; `unknown` when the inventory does not say.",
        rule: Rule::Words(&["true", "false", "unknown"]),
    },
];

/// Selects findings.
pub(super) const FINDING_FILTERS: &[Param] = &[
    Param {
        name: "severity",
        about: "Only findings of these severities.",
        rule: Rule::Words(&["info", "warning", "critical"]),
    },
    Param {
        name: "scope",
        about: "`inventory`: findings about the inventory itself; `vm`: findings about VMs.",
        rule: Rule::Words(&["inventory", "vm"]),
    },
    names("namespace", "Only findings about VMs of these namespaces."),
    names(
        "cluster",
        "Only findings about VMs that serve these user clusters.",
    ),
];

/// Selects VMs whose Nodes carry labels.
pub(super) const LABEL_OWNERS: &[Param] = &[
    names("namespace", "Only Nodes of VMs of these namespaces."),
    names("cluster", "Only Nodes of these user clusters."),
    names("node", "Only Nodes of these names."),
];

/// Selects labels.
pub(super) const LABEL_FILTERS: &[Param] = &[
    names("key", "Only these keys."),
    Param {
        name: "action",
        about: "Only keys about which this is done; `report`: nothing is done, and it differs.",
        rule: Rule::Words(&["keep", "set", "remove", "restore", "report"]),
    },
    names("reason", "Only for these reasons, e.g. `Unsafe`."),
];

/// Cuts a list into pages.
pub(super) const PAGING: &[Param] = &[
    Param {
        name: "limit",
        about: "At most so many items; `continue` in the answer asks for the rest. Left out: all of them.",
        rule: Rule::Number(1, 100_000),
    },
    Param {
        name: "continue",
        about: "The `continue` of the page before this one.",
        rule: Rule::Text,
    },
];

/// The longest that a long poll may wait.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// Waits for a change.
pub(super) const WAIT: &[Param] = &[
    Param {
        name: "wait",
        about: "Answer when the fleet's revision differs from this one, or when `timeout` has passed.",
        rule: Rule::Number(0, u64::MAX),
    },
    Param {
        name: "timeout",
        about: "How long `wait` may take, e.g. `30s` (that is also the default); at most 5m.",
        rule: Rule::Span(LONGEST_WAIT.as_secs()),
    },
];

#[cfg(test)]
mod tests {
    use virtfleet_collector_core::view::{AgentStatus, VmState};

    use super::*;

    fn words(name: &str) -> &'static [&'static str] {
        let param = VM_FILTERS.iter().find(|param| param.name == name).unwrap();
        match param.rule {
            Rule::Words(words) => words,
            _ => panic!("{param:?} has no words"),
        }
    }

    #[test]
    fn every_state_can_be_asked_for() {
        let states: Vec<_> = VmState::ALL.iter().map(|state| state.as_str()).collect();
        assert_eq!(words("state"), states);
        let statuses = [
            AgentStatus::Up,
            AgentStatus::Silent,
            AgentStatus::Waiting,
            AgentStatus::Off,
            AgentStatus::Disabled,
        ];
        assert_eq!(words("agent"), statuses.map(AgentStatus::as_str));
    }
}
