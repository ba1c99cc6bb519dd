// The fleet as a map: zone → host → VM, coloured by verdict and marked with its sign.
import { empty, h, link, replace } from "./dom.js";
import { to, toHost, toVm } from "./route.js";
import { store } from "./store.js";
import { CAUSES, VERDICTS, badge, count, rank, sign } from "./words.js";

/** Of larger fleets, healthy VMs are one number per host. */
const MAX_SQUARES = 1500;

function byVerdict(vms) {
  const counts = new Map(VERDICTS.map((verdict) => [verdict, 0]));
  for (const vm of vms) counts.set(vm.verdict, (counts.get(vm.verdict) ?? 0) + 1);
  return counts;
}

/** Numbers of VMs by verdict, each a link to these VMs. */
export function tiles(vms, query = {}) {
  const counts = byVerdict(vms);
  return h(
    "ul",
    { class: "tiles" },
    VERDICTS.map((verdict) =>
      h(
        "li",
        null,
        h(
          "a",
          { class: `tile ${verdict.toLowerCase()}`, href: to("vms", [], { ...query, health: verdict.toLowerCase() }) },
          h("span", { class: "number" }, counts.get(verdict)),
          h("span", null, h("span", { "aria-hidden": "true", class: "sign" }, sign(verdict)), ` ${verdict}`),
        ),
      ),
    ),
  );
}

/** Causes of problems, with their numbers. */
function causes(vms) {
  const counts = new Map();
  for (const vm of vms) {
    if (vm.cause && rank(vm.verdict) < 2) counts.set(vm.cause, (counts.get(vm.cause) ?? 0) + 1);
  }
  if (counts.size === 0) return null;
  const order = [...counts].sort((a, b) => b[1] - a[1] || CAUSES.indexOf(a[0]) - CAUSES.indexOf(b[0]));
  return h(
    "p",
    { class: "chips" },
    "Whose fault: ",
    order.map(([cause, number]) => [
      h("a", { class: "chip", href: to("vms", [], { cause, health: "critical,degraded" }) }, `${cause} ${number}`),
      " ",
    ]),
  );
}

const worstFirst = (a, b) => rank(a.verdict) - rank(b.verdict) || (a.key < b.key ? -1 : 1);

function square(vm, first) {
  const label = `${vm.key}: ${vm.verdict}${vm.cause ? ` (${vm.cause}), ${vm.reason}` : ""}`;
  return h(
    "a",
    {
      class: `square ${vm.verdict.toLowerCase()}`,
      href: toVm(vm),
      title: label,
      "aria-label": label,
      tabindex: first ? "0" : "-1",
    },
    sign(vm.verdict),
  );
}

/** The state of an infra node, if it is not ready for VMs. */
export function hostState(host) {
  if (!host.known) return "not in the inventory";
  if (host.ready === false) return "not ready";
  if (host.ready === null || host.ready === undefined) return "readiness unknown";
  return host.cordoned ? "cordoned" : null;
}

function hostCard(host, vms, merged) {
  const shown = merged ? vms.filter((vm) => vm.verdict !== "Healthy") : vms;
  const healthy = vms.length - shown.length;
  const problem = host && hostState(host);
  const sick = vms.filter((vm) => rank(vm.verdict) < 2).length;
  return h(
    "li",
    { class: problem ? "host problem" : "host" },
    h(
      "h3",
      null,
      host ? link(toHost(host.name), host.name) : "not placed",
      h("span", { class: "sub" }, ` ${count(vms.length, "VM")}${sick ? `, ${sick} not well` : ""}`),
    ),
    problem && h("p", { class: "state" }, h("span", { "aria-hidden": "true" }, "! "), problem),
    h(
      "p",
      { class: "squares", onkeydown: move },
      shown.sort(worstFirst).map((vm, index) => square(vm, index === 0)),
      healthy > 0 &&
        h(
          "a",
          {
            class: "square healthy many",
            href: to("vms", [], { node: host?.name ?? "-", health: "healthy" }),
            tabindex: shown.length ? "-1" : "0",
          },
          `✓ ${healthy}`,
        ),
      vms.length === 0 && h("span", { class: "empty" }, "no VMs"),
    ),
  );
}

/** One stop for Tab per host; arrows move between its VMs. */
function move(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const squares = [...event.currentTarget.querySelectorAll("a")];
  const at = squares.indexOf(document.activeElement);
  const next = event.key === "Home" ? 0 : event.key === "End" ? squares.length - 1 : at + (step ?? NaN);
  if (at < 0 || !squares[next]) return;
  event.preventDefault();
  squares[at].tabIndex = -1;
  squares[next].tabIndex = 0;
  squares[next].focus();
}

/** The view of the whole fleet. */
export function mapView(main) {
  const head = h("div");
  const body = h("div");
  main.append(h("h1", { tabindex: "-1" }, "Fleet"), head, body);

  function draw() {
    const vms = [...store.vms.values()];
    const known = new Map(store.hosts.map((host) => [host.name, host]));
    replace(head, tiles(vms), causes(vms));
    if (vms.length === 0 && known.size === 0) {
      replace(body, empty(store.loaded ? "The inventory has no VMs and no infra nodes." : "Reading the fleet…"));
      return;
    }
    const on = new Map();
    for (const vm of vms) {
      const there = on.get(vm.node);
      if (there) there.push(vm);
      else on.set(vm.node, [vm]);
    }
    const zones = new Map();
    const add = (zone, card) => (zones.get(zone) ?? zones.set(zone, []).get(zone)).push(card);
    const merged = vms.length > MAX_SQUARES;
    for (const name of [...new Set([...known.keys(), ...on.keys()])].filter(Boolean).sort()) {
      const host = known.get(name) ?? { name, known: store.hosts.length === 0, ready: true };
      const there = on.get(name) ?? [];
      add(host.zone ?? there[0]?.zone ?? "", hostCard(host, there, merged));
    }
    if (on.has("")) add("\uffff", hostCard(null, on.get(""), merged));
    const title = (zone) => (zone === "\uffff" ? "Without infra node" : zone ? `Zone ${zone}` : "Without zone");
    replace(
      body,
      [...zones.keys()].sort().map((zone, index) =>
        h(
          "section",
          { class: "zone", "aria-labelledby": `zone-${index}` },
          h("h2", { id: `zone-${index}` }, title(zone)),
          h("ul", { class: "hosts" }, zones.get(zone)),
        ),
      ),
    );
  }

  // A large map costs a few frames, so bursts of changes are drawn together.
  let timer = null;
  let cost = 0;
  const timed = () => {
    timer = null;
    const begun = performance.now();
    draw();
    cost = performance.now() - begun;
  };
  timed();
  return {
    title: "Fleet",
    changed: () => {
      timer ??= setTimeout(timed, Math.min(800, cost * 10));
    },
    end: () => clearTimeout(timer),
  };
}
