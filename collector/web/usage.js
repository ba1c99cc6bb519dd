// Use of CPU and pressure of a VM over the last hour or longer, and the traffic of its queues.
import { empty, grid, h, link, section, set, svg } from "./dom.js";
import { change, to } from "./route.js";
import { bytes, noGuest } from "./words.js";

/** Ranges of histories in the URL. The hour is in the collector's memory. */
const RANGES = { "": "hour", "6h": "6 hours", "24h": "24 hours", "7d": "7 days" };

const LINES = [
  ["CPU steal", "cpuSteal"],
  ["CPU pressure", "cpuPressure"],
  ["Memory pressure", "memoryPressure"],
  ["I/O pressure", "ioPressure"],
  ["CPU used", "cpuUsed"],
];
const WIDTH = 240;
const HEIGHT = 40;

const percent = (share) => `${Math.round(share * 1000) / 10} %`;

/** A line for each run of known points: what is not known is a gap. */
function runs(points) {
  const all = [];
  let run = [];
  points.forEach((share, index) => {
    if (share === null) {
      if (run.length) all.push(run);
      run = [];
    } else {
      const x = (index / Math.max(1, points.length - 1)) * WIDTH;
      run.push(`${x.toFixed(1)},${(HEIGHT - share * HEIGHT).toFixed(1)}`);
    }
  });
  if (run.length) all.push(run);
  return all;
}

function picture(name, points) {
  const known = points.filter((share) => share !== null);
  const now = points.at(-1) ?? points.at(-2) ?? null;
  const most = Math.max(...known);
  const said = `${name}: ${now === null ? "not known now" : `${percent(now)} now`}, at most ${percent(most)}`;
  const lines = runs(points).map((run) =>
    // A single point is a short line.
    svg("polyline", { points: run.length === 1 ? `${run[0]} ${run[0]}` : run.join(" ") }),
  );
  return [
    name,
    now === null ? "–" : percent(now),
    percent(most),
    svg("svg", { class: "line", viewBox: `0 -1 ${WIDTH} ${HEIGHT + 2}`, role: "img", "aria-label": said }, lines),
  ];
}

/** The range of `query` that this collector has; "" is the last hour. */
export function chosenRange(vm, query) {
  const range = query.get("range") ?? "";
  return (vm.historyRanges ?? []).includes(range) ? range : "";
}

function choose(event, range) {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  change({ range }, true);
}

/** Links to the other ranges. */
function choice(vm, chosen) {
  if (!vm.historyRanges?.length) return null;
  const links = ["", ...vm.historyRanges].map((range) => {
    const one = link(to("vm", [vm.namespace, vm.name], { range }), `Last ${RANGES[range] ?? range}`);
    // A link would go to the top of the page.
    set(one, { "aria-current": range === chosen && "true", onclick: (event) => choose(event, range) });
    return one;
  });
  return h("nav", { "aria-label": "Range" }, links);
}

function span(ms) {
  if (ms >= 3600000) return `${Math.round(ms / 360000) / 10} hours`;
  return ms > 60000 ? `${ms / 60000} minutes` : "minute";
}

/** Use of CPU and pressure of one VM. `longer` is the history of `range`: null until it is read, or the error. */
export function usage(vm, range, longer) {
  const last = `Last ${RANGES[range] ?? range}`;
  const title = `CPU and pressure over the ${last.toLowerCase()}`;
  const links = choice(vm, range);
  if (range && longer === null) return section(title, links, h("p", null, "Reading the history…"));
  if (longer instanceof Error) return section(title, links, empty([longer.message, longer.remedy].filter(Boolean).join(": ")));
  const history = range ? longer : vm.usageHistory;
  const shown = LINES.filter(([, field]) => history?.[field]?.some((share) => share !== null));
  if (shown.length === 0) {
    const none = range
      ? "Prometheus has no CPU time and no pressure of this VM in this time."
      : "The metrics of its agent have no CPU time and no pressure, or there was only one answer yet.";
    return section(title, links, empty(range || vm.report ? none : noGuest(vm)));
  }
  const step = span(history.stepMs);
  const source = range ? "a rate over five minutes, from Prometheus" : "as the guest reports it";
  return section(
    title,
    links,
    grid(title, ["What", `Last ${step}`, "Most", last], shown.map(([name, field]) => picture(name, history[field]))),
    h("p", { class: "sub" }, `Each point is the largest share within ${range ? step : "one minute"}, ${source}. The height is 100 %.`),
  );
}

/** Traffic of each queue of its network interfaces. */
export function queues(vm) {
  const title = "Traffic of the queues";
  const all = vm.queues ?? [];
  if (all.length === 0) {
    return section(title, empty(vm.report ? "The agent reports no counters of queues, or there was only one answer yet." : noGuest(vm)));
  }
  const rows = new Map();
  for (const one of all) {
    const key = `${one.nic} ${one.queue}`;
    const row = rows.get(key) ?? { nic: one.nic, queue: one.queue };
    row[one.direction] = one;
    rows.set(key, row);
  }
  const rate = (one) => (one ? `${bytes(one.bytesPerS) ?? "0 B"}/s, ${one.packetsPerS} packets/s` : "–");
  return section(
    title,
    grid(title, ["Interface", "Queue", "Receive", "Transmit"], [...rows.values()].map((row) => [row.nic, row.queue, rate(row.receive), rate(row.transmit)])),
    h("p", { class: "sub" }, "Between the last two answers of the agent."),
  );
}
