// The table of VMs. Only the rows on the screen exist, so 10,000 VMs stay smooth.
import { h, link, text } from "./dom.js";
import { change, parse, toCluster, toHost, toVm } from "./route.js";
import { store } from "./store.js";
import { CAUSES, STATES, VERDICTS, badge, count, rank } from "./words.js";

const COLUMNS = [
  ["name", "VM"],
  ["health", "Health"],
  ["reason", "Reason"],
  ["cluster", "Cluster"],
  ["zone", "Zone"],
  ["node", "Host"],
  ["state", "State"],
  ["agent", "Agent"],
  ["findings", "Findings"],
];
/** Rows above and below the screen. */
const SPARE_ROWS = 8;
const FILTERS = ["health", "cause", "cluster", "zone", "node", "state", "agent"];

/** Choices that are the same for each fleet. */
const WORDS = { health: VERDICTS.map((verdict) => verdict.toLowerCase()), cause: CAUSES, state: STATES };

/** The clusters, zones and hosts of all VMs, sorted. */
function placesOfFleet() {
  const found = { cluster: new Set(), zone: new Set(), node: new Set() };
  for (const vm of store.vms.values()) for (const name in found) found[name].add(vm[name] || "-");
  return Object.fromEntries(Object.entries(found).map(([name, values]) => [name, [...values].sort()]));
}

const ORDER = {
  name: (vm) => vm.key,
  health: (vm) => rank(vm.verdict),
  findings: (vm) => -vm.findings,
};

function comparison(sort) {
  const descending = sort.startsWith("-");
  const column = sort.replace(/^-/, "");
  const value = ORDER[column] ?? ((vm) => vm[column] ?? "");
  const sign = descending ? -1 : 1;
  return (a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x < y) return -sign;
    if (x > y) return sign;
    return a.key < b.key ? -1 : 1;
  };
}

/** Whether a row has all filters of the URL. */
function filter(query) {
  const words = (query.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = FILTERS.map((name) => [name, (query.get(name) ?? "").split(",").filter(Boolean)]).filter(
    ([, values]) => values.length,
  );
  const value = (vm, name) => (name === "health" ? vm.verdict.toLowerCase() : vm[name] || "-");
  return (vm) =>
    wanted.every(([name, values]) => values.includes(value(vm, name))) &&
    words.every((word) => vm.text.includes(word));
}

function cells(vm) {
  const place = [vm.cluster, vm.node].filter(Boolean).join(" · ");
  return [
    h("th", { scope: "row" }, h("a", { href: toVm(vm) }, vm.name), h("span", { class: "sub" }, vm.namespace), h("span", { class: "sub place" }, place)),
    h("td", null, badge(vm.verdict, vm.cause)),
    h("td", { title: vm.message }, vm.reason),
    h("td", null, vm.cluster ? link(toCluster(vm.cluster), vm.cluster) : none("no UserCluster selects it")),
    h("td", null, vm.zone || none("unknown")),
    h("td", null, vm.node ? link(toHost(vm.node), vm.node) : none("not placed")),
    h("td", null, vm.state),
    h("td", null, vm.agent),
    h("td", { class: "number" }, vm.findings || "0"),
  ];
}

const none = (why) => h("span", { class: "empty" }, why);

/** The view of all VMs. */
export function tableView(main) {
  const search = h("input", {
    id: "q",
    type: "search",
    placeholder: "Name, cluster, host, reason",
    "aria-keyshortcuts": "/",
    oninput: () => change({ q: search.value }),
  });
  const selects = new Map(
    FILTERS.filter((name) => name !== "agent").map((name) => [
      name,
      h("select", { id: `f-${name}`, onchange: (event) => change({ [name]: event.target.value }, true) }),
    ]),
  );
  const result = h("p", { role: "status", class: "result" });
  const heads = new Map(
    COLUMNS.map(([name, title]) => {
      const button = h("button", { type: "button", onclick: () => sortBy(name) }, title);
      return [name, h("th", { scope: "col", class: `c-${name}` }, button)];
    }),
  );
  const body = h("tbody", { onkeydown: keys });
  const above = h("tr", { class: "spacer", "aria-hidden": "true" }, h("td"));
  const below = h("tr", { class: "spacer", "aria-hidden": "true" }, h("td"));
  const table = h(
    "table",
    { class: "vms", "aria-label": "VMs" },
    h("thead", null, h("tr", null, [...heads.values()])),
    body,
  );
  const clear = h("button", { type: "button", onclick: () => clearAll() }, "Clear filters");
  main.append(
    h("h1", { tabindex: "-1" }, "VMs"),
    h(
      "form",
      { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      h("label", { for: "q" }, "Search", search),
      [...selects].map(([name, select]) => h("label", { for: select.id }, LABELS[name], select)),
      clear,
    ),
    result,
    table,
  );

  // From all VMs; null after a change of them.
  let places = null;
  let sorted = null;
  let sortedBy = "";
  let shown = [];
  let height = 0;
  const drawn = new Map();

  function clearAll() {
    change(Object.fromEntries(["q", ...FILTERS].map((name) => [name, ""])), true);
    search.focus();
  }

  function sortBy(name) {
    const now = parse().query.get("sort") ?? "health";
    change({ sort: now === name ? `-${name}` : name }, true);
  }

  /** Choices of a select: those of the fleet, and what the URL has. */
  function choices() {
    const { query } = parse();
    // A key press does not change the fleet, and reading 10,000 VMs would delay it.
    places ??= placesOfFleet();
    for (const [name, select] of selects) {
      const now = query.get(name) ?? "";
      const options = WORDS[name] ?? places[name];
      const all = now && !options.includes(now) ? [...options, now] : options;
      const wanted = all.join("\n");
      if (select.dataset.options !== wanted) {
        select.dataset.options = wanted;
        select.replaceChildren(
          h("option", { value: "" }, "all"),
          ...all.map((value) => h("option", { value }, value === "-" ? "none" : value)),
        );
      }
      select.value = now;
    }
    if (document.activeElement !== search || search.value === "") search.value = query.get("q") ?? "";
    clear.hidden = !["q", ...FILTERS].some((name) => query.has(name));
  }

  function select() {
    const { query } = parse();
    const sort = query.get("sort") || "health";
    if (sorted === null || sortedBy !== sort) {
      sorted = [...store.vms.values()].sort(comparison(sort));
      sortedBy = sort;
    }
    const matches = filter(query);
    shown = sorted.filter(matches);
    for (const [name, head] of heads) {
      const now = sort === name ? "ascending" : sort === `-${name}` ? "descending" : "none";
      if (head.getAttribute("aria-sort") !== now) head.setAttribute("aria-sort", now);
    }
    const all = store.vms.size;
    const found = shown.length === all ? count(all, "VM") : `${shown.length} of ${count(all, "VM")}`;
    text(result, all === 0 ? (store.loaded ? "The inventory has no VMs." : "Reading the fleet…") : found);
    table.setAttribute("aria-rowcount", shown.length + 1);
  }

  /** Draws the rows of the part of the list that is on the screen. */
  function draw() {
    height ||= parseFloat(getComputedStyle(table).getPropertyValue("--row")) || 36;
    const top = -body.getBoundingClientRect().top;
    const first = Math.max(0, Math.min(shown.length, Math.floor(top / height)) - SPARE_ROWS);
    const last = Math.min(shown.length, Math.ceil((top + innerHeight) / height) + SPARE_ROWS);
    const wanted = shown.slice(first, Math.max(first, last));
    const names = new Set(wanted.map((vm) => vm.key));
    const focused = body.contains(document.activeElement) ? document.activeElement.closest("tr")?.dataset.key : null;
    for (const [key, entry] of drawn) {
      // The focused row stays, or the focus would be lost.
      if (!names.has(key) && (key !== focused || !store.vms.has(key))) {
        entry.element.remove();
        drawn.delete(key);
      }
    }
    let before = above;
    if (above.parentNode !== body) body.prepend(above);
    if (below.parentNode !== body) body.append(below);
    wanted.forEach((vm, index) => {
      let entry = drawn.get(vm.key);
      if (!entry) {
        entry = { element: h("tr", { "data-key": vm.key }), vm: null };
        drawn.set(vm.key, entry);
      }
      if (entry.vm !== vm) {
        const focus = entry.element.contains(document.activeElement);
        entry.element.replaceChildren(...cells(vm));
        entry.vm = vm;
        if (focus) entry.element.querySelector("a").focus({ preventScroll: true });
      }
      entry.element.setAttribute("aria-rowindex", first + index + 2);
      if (before.nextSibling !== entry.element) before.after(entry.element);
      before = entry.element;
    });
    above.firstChild.style.height = `${first * height}px`;
    below.firstChild.style.height = `${(shown.length - first - wanted.length) * height}px`;
    above.hidden = first === 0;
    below.hidden = first + wanted.length >= shown.length;
  }

  /** Arrows move between rows, beyond those that exist too. */
  function keys(event) {
    const row = event.target.closest("tr");
    const at = shown.findIndex((vm) => vm.key === row?.dataset.key);
    const page = Math.max(1, Math.floor(innerHeight / height) - 3);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -shown.length, End: shown.length };
    const step = steps[event.key];
    if (at < 0 || step === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    if (event.key === "ArrowUp" && at === 0) {
      search.focus();
      return;
    }
    go(Math.max(0, Math.min(shown.length - 1, at + step)));
  }

  function go(index) {
    const vm = shown[index];
    if (!vm) return;
    const head = table.tHead.offsetHeight;
    const top = body.getBoundingClientRect().top + index * height;
    if (top < head) scrollBy(0, top - head);
    else if (top + height > innerHeight) scrollBy(0, top + height - innerHeight + 8);
    draw();
    drawn.get(vm.key)?.element.querySelector("a").focus({ preventScroll: true });
  }

  let waiting = false;
  const scrolled = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  };
  const resized = () => {
    height = 0;
    scrolled();
  };
  search.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      go(Math.max(0, Math.ceil(-body.getBoundingClientRect().top / (height || 36))));
    }
  });
  addEventListener("scroll", scrolled, { passive: true });
  addEventListener("resize", resized);

  const refresh = () => {
    choices();
    select();
    draw();
  };
  refresh();

  // Sorting 10,000 rows costs some milliseconds, so a storm of changes is drawn a few times a second.
  let timer = null;
  let drawnAt = 0;
  const renew = () => {
    timer = null;
    drawnAt = performance.now();
    places = null;
    sorted = null;
    refresh();
  };
  return {
    title: "VMs",
    changed: () => {
      timer ??= setTimeout(renew, Math.max(0, drawnAt + 300 - performance.now()));
    },
    filters: refresh,
    search: () => search.focus(),
    end: () => {
      clearTimeout(timer);
      removeEventListener("scroll", scrolled);
      removeEventListener("resize", resized);
    },
  };
}

const LABELS = { health: "Health", cause: "Cause", cluster: "Cluster", zone: "Zone", node: "Host", state: "State" };
