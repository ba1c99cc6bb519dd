//! Authorization of clients by the names in their certificates.

use super::VmIdentity;

/// Which clients with a verified certificate a server authorizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientRule {
    /// Every client except agents: they must not read each other.
    AllExceptAgents,
    /// Collectors, and clients with one of these names. An agent must be named.
    CollectorsAnd(Vec<String>),
}

impl ClientRule {
    /// Authorizes a client with these names; returns the name that is authorized.
    ///
    /// # Errors
    /// Why it is not authorized.
    pub(super) fn authorise(&self, names: &[String]) -> Result<String, String> {
        match self {
            Self::AllExceptAgents => match agent(names) {
                Some(agent) => Err(format!(
                    "{agent} is an agent, and agents must not read each other"
                )),
                None => Ok(names.first().cloned().unwrap_or_else(|| "unnamed".to_owned())),
            },
            Self::CollectorsAnd(others) => {
                let listed = names.iter().find(|name| others.contains(name));
                let found = collector(names).or(listed).cloned();
                found.ok_or_else(|| {
                    let others = if others.is_empty() {
                        ""
                    } else {
                        ", and not one of server.tls.clients"
                    };
                    format!("{names:?} is not a collector{others}")
                })
            }
        }
    }
}

/// Whether a client with these names is a collector: one of them is
/// `spiffe://<trust-domain>/collector`.
pub fn is_collector(names: &[String]) -> bool {
    collector(names).is_some()
}

/// A certificate with both identities is not a collector's: no authority of ours issues one.
fn collector(names: &[String]) -> Option<&String> {
    let found = names.iter().find(|name| {
        let identity = name.strip_prefix("spiffe://");
        let identity = identity.and_then(|identity| identity.split_once('/'));
        identity.is_some_and(|(trust_domain, path)| !trust_domain.is_empty() && path == "collector")
    });
    found.filter(|_| agent(names).is_none())
}

fn agent(names: &[String]) -> Option<&String> {
    names.iter().find(|name| VmIdentity::from_uri(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: &str = "spiffe://d/vmi/a/b/c";
    const COLLECTOR: &str = "spiffe://d/collector";
    const PROMETHEUS: &str = "prometheus.monitoring.svc";

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn authorise(rule: &ClientRule, names: &[&str]) -> Option<String> {
        rule.authorise(&list(names)).ok()
    }

    #[test]
    fn all_except_agents() {
        let rule = ClientRule::AllExceptAgents;
        assert_eq!(authorise(&rule, &[AGENT, "agent.virtfleet.internal"]), None);
        assert_eq!(authorise(&rule, &[PROMETHEUS]).unwrap(), PROMETHEUS);
        assert_eq!(authorise(&rule, &[COLLECTOR]).unwrap(), COLLECTOR);
        assert_eq!(authorise(&rule, &[]).unwrap(), "unnamed");
    }

    #[test]
    fn collectors_stay_authorized_beside_named_clients() {
        for (others, names, expected) in [
            (&[][..], &[COLLECTOR][..], Some(COLLECTOR)),
            (&[PROMETHEUS], &[COLLECTOR], Some(COLLECTOR)),
            (&[], &[PROMETHEUS], None),
            (&[], &[], None),
            (&[PROMETHEUS], &[PROMETHEUS], Some(PROMETHEUS)),
            (&[PROMETHEUS], &["grafana.monitoring.svc"], None),
            (&[PROMETHEUS], &[AGENT], None),
            (&[AGENT], &[AGENT], Some(AGENT)),
            (&[], &[AGENT, COLLECTOR], None),
        ] {
            let rule = ClientRule::CollectorsAnd(list(others));
            assert_eq!(
                authorise(&rule, names).as_deref(),
                expected,
                "{others:?} {names:?}"
            );
        }
    }

    #[test]
    fn only_the_exact_path_is_a_collector() {
        for name in [
            "spiffe:///collector",
            "spiffe://d/collector/",
            "spiffe://d/collector/x",
            "spiffe://d/x/collector",
            "spiffe://d/Collector",
            "https://d/collector",
            "spiffe://collector",
            "collector",
        ] {
            assert!(!is_collector(&list(&[name])), "{name}");
        }
        assert!(is_collector(&list(&["x", "spiffe://example.org/collector"])));
    }
}
