// Words for verdicts, times, sizes, and for what is missing.
import { h } from "./dom.js";

/** Verdicts, the worst first, each with a sign: colour alone would not tell them apart. */
export const VERDICTS = ["Critical", "Degraded", "Unknown", "Healthy"];
const SIGNS = { Critical: "✕", Degraded: "!", Unknown: "?", Healthy: "✓" };
export const CAUSES = ["host", "storage", "vm", "migration", "network", "guest", "neighbour", "agent", "labels"];
export const STATES = ["running", "migrating", "paused", "starting", "stopping", "stopped", "succeeded", "failed", "unknown"];

export const rank = (verdict) => {
  const at = VERDICTS.indexOf(verdict);
  return at < 0 ? 2 : at;
};

export const sign = (verdict) => SIGNS[verdict] ?? "?";
const tone = (verdict) => (SIGNS[verdict] ? verdict.toLowerCase() : "unknown");

/** A verdict with its sign; `more` follows in the same badge. */
export function badge(verdict, more) {
  return h(
    "span",
    { class: `badge ${tone(verdict)}` },
    h("span", { class: "sign", "aria-hidden": "true" }, sign(verdict)),
    more ? `${verdict} (${more})` : verdict,
  );
}

const SEVERITIES = { critical: "Critical", warning: "Degraded", info: "Info" };
/** The severity of a finding. */
export function severity(word) {
  const verdict = SEVERITIES[word] ?? "Info";
  return h(
    "span",
    { class: `badge ${verdict === "Info" ? "info" : tone(verdict)}` },
    h("span", { class: "sign", "aria-hidden": "true" }, verdict === "Info" ? "i" : sign(verdict)),
    word,
  );
}

/** The status of a condition. */
export function status(condition) {
  const tones = { True: "Healthy", False: condition.severity === "Healthy" ? "Unknown" : condition.severity };
  const verdict = tones[condition.status] ?? "Unknown";
  const signs = { True: "✓", False: sign(condition.severity === "Healthy" ? "Degraded" : condition.severity) };
  return h(
    "span",
    { class: `badge ${tone(verdict)}` },
    h("span", { class: "sign", "aria-hidden": "true" }, signs[condition.status] ?? "?"),
    condition.status,
  );
}

/** `3 VMs`. */
export const count = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

/** A duration in words, e.g. `3 min`. */
export function span(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 90) return `${seconds} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/** A time that shows its age; `ms` since 1970 or RFC 3339. */
export function ago(at) {
  const ms = typeof at === "string" ? Date.parse(at) : at;
  if (!ms) return null;
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return String(at);
  const iso = date.toISOString();
  return h("time", { datetime: iso, title: iso, "data-at": ms }, `${span(Date.now() - ms)} ago`);
}

/** Renews the ages that are on the screen. */
export function renewAges() {
  for (const element of document.querySelectorAll("time[data-at]")) {
    const now = `${span(Date.now() - Number(element.dataset.at))} ago`;
    if (element.textContent !== now) element.textContent = now;
  }
}

/** A size in bytes. */
export function bytes(number) {
  if (typeof number !== "number") return null;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let size = number;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${size >= 100 || unit === 0 ? Math.round(size) : size.toFixed(1)} ${units[unit]}`;
}

/** Why nothing of the guest is known. */
export function noGuest(vm) {
  if (["stopped", "succeeded", "failed"].includes(vm.state)) return `The VM is ${vm.state}: its guest does not run.`;
  if (vm.state === "starting") return "The VM is starting: its guest does not run yet.";
  switch (vm.agent.status) {
    case "disabled":
      return "This collector pulls no agents: neither enrolment nor scrape.tls is set.";
    case "unmanaged":
      return "The agent of this VM is not dialled: an annotation, vms.selector or Windows excludes it.";
    case "waiting":
      return "Not known yet: the first pull of the agent has not ended.";
    case "silent":
      return "No report: the agent has not answered since the collector started.";
    default:
      return "No report: an agent in the guest is needed.";
  }
}

/** Why a section of the report has no items. */
export function noSection(vm, name) {
  const section = vm.report?.sections?.[name];
  if (!vm.report) return noGuest(vm);
  if (!section) return `The agent${vm.agent.version ? ` (${vm.agent.version})` : ""} does not report this.`;
  if (section.status === "failed") return "The agent could not read this.";
  if (section.status === "unknown") return "The agent does not know this yet.";
  return null;
}

export const list = (values) => (Array.isArray(values) && values.length ? values.map(shown).join(", ") : null);

/** Any JSON value as text. */
export function shown(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
