//! `virtfleetctl labels diff`, `why` and `policy test`.

use virtfleet_collector_core::{
    labels::plan::{Action, Reason},
    view::List,
};

use super::{ViewOptions, sheet::Sheet};
use crate::{
    api::{LabelView, action_name},
    ctl::{
        client::ApiResponse,
        fail::Fail,
        table::{Cell, Table, Tone},
    },
};

/// What is done about a key: nothing, while another writer keeps changing it.
fn action(view: &LabelView) -> String {
    let name = action_name(view.decision.action);
    if view.decision.dry_run {
        format!("{name} (dry run)")
    } else if view.contested {
        "contested".to_owned()
    } else {
        name.to_owned()
    }
}

fn tone(view: &LabelView) -> Tone {
    if view.contested {
        return Tone::Warn;
    }
    match (view.decision.action, view.decision.reason) {
        (Action::Keep, _) => Tone::Dim,
        (Action::Report, Reason::Conflict | Reason::AnnotationBroken | Reason::InvalidValue) => Tone::Bad,
        (Action::Report, _) => Tone::Warn,
        (Action::Set | Action::Remove | Action::Restore, _) => Tone::Good,
    }
}

pub(in crate::ctl) fn labels(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    table(answer, options, "All labels have their desired values.")
}

/// Decisions under another policy.
pub(in crate::ctl) fn label_changes(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    table(answer, options, "Nothing would change.")
}

fn table(answer: &ApiResponse, options: &ViewOptions, none: &str) -> Result<String, Fail> {
    let list: List<LabelView> = answer.read()?;
    let mut headers = vec![
        "CLUSTER",
        "NODE",
        "KEY",
        "IS",
        "SHOULD-BE",
        "ACTION",
        "REASON",
        "POLICY",
    ];
    if options.wide {
        headers.extend(["MODE", "SOURCE", "VM", "INFRA-NODE", "ERROR", "MESSAGE"]);
    }
    let mut table = Table::new(&headers);
    for view in &list.items {
        let decision = &view.decision;
        let action = action(view);
        let mut row = vec![
            Cell::new(view.cluster.as_str()),
            Cell::new(view.node.as_str()),
            Cell::new(&decision.key),
            Cell::maybe(decision.current.as_ref()),
            Cell::maybe(decision.desired.as_ref()),
            Cell::toned(action, tone(view)),
            Cell::new(decision.reason.as_str()),
            Cell::maybe(decision.policy.as_ref()),
        ];
        if options.wide {
            row.extend([
                Cell::maybe(decision.mode.map(|mode| format!("{mode:?}"))),
                Cell::maybe(decision.source.as_ref()),
                Cell::new(format!("{}/{}", view.namespace, view.name)),
                Cell::maybe(view.infra_node.as_ref()),
                Cell::maybe(view.error.as_ref()),
                Cell::new(&decision.message),
            ]);
        }
        table.rows.push(row);
    }
    Ok(options.table(&table, none))
}

pub(in crate::ctl) fn label(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let list: List<LabelView> = answer.read()?;
    if list.items.is_empty() {
        let message = "no policy selects that key on that Node and virtfleet has never written it, or no VM is assigned to that \
                     Node: virtfleetctl labels diff --all lists all labels";
        return Err(Fail::NotFound(message.to_owned()));
    }
    let mut text = String::new();
    for view in &list.items {
        let decision = &view.decision;
        let mut sheet = Sheet::new(options);
        sheet.pair("Node", Some(format!("{}/{}", view.cluster, view.node)));
        sheet.pair("Key", Some(&decision.key));
        sheet.pair("Is", Some(decision.current.as_deref().unwrap_or("(none)")));
        sheet.pair("Should be", Some(decision.desired.as_deref().unwrap_or("(none)")));
        sheet.toned("Action", Some(action(view)), tone(view));
        sheet.pair(
            "Reason",
            Some(format!("{}: {}", decision.reason.as_str(), decision.message)),
        );
        sheet.pair("VM", Some(format!("{}/{}", view.namespace, view.name)));
        sheet.pair(
            "Infra node",
            Some(view.infra_node.as_ref().map_or("(unknown)", |name| name.as_str())),
        );
        sheet.pair("Source key", decision.source.as_ref());
        sheet.pair("Policy", decision.policy.as_ref());
        sheet.pair("Mode", decision.mode.map(|mode| format!("{mode:?}")));
        sheet.toned("Not written", view.error.as_ref(), Tone::Bad);
        sheet.toned(
            "Contested",
            view.contested
                .then_some("another writer keeps changing it, so it is not written for a while"),
            Tone::Warn,
        );
        sheet.pair("Dry run", decision.dry_run.then_some("yes"));
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&sheet.finish());
    }
    Ok(text)
}
