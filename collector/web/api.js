// Requests to the collector. Paths are relative, so that an API server's proxy may be in between.

/** An answer that is not data: `status`, `code`, `message`, `remedy`. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail.message ?? `the collector answered ${status}`);
    this.status = status;
    this.code = detail.code ?? "";
    this.remedy = detail.remedy ?? "";
  }
}

// Other services behind an API server's proxy have the same origin, so below a path the token stays
// in memory.
const KEPT = location.pathname === "/" ? "virtfleet-token" : null;
let token = KEPT ? (sessionStorage.getItem(KEPT) ?? "") : "";

export const hasToken = () => token !== "";

/** Sets the bearer token; an empty one forgets it. */
export function setToken(value) {
  token = value;
  if (!KEPT) return;
  if (value) sessionStorage.setItem(KEPT, value);
  else sessionStorage.removeItem(KEPT);
}

// Behind an API server's proxy each request may reach another collector, and only the leader answers
// for the fleet. After a leader has died, the next one leads within 17 seconds.
const QUICK_LEADER_TRIES = 6;
const MAX_LEADER_TRIES = 24;
const LEADER_PAUSE_MS = 1000;

async function request(path, options) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await send(path, options);
    } catch (error) {
      if (error.code !== "not_leading" || tries === MAX_LEADER_TRIES) throw error;
    }
    if (tries >= QUICK_LEADER_TRIES) await pause(LEADER_PAUSE_MS, options?.signal);
  }
}

/** Waits; fails at once when `signal` is aborted. */
function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
    if (signal?.aborted) stop();
  });
}

async function send(path, options = {}) {
  const headers = { accept: "application/json" };
  // Not `authorization`: an API server's proxy keeps that one for itself.
  if (token) headers["virtfleet-authorization"] = `Bearer ${token}`;
  const response = await fetch(path, { headers, cache: "no-store", ...options });
  if (response.ok) return response;
  let detail = {};
  try {
    detail = (await response.json()).error ?? {};
  } catch {
    // The answer of a proxy.
  }
  throw new Refused(response.status, detail);
}

/** JSON at a path. */
export async function get(path, options) {
  return (await request(path, options)).json();
}

/** Calls `take` with each page of a list. Pages keep the browser responsive. */
export async function pages(path, take, options) {
  let next = null;
  do {
    const query = next === null ? "" : `&continue=${encodeURIComponent(next)}`;
    const page = await get(`${path}?limit=1000${query}`, options);
    take(page);
    next = page.continue ?? null;
  } while (next !== null);
}

/** All items of a list: `{ items, partial }`. */
export async function all(path, options) {
  const items = [];
  let partial = false;
  await pages(path, (page) => {
    items.push(...page.items);
    partial ||= page.partial;
  }, options);
  return { items, partial };
}

/**
 * Reads the stream of changes until it ends, and calls `take(name, data)` for each event. A comment
 * has the name "". Own code in place of EventSource, which cannot send a token.
 */
export async function watch(take, signal) {
  const response = await request("api/v1/watch", { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      const lines = rest.slice(0, end).split("\n");
      rest = rest.slice(end + 2);
      const field = (name) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      take(field("event") ?? "", JSON.parse(field("data") ?? "null"));
    }
  }
}
