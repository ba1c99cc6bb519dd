// Infra nodes and user clusters: their lists, and one of them.
import { empty, grid, h, link, pairs, replace, section } from "./dom.js";
import { hostState, tiles } from "./map.js";
import { to, toCluster, toHost, toVm } from "./route.js";
import { store } from "./store.js";
import { badge, rank } from "./words.js";

/** VMs of a place that are shown one by one. */
const MAX_VMS = 200;

const problem = (words) => (words ? h("span", { class: "badge degraded" }, h("span", { class: "sign", "aria-hidden": "true" }, "!"), words) : h("span", { class: "badge healthy" }, h("span", { class: "sign", "aria-hidden": "true" }, "✓"), "ready"));

function sickOf(name, field) {
  let sick = 0;
  for (const vm of store.vms.values()) if (vm[field] === name && rank(vm.verdict) < 2) sick += 1;
  return sick;
}

/** The sick VMs per place, counted once for a whole list. */
function sickBy(field) {
  const counts = new Map();
  for (const vm of store.vms.values()) {
    if (rank(vm.verdict) < 2) counts.set(vm[field], (counts.get(vm[field]) ?? 0) + 1);
  }
  return counts;
}

/** A view that is drawn anew with each change, at most twice a second. */
function drawing(main, title, draw) {
  const content = h("div");
  main.append(h("h1", { tabindex: "-1" }, title), content);
  const renew = () => replace(content, draw());
  renew();
  let timer = null;
  return {
    title,
    changed: () => {
      timer ??= setTimeout(() => {
        timer = null;
        renew();
      }, 250);
    },
    end: () => clearTimeout(timer),
  };
}

/** VMs of one place, the worst first. */
function vmsOf(field, name, none) {
  const vms = [...store.vms.values()].filter((vm) => vm[field] === name);
  vms.sort((a, b) => rank(a.verdict) - rank(b.verdict) || (a.key < b.key ? -1 : 1));
  const query = { [field]: name };
  return [
    tiles(vms, query),
    vms.length === 0
      ? empty(none)
      : grid(
          "VMs",
          ["VM", "Health", "Reason", "Message"],
          vms.slice(0, MAX_VMS).map((vm) => [link(toVm(vm), vm.key), badge(vm.verdict, vm.cause), vm.reason, vm.message]),
        ),
    vms.length > MAX_VMS && h("p", null, link(to("vms", [], query), `All ${vms.length} VMs`)),
  ];
}

export function hostsView(main) {
  return drawing(main, "Hosts", () => {
    if (store.hosts.length === 0) {
      return empty(store.loaded ? "The inventory has no infra nodes, or you may not see them." : "Reading the hosts…");
    }
    const sick = sickBy("node");
    return grid(
      "Hosts",
      ["Host", "State", "Zone", "Region", "VMs", "Not well", "Agents up", "Agents silent", "User clusters"],
      store.hosts.map((host) => [
        link(toHost(host.name), host.name),
        problem(hostState(host)),
        host.zone ?? "no zone label",
        host.region ?? "no region label",
        host.vms,
        sick.get(host.name) ?? 0,
        host.agentsUp,
        host.agentsSilent,
        host.clusters.map((name) => [link(toCluster(name), name), " "]),
      ]),
    );
  });
}

export function hostView(main, [name = ""]) {
  return drawing(main, name, () => {
    const host = store.hosts.find((one) => one.name === name);
    if (!host) {
      return empty(store.loaded ? "There is no such infra node, or you may not see it." : "Reading the host…");
    }
    return [
      section(
        "Host",
        pairs([
          ["State", problem(hostState(host))],
          ["Zone", host.zone ?? "it has no zone label"],
          ["Region", host.region ?? "it has no region label"],
          ["VMs", `${host.vms}, ${sickOf(name, "node")} not well`],
          ["Agents", `${host.agentsUp} up, ${host.agentsSilent} silent`],
          ["User clusters", host.clusters.length ? host.clusters.map((one) => [link(toCluster(one), one), " "]) : "none has a VM here"],
        ]),
      ),
      section("VMs", vmsOf("node", name, "No VM runs here.")),
    ];
  });
}

const clusterState = (cluster) => (cluster.state === "Ready" ? null : cluster.state);

export function clustersView(main) {
  return drawing(main, "Clusters", () => {
    if (store.clusters.length === 0) {
      return empty(store.loaded ? "There are no user clusters, or you may not see them." : "Reading the clusters…");
    }
    const sick = sickBy("cluster");
    return grid(
      "Clusters",
      ["Cluster", "State", "Namespace", "VMs", "Running", "Not well", "Agents up", "Nodes", "Nodes without VM"],
      store.clusters.map((cluster) => [
        link(toCluster(cluster.name), cluster.name),
        [problem(clusterState(cluster)), cluster.message && h("span", { class: "sub" }, cluster.message)],
        cluster.namespace,
        cluster.vms,
        cluster.running,
        sick.get(cluster.name) ?? 0,
        cluster.agentsUp,
        cluster.nodes,
        cluster.nodesWithoutVm,
      ]),
    );
  });
}

export function clusterView(main, [name = ""]) {
  return drawing(main, name, () => {
    const cluster = store.clusters.find((one) => one.name === name);
    if (!cluster) {
      return empty(store.loaded ? "There is no such user cluster, or you may not see it." : "Reading the cluster…");
    }
    const zones = Object.entries(cluster.zones);
    return [
      section(
        "Cluster",
        pairs([
          ["State", problem(clusterState(cluster))],
          ["Message", cluster.message ?? null],
          ["UserCluster", cluster.known ? "in the inventory" : "missing: only labels of VMs name it"],
          ["Namespace", cluster.namespace],
          ["VMs", `${cluster.vms}, ${cluster.running} running, ${sickOf(name, "cluster")} not well`],
          ["By zone", zones.length ? zones.map(([zone, vms]) => `${zone || "no zone"}: ${vms}`).join(", ") : "no VM is placed"],
          ["Agents up", cluster.agentsUp],
          ["Nodes", `${cluster.nodes}, ${cluster.nodesWithoutVm} without VM`],
          ["Complete", cluster.partial ? "no: some of its objects cannot be read" : "yes"],
        ]),
      ),
      section("VMs", vmsOf("cluster", name, "No VM serves it.")),
    ];
  });
}
