//! Makes systemd-resolved reread its configuration. Reloads instead of restarting where possible,
//! because its stub does not answer during a restart.

use std::path::Path;

use virtfleet_agent_core::dns::{ours, resolv};

use super::{
    super::observe::FOLDERS,
    MAX_RESOLV_CONF_BYTES,
    path_state::{PathState, make_folders},
    runtime::{RELOAD_TIMEOUT, RESOLVED, RUNTIME_TIMEOUT, programs_use_resolved},
};
use crate::{CommandError, Commands, Roots, Tool, list, read_text, write_atomic};

/// Present only during one reload that clears the agent's domains. Sorts before [`ours::RESOLVED`],
/// so that a file left by a crash does not change the meaning of that one.
const FORGET_DOMAINS: &str = "/run/systemd/resolved.conf.d/zz-virtfleet-forget.conf";
/// systemd-resolved's nameservers of all links.
const UPLINKS: &str = "/run/systemd/resolve/resolv.conf";

/// Reloads systemd-resolved, or restarts it if a reload is not sufficient. Does not start a stopped
/// service.
pub(super) fn reload(roots: &Roots, commands: &dyn Commands, runs: bool) -> Result<(), CommandError> {
    // Left by a crash.
    PathState::Nothing.put(&roots.root(FORGET_DOMAINS)).ok();
    // systemd-resolved of systemd 252 cannot reload and is always restarted. After five restarts in
    // ten seconds systemd refuses to start it; this resets the counter.
    let forget = Tool::new("systemctl").args(["reset-failed", RESOLVED]);
    // Fails for a unit that systemd has not loaded, i.e. that does not run.
    commands.check(&forget.deadline(RUNTIME_TIMEOUT)).ok();
    if roots.root(ours::RESOLVED).exists() {
        return systemctl(commands, "try-reload-or-restart");
    }
    if runs && programs_use_resolved(roots) && can_reload(commands) && drop_own_domains(roots, commands) {
        return Ok(());
    }
    systemctl(commands, "try-restart")
}

fn systemctl(commands: &dyn Commands, verb: &str) -> Result<(), CommandError> {
    let tool = Tool::new("systemctl")
        .args([verb, RESOLVED])
        .deadline(RELOAD_TIMEOUT);
    commands.check(&tool).map(drop)
}

/// systemd 254 and later.
fn can_reload(commands: &dyn Commands) -> bool {
    let tool = Tool::new("systemctl").args(["show", "--property=CanReload", "--value", RESOLVED]);
    let done = commands.check(&tool.deadline(RUNTIME_TIMEOUT));
    done.is_ok_and(|done| done.stdout.trim() == "yes")
}

/// Reloads after the agent's file was removed. A reload alone keeps domains that no file contains
/// any longer, `~.` among them (systemd 257); a file that resets them clears them. Returns false if
/// only a restart is sufficient: the reload failed or left no nameserver. A restart then interrupts
/// no working resolution, and it restores the built-in nameservers.
fn drop_own_domains(roots: &Roots, commands: &dyn Commands) -> bool {
    let path = roots.root(FORGET_DOMAINS);
    let text = format!("{}\n[Resolve]\nDomains=\n", ours::MARK);
    let written = path.parent().is_some_and(|folder| make_folders(folder).is_ok())
        && write_atomic(&path, text.as_bytes(), 0o644, None).is_ok();
    let reloaded = written && systemctl(commands, "reload").is_ok();
    let removed = PathState::Nothing.put(&path).is_ok();
    let reload_again = || !other_files_set_domains(roots) || systemctl(commands, "reload").is_ok();
    reloaded && removed && reload_again() && has_nameservers(roots)
}

fn has_nameservers(roots: &Roots) -> bool {
    let text = read_text(&roots.root(UPLINKS), MAX_RESOLV_CONF_BYTES).unwrap_or_default();
    !resolv::parse(&text).nameservers.is_empty()
}

/// True if another file sets domains, which were reset with the agent's.
fn other_files_set_domains(roots: &Roots) -> bool {
    let names = |path: String| {
        let text = read_text(&roots.root(path), MAX_RESOLV_CONF_BYTES).unwrap_or_default();
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
