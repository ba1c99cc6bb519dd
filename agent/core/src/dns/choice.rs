//! Choice of the nameservers: at least one that answered, and none that collides, lies or loops.

use serde::{Deserialize, Serialize};

use super::{
    answers::{Health, Judged},
    collision::Collision,
    merge::{Merged, Trimmed, limits},
    names,
    resolv::ResolvConf,
};

/// Configuration that may be written. Only [`choose`] creates it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice(ResolvConf);

impl Choice {
    pub fn conf(&self) -> &ResolvConf {
        &self.0
    }
}

/// Chooses from the requested nameservers in their order: first those whose answers make them
/// usable, then those that did not answer or returned errors, since they may recover. Nameservers
/// that collide, lie or loop are never chosen. Nameservers beyond the limit replace excluded ones.
/// `None` if no nameserver is usable.
pub fn choose(merged: &Merged, collisions: &[Collision], judged: &[Judged]) -> Option<Choice> {
    let mut wanted = ResolvConf {
        options: merged.conf.options.clone(),
        ..ResolvConf::default()
    };
    wanted.append(&merged.conf);
    for trimmed in &merged.trimmed {
        if let Trimmed::Nameservers { values } = trimmed {
            for (address, zone) in values.iter().filter_map(|word| names::server(word)) {
                wanted.add_nameserver(address, zone);
            }
        }
    }
    let (mut usable, mut later) = (Vec::new(), Vec::new());
    for nameserver in wanted.nameservers {
        if collisions
            .iter()
            .any(|one| one.nameserver.to_canonical() == nameserver)
        {
            continue;
        }
        let health = judged
            .iter()
            .find(|one| one.nameserver == nameserver)
            .map(|one| one.health);
        match health {
            Some(health) if health.is_usable() => usable.push(nameserver),
            Some(Health::Lying | Health::Looping) => {}
            Some(_) | None => later.push(nameserver),
        }
    }
    if usable.is_empty() {
        return None;
    }
    usable.append(&mut later);
    usable.truncate(limits::NAMESERVERS);
    wanted.zones.retain(|one, _| usable.contains(one));
    Some(Choice(ResolvConf {
        nameservers: usable,
        ..wanted
    }))
}

#[cfg(test)]
mod tests;
