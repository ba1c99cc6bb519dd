//! Putting back on a live node: links are not configured anew, as networkd drops what others have there. They are told at run time what the files say again.

use virtfleet_agent_core::dns::{ResolvConf, ours, seen::Link};

use super::{CAP, journal::Undo, reload};
use crate::{CommandError, Commands, Roots, read_text};

/// In the place of a reload of networkd's, once the files are back. What does not go well is returned.
pub(super) fn instead(
    roots: &Roots,
    commands: &dyn Commands,
    links: &[Link],
    journal: &Undo,
) -> Vec<CommandError> {
    let changed = |path: &str| journal.places.iter().any(|place| place.path == path);
    let touched = |link: &&Link| drop_in(link).is_some_and(|path| changed(&path));
    let result = |link: &Link| {
        if is_covered(roots, link) {
            return reload::quiet(commands, &link.name);
        }
        let mut given = ResolvConf::default();
        link.given.iter().for_each(|one| given.append(&one.conf));
        let (nameservers, searches) = (given.shown_nameservers(), given.searches);
        reload::speak(roots, commands, &link.name, &nameservers, &searches)?;
        reload::links_have_servers(roots, commands);
        Ok(())
    };
    let touched = links.iter().filter(touched);
    touched.filter_map(|link| result(link).err()).collect()
}

fn drop_in(link: &Link) -> Option<String> {
    ours::networkd_drop_in(link.profile.as_deref()?)
}

/// Whether a file of ours, as it is now, keeps what the link is given from counting.
fn is_covered(roots: &Roots, link: &Link) -> bool {
    let is_ours = |path: String| ours::is_ours(&read_text(&roots.root(path), CAP).unwrap_or_default());
    drop_in(link).is_some_and(is_ours)
}
