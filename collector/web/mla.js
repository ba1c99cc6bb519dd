// What is sent: streams of samples, and the last metrics page of each VM. Both are read again every
// few seconds while the view is open. Of the pages, only the rows on the screen exist.
import { all } from "./api.js";
import { empty, grid, h, link, replace, section, text } from "./dom.js";
import { change, parse, toCluster, toVm } from "./route.js";
import { notice } from "./signin.js";
import { ago, bytes, count, sign, span } from "./words.js";

/** Pause between two reads; longer if a read takes long. */
const READ_MS = 5000;
/** Streams that are shown, the gravest first. */
const MAX_STREAMS = 200;
/** Rows above and below the screen. */
const SPARE_ROWS = 8;
const VERDICT_OF = { live: "Healthy", "catching-up": "Degraded", retrying: "Degraded", refused: "Critical", stopped: "Critical" };
const STATES = ["stopped", "refused", "retrying", "catching-up", "live", "not-configured"];
const ERRORS = ["none", "pullFailed", "malformed", "overLimit"];
const FILTERS = ["q", "cluster", "error"];
const COLUMNS = [
  ["name", "VM"],
  ["error", "Error"],
  ["cluster", "Cluster"],
  ["scraped", "Scraped"],
  ["took", "Took"],
  ["samples", "Samples"],
  ["added", "Added"],
  ["dropped", "Dropped"],
  ["size", "Size"],
];
const VALUE = {
  name: (one) => one.key,
  error: (one) => (one.error ? 0 : 1),
  cluster: (one) => one.cluster ?? "",
  scraped: (one) => one.lastScrapeMs ?? 0,
  took: (one) => -(one.tookMs ?? -1),
  samples: (one) => -(one.samples ?? -1),
  added: (one) => -(one.seriesAdded ?? -1),
  dropped: (one) => -(one.droppedByRelabel ?? -1),
  size: (one) => -(one.pageBytes ?? -1),
};

const total = (counts) => Object.values(counts ?? {}).reduce((sum, one) => sum + (Number(one) || 0), 0);

function state(queue) {
  const verdict = VERDICT_OF[queue.state] ?? "Unknown";
  const mark = h("span", { class: "sign", "aria-hidden": "true" }, sign(verdict));
  return h("span", { class: `badge ${verdict.toLowerCase()}` }, mark, queue.state);
}

/** How full a queue is; the text says the same as the bar. */
function backlog(queue) {
  const size = `${bytes(queue.bytes)} of ${bytes(queue.limitBytes)}`;
  const old = queue.oldestMs ? `, oldest ${span(Date.now() - queue.oldestMs)}` : "";
  const bar = h("meter", { min: 0, max: queue.limitBytes || 1, high: (queue.limitBytes || 1) / 2, value: queue.bytes, "aria-label": `Queue of ${queue.stream}` });
  return [bar, h("span", { class: "sub" }, size + old)];
}

function lastError(queue) {
  if (queue.problem) return queue.problem;
  const error = queue.lastError;
  if (!error || (queue.lastSuccessMs ?? 0) >= error.atMs) return h("span", { class: "empty" }, "none");
  return [error.message, h("span", { class: "sub" }, ago(error.atMs))];
}

function reasons(counts) {
  const some = Object.entries(counts ?? {}).filter(([, samples]) => samples > 0);
  return some.length ? [total(counts), h("span", { class: "sub" }, some.map(([name, samples]) => `${name} ${samples}`).join(", "))] : "0";
}

function streams(queues) {
  if (queues.length === 0) return empty("No streams: MLA is not configured, or you may not see them.");
  const rank = (queue) => STATES.indexOf(queue.state);
  const sorted = [...queues].sort((a, b) => rank(a) - rank(b) || (a.stream < b.stream ? -1 : 1));
  const row = (queue) => {
    const cluster = String(queue.stream).startsWith("cluster/") ? queue.stream.slice("cluster/".length) : null;
    return [
      [cluster ? link(toCluster(cluster), cluster) : "all VMs", h("span", { class: "sub" }, queue.endpoint ?? "no endpoint")],
      state(queue),
      backlog(queue),
      `${Math.round(queue.rateSamplesPerS)}/s`,
      queue.sentSamples,
      reasons(queue.dropped),
      reasons(queue.refused),
      [queue.protocol, queue.compression].filter(Boolean).join(", ") || "–",
      lastError(queue),
    ];
  };
  return [
    grid("Streams", ["Stream", "State", "Backlog", "Rate", "Sent", "Dropped", "Refused", "Protocol", "Last error"], sorted.slice(0, MAX_STREAMS).map(row)),
    sorted.length > MAX_STREAMS && empty(`${sorted.length - MAX_STREAMS} more: virtfleetctl mla lists all.`),
  ];
}

/** The cells of a VM's row. Numbers are text: a guest chose them. */
function cells(one) {
  const some = (value) => (value === null || value === undefined ? h("span", { class: "empty" }, "–") : String(value));
  return [
    h("th", { scope: "row" }, h("a", { href: toVm(one) }, one.name), h("span", { class: "sub" }, one.namespace)),
    h("td", { title: one.error?.message }, one.error ? h("span", { class: "badge degraded" }, h("span", { class: "sign", "aria-hidden": "true" }, "!"), one.error.reason) : "none"),
    h("td", null, one.cluster ? link(toCluster(one.cluster), one.cluster) : h("span", { class: "empty" }, "none")),
    h("td", null, ago(one.lastScrapeMs) ?? h("span", { class: "empty" }, "not yet")),
    h("td", { class: "number" }, one.tookMs === null ? some(null) : `${one.tookMs} ms`),
    h("td", { class: "number" }, some(one.samples)),
    h("td", { class: "number" }, some(one.seriesAdded)),
    h("td", { class: "number" }, some(one.droppedByRelabel)),
    h("td", { class: "number" }, some(bytes(one.pageBytes))),
  ];
}

export function mlaView(main) {
  const stop = new AbortController();
  const search = h("input", { id: "q", type: "search", placeholder: "Name, namespace, error", "aria-keyshortcuts": "/", oninput: () => change({ q: search.value }) });
  const select = (name, label) => h("select", { id: `f-${name}`, "data-label": label, onchange: (event) => change({ [name]: event.target.value }, true) });
  const [cluster, error] = [select("cluster", "Cluster"), select("error", "Error")];
  const result = h("p", { role: "status", class: "result" });
  const problem = h("div");
  const queues = h("div", null, empty("Reading the streams…"));
  const heads = new Map(
    COLUMNS.map(([name, title]) => [name, h("th", { scope: "col" }, h("button", { type: "button", onclick: () => sortBy(name) }, title))]),
  );
  const body = h("tbody");
  const table = h("table", { class: "vms targets", "aria-label": "Metrics pages" }, h("thead", null, h("tr", null, [...heads.values()])), body);
  main.append(
    h("h1", { tabindex: "-1" }, "MLA"),
    problem,
    section("Streams", queues),
    section(
      "Metrics pages",
      h(
        "form",
        { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
        h("label", { for: "q" }, "Search", search),
        [cluster, error].map((one) => h("label", { for: one.id }, one.dataset.label, one)),
      ),
      result,
      table,
    ),
  );
  let targets = null;
  let shown = [];

  function sortBy(name) {
    const now = parse().query.get("sort") ?? "error";
    change({ sort: now === name ? `-${name}` : name }, true);
  }

  function choices(element, values, now) {
    const options = now && !values.includes(now) ? [...values, now] : values;
    if (element.dataset.options !== options.join("\n")) {
      element.dataset.options = options.join("\n");
      element.replaceChildren(h("option", { value: "" }, "all"), ...options.map((value) => h("option", { value }, value)));
    }
    element.value = now;
  }

  /** Filters and sorts by the URL. */
  function refresh() {
    const { query } = parse();
    const wanted = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
    if (document.activeElement !== search || search.value === "") search.value = wanted.q;
    choices(cluster, [...new Set((targets ?? []).map((one) => one.cluster).filter(Boolean))].sort(), wanted.cluster);
    choices(error, ERRORS, wanted.error);
    const sort = query.get("sort") || "error";
    for (const [name, head] of heads) {
      head.setAttribute("aria-sort", sort === name ? "ascending" : sort === `-${name}` ? "descending" : "none");
    }
    if (targets === null) return;
    const words = wanted.q.toLowerCase().split(/\s+/).filter(Boolean);
    const among = (text, value) => text === "" || text.split(",").includes(value);
    shown = targets.filter(
      (one) =>
        among(wanted.cluster, one.cluster ?? "-") &&
        among(wanted.error, one.error?.reason ?? "none") &&
        words.every((word) => one.text.includes(word)),
    );
    const value = VALUE[sort.replace(/^-/, "")] ?? VALUE.error;
    const way = sort.startsWith("-") ? -1 : 1;
    shown.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x !== y) return x < y ? -way : way;
      return a.key < b.key ? -1 : 1;
    });
    text(result, shown.length === targets.length ? count(shown.length, "VM") : `${shown.length} of ${count(targets.length, "VM")}`);
    table.setAttribute("aria-rowcount", shown.length + 1);
    draw();
  }

  /** Draws the rows of the part of the list that is on the screen. */
  function draw() {
    const height = parseFloat(getComputedStyle(table).getPropertyValue("--row")) || 36;
    const top = -body.getBoundingClientRect().top;
    const first = Math.max(0, Math.min(shown.length, Math.floor(top / height)) - SPARE_ROWS);
    const last = Math.max(first, Math.min(shown.length, Math.ceil((top + innerHeight) / height) + SPARE_ROWS));
    const spacer = (rows) => {
      const cell = h("td");
      cell.style.height = `${rows * height}px`;
      return rows > 0 && h("tr", { class: "spacer", "aria-hidden": "true" }, cell);
    };
    const row = (one, index) => h("tr", { "data-key": one.key, "aria-rowindex": first + index + 2 }, cells(one));
    replace(body, spacer(first), shown.slice(first, last).map(row), spacer(shown.length - last));
  }

  async function read() {
    const begun = performance.now();
    try {
      const [streamsNow, pages] = await Promise.all(["api/v1/queues", "api/v1/targets"].map((path) => all(path, { signal: stop.signal })));
      for (const one of pages.items) {
        one.key = `${one.namespace}/${one.name}`;
        one.text = `${one.key} ${one.cluster ?? ""} ${one.error?.reason ?? ""} ${one.error?.message ?? ""}`.toLowerCase();
      }
      targets = pages.items;
      problem.replaceChildren();
      replace(queues, streams(streamsNow.items));
      refresh();
    } catch (failure) {
      if (stop.signal.aborted) return;
      replace(problem, notice(failure));
      if (targets === null) replace(queues, empty("The streams could not be read."));
    }
    const pause = Math.max(READ_MS, (performance.now() - begun) * 20);
    setTimeout(() => !stop.signal.aborted && read(), pause);
  }

  let waiting = false;
  const scrolled = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      if (!stop.signal.aborted) draw();
    });
  };
  addEventListener("scroll", scrolled, { passive: true, signal: stop.signal });
  addEventListener("resize", scrolled, { signal: stop.signal });
  refresh();
  read();
  return { title: "MLA", filters: refresh, search: () => search.focus(), end: () => stop.abort() };
}
