// The view and its filters live in the URL, behind `#`: the page works below any path prefix.

/** Parses the URL: `{ view, parts, query }`. */
export function parse(hash = location.hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map(decode);
  return { view: parts[0] ?? "", parts: parts.slice(1), query: new URLSearchParams(search) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The URL of a view. `query` leaves out empty values. */
export function to(view, parts = [], query = {}) {
  const search = new URLSearchParams();
  const entries = query instanceof URLSearchParams ? [...query] : Object.entries(query);
  for (const [name, value] of entries) {
    if (value !== "" && value !== null && value !== undefined) search.set(name, value);
  }
  const tail = search.size ? `?${search}` : "";
  return `#/${[view, ...parts].filter((part) => part !== "").map(encodeURIComponent).join("/")}${tail}`;
}

export const toVm = (vm) => to("vm", [vm.namespace, vm.name]);
export const toHost = (name) => to("host", [name]);
export const toCluster = (name) => to("cluster", [name]);

/** Changes the filters of this view; `push` adds an entry to the history. */
export function change(changes, push) {
  const { view, parts, query } = parse();
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null) query.delete(name);
    else query.set(name, value);
  }
  const url = to(view, parts, query);
  if (url === location.hash) return;
  if (push) history.pushState(null, "", url);
  else history.replaceState(history.state, "", url);
  dispatchEvent(new CustomEvent("filters"));
}
