// The page: views by URL, the state of the connection, signing in and out.
import { hasToken, setToken } from "./api.js";
import { h, link, replace, text } from "./dom.js";
import { findingsView } from "./findings.js";
import { mapView } from "./map.js";
import { mlaView } from "./mla.js";
import { clusterView, clustersView, hostView, hostsView } from "./places.js";
import { parse, to } from "./route.js";
import { notice, signin } from "./signin.js";
import { clear, isRunning, start, stop, store, subscribe } from "./store.js";
import { tableView } from "./table.js";
import { vmView } from "./vm.js";
import { renewAges } from "./words.js";

const VIEWS = {
  "": mapView,
  vms: tableView,
  vm: vmView,
  hosts: hostsView,
  host: hostView,
  clusters: clustersView,
  cluster: clusterView,
  findings: findingsView,
  mla: mlaView,
};
const LINKS = [
  ["", "Fleet"],
  ["vms", "VMs"],
  ["hosts", "Hosts"],
  ["clusters", "Clusters"],
  ["findings", "Findings"],
  ["mla", "MLA"],
];
const ABOVE = { vm: "vms", host: "hosts", cluster: "clusters" };
const MODES = {
  live: "live",
  polling: "every few seconds (no live stream)",
  connecting: "connecting…",
  refused: "not signed in",
  offline: "no connection, trying again",
};

const byId = (id) => document.getElementById(id);
const [main, nav, live, forget] = ["main", "nav", "live", "forget"].map(byId);
let view = null;
let shownPath = null;

function drawNav(current) {
  replace(
    nav,
    LINKS.map(([name, title]) => h("a", { href: to(name), "aria-current": name === current ? "page" : null }, title)),
  );
}

function drawLive() {
  live.dataset.mode = store.mode;
  text(live, MODES[store.mode] + (store.partial && store.loaded ? ", incomplete" : ""));
  forget.hidden = !hasToken();
}

/** Shows the view of the URL. */
function show(focus) {
  const { view: name, parts } = parse();
  shownPath = location.hash.split("?")[0];
  view?.end?.();
  view = null;
  main.replaceChildren();
  drawNav(ABOVE[name] ?? name);
  const isDenied = store.mode === "refused" && store.refused;
  if (isDenied) {
    main.append(
      ...signin(store.refused, () => {
        clear();
        start();
        show(true);
      }),
    );
    document.title = "Sign in · virtfleet";
  } else {
    if (store.refused && !store.loaded) main.append(notice(store.refused));
    const make = VIEWS[name];
    if (make) view = make(main, parts);
    else main.append(h("h1", { tabindex: "-1" }, "Not found"), h("p", null, "This page has no such view. ", link(to(""), "Show the fleet")));
    document.title = `${view?.title ?? "Not found"} · virtfleet`;
  }
  if (focus) (isDenied ? byId("token") : main.querySelector("h1"))?.focus({ preventScroll: true });
}

/** Back and forward return to where the reader was; a link goes to the top. */
history.scrollRestoration = "manual";
const places = new Map();
let place = history.state?.place ?? 0;
let lastPlace = place;
history.replaceState({ place }, "");
addEventListener("scroll", () => places.set(place, scrollY), { passive: true });

function navigate() {
  const known = history.state?.place;
  if (known === undefined) {
    lastPlace += 1;
    place = lastPlace;
    history.replaceState({ place }, "");
  } else place = known;
  const y = known === undefined ? 0 : (places.get(place) ?? 0);
  if (shownPath === location.hash.split("?")[0] && view?.filters) view.filters();
  else show(true);
  scrollTo(0, y);
}

addEventListener("popstate", navigate);
addEventListener("filters", () => {
  if (history.state?.place === undefined) {
    lastPlace += 1;
    place = lastPlace;
    history.replaceState({ place }, "");
  }
  view?.filters?.();
});

byId("skip").addEventListener("click", (event) => {
  // The hash is the view's, so the link cannot use it.
  event.preventDefault();
  main.focus();
});
forget.addEventListener("click", () => {
  setToken("");
  clear();
  start();
  show(true);
});
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && view?.search) {
    event.preventDefault();
    view.search();
  }
});

let lastMode = store.mode;
subscribe((keys) => {
  drawLive();
  const entered = store.mode === "refused" || lastMode === "refused";
  if (store.mode !== lastMode && entered) show(true);
  else if (store.mode !== "refused") {
    if (store.loaded) main.querySelector(":scope > .notice")?.remove();
    view?.changed?.(keys);
  }
  lastMode = store.mode;
});

// A hidden page gives its connection back: a browser opens only a few to one host.
let hiding = null;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(stop, 60000);
  else if (!isRunning() && store.mode !== "refused") start();
});
setInterval(renewAges, 1000);

drawLive();
show(false);
start();
