//! Restores DNS settings on a node in use. Links are not reconfigured, because networkd would
//! remove what other programs configured on them. The settings from the restored files are applied
//! at run time.

use virtfleet_agent_core::dns::{ResolvConf, ours, seen::Link};

use super::{MAX_RESOLV_CONF_BYTES, journal::Undo, reload};
use crate::{CommandError, Commands, Roots, read_text};

/// Replaces the reload of networkd after the files are restored. Returns descriptions of failures.
pub(super) fn restore_at_run_time(
    roots: &Roots,
    commands: &dyn Commands,
    links: &[Link],
    journal: &Undo,
) -> Vec<CommandError> {
    let changed = |path: &str| journal.places.iter().any(|place| place.path == path);
    let touched = |link: &&Link| drop_in(link).is_some_and(|path| changed(&path));
    let result = |link: &Link| {
        if is_covered(roots, link) {
            return reload::stop_announcing(commands, &link.name);
        }
        let mut given = ResolvConf::default();
        link.given.iter().for_each(|one| given.append(&one.conf));
        let (nameservers, searches) = (given.shown_nameservers(), given.searches);
        reload::announce(roots, commands, &link.name, &nameservers, &searches)?;
        reload::wait_until_links_have_servers(roots, commands);
        Ok(())
    };
    let touched = links.iter().filter(touched);
    touched.filter_map(|link| result(link).err()).collect()
}

fn drop_in(link: &Link) -> Option<String> {
    ours::networkd_drop_in(link.profile.as_deref()?)
}

/// True if a file of the agent currently overrides the link's own settings.
fn is_covered(roots: &Roots, link: &Link) -> bool {
    let is_ours = |path: String| {
        ours::is_ours(&read_text(&roots.root(path), MAX_RESOLV_CONF_BYTES).unwrap_or_default())
    };
    drop_in(link).is_some_and(is_ours)
}
