//! Has systemd-resolved read its configuration, without a restart where it can reload: while it restarts, nothing answers at its stub.

use std::path::Path;

use virtfleet_agent_core::dns::{ours, resolv};

use super::{
    super::observe::FOLDERS,
    CAP,
    reload::{FLUSH, RELOAD, RESOLVED, programs_use_resolved},
    there::{There, make_folders},
};
use crate::{CommandError, Commands, Roots, Tool, list, read_text, write_atomic};

/// Present only while resolved reloads once to forget our domains. Sorts before [`ours::RESOLVED`], so that one left by a crash never changes what that says.
const FORGET_DOMAINS: &str = "/run/systemd/resolved.conf.d/zz-virtfleet-forget.conf";
/// The nameservers that resolved has, of whatever link.
const UPLINKS: &str = "/run/systemd/resolve/resolv.conf";

/// Reloads it, or restarts it where a reload would not do. One that does not run is not started.
pub(super) fn reload(roots: &Roots, commands: &dyn Commands, runs: bool) -> Result<(), CommandError> {
    // Left by a crash.
    There::Nothing.put(&roots.root(FORGET_DOMAINS)).ok();
    // That of systemd 252 cannot reload and is always restarted; after five times in ten seconds systemd leaves it dead. This forgets how often.
    let forget = Tool::new("systemctl").args(["reset-failed", RESOLVED]);
    // Fails for a unit that systemd has not loaded, which does not run.
    commands.check(&forget.deadline(FLUSH)).ok();
    if roots.root(ours::RESOLVED).exists() {
        return systemctl(commands, "try-reload-or-restart");
    }
    if runs && programs_use_resolved(roots) && can_reload(commands) && forgets_ours(roots, commands) {
        return Ok(());
    }
    systemctl(commands, "try-restart")
}

fn systemctl(commands: &dyn Commands, verb: &str) -> Result<(), CommandError> {
    let tool = Tool::new("systemctl").args([verb, RESOLVED]).deadline(RELOAD);
    commands.check(&tool).map(drop)
}

/// From systemd 254 on.
fn can_reload(commands: &dyn Commands) -> bool {
    let tool = Tool::new("systemctl").args(["show", "--property=CanReload", "--value", RESOLVED]);
    let done = commands.check(&tool.deadline(FLUSH));
    done.is_ok_and(|done| done.stdout.trim() == "yes")
}

/// Reloads without a file of ours. A reload alone keeps domains that no file names any more, `~.` among them (systemd 257), and forgets them where a file resets them.
/// False where only a restart will do: the reload failed, or it left no nameserver. Then nothing answers that a restart could interrupt, and only a restart brings back
/// the nameservers that resolved was built with.
fn forgets_ours(roots: &Roots, commands: &dyn Commands) -> bool {
    let path = roots.root(FORGET_DOMAINS);
    let text = format!("{}\n[Resolve]\nDomains=\n", ours::MARK);
    let written = path.parent().is_some_and(|folder| make_folders(folder).is_ok())
        && write_atomic(&path, text.as_bytes(), 0o644, None).is_ok();
    let reloaded = written && systemctl(commands, "reload").is_ok();
    let removed = There::Nothing.put(&path).is_ok();
    let again = || !others_name_domains(roots) || systemctl(commands, "reload").is_ok();
    reloaded && removed && again() && has_nameservers(roots)
}

fn has_nameservers(roots: &Roots) -> bool {
    let text = read_text(&roots.root(UPLINKS), CAP).unwrap_or_default();
    !resolv::parse(&text).nameservers.is_empty()
}

/// Whether another file names domains, which were reset with ours.
fn others_name_domains(roots: &Roots) -> bool {
    let names = |path: String| {
        let text = read_text(&roots.root(path), CAP).unwrap_or_default();
        let mut pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs.any(|(key, value)| key.trim() == "Domains" && !value.trim().is_empty())
    };
    let is_conf = |name: &str| Path::new(name).extension().is_some_and(|end| end == "conf");
    FOLDERS.iter().any(|folder| {
        let drop_ins = format!("{folder}/resolved.conf.d");
        let files = list(&roots.root(&drop_ins)).unwrap_or_default();
        names(format!("{folder}/resolved.conf"))
            || files
                .iter()
                .any(|name| is_conf(name) && names(format!("{drop_ins}/{name}")))
    })
}
