//! The hosts, clusters and guests of a fleet, as a value derived from the options alone.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Result, ensure};
use virtfleet_wire::{ids::Uuid, settings::AGENT_PORT};

use super::{fault::Fault, rng::Random};

/// Options of a plan.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of guests.
    pub guests: usize,
    /// Number of infra nodes.
    pub hosts: usize,
    /// Number of zones of the infra nodes.
    pub zones: usize,
    /// Number of user clusters that share the guests.
    pub clusters: usize,
    /// Seed of everything else.
    pub seed: u64,
    /// Port on which every guest listens, each on a separate address.
    pub port: u16,
    /// Number of guests with each fault.
    pub faults: Vec<(Fault, usize)>,
    /// Metrics page that the first guest without fault serves in place of a simulated one.
    pub page: Option<&'static str>,
    /// Network interfaces of pods on each guest: each is another 16 samples on its page.
    pub pods: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            guests: 12,
            hosts: 6,
            zones: 3,
            clusters: 2,
            seed: 1,
            port: AGENT_PORT,
            faults: Vec::new(),
            page: None,
            pods: 0,
        }
    }
}

/// An infra node.
#[derive(Debug, Clone)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its zone.
    pub zone: String,
    /// Its rack, which appears only in a label.
    pub rack: String,
    /// Its UID.
    pub uid: String,
}

/// A VM with its simulated agent.
#[derive(Debug, Clone)]
pub struct Guest {
    /// Its number, from 0.
    pub index: usize,
    /// Its user cluster; its namespace in the infra cluster has the same name.
    pub cluster: String,
    /// Its name, which is also that of its Node in the user cluster.
    pub name: String,
    /// The UID of its VMI.
    pub uid: String,
    /// The UID of its Node in the user cluster.
    pub node_uid: String,
    /// Its firmware UUID.
    pub firmware: Uuid,
    /// The MAC address of its first interface.
    pub mac: String,
    /// Where its agent listens.
    pub address: SocketAddr,
    /// Index in [`Plan::hosts`] of the infra node on which it runs.
    pub host: usize,
    /// Seed of its model.
    pub seed: u64,
    /// Its fault, if any.
    pub fault: Option<Fault>,
    /// Metrics page that it serves in place of a simulated one.
    pub page: Option<&'static str>,
    /// Network interfaces of its pods.
    pub pods: usize,
}

/// The fleet.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The one region.
    pub region: String,
    /// Infra nodes.
    pub hosts: Vec<Host>,
    /// User clusters.
    pub clusters: Vec<String>,
    /// Guests.
    pub guests: Vec<Guest>,
}

/// Names of one or two letters.
const MAX_CLUSTERS: usize = 26 + 26 * 26;
/// Guests' addresses begin after this one: far from `127.0.0.1` and from resolvers' `127.0.0.53`.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([127, 64, 0, 0]);

impl Plan {
    /// The fleet described by `options`.
    ///
    /// # Errors
    /// No host, zone or cluster, more zones than hosts, more guests than addresses, more faults
    /// than guests.
    pub fn new(options: &Options) -> Result<Self> {
        let faulty: usize = options.faults.iter().map(|(_, count)| count).sum();
        ensure!(
            options.hosts >= 1 && options.zones >= 1,
            "a fleet has at least one host in one zone"
        );
        ensure!(
            options.zones <= options.hosts,
            "{} zones, but only {} hosts",
            options.zones,
            options.hosts
        );
        ensure!(
            (1..=MAX_CLUSTERS).contains(&options.clusters),
            "{} clusters; 1 to {MAX_CLUSTERS} can be had",
            options.clusters
        );
        ensure!(
            options.guests <= 100_000,
            "{} guests; at most 100000 can be had",
            options.guests
        );
        ensure!(
            faulty <= options.guests,
            "{faulty} faults, but only {} guests",
            options.guests
        );

        let root = Random::new(options.seed);
        let hosts = hosts(options, &mut root.split(1));
        let clusters: Vec<String> = (0..options.clusters)
            .map(|index| format!("cluster-{}", letters(index)))
            .collect();
        let dealt = deal_faults(options, &mut root.split(2));
        let mut guests: Vec<Guest> = (0..options.guests)
            .map(|index| {
                guest(
                    index,
                    options,
                    &clusters,
                    dealt[index],
                    root.split(1000 + index as u64),
                )
            })
            .collect();
        if let Some(guest) = guests.iter_mut().find(|guest| guest.fault.is_none()) {
            guest.page = options.page;
        }
        Ok(Self {
            region: "region-1".to_owned(),
            hosts,
            clusters,
            guests,
        })
    }

    /// Adds a user cluster for guests with these faults, so many of each. `options` are those of
    /// the plan.
    pub fn add_cluster(&mut self, name: &str, faults: &[(Option<Fault>, usize)], options: &Options) {
        let root = Random::new(options.seed).split(3);
        let first = self.guests.len();
        let all = faults
            .iter()
            .flat_map(|(fault, count)| std::iter::repeat_n(*fault, *count));
        let own = [name.to_owned()];
        self.guests.extend(all.enumerate().map(|(number, fault)| {
            let index = first + number;
            guest(index, options, &own, fault, root.split(1000 + index as u64))
        }));
        self.clusters.push(name.to_owned());
    }

    /// The guests without a fault.
    pub fn healthy(&self) -> impl Iterator<Item = &Guest> {
        self.guests.iter().filter(|guest| guest.fault.is_none())
    }

    /// A one-line summary.
    pub fn summary(&self) -> String {
        let count = |fault| {
            self.guests
                .iter()
                .filter(|guest| guest.fault == Some(fault))
                .count()
        };
        let faults = Fault::ALL.iter().copied().filter(|fault| count(*fault) > 0);
        let faults: Vec<String> = faults.map(|fault| format!("{} {fault}", count(fault))).collect();
        let (guests, hosts, clusters) = (self.guests.len(), self.hosts.len(), self.clusters.len());
        let text = format!("{guests} guests on {hosts} hosts, {clusters} user clusters");
        std::iter::once(text).chain(faults).collect::<Vec<_>>().join(", ")
    }
}

fn hosts(options: &Options, random: &mut Random) -> Vec<Host> {
    let host = |index: usize| Host {
        name: format!("infra-{:02}", index + 1),
        zone: format!("zone-{}", letter(index % options.zones)),
        rack: format!("rack-{}", index / options.zones % 4 + 1),
        uid: Uuid::from_u128(random.uuid()).to_string(),
    };
    (0..options.hosts).map(host).collect()
}

/// Assigns the faults to random guests, at most one fault each.
fn deal_faults(options: &Options, random: &mut Random) -> Vec<Option<Fault>> {
    let mut dealt = vec![None; options.guests];
    let mut free: Vec<usize> = (0..options.guests).collect();
    for (fault, count) in &options.faults {
        for _ in 0..*count {
            let index = free.swap_remove(random.below(free.len()));
            dealt[index] = Some(*fault);
        }
    }
    dealt
}

fn guest(
    index: usize,
    options: &Options,
    clusters: &[String],
    fault: Option<Fault>,
    mut random: Random,
) -> Guest {
    let number = u32::try_from(index).unwrap_or(u32::MAX);
    let [_, _, high, mid, low, _, _, _] = random.bits().to_be_bytes();
    Guest {
        index,
        cluster: clusters[index % clusters.len()].clone(),
        name: format!("worker-{}", index / clusters.len()),
        uid: Uuid::from_u128(random.uuid()).to_string(),
        node_uid: Uuid::from_u128(random.uuid()).to_string(),
        firmware: Uuid::from_u128(random.uuid()),
        // The index makes the address unique; locally administered.
        mac: format!(
            "02:{:02x}:{high:02x}:{mid:02x}:{:02x}:{:02x}",
            low,
            number >> 8 & 0xff,
            number & 0xff
        ),
        address: SocketAddr::from((Ipv4Addr::from(FIRST_ADDRESS + number + 1), options.port)),
        host: random.below(options.hosts),
        seed: random.bits(),
        fault,
        page: None,
        pods: options.pods,
    }
}

/// `a` to `z`, then `aa` to `zz`.
fn letters(index: usize) -> String {
    let first = (index / 26).checked_sub(1).map(letter);
    first.into_iter().chain([letter(index)]).collect()
}

fn letter(index: usize) -> char {
    char::from(b'a' + u8::try_from(index % 26).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_same_seed_is_the_same_fleet_and_another_is_not() {
        let plan = |seed| {
            Plan::new(&Options {
                seed,
                ..Options::default()
            })
            .unwrap()
        };
        assert_eq!(format!("{:?}", plan(1)), format!("{:?}", plan(1)));
        assert_ne!(format!("{:?}", plan(1)), format!("{:?}", plan(2)));
    }

    #[test]
    fn nothing_is_given_twice() {
        let plan = Plan::new(&Options {
            guests: 2000,
            clusters: 7,
            ..Options::default()
        })
        .unwrap();
        let distinct =
            |value: fn(&Guest) -> String| plan.guests.iter().map(value).collect::<BTreeSet<_>>().len();
        assert_eq!(distinct(|guest| guest.address.to_string()), 2000);
        assert_eq!(distinct(|guest| guest.mac.clone()), 2000);
        assert_eq!(distinct(|guest| guest.firmware.to_string()), 2000);
        assert_eq!(
            distinct(|guest| format!("{}/{}", guest.cluster, guest.name)),
            2000
        );
        assert!(plan.guests.iter().all(|guest| guest.address.ip().is_loopback()));
    }

    #[test]
    fn a_cluster_of_its_own_changes_no_other() {
        let options = Options::default();
        let before = Plan::new(&options).unwrap();
        let mut plan = before.clone();
        plan.add_cluster("hostile", &[(Some(Fault::Late), 2), (None, 1)], &options);
        assert_eq!(
            format!("{:?}", &plan.guests[..before.guests.len()]),
            format!("{:?}", before.guests)
        );
        let own: Vec<_> = plan
            .guests
            .iter()
            .filter(|guest| guest.cluster == "hostile")
            .collect();
        assert_eq!(own.len(), 3);
        let addresses: BTreeSet<_> = plan.guests.iter().map(|guest| guest.address).collect();
        assert_eq!(addresses.len(), plan.guests.len());
        assert_eq!(own.iter().filter(|guest| guest.fault.is_some()).count(), 2);
    }

    #[test]
    fn faults_are_dealt_to_as_many_guests_as_asked() {
        let faults = vec![(Fault::Silent, 3), (Fault::Garbage, 9)];
        let plan = Plan::new(&Options {
            guests: 12,
            faults,
            ..Options::default()
        })
        .unwrap();
        assert_eq!(plan.healthy().count(), 0);
        assert!(
            plan.summary().ends_with(", 3 silent, 9 garbage"),
            "{}",
            plan.summary()
        );
        for bad in [
            Options {
                faults: vec![(Fault::Slow, 13)],
                ..Options::default()
            },
            Options {
                zones: 7,
                ..Options::default()
            },
            Options {
                clusters: 0,
                ..Options::default()
            },
            Options {
                hosts: 0,
                ..Options::default()
            },
        ] {
            Plan::new(&bad).unwrap_err();
        }
    }
}
