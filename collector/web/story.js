// One VM: its specification against what the guest sees, its live migrations, and its timeline.
import { empty, grid, h, link, section } from "./dom.js";
import { toHost } from "./route.js";
import { ago, noGuest } from "./words.js";

/** Words for the results of a comparison. */
const RESULTS = { Differs: "differs", Agrees: "agrees", NotSeen: "not seen" };

/** A length of time in milliseconds. */
function seconds(ms) {
  return ms < 10000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 1000)} s`;
}

/** What the VMI asks for against what the guest sees; differences first. */
export function spec(vm) {
  const title = "Specification against guest";
  if (!vm.spec?.length) return section(title, empty(vm.report ? "The VMI asks for nothing that can be compared." : noGuest(vm)));
  const word = (one) => `${RESULTS[one.result] ?? one.result}${one.result === "Differs" && !one.matters ? " (a notice)" : ""}`;
  const rows = (all) => all.map((one) => [one.path, one.asked, one.seen ?? "–", word(one), one.why || "–"]);
  const head = ["Field of the VMI", "Asked", "Seen", "Result", "Why"];
  const seen = vm.spec.filter((one) => one.result !== "NotSeen");
  const hidden = vm.spec.filter((one) => one.result === "NotSeen");
  return section(
    title,
    seen.length ? grid(title, head, rows(seen)) : empty("No field was seen by the guest."),
    hidden.length > 0 &&
      h("details", null, h("summary", null, `Not seen (${hidden.length})`), grid("Fields that were not seen", head, rows(hidden))),
  );
}

/** What the guest felt of a migration. */
function felt(one) {
  const it = one.felt;
  if (!it?.isReported) return "not known: the agent has not reported since";
  const parts = [];
  if (it.pauseMs !== undefined) parts.push(`paused ${seconds(it.pauseMs)}`);
  else parts.push(it.detectsPauses ? "no pause was detected" : "pauses cannot be detected");
  if (it.clockStepMs !== undefined) parts.push(`clock set by ${seconds(it.clockStepMs)}`);
  if (it.isRestarted) parts.push("the guest booted again");
  parts.push(it.address === "unknown" ? "addresses unknown" : `addresses ${it.address}`);
  return parts.join(", ");
}

/** Live migrations, the newest first. */
export function migrations(vm) {
  const title = "Live migrations";
  if (!vm.migrations?.length) return section(title, empty("None is known: the VM has not migrated in the life of its VMI."));
  const host = (name) => (name ? link(toHost(name), name) : "–");
  const rows = vm.migrations.map((one) => [
    ago(one.startMs ?? one.createdMs) ?? "–",
    host(one.source),
    host(one.target),
    one.failureReason ? `${one.phase}: ${one.failureReason}` : one.phase,
    one.durationMs === undefined ? "–" : seconds(one.durationMs),
    one.mode ?? "–",
    felt(one),
  ]);
  return section(title, grid(title, ["Began", "From", "To", "Result", "Duration", "Mode", "What the guest felt"], rows));
}

/** What happened to the VM, the newest first. */
export function timeline(vm) {
  const title = "Timeline";
  const since = h("p", { class: "sub" }, "The collector remembers since it started, ", ago(vm.timelineSinceMs) ?? "just now", ".");
  if (!vm.timeline?.length) return section(title, empty("Nothing has happened since the collector started."), since);
  const rows = [...vm.timeline].sort((a, b) => b.atMs - a.atMs).map((one) => [ago(one.atMs), one.kind, one.text]);
  return section(title, grid(title, ["When", "What", "Text"], rows), since);
}
