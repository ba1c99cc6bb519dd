//! DNS as text: tables of nameservers, and steps with their changes of files.

use std::net::IpAddr;

use virtfleet_agent_core::dns::{
    Plan,
    answers::Judged,
    collision::Collision,
    effective::effective,
    plan::{DnsStep, Refusal},
    resolv::ResolvConf,
    seen::Link,
    state::DnsState,
};
use virtfleet_agent_provision::dns::Observed;

use super::rows::{Cell, push, rows};

/// A plan: nameservers, steps, refusals, notes.
pub(super) fn text(observed: &Observed) -> String {
    let Observed { seen, plan } = observed;
    let mut text = String::new();
    push(
        &mut text,
        &format!("dns: {} ({})", seen.owner.name(), seen.owner_because),
    );
    let view = View {
        effective: &effective(seen),
        asked: &plan.asked,
        judged: &plan.judged,
        collisions: &plan.collisions,
        links: &seen.links,
    };
    text.push_str(&view.nameservers());
    for step in &plan.steps {
        step_text(&mut text, observed, step);
    }
    refused(&mut text, &plan.refusals);
    notes(&mut text, plan);
    if plan.steps.is_empty() && plan.refusals.is_empty() {
        push(&mut text, "  nothing to do");
    }
    text
}

pub(super) fn status_text(state: &DnsState) -> String {
    let mut text = String::new();
    let manage = match state.manage {
        virtfleet_wire::settings::DnsManage::Off => "off",
        virtfleet_wire::settings::DnsManage::ReportOnly => "report-only",
        virtfleet_wire::settings::DnsManage::Auto => "auto",
    };
    let line = format!(
        "dns: {}, manage {manage}, by {} ({})",
        state.standing.word(),
        state.owner.name(),
        state.owner_because
    );
    push(&mut text, &line);
    let view = View {
        effective: &state.effective,
        asked: &state.asked,
        judged: &state.judged,
        collisions: &state.collisions,
        links: &state.links,
    };
    text.push_str(&view.nameservers());
    for (word, values) in [
        ("search", state.effective.searches.join(" ")),
        ("options", state.effective.option_words().join(" ")),
    ] {
        if !values.is_empty() {
            push(&mut text, &format!("  {word} {values}"));
        }
    }
    if let Some(error) = &state.error {
        push(&mut text, &format!("  error: {error}"));
    }
    refused(&mut text, &state.refusals);
    text
}

struct View<'a> {
    effective: &'a ResolvConf,
    asked: &'a ResolvConf,
    judged: &'a [Judged],
    collisions: &'a [Collision],
    links: &'a [Link],
}

impl View<'_> {
    /// A table: nameservers in use first, then requested ones, then others that were probed.
    fn nameservers(&self) -> String {
        let mut all: Vec<IpAddr> = self.effective.nameservers.clone();
        let asked = self.asked.nameservers.iter();
        for one in asked.chain(self.judged.iter().map(|judged| &judged.nameserver)) {
            if !all.contains(one) {
                all.push(*one);
            }
        }
        if all.is_empty() {
            return "  no nameserver\n".to_owned();
        }
        let head = ["NAMESERVER", "GIVEN BY", "IN USE", "HEALTH", "LATENCY", "WHY"];
        let head: Vec<Cell> = head.map(Cell::from).into();
        let each = all.iter().map(|one| self.row(*one).map(Cell::from).into());
        rows(2, &std::iter::once(head).chain(each).collect::<Vec<_>>())
    }

    fn row(&self, one: IpAddr) -> [String; 6] {
        let judged = self.judged.iter().find(|judged| judged.nameserver == one);
        let collision = self.collisions.iter().find(|other| other.nameserver == one);
        let because = judged.map(|judged| judged.because.clone());
        let why = collision.map(|one| {
            let when = if one.now { "collides" } else { "will collide" };
            format!("{when}: {} ({})", one.kind.word(), one.with)
        });
        [
            self.effective.shown(one),
            given_by(self.links, one).unwrap_or_else(|| "-".to_owned()),
            if self.effective.nameservers.contains(&one) {
                "yes"
            } else {
                "no"
            }
            .to_owned(),
            judged.map_or("-", |judged| judged.health.word()).to_owned(),
            judged.and_then(|judged| judged.micros).map_or_else(
                || "-".to_owned(),
                |micros| format!("{} ms", micros.div_ceil(1000)),
            ),
            why.or(because).unwrap_or_default(),
        ]
    }
}

/// The file that names a link's nameserver.
fn given_by(links: &[Link], nameserver: IpAddr) -> Option<String> {
    links.iter().find_map(|link| {
        let given = link
            .given
            .iter()
            .find(|given| given.conf.nameservers.contains(&nameserver))?;
        Some(format!("{} on {}", given.path, link.name))
    })
}

fn refused(text: &mut String, refusals: &[Refusal]) {
    for refusal in refusals {
        push(text, &format!("  refused: {}", refusal.message));
        for (name, fact) in &refusal.facts {
            push(text, &format!("    {name}: {fact}"));
        }
        push(text, &format!("    next: {}", refusal.remedy));
    }
}

fn notes(text: &mut String, plan: &Plan) {
    for note in &plan.notes {
        push(text, &format!("  note: {note}"));
    }
}

fn step_text(text: &mut String, observed: &Observed, step: &DnsStep) {
    let there = |path: &str| {
        let known = observed.seen.files.get(path).map(String::as_str);
        known.unwrap_or_default().to_owned()
    };
    let resolv_conf = observed.seen.resolv_conf.text.clone().unwrap_or_default();
    let (line, before, after) = match step {
        DnsStep::WriteFile { path, text, mode } => (
            format!("write {path} (mode {mode:04o})"),
            there(path),
            text.clone(),
        ),
        DnsStep::RemoveFile { path } => (format!("remove {path}"), there(path), String::new()),
        DnsStep::ReplaceResolvConf { text } => (
            "take over /etc/resolv.conf; a copy of the file is kept".to_owned(),
            resolv_conf,
            text.clone(),
        ),
        DnsStep::RestoreResolvConf { original } => match &original.link {
            Some(link) => (
                format!("restore /etc/resolv.conf: a link to {link}"),
                resolv_conf,
                String::new(),
            ),
            None => (
                "restore /etc/resolv.conf".to_owned(),
                resolv_conf,
                original.text.clone().unwrap_or_default(),
            ),
        },
        DnsStep::Reload { service } => (format!("reload {service:?}"), String::new(), String::new()),
        DnsStep::Revert { link } => (
            format!("revert the run-time DNS settings of {link} in systemd-resolved"),
            String::new(),
            String::new(),
        ),
        DnsStep::SuppressLink { link } => (
            format!(
                "stop networkd from passing the DNS servers of {link} to systemd-resolved, without reconfiguring the link"
            ),
            String::new(),
            String::new(),
        ),
        DnsStep::RestoreLink {
            link, nameservers, ..
        } => (
            format!(
                "make networkd pass the DNS servers of {link} to systemd-resolved again: {}",
                nameservers.join(" ")
            ),
            String::new(),
            String::new(),
        ),
        DnsStep::Flush => ("flush caches".to_owned(), String::new(), String::new()),
    };
    push(text, &format!("  {line}"));
    for line in diff(&before, &after) {
        push(text, &format!("    {line}"));
    }
}

/// The lines that are removed (`-`) and added (`+`), and the unchanged ones between them, by the
/// longest common subsequence. The files are a few lines long.
fn diff(before: &str, after: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let mut common = vec![vec![0u32; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = if old[i] == new[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            lines.push(format!("  {}", old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && common[i + 1][j] >= common[i][j + 1]) {
            lines.push(format!("- {}", old[i]));
            i += 1;
        } else {
            lines.push(format!("+ {}", new[j]));
            j += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_core::dns::{Seen, plan::RefusalKind};

    use super::*;

    #[test]
    fn a_diff_shows_removed_and_added_lines() {
        assert_eq!(diff("a\nb\nc\n", "a\nx\nc\n"), ["  a", "- b", "+ x", "  c"]);
        assert_eq!(diff("", "a\n"), ["+ a"]);
        assert_eq!(diff("a\n", ""), ["- a"]);
    }

    #[test]
    fn a_plan_names_changes_and_refusals() {
        let mut observed = Observed {
            seen: Seen::default(),
            plan: Plan {
                steps: vec![DnsStep::ReplaceResolvConf {
                    text: "nameserver 192.0.2.1\n".into(),
                }],
                ..Plan::default()
            },
        };
        observed.seen.resolv_conf.text = Some("nameserver 169.254.20.10\n".into());
        let shown = text(&observed);
        assert!(
            shown.contains("    - nameserver 169.254.20.10\n    + nameserver 192.0.2.1\n"),
            "{shown}"
        );
        observed.plan.steps.clear();
        assert!(text(&observed).ends_with("nothing to do\n"));
        observed.plan.refusals = vec![Refusal {
            kind: RefusalKind::NothingVerified,
            message: "no\u{1b}[31m".into(),
            remedy: "this".into(),
            facts: Vec::new(),
        }];
        let shown = text(&observed);
        assert!(shown.contains("refused: no [31m\n    next: this\n"), "{shown}");
    }
}
