// All findings, with search and filters in the URL.
import { all } from "./api.js";
import { empty, h, link, replace, text } from "./dom.js";
import { change, parse, toVm } from "./route.js";
import { findings } from "./sections.js";
import { notice } from "./signin.js";
import { store } from "./store.js";
import { count } from "./words.js";

/** Findings that are shown at once. */
const MAX_FINDINGS = 300;
const ORDER = { critical: 0, warning: 1, info: 2 };

export function findingsView(main) {
  const stop = new AbortController();
  const search = h("input", { id: "q", type: "search", placeholder: "Message, VM, id", "aria-keyshortcuts": "/", oninput: () => change({ q: search.value }) });
  const severity = h(
    "select",
    { id: "f-severity", onchange: () => change({ severity: severity.value }, true) },
    h("option", { value: "" }, "all"),
    Object.keys(ORDER).map((word) => h("option", { value: word }, word)),
  );
  const result = h("p", { role: "status", class: "result" });
  const content = h("div");
  main.append(
    h("h1", { tabindex: "-1" }, "Findings"),
    h(
      "form",
      { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      h("label", { for: "q" }, "Search", search),
      h("label", { for: "f-severity" }, "Severity", severity),
    ),
    result,
    content,
  );
  let found = null;
  let known = -1;
  let reading = false;

  function draw() {
    const { query } = parse();
    severity.value = query.get("severity") ?? "";
    if (document.activeElement !== search) search.value = query.get("q") ?? "";
    if (found === null) return;
    const words = (query.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const shown = found.filter(
      (one) => (!severity.value || one.severity === severity.value) && words.every((word) => one.text.includes(word)),
    );
    text(result, shown.length === found.length ? count(found.length, "finding") : `${shown.length} of ${count(found.length, "finding")}`);
    const owner = (one) => (one.name ? link(toVm(one), `${one.namespace}/${one.name}`) : h("span", { class: "sub" }, "inventory"));
    replace(
      content,
      findings(
        shown.slice(0, MAX_FINDINGS).map((finding) => ({ finding, owner: owner(finding) })),
        found.length ? "No finding has these filters." : "There are no findings.",
      ),
      shown.length > MAX_FINDINGS && empty(`${shown.length - MAX_FINDINGS} more: use the filters.`),
    );
  }

  async function read() {
    if (reading || known === store.findingsVersion) return;
    reading = true;
    known = store.findingsVersion;
    const begun = performance.now();
    try {
      const { items } = await all("api/v1/findings", { signal: stop.signal });
      for (const one of items) one.text = `${one.namespace ?? ""}/${one.name ?? ""} ${one.id} ${one.reason} ${one.message}`.toLowerCase();
      items.sort((a, b) => ORDER[a.severity] - ORDER[b.severity]);
      found = items;
      draw();
    } catch (error) {
      if (!stop.signal.aborted) replace(content, notice(error));
    }
    setTimeout(() => {
      reading = false;
      if (!stop.signal.aborted) read();
    }, (performance.now() - begun) * 4);
  }

  draw();
  replace(content, empty("Reading the findings…"));
  if (store.loaded) read();
  return { title: "Findings", changed: read, filters: draw, search: () => search.focus(), end: () => stop.abort() };
}
