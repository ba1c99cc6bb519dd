// The fleet as this caller sees it, kept current by the stream of changes, else by polling.
import { Refused, all, pages, watch } from "./api.js";

const RETRY_MS = 2000;
const MAX_RETRY_MS = 30000;
const POLL_MS = 5000;
// A stream without heartbeat for so long is dead, or a proxy holds its events back.
const SILENCE_MS = 40000;
const FIRST_EVENT_MS = 5000;
// A proxy that holds events back does so again: until then the lists are read without another try.
const HELD_STREAM_MS = 60000;

const keyOf = (vm) => `${vm.namespace}/${vm.name}`;

/** A VM's row: what lists show, without the rest of the answer. */
function row(vm) {
  return {
    key: keyOf(vm),
    namespace: vm.namespace,
    name: vm.name,
    cluster: vm.cluster ?? "",
    node: vm.infraNode ?? "",
    zone: vm.zone ?? "",
    region: vm.region ?? "",
    state: vm.state,
    verdict: vm.health.verdict,
    cause: vm.health.cause ?? "",
    reason: vm.health.reason,
    message: vm.health.message,
    since: vm.health.sinceMs,
    agent: vm.agent.status,
    findings: vm.findings,
    text: `${vm.namespace}/${vm.name} ${vm.cluster ?? ""} ${vm.infraNode ?? ""} ${vm.userNode ?? ""} ${vm.health.reason} ${vm.health.message}`.toLowerCase(),
  };
}

export const store = {
  /** Rows by key. */
  vms: new Map(),
  hosts: [],
  clusters: [],
  /** Whether VMs may be missing. */
  partial: false,
  /** Whether the lists were read once. */
  loaded: false,
  /** `live`, `polling`, `connecting`, `refused`, `offline`. */
  mode: "connecting",
  /** The answer that refused the last request; null if none did. */
  refused: null,
  /** Grows with every change. */
  version: 0,
  /** Grows with every change of findings. */
  findingsVersion: 0,
};

const listeners = new Set();
let scheduled = false;

/** Calls `listener(changed)` once a frame with changes; `changed`: keys of VMs, null for all. */
export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

let changedKeys = new Set();

function notify(keys) {
  store.version += 1;
  if (keys === null) changedKeys = null;
  else if (changedKeys) for (const key of keys) changedKeys.add(key);
  if (scheduled) return;
  scheduled = true;
  // A hidden page gets no frames.
  const run = document.hidden ? (call) => setTimeout(call, 50) : requestAnimationFrame;
  run(() => {
    scheduled = false;
    const changed = changedKeys;
    changedKeys = new Set();
    for (const listener of listeners) listener(changed);
  });
}

function setMode(mode) {
  if (store.mode === mode) return;
  store.mode = mode;
  notify([]);
}

async function loadVms(signal) {
  const seen = new Map();
  let partial = false;
  await pages("api/v1/vms", (page) => {
    partial ||= page.partial;
    for (const vm of page.items) seen.set(keyOf(vm), row(vm));
    // The first page is shown before the others arrive.
    if (!store.loaded) {
      for (const [key, vm] of seen) store.vms.set(key, vm);
      notify(null);
    }
  }, { signal });
  store.vms = seen;
  store.partial = partial;
  notify(null);
}

async function loadHosts(signal) {
  store.hosts = (await all("api/v1/hosts", { signal })).items;
  notify([]);
}

async function loadClusters(signal) {
  store.clusters = (await all("api/v1/clusters", { signal })).items;
  notify([]);
}

async function loadAll(signal) {
  await Promise.all([loadVms(signal), loadHosts(signal), loadClusters(signal)]);
  store.loaded = true;
  store.findingsVersion += 1;
  store.refused = null;
  notify(null);
}

/** At most one read of a list at a time; a change meanwhile causes one more. */
function reloader(load) {
  let running = false;
  let again = false;
  return async (signal) => {
    if (running) {
      again = true;
      return;
    }
    running = true;
    try {
      do {
        again = false;
        const begun = performance.now();
        await load(signal);
        // A list that takes long to read is read less often.
        await new Promise((resolve) => setTimeout(resolve, (performance.now() - begun) * 4));
      } while (again && !signal.aborted);
    } catch (error) {
      if (!signal.aborted) console.warn("the list could not be read again:", error.message);
    } finally {
      running = false;
    }
  };
}

const reload = { vms: reloader(loadVms), hosts: reloader(loadHosts), clusters: reloader(loadClusters) };

function apply(change, signal) {
  const keys = [];
  for (const vm of change.vms) {
    const made = row(vm);
    store.vms.set(made.key, made);
    keys.push(made.key);
  }
  for (const gone of change.removed) {
    store.vms.delete(keyOf(gone));
    keys.push(keyOf(gone));
  }
  for (const list of change.lists) {
    if (list === "findings") store.findingsVersion += 1;
    else reload[list]?.(signal);
  }
  notify(keys);
}

/** The stream is open, and no event arrives. */
class HeldStream extends Error {}

/** Follows the stream until it ends. Throws what refuses it. */
async function follow(stop) {
  const attempt = new AbortController();
  const abort = () => attempt.abort();
  stop.addEventListener("abort", abort);
  let timer = setTimeout(abort, FIRST_EVENT_MS);
  // Changes that arrive while the lists are read are applied after them.
  let early = [];
  let failure = null;
  try {
    await watch((name, data) => {
      clearTimeout(timer);
      timer = setTimeout(abort, SILENCE_MS);
      if (name === "ready") {
        loadAll(attempt.signal).then(
          () => {
            for (const change of early) apply(change, attempt.signal);
            early = null;
            setMode("live");
          },
          (error) => {
            failure = error;
            abort();
          },
        );
      } else if (name === "change") {
        if (early) early.push(data);
        else apply(data, attempt.signal);
      } else if (name === "end") {
        failure = new Refused(403, data);
      }
    }, attempt.signal);
  } catch (error) {
    if (failure === null && !attempt.signal.aborted) failure = error;
  } finally {
    clearTimeout(timer);
    stop.removeEventListener("abort", abort);
    attempt.abort();
  }
  if (failure) throw failure;
  // The stream was silent: polling may work.
  if (early !== null && !stop.aborted) throw new HeldStream("the stream sends no events");
}

const isDenied = (error) => error instanceof Refused && (error.status === 401 || error.status === 403);

function sleep(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** Keeps the store current until `stop`. Ends when the caller has no rights. */
async function run(stop) {
  let retry = RETRY_MS;
  let heldUntil = 0;
  while (!stop.aborted) {
    try {
      if (performance.now() < heldUntil) throw new HeldStream("the stream was held back");
      await follow(stop);
      retry = RETRY_MS;
    } catch (error) {
      if (stop.aborted) return;
      if (error instanceof HeldStream && performance.now() >= heldUntil) heldUntil = performance.now() + HELD_STREAM_MS;
      if (isDenied(error)) {
        store.refused = error;
        setMode("refused");
        notify(null);
        return;
      }
      // Without the stream, the lists are read from time to time.
      try {
        const begun = performance.now();
        await loadAll(stop);
        setMode("polling");
        await sleep(Math.max(POLL_MS, (performance.now() - begun) * 20), stop);
        continue;
      } catch (polled) {
        if (stop.aborted) return;
        store.refused = polled;
        if (isDenied(polled)) {
          setMode("refused");
          notify(null);
          return;
        }
        setMode("offline");
        notify([]);
        retry = Math.min(retry * 2, MAX_RETRY_MS);
      }
    }
    if (stop.aborted) return;
    if (store.mode === "live") setMode("connecting");
    await sleep(retry, stop);
  }
}

let running = null;

/** Starts again, e.g. with another token. */
export function start() {
  running?.abort();
  running = new AbortController();
  setMode("connecting");
  run(running.signal);
}

/** Stops: a hidden page needs no stream. */
export function stop() {
  running?.abort();
  running = null;
}

/** Forgets the fleet: the token is gone. */
export function clear() {
  stop();
  Object.assign(store, { vms: new Map(), hosts: [], clusters: [], loaded: false, refused: null });
  notify(null);
}

export const isRunning = () => running !== null;
