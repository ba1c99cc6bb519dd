//! Definitions of query parameters: allowed values, and the texts for the OpenAPI document and for
//! errors.

use std::time::Duration;

use serde_json::{Value, json};

/// One query parameter.
#[derive(Debug)]
pub(super) struct Param {
    pub(super) name: &'static str,
    /// Description, one sentence.
    pub(super) about: &'static str,
    /// Allowed values.
    pub(super) rule: ParamRule,
}

/// Allowed values of a parameter.
#[derive(Debug, Clone, Copy)]
pub(super) enum ParamRule {
    /// Any text; several values (`a,b`, or given twice) mean "one of these".
    AnyOf,
    /// One of these values; several mean "one of these".
    OneOf(&'static [&'static str]),
    /// Any text, once.
    Text,
    /// A whole number within these bounds.
    Number(u64, u64),
    /// A duration of at most this many seconds.
    Span(u64),
}

impl Param {
    /// Whether several values may be given.
    pub(super) fn allows_many(&self) -> bool {
        matches!(self.rule, ParamRule::AnyOf | ParamRule::OneOf(_))
    }

    /// Its Parameter Object, OpenAPI 3.1.1, section 4.8.12.
    pub(super) fn openapi(&self) -> Value {
        let schema = match self.rule {
            ParamRule::AnyOf => json!({ "type": "array", "items": { "type": "string" } }),
            ParamRule::OneOf(words) => {
                json!({ "type": "array", "items": { "type": "string", "enum": words } })
            }
            ParamRule::Text => json!({ "type": "string" }),
            ParamRule::Number(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
            ParamRule::Span(_) => json!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h)$" }),
        };
        let mut object = json!({
            "name": self.name, "in": "query", "description": self.about, "required": false, "schema": schema,
        });
        if self.allows_many() {
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
        rule: ParamRule::AnyOf,
    }
}

const VM_STATE: Param = Param {
    name: "state",
    about: "Only VMs in these states.",
    rule: ParamRule::OneOf(&[
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
};

const VM_HEALTH: Param = Param {
    name: "health",
    about: "Only VMs with these verdicts.",
    rule: ParamRule::OneOf(&["healthy", "unknown", "degraded", "critical"]),
};

const VM_SELECTOR: Param = Param {
    name: "selector",
    about: "Only VMs whose labels match this selector, in the syntax of kubectl -l.",
    rule: ParamRule::Text,
};

const SINCE: Param = Param {
    name: "sinceMs",
    about: "Only what happened at this time or later, in milliseconds since 1970.",
    rule: ParamRule::Number(0, u64::MAX),
};

/// Selects events by their VMs, kind and time.
pub(super) const EVENT_FILTERS: &[Param] = &[
    names("namespace", "Only VMs of these namespaces."),
    names("name", "Only VMs of these names."),
    names("cluster", "Only VMs that serve these user clusters."),
    names("node", "Only VMs on these infra nodes."),
    names("zone", "Only VMs on infra nodes of these zones."),
    VM_STATE,
    VM_HEALTH,
    VM_SELECTOR,
    Param {
        name: "kind",
        about: "Only events of these kinds.",
        rule: ParamRule::OneOf(&[
            "verdict",
            "state",
            "migration",
            "placement",
            "pause",
            "clock",
            "restart",
            "address",
            "finding",
        ]),
    },
    SINCE,
];

/// Selects migrations by their VMs, hosts, phase and time.
pub(super) const MIGRATION_FILTERS: &[Param] = &[
    names("namespace", "Only VMs of these namespaces."),
    names("name", "Only VMs of these names."),
    names("cluster", "Only VMs that serve these user clusters."),
    names("host", "Only migrations from or to these infra nodes."),
    names("zone", "Only VMs on infra nodes of these zones."),
    VM_STATE,
    VM_HEALTH,
    VM_SELECTOR,
    Param {
        name: "phase",
        about: "Only migrations in these phases.",
        rule: ParamRule::OneOf(&["pending", "running", "succeeded", "failed"]),
    },
    SINCE,
];

pub(super) const VM_FILTERS: &[Param] = &[
    names("namespace", "Only VMs of these namespaces."),
    names("cluster", "Only VMs that serve these user clusters."),
    names("node", "Only VMs on these infra nodes."),
    names("zone", "Only VMs on infra nodes of these zones."),
    names("region", "Only VMs on infra nodes of these regions."),
    VM_STATE,
    VM_HEALTH,
    VM_SELECTOR,
    Param {
        name: "agent",
        about: "Only VMs whose agents have these states.",
        rule: ParamRule::OneOf(&["up", "silent", "waiting", "off", "disabled", "unmanaged"]),
    },
    Param {
        name: "q",
        about: "Only VMs whose names contain this text, ignoring case.",
        rule: ParamRule::Text,
    },
];

/// Selects the pages of VMs, beside [`VM_FILTERS`].
pub(super) const TARGET_FILTERS: &[Param] = &[Param {
    name: "error",
    about: "Only VMs whose last page had these errors; `none`: no error.",
    rule: ParamRule::OneOf(&["none", "pullFailed", "malformed", "overLimit"]),
}];

pub(super) const QUEUE_FILTERS: &[Param] = &[
    names("cluster", "Only the streams of these user clusters."),
    Param {
        name: "state",
        about: "Only streams in these states.",
        rule: ParamRule::OneOf(&[
            "live",
            "catching-up",
            "retrying",
            "refused",
            "stopped",
            "not-configured",
        ]),
    },
];

/// Selects recorded keys.
pub(super) const ENROLMENT_FILTERS: &[Param] = &[
    names("namespace", "Only VMs of these namespaces."),
    Param {
        name: "state",
        about: "Only VMs in these states.",
        rule: ParamRule::OneOf(&["enrolled", "revoked", "reset"]),
    },
];

/// Selects join tokens.
pub(super) const TOKEN_FILTERS: &[Param] = &[names("cluster", "Only tokens of these user clusters.")];

pub(super) const HOST_FILTERS: &[Param] = &[
    names("zone", "Only hosts of these zones."),
    names("region", "Only hosts of these regions."),
    Param {
        name: "ready",
        about: "Only hosts with this status of the condition Ready; `unknown` if it is missing.",
        rule: ParamRule::OneOf(&["true", "false", "unknown"]),
    },
];

/// Selects the first VMs or hosts in an order.
pub(super) const TOP_FILTERS: &[Param] = &[
    Param {
        name: "by",
        about: "The order; `cpu` without it.",
        rule: ParamRule::OneOf(&["cpu", "steal", "memory", "io"]),
    },
    Param {
        name: "limit",
        about: "Maximum number of items; 20 without it.",
        rule: ParamRule::Number(1, 10_000),
    },
];

pub(super) const FINDING_FILTERS: &[Param] = &[
    Param {
        name: "severity",
        about: "Only findings of these severities.",
        rule: ParamRule::OneOf(&["info", "warning", "critical"]),
    },
    Param {
        name: "scope",
        about: "`inventory`: findings about the inventory itself; `vm`: findings about VMs.",
        rule: ParamRule::OneOf(&["inventory", "vm"]),
    },
    names("namespace", "Only findings about VMs of these namespaces."),
    names(
        "cluster",
        "Only findings about VMs that serve these user clusters.",
    ),
    names("node", "Only findings about VMs on these infra nodes."),
    names("zone", "Only findings about VMs on infra nodes of these zones."),
    VM_STATE,
    VM_HEALTH,
    VM_SELECTOR,
];

/// Selects Nodes with labels by their VMs.
pub(super) const LABEL_OWNERS: &[Param] = &[
    names("namespace", "Only Nodes of VMs of these namespaces."),
    names("cluster", "Only Nodes of these user clusters."),
    names("node", "Only Nodes of these names."),
];

pub(super) const LABEL_FILTERS: &[Param] = &[
    names("key", "Only these keys."),
    Param {
        name: "action",
        about: "Only keys with these actions; `report`: the value differs, but nothing is written.",
        rule: ParamRule::OneOf(&["keep", "set", "remove", "restore", "report"]),
    },
    names("reason", "Only for these reasons, e.g. `Unsafe`."),
];

/// Cuts a list into pages.
pub(super) const PAGING: &[Param] = &[
    Param {
        name: "limit",
        about: "Maximum number of items; pass `continue` of the response to get the rest. Absent: all items.",
        rule: ParamRule::Number(1, 100_000),
    },
    Param {
        name: "continue",
        about: "The `continue` of the previous page.",
        rule: ParamRule::Text,
    },
];

/// Maximum duration of a long poll.
pub(crate) const MAX_WAIT: Duration = Duration::from_mins(5);

pub(super) const HISTORY_RANGE: &[Param] = &[Param {
    name: "range",
    about: "How far back: `6h`, `24h` (the default) or `7d`.",
    rule: ParamRule::Text,
}];

pub(super) const WAIT: &[Param] = &[
    Param {
        name: "wait",
        about: "Wait until the fleet's revision differs from this one, or until `timeout`.",
        rule: ParamRule::Number(0, u64::MAX),
    },
    Param {
        name: "timeout",
        about: "Maximum duration of `wait`, e.g. `30s` (the default); at most 5m.",
        rule: ParamRule::Span(MAX_WAIT.as_secs()),
    },
];

#[cfg(test)]
mod tests {
    use virtfleet_collector_core::{
        health::HealthVerdict,
        mla::status::StreamState,
        view::{AgentStatus, VmState},
    };

    use super::*;

    fn words(name: &str) -> &'static [&'static str] {
        words_of(VM_FILTERS, name)
    }

    fn words_of(params: &'static [Param], name: &str) -> &'static [&'static str] {
        let param = params.iter().find(|param| param.name == name).unwrap();
        match param.rule {
            ParamRule::OneOf(words) => words,
            _ => panic!("{param:?} has no fixed values"),
        }
    }

    #[test]
    fn every_state_can_be_selected() {
        let states: Vec<_> = VmState::ALL.iter().map(|state| state.as_str()).collect();
        assert_eq!(words("state"), states);
        let verdicts = HealthVerdict::ALL.iter().rev().map(|verdict| verdict.label());
        assert_eq!(words("health"), verdicts.collect::<Vec<_>>());
        let statuses = [
            AgentStatus::Up,
            AgentStatus::Silent,
            AgentStatus::Waiting,
            AgentStatus::Off,
            AgentStatus::Disabled,
            AgentStatus::Unmanaged,
        ];
        assert_eq!(words("agent"), statuses.map(AgentStatus::as_str));
        let streams: Vec<_> = StreamState::ALL.iter().map(|state| state.as_str()).collect();
        assert_eq!(words_of(QUEUE_FILTERS, "state"), streams);
    }
}
