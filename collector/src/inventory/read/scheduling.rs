//! Reads the scheduling rules of a VMI: `spec.nodeSelector`, `affinity`, `tolerations`,
//! `topologySpreadConstraints`, `evictionStrategy`, and what it requests.

use virtfleet_collector_core::{
    facts::{Operator, Requirement, Selector},
    scheduling::{
        EvictionStrategy, MAX_RULES, MAX_VALUES, NodeComparison, NodeExpression, NodeTerm,
        OperatorOfToleration, PodTerm, ResourceAmounts, Scheduling, SpreadConstraint, TaintEffect,
        Toleration, WeightedNodeTerm, WeightedPodTerm,
    },
};
use virtfleet_wire::ids::Namespace;

use super::{
    capacity::{quantity, resources},
    field::{Field, Problem},
};

/// vCPUs per requested CPU if a VMI requests none: KubeVirt's default `cpuAllocationRatio`.
const CPU_ALLOCATION_RATIO: u64 = 10;

/// The scheduling rules in the `spec` of a VMI. Rules that cannot be read do not hide the VM: then
/// none is kept, and [`Scheduling::is_cut`] is set.
pub(super) fn scheduling(spec: &Field<'_>) -> Scheduling {
    let known = rules(spec);
    let requested = spec.get("domain").and_then(|domain| amounts(&domain));
    let is_cut = requested.is_err() || known.as_ref().map_or(true, |rules| rules.is_cut);
    let (requests, vcpus) = requested.unwrap_or_default();
    Scheduling {
        requests,
        vcpus,
        is_cut,
        ..known.unwrap_or_default()
    }
}

/// All but what the VMI requests.
fn rules(spec: &Field<'_>) -> Result<Scheduling, Problem> {
    let mut cut = false;
    let affinity = spec.get("affinity")?;
    let nodes = affinity.get("nodeAffinity")?;
    let required = nodes.get(REQUIRED)?;
    let (near, apart) = (affinity.get("podAffinity")?, affinity.get("podAntiAffinity")?);
    let terms = required.get("nodeSelectorTerms")?;
    let selector = spec.get("nodeSelector")?.labels()?;
    cut |= selector.len() > MAX_RULES;
    let own = |(key, value): (&str, &str)| (key.into(), value.into());
    Ok(Scheduling {
        node_selector: selector.iter().take(MAX_RULES).map(own).collect(),
        required_nodes: if required.is_there() {
            Some(list(&terms, &mut cut, node_term)?)
        } else {
            None
        },
        preferred_nodes: list(&nodes.get(PREFERRED)?, &mut cut, |one, cut| {
            Ok(WeightedNodeTerm {
                weight: weight(one)?,
                term: node_term(&one.get("preference")?, cut)?,
            })
        })?,
        required_near: list(&near.get(REQUIRED)?, &mut cut, pod_term)?,
        required_apart: list(&apart.get(REQUIRED)?, &mut cut, pod_term)?,
        preferred_near: list(&near.get(PREFERRED)?, &mut cut, weighted_pod_term)?,
        preferred_apart: list(&apart.get(PREFERRED)?, &mut cut, weighted_pod_term)?,
        spread: list(&spec.get("topologySpreadConstraints")?, &mut cut, spread)?,
        tolerations: list(&spec.get("tolerations")?, &mut cut, toleration)?,
        eviction: EvictionStrategy::of(spec.get("evictionStrategy")?.text()?.unwrap_or_default()),
        is_cut: cut,
        ..Scheduling::default()
    })
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// At most [`MAX_RULES`] items of a list; sets `cut` if it has more.
fn list<T>(
    field: &Field<'_>,
    cut: &mut bool,
    read: impl Fn(&Field<'_>, &mut bool) -> Result<T, Problem>,
) -> Result<Box<[T]>, Problem> {
    let items = field.items()?;
    *cut |= items.len() > MAX_RULES;
    items.iter().take(MAX_RULES).map(|item| read(item, cut)).collect()
}

/// At most [`MAX_VALUES`] texts of a list; sets `cut` if it has more.
fn texts(field: &Field<'_>, cut: &mut bool) -> Result<Vec<String>, Problem> {
    let items = field.items()?;
    *cut |= items.len() > MAX_VALUES;
    let text = |item: &Field<'_>| Ok(item.text()?.unwrap_or_default().to_owned());
    items.iter().take(MAX_VALUES).map(text).collect()
}

fn node_term(field: &Field<'_>, cut: &mut bool) -> Result<NodeTerm, Problem> {
    let read = |is_field| {
        move |one: &Field<'_>, cut: &mut bool| {
            let operator = one.get("operator")?;
            let named = NodeComparison::of(operator.required_text()?);
            Ok(NodeExpression {
                key: one.get("key")?.required_text()?.into(),
                operator: named
                    .ok_or_else(|| operator.problem("not one of In, NotIn, Exists, DoesNotExist, Gt, Lt"))?,
                values: texts(&one.get("values")?, cut)?
                    .into_iter()
                    .map(String::into_boxed_str)
                    .collect(),
                is_field,
            })
        }
    };
    let labels = list(&field.get("matchExpressions")?, cut, read(false))?;
    let fields = list(&field.get("matchFields")?, cut, read(true))?;
    Ok(NodeTerm([labels, fields].concat().into()))
}

fn weight(field: &Field<'_>) -> Result<u8, Problem> {
    let weight = field.get("weight")?.whole()?.unwrap_or_default();
    Ok(u8::try_from(weight.clamp(0, 100)).unwrap_or_default())
}

fn weighted_pod_term(field: &Field<'_>, cut: &mut bool) -> Result<WeightedPodTerm, Problem> {
    Ok(WeightedPodTerm {
        weight: weight(field)?,
        term: pod_term(&field.get("podAffinityTerm")?, cut)?,
    })
}

fn pod_term(field: &Field<'_>, cut: &mut bool) -> Result<PodTerm, Problem> {
    let listed = |name: &str| Ok(!field.get(name)?.items()?.is_empty());
    let is_partial = field.get("namespaceSelector")?.is_there()
        || listed("matchLabelKeys")?
        || listed("mismatchLabelKeys")?;
    Ok(PodTerm {
        selector: selector(&field.get("labelSelector")?, cut)?,
        namespaces: list(&field.get("namespaces")?, cut, |one, _| {
            one.required::<Namespace>()
        })?,
        topology_key: field.get("topologyKey")?.text()?.unwrap_or_default().into(),
        is_partial,
    })
}

fn spread(field: &Field<'_>, cut: &mut bool) -> Result<SpreadConstraint, Problem> {
    let differs = |name: &str, default: &str| {
        let policy = field.get(name)?.text()?;
        Ok(policy.is_some_and(|policy| policy != default))
    };
    let is_partial = field
        .get("minDomains")?
        .whole()?
        .is_some_and(|domains| domains > 1)
        || !field.get("matchLabelKeys")?.items()?.is_empty()
        || differs("nodeAffinityPolicy", "Honor")?
        || differs("nodeTaintsPolicy", "Ignore")?;
    let skew = field.get("maxSkew")?.whole()?.unwrap_or(1);
    Ok(SpreadConstraint {
        max_skew: u32::try_from(skew).unwrap_or(1).max(1),
        topology_key: field.get("topologyKey")?.text()?.unwrap_or_default().into(),
        is_required: field.get("whenUnsatisfiable")?.text()? != Some("ScheduleAnyway"),
        selector: selector(&field.get("labelSelector")?, cut)?,
        is_partial,
    })
}

/// A label selector of the Kubernetes API; none if it is absent.
fn selector(field: &Field<'_>, cut: &mut bool) -> Result<Option<Selector>, Problem> {
    if !field.is_there() {
        return Ok(None);
    }
    let labels = field.get("matchLabels")?.labels()?;
    *cut |= labels.len() > MAX_RULES;
    let requirements = list(&field.get("matchExpressions")?, cut, |one, cut| {
        let operator = one.get("operator")?;
        Ok(Requirement {
            key: one.get("key")?.required_text()?.to_owned(),
            operator: match operator.required_text()? {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                _ => return Err(operator.problem("not one of In, NotIn, Exists, DoesNotExist")),
            },
            values: texts(&one.get("values")?, cut)?,
        })
    })?;
    Ok(Some(Selector {
        match_labels: labels,
        match_expressions: requirements.into(),
    }))
}

fn toleration(field: &Field<'_>, _: &mut bool) -> Result<Toleration, Problem> {
    let effect = field.get("effect")?.text()?;
    Ok(Toleration {
        key: field.get("key")?.text()?.unwrap_or_default().into(),
        operator: match field.get("operator")?.text()? {
            None | Some("Equal") => OperatorOfToleration::Equal,
            Some("Exists") => OperatorOfToleration::Exists,
            Some(_) => OperatorOfToleration::Other,
        },
        value: field.get("value")?.text()?.unwrap_or_default().into(),
        effect: effect.map(TaintEffect::of),
    })
}

/// What the VMI requests, and its number of vCPUs. KubeVirt adds an overhead to the memory.
fn amounts(domain: &Field<'_>) -> Result<(ResourceAmounts, Option<u32>), Problem> {
    let cpu = domain.get("cpu")?;
    let part = |name: &str| {
        Ok(cpu
            .get(name)?
            .whole()?
            .and_then(|number| u32::try_from(number).ok()))
    };
    let (sockets, cores, threads) = (part("sockets")?, part("cores")?, part("threads")?);
    let (requested, memory) = resources(&domain.at("resources.requests")?)?;
    let (limit, memory_limit) = resources(&domain.at("resources.limits")?)?;
    let topology = [sockets, cores, threads];
    let whole = |milli: u64| u32::try_from(milli.div_ceil(1000)).unwrap_or(u32::MAX);
    let vcpus = if topology.iter().any(Option::is_some) {
        let product = topology.iter().map(|part| part.unwrap_or(1).max(1));
        Some(product.fold(1, u32::saturating_mul))
    } else {
        limit.or(requested).map(whole)
    };
    let implied = vcpus.map(|vcpus| u64::from(vcpus) * 1000 / CPU_ALLOCATION_RATIO);
    let guest = quantity(&domain.at("memory.guest")?)?.map(|milli| milli / 1000);
    let requests = ResourceAmounts {
        cpu_milli: requested.or(limit).or(implied).unwrap_or_default(),
        memory_bytes: memory.or(memory_limit).or(guest).unwrap_or_default(),
    };
    Ok((requests, vcpus))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use virtfleet_wire::layered::parse_yaml;

    fn read(value: &Value) -> Scheduling {
        let nodes = parse_yaml(&value.to_string()).unwrap();
        scheduling(&Field::top(&nodes[0]))
    }

    #[test]
    fn requests_and_vcpus() {
        for (domain, cpu, memory, vcpus) in [
            (json!({}), 0, 0, None),
            (
                json!({ "cpu": { "cores": 4 }, "memory": { "guest": "1Gi" } }),
                400,
                1 << 30,
                Some(4),
            ),
            (
                json!({ "cpu": { "sockets": 2, "cores": 2, "threads": 2 } }),
                800,
                0,
                Some(8),
            ),
            (
                json!({ "cpu": { "cores": 4 }, "resources": { "requests": { "cpu": "2", "memory": "2Gi" } } }),
                2000,
                2 << 30,
                Some(4),
            ),
            (
                json!({ "resources": { "limits": { "cpu": "1500m" } } }),
                1500,
                0,
                Some(2),
            ),
        ] {
            let found = read(&json!({ "domain": domain }));
            let amounts = (found.requests.cpu_milli, found.requests.memory_bytes, found.vcpus);
            assert_eq!(amounts, (cpu, memory, vcpus), "{domain}");
        }
    }

    #[test]
    fn lists_are_bounded_and_say_so() {
        let term = json!({ "labelSelector": { "matchLabels": { "a": "b" } }, "topologyKey": "zone" });
        let spec =
            |count| json!({ "affinity": { "podAntiAffinity": { REQUIRED: vec![term.clone(); count] } } });
        let found = read(&spec(MAX_RULES));
        assert!(!found.is_cut && found.has_pod_rules());
        let found = read(&spec(MAX_RULES + 1));
        assert!(found.is_cut && found.required_apart.len() == MAX_RULES);
    }

    #[test]
    fn rules_that_cannot_be_read_hide_nothing_else() {
        let terms = json!([{ "matchExpressions": [{ "key": "a", "operator": "Like" }] }]);
        let required = json!({ REQUIRED: { "nodeSelectorTerms": terms } });
        let cpu = json!({ "cpu": { "cores": 4 } });
        let found = read(&json!({ "affinity": { "nodeAffinity": required }, "domain": cpu }));
        assert!(found.is_cut && found.required_nodes.is_none());
        assert_eq!(found.vcpus, Some(4));
        let odd = json!({ "memory": { "guest": "much" } });
        let found = read(&json!({ "nodeSelector": { "a": "b" }, "domain": odd }));
        assert!(found.is_cut && found.vcpus.is_none());
        assert_eq!(found.node_selector.len(), 1);
    }
}
