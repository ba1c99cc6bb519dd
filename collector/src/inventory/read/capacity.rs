//! Reads capacities: taints and allocatable resources of infra nodes, requests of virt-launcher
//! pods.

use virtfleet_collector_core::{
    facts::Allocatable,
    scheduling::{InvalidQuantity, ResourceAmounts, Taint, TaintEffect, parse_quantity},
};

use super::{
    field::{Field, Problem},
    owner::text,
};

/// Maximum taints kept of a node.
const MAX_TAINTS: usize = 32;
/// Maximum containers of a pod that are counted. virt-launcher pods have a few.
const MAX_CONTAINERS: usize = 64;

/// `spec.taints` of a node.
pub(super) fn taints(object: &Field<'_>) -> Result<Vec<Taint>, Problem> {
    let mut taints = Vec::new();
    for taint in object.at("spec.taints")?.items()?.iter().take(MAX_TAINTS) {
        let Some(key) = taint.get("key")?.text()? else {
            continue;
        };
        taints.push(Taint {
            key: key.into(),
            value: taint.get("value")?.text()?.unwrap_or_default().into(),
            effect: TaintEffect::of(taint.get("effect")?.text()?.unwrap_or_default()),
        });
    }
    Ok(taints)
}

/// `status.allocatable` of a node; none without CPU or memory.
pub(super) fn allocatable(status: &Field<'_>) -> Result<Option<Allocatable>, Problem> {
    let amounts = status.get("allocatable")?;
    let pods = quantity(&amounts.get("pods")?)?.map(|milli| milli / 1000);
    let resources = resources(&amounts)?;
    let (Some(cpu_milli), Some(memory_bytes)) = resources else {
        return Ok(None);
    };
    Ok(Some(Allocatable {
        resources: ResourceAmounts {
            cpu_milli,
            memory_bytes,
        },
        pods: pods.map(|pods| u32::try_from(pods).unwrap_or(u32::MAX)),
    }))
}

/// `cpu` in thousandths and `memory` in bytes of a map of quantities.
pub(super) fn resources(amounts: &Field<'_>) -> Result<(Option<u64>, Option<u64>), Problem> {
    let memory = quantity(&amounts.get("memory")?)?;
    Ok((quantity(&amounts.get("cpu")?)?, memory.map(|milli| milli / 1000)))
}

/// A quantity in thousandths: a text or a whole number.
pub(super) fn quantity(field: &Field<'_>) -> Result<Option<u64>, Problem> {
    let parsed: Option<Result<u64, InvalidQuantity>> = match field.whole() {
        Ok(whole) => whole.map(|whole| {
            let whole = u64::try_from(whole).map_err(|_| InvalidQuantity)?;
            Ok(whole.saturating_mul(1000))
        }),
        Err(_) => field.text()?.map(parse_quantity),
    };
    parsed.transpose().map_err(|error| field.problem(error))
}

/// What a pod requests, as the scheduler counts it: the sum of its containers, or more if an init
/// container needs more. None if it requests nothing, or a part cannot be read: everyone who may
/// create pods may give them the label, so that is no error.
pub(super) fn pod_requests(object: &Field<'_>) -> Option<ResourceAmounts> {
    let spec = object.get("spec").ok()?;
    let of = |field: &Field<'_>| {
        let (cpu, memory) = resources(field).ok()?;
        Some(ResourceAmounts {
            cpu_milli: cpu.unwrap_or_default(),
            memory_bytes: memory.unwrap_or_default(),
        })
    };
    let of_container = |container: &Field<'_>| of(&container.at("resources.requests").ok()?);
    let mut sum = ResourceAmounts::default();
    for container in spec
        .get("containers")
        .ok()?
        .items()
        .ok()?
        .iter()
        .take(MAX_CONTAINERS)
    {
        sum += of_container(container)?;
    }
    let mut first = ResourceAmounts::default();
    for container in spec
        .get("initContainers")
        .ok()?
        .items()
        .ok()?
        .iter()
        .take(MAX_CONTAINERS)
    {
        let one = of_container(container)?;
        if text(container, "restartPolicy").as_deref() == Some("Always") {
            sum += one;
        } else {
            first.cpu_milli = first.cpu_milli.max(one.cpu_milli);
            first.memory_bytes = first.memory_bytes.max(one.memory_bytes);
        }
    }
    sum.cpu_milli = sum.cpu_milli.max(first.cpu_milli);
    sum.memory_bytes = sum.memory_bytes.max(first.memory_bytes);
    sum += of(&spec.get("overhead").ok()?)?;
    (!sum.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use virtfleet_wire::layered::parse_yaml;

    fn read<T>(value: &Value, read: impl FnOnce(&Field<'_>) -> T) -> T {
        let nodes = parse_yaml(&value.to_string()).unwrap();
        read(&Field::top(&nodes[0]))
    }

    #[test]
    fn requests_are_counted_as_by_the_scheduler() {
        let container = |cpu: &str, memory: &str| json!({ "resources": { "requests": { "cpu": cpu, "memory": memory } } });
        let mut sidecar = container("100m", "1Mi");
        sidecar["restartPolicy"] = "Always".into();
        let pod = json!({ "spec": {
            "containers": [container("400m", "2Mi"), container("100m", "1Mi"), {}],
            "initContainers": [container("2", "1Mi"), sidecar],
            "overhead": { "memory": "1Mi" },
        } });
        let found = read(&pod, pod_requests).unwrap();
        assert_eq!((found.cpu_milli, found.memory_bytes), (2000, 5 << 20));
        for none in [
            json!({}),
            json!({ "spec": { "containers": [{}] } }),
            json!({ "spec": { "containers": [container("x", "1")] } }),
            json!({ "spec": { "containers": "x" } }),
        ] {
            assert_eq!(read(&none, pod_requests), None, "{none}");
        }
    }

    #[test]
    fn numbers_are_quantities_too() {
        let status = json!({ "allocatable": { "cpu": 8, "memory": "16Gi", "pods": "110" } });
        let found = read(&status, allocatable).unwrap().unwrap();
        assert_eq!((found.resources.cpu_milli, found.pods), (8000, Some(110)));
        assert_eq!(
            read(&json!({ "allocatable": { "cpu": 8 } }), allocatable),
            Ok(None)
        );
        let wrong = read(&json!({ "allocatable": { "cpu": "eight" } }), allocatable).unwrap_err();
        assert_eq!(
            wrong.message,
            "allocatable.cpu: not a quantity such as 500m, 2 or 4Gi"
        );
    }
}
