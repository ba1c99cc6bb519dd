// One VM: verdict, cause, evidence, next command, and everything that is known about it.
import { Refused, get } from "./api.js";
import { command, empty, grid, h, link, pairs, replace, section } from "./dom.js";
import { parse, to, toCluster, toHost } from "./route.js";
import * as parts from "./sections.js";
import { notice } from "./signin.js";
import { store } from "./store.js";
import * as story from "./story.js";
import * as usage from "./usage.js";
import { ago, badge, list, noGuest, status } from "./words.js";

/** Interval of reading the details again: times and load change without an event. */
const RENEW_MS = 5000;
/** Interval of reading a history again. */
const HISTORY_MS = 60000;

function verdict(vm) {
  const health = vm.health;
  const isWell = health.verdict === "Healthy";
  return h(
    "section",
    { class: `verdict ${health.verdict.toLowerCase()}`, "aria-label": "Verdict" },
    h("p", { class: "word" }, badge(health.verdict, health.cause), " ", h("strong", null, health.reason)),
    h("p", null, health.message || (isWell ? "There is evidence for every required condition." : "")),
    h("p", { class: "sub" }, "Since ", ago(health.sinceMs) ?? "the collector's start"),
    health.next ? [h("p", null, "Next command:"), command(health.next)] : isWell && h("p", { class: "sub" }, "Nothing to do."),
  );
}

function conditions(vm) {
  if (vm.conditions.length === 0) return empty("Not evaluated yet.");
  const order = { Critical: 0, Degraded: 1, Unknown: 2, Healthy: 3 };
  const all = [...vm.conditions].sort((a, b) => order[a.severity] - order[b.severity]);
  return grid(
    "Conditions",
    ["Condition", "Status", "Reason", "Message", "Since", "Next command"],
    all.map((one) => [
      one.type,
      status(one),
      one.reason,
      one.message,
      ago(one.sinceMs) ?? "–",
      one.next ? command(one.next) : "–",
    ]),
  );
}

function placement(vm) {
  const none = (why) => h("span", { class: "empty" }, why);
  const unplaced = vm.state === "stopped" ? "none: the VM is stopped" : "none: KubeVirt has not placed it";
  return pairs([
    ["Infra node", vm.infraNode ? link(toHost(vm.infraNode), vm.infraNode) : none(unplaced)],
    ["Zone", vm.zone ?? none(vm.infraNode ? "the infra node has no zone label" : unplaced)],
    ["Region", vm.region ?? none(vm.infraNode ? "the infra node has no region label" : unplaced)],
    ["User cluster", vm.cluster ? link(toCluster(vm.cluster), vm.cluster) : none("none: no UserCluster selects it")],
    ["Node", vm.userNode ?? none(vm.cluster ? "none: the cluster has no Node for it" : "none: it has no user cluster")],
    ["State", vm.state],
    ["UID", vm.uid ?? none("none: there is no VMI")],
  ]);
}

/** How the collector reaches the agent. */
function way(one) {
  if (one?.kind === "relay") return `relay of UserCluster ${one.cluster} (${one.address})`;
  if (one?.kind === "push") return `push from ${one.peer}`;
  return one?.kind ?? null;
}

function agent(vm) {
  const it = vm.agent;
  return pairs([
    ["Status", it.status],
    ["Address", it.address ?? h("span", { class: "empty" }, noGuest(vm))],
    ["Way", way(it.way)],
    ["Version", it.version ?? null],
    ["Last answer", ago(it.lastSeenMs)],
    ["Last attempt", ago(it.lastTryMs)],
    ["Answer time", it.tookMs === null || it.tookMs === undefined ? null : `${it.tookMs} ms`],
    ["Certificate verified", ago(it.verifiedMs)],
    ["Failure", it.failure ? `${it.failure.class}: ${it.failure.message}` : null],
    ["Enrolment", vm.enrolment ? `${vm.enrolment.state}, key ${vm.enrolment.keySha256 ?? "unknown"}` : null],
  ]);
}

function identity(vm) {
  const all = Object.entries(vm.identity ?? {});
  if (all.length === 0) return empty(noGuest(vm));
  return grid(
    "Identity",
    ["What", "In the VMI", "In the guest", "Source", "Result"],
    all.map(([name, check]) => [name, check.expected ?? "–", check.claimed ?? "–", check.source ?? "–", check.verdict]),
  );
}

function interfaces(vm) {
  if (vm.interfaces.length === 0) return empty("KubeVirt reports no networks of this VM.");
  return grid(
    "Networks",
    ["Network", "MAC", "Addresses", "Agent at these addresses"],
    vm.interfaces.map((one) => [one.name || "–", one.mac ?? "–", list(one.addresses) ?? "–", one.dial]),
  );
}

/** Labels of the Node: what the policies decide, then all others with their origin. */
function labels(vm, decided) {
  const node = Object.entries(vm.userNodeLabels ?? {});
  const known = new Set();
  const rows = [];
  if (decided instanceof Error) rows.push();
  else {
    for (const one of decided ?? []) {
      known.add(one.key);
      rows.push([
        one.key,
        one.current ?? "–",
        one.desired ?? "–",
        one.source ? `${one.source} of ${vm.infraNode ?? "the infra node"}, by ${one.policy ?? "no policy"}` : (one.policy ?? "withdrawn policy"),
        [`${one.action} (${one.reason})`, one.message && h("span", { class: "sub" }, one.message)],
      ]);
    }
  }
  for (const [key, value] of node) {
    if (!known.has(key)) rows.push([key, value, "–", "the Node itself: kubelet, cloud provider or an admin", "–"]);
  }
  const why = vm.userNode ? "Its Node has no labels." : "It has no Node in a user cluster, so there are no labels.";
  return [
    decided instanceof Error && empty(`What policies decide is not known here: ${decided.message}`),
    rows.length ? grid("Labels", ["Key", "On the Node", "Desired", "Origin", "Decision"], rows) : empty(why),
  ];
}

/** The view of one VM. */
export function vmView(main, [namespace = "", name = ""]) {
  const path = [namespace, name].map(encodeURIComponent);
  const key = `${namespace}/${name}`;
  const stop = new AbortController();
  const content = h("div", { class: "vm" }, h("p", null, "Reading the VM…"));
  main.append(
    h("p", { class: "crumbs" }, link(to("vms"), "VMs"), " / ", link(to("vms", [], { q: `${namespace}/` }), namespace)),
    h("h1", { tabindex: "-1" }, name),
    content,
  );
  let vm = null;
  let decided = null;
  let reading = false;
  let again = false;
  let drawn = "";
  // The history of `range`, and when it was read.
  let longer = null;
  let range = "";
  let longerAt = 0;

  function draw() {
    // Times of pulls change every few seconds; what is open and selected must stay.
    const now = JSON.stringify([vm, decided?.message ?? decided, range, longer?.message ?? longer]);
    if (now === drawn) return;
    drawn = now;
    const open = [...content.querySelectorAll("details[open] > summary")].map((one) => one.textContent);
    replace(
      content,
      verdict(vm),
      section("Conditions", conditions(vm)),
      section("Findings", parts.findings(vm.findingsList.map((finding) => ({ finding })), "There are no findings about this VM.")),
      h(
        "div",
        { class: "columns" },
        section("Placement", placement(vm)),
        section("Agent", agent(vm)),
        parts.guest(vm),
      ),
      usage.usage(vm, range, longer),
      story.timeline(vm),
      story.spec(vm),
      story.migrations(vm),
      parts.disks(vm),
      parts.dns(vm),
      parts.virtio(vm),
      usage.queues(vm),
      section("Networks", interfaces(vm)),
      section("Identity", identity(vm)),
      section("Labels of the Node", labels(vm, decided)),
    );
    for (const summary of content.querySelectorAll("details > summary")) {
      if (open.includes(summary.textContent)) summary.parentNode.open = true;
    }
  }

  /** Reads the history of the range in the URL, if it is another one or old. */
  async function readLonger() {
    const wanted = usage.chosenRange(vm, parse().query);
    const old = performance.now() - longerAt > HISTORY_MS;
    if (wanted === range && !(wanted && old)) return;
    if (wanted !== range) longer = null;
    range = wanted;
    longerAt = performance.now();
    draw();
    if (!range) return;
    let read;
    try {
      read = await get(`api/v1/vms/${path.join("/")}/history?range=${range}`, { signal: stop.signal });
    } catch (error) {
      read = error;
    }
    // The user may have chosen another range meanwhile.
    if (stop.signal.aborted || range !== wanted) return;
    longer = read;
    draw();
  }

  async function read(withLabels) {
    if (reading) {
      again ||= true;
      return;
    }
    reading = true;
    try {
      vm = await get(`api/v1/vms/${path.join("/")}`, { signal: stop.signal });
      if (withLabels && vm.userNode && vm.cluster) {
        const query = new URLSearchParams({ namespace, cluster: vm.cluster, node: vm.userNode });
        try {
          decided = (await get(`api/v1/labels?${query}`, { signal: stop.signal })).items;
        } catch (error) {
          if (stop.signal.aborted) return;
          decided = error;
        }
      }
      if (stop.signal.aborted) return;
      draw();
      readLonger();
    } catch (error) {
      if (stop.signal.aborted) return;
      drawn = "";
      if (error instanceof Refused) replace(content, notice(error));
      else if (!vm) replace(content, notice(new Refused(0, { message: error.message })));
    } finally {
      reading = false;
      if (again && !stop.signal.aborted) {
        again = false;
        read(false);
      }
    }
  }

  read(true);
  let turn = 0;
  const timer = setInterval(() => {
    turn += 1;
    if (!document.hidden) read(turn % 6 === 0);
  }, RENEW_MS);
  return {
    title: key,
    changed: (keys) => {
      if (keys === null || keys.has(key)) read(true);
    },
    filters: () => {
      if (vm) readLonger();
    },
    end: () => {
      clearInterval(timer);
      stop.abort();
    },
  };
}
