//! Puts back what a change has replaced.

use std::fs;

use virtfleet_agent_core::dns::{plan::Service, seen::Link};

use super::{ApplyDnsError, TEMPORARY, Undone, journal::Undo, reload, spared, there::There, wait_for_links};
use crate::{Commands, Roots, Witness, list};

/// Files first, in reverse, then the services in reverse: they take up what is there again. The journal goes last. With `live` links none of them is configured anew.
pub(super) fn undo(
    roots: &Roots,
    commands: &dyn Commands,
    witness: &dyn Witness,
    live: Option<&[Link]>,
) -> Result<Option<Undone>, ApplyDnsError> {
    let Some(mut journal) = Undo::read(roots)? else {
        return Ok(None);
    };
    journal.after_a_boot(roots);
    let mut undone = Undone::default();
    let mut failed = None;
    for place in journal.places.iter().rev() {
        let path = roots.root(&place.path);
        clean(&path);
        // What cannot be looked at is put back, too.
        let now = There::look(&path).ok();
        match now {
            Some(now) if now == place.before => continue,
            Some(now)
                if !(now == There::Nothing || now.is_same(&place.after) || now.is_same(&place.before)) =>
            {
                undone.left.push(place.path.clone());
            }
            _ => match place.before.put(&path) {
                Ok(()) => undone.restored.push(place.path.clone()),
                // The others are put back all the same.
                Err(source) => failed = Some(ApplyDnsError::PutBack { path, source }),
            },
        }
        witness.at(&format!("after undo {}", place.path));
    }
    // Those that told something do so again before resolved forgets ours.
    for told in journal.links.iter().rev().filter(|told| !told.quiet) {
        if let Err(error) = reload::speak(roots, commands, &told.link, &[], &[]) {
            undone.notes.push(error.to_string());
        }
        reload::links_have_servers(roots, commands);
        witness.at(&format!("after undo quiet {}", told.link));
    }
    for service in journal.services.iter().rev() {
        if let (Some(links), Service::Networkd) = (live, service) {
            let errors = spared::instead(roots, commands, links, &journal);
            undone.notes.extend(errors.iter().map(ToString::to_string));
            witness.at(&format!("after undo {service:?} at run time"));
            continue;
        }
        wait_for_links(roots, commands, *service, &undone.reloaded);
        match reload::reload(roots, commands, *service) {
            Ok(()) => {
                match service {
                    Service::NetworkManager => {
                        reload::network_manager_tells(roots, commands);
                        let notes = reload::network_manager_keeps(roots, commands);
                        undone.notes.extend(notes);
                    }
                    Service::Networkd => reload::links_are_configured_anew(roots, commands),
                    Service::Resolved | Service::Resolvconf => {}
                }
                undone.reloaded.push(*service);
            }
            Err(error) => undone.notes.push(error.to_string()),
        }
        witness.at(&format!("after undo reload {service:?}"));
    }
    for told in journal.links.iter().filter(|told| told.quiet) {
        if let Err(error) = reload::quiet(commands, &told.link) {
            undone.notes.push(error.to_string());
        }
        witness.at(&format!("after undo unquiet {}", told.link));
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(Undo::remove(roots).map(|()| Some(undone))?),
    }
}

/// Removes temporary files that a crash left beside it.
fn clean(path: &std::path::Path) {
    let Some(folder) = path.parent() else { return };
    for name in list(folder).unwrap_or_default() {
        if name.starts_with(TEMPORARY) {
            fs::remove_file(folder.join(name)).ok();
        }
    }
}
