// Parts of a VM's page that come from the last report of its guest. The values are not verified.
import { empty, grid, h, pairs, section } from "./dom.js";
import { ago, bytes, list, noSection, severity, shown } from "./words.js";

const items = (vm, name) => vm.report?.sections?.[name]?.items ?? [];
const some = (value) => (value === undefined || value === null || value === "" ? "–" : shown(value));

/** A section of the report, or why it is empty. */
function reported(title, vm, name, none, content) {
  const why = noSection(vm, name);
  if (why) return section(title, empty(why));
  const all = items(vm, name);
  if (all.length === 0) return section(title, empty(none));
  const cut = vm.report.sections[name].truncated;
  return section(title, content(all), cut && empty("The report was too long: there are more."));
}

/** System and agent of the guest. */
export function guest(vm) {
  const [system = {}] = items(vm, "system");
  const why = noSection(vm, "system");
  if (why) return section("Guest", empty(why));
  return section(
    "Guest",
    pairs([
      ["System", system.osName ?? vm.guest?.os ?? "–"],
      ["Kernel", system.kernel ?? vm.guest?.kernel ?? "–"],
      ["Host name", vm.guest?.hostname ?? "–"],
      ["vCPUs", system.cpusOnline ?? (vm.guest?.metrics?.cpus || null)],
      ["Memory", bytes(system.memoryTotalBytes ?? vm.guest?.metrics?.memoryTotalBytes)],
      ["Memory available", bytes(vm.guest?.metrics?.memoryAvailableBytes)],
      ["Load (1 min)", vm.guest?.metrics?.load1 ?? null],
      ["Booted", ago((vm.guest?.metrics?.bootTimeSeconds ?? 0) * 1000) ?? null],
    ]),
  );
}

/** Declared disks, then block devices. */
export function disks(vm) {
  return [
    reported("Declared disks", vm, "storage", "The settings of the agent declare no disks.", (all) =>
      grid(
        "Declared disks",
        ["Disk", "State", "Device", "Size", "Filesystem", "Mounted at", "Why"],
        all.map((disk) => [
          some(disk.name),
          some(disk.state),
          some(disk.device),
          bytes(disk.sizeBytes) ?? "–",
          some(disk.filesystem),
          list(disk.places?.map((place) => place.path)) ?? some(disk.mountPoint),
          [disk.error, ...(disk.refusals ?? []).map((refusal) => refusal.message)].filter(Boolean).map(shown).join("; ") || "–",
        ]),
      ),
    ),
    reported("Block devices", vm, "disks", "The guest has no block devices.", (all) =>
      grid(
        "Block devices",
        ["Device", "Size", "Serial", "Driver", "Read-only"],
        all.map((disk) => [
          some(disk.name),
          bytes(disk.sizeBytes) ?? "–",
          some(disk.serial),
          some(disk.driver),
          disk.readOnly === undefined ? "–" : disk.readOnly ? "yes" : "no",
        ]),
      ),
    ),
  ];
}

/** Summary of DNS, then its nameservers. */
export function dns(vm) {
  return reported("DNS", vm, "dns", "The agent has not looked at DNS in this boot.", (all) => {
    const summary = all.find((item) => item.nameserver === undefined) ?? {};
    const servers = all.filter((item) => item.nameserver !== undefined);
    return [
      pairs([
        ["State", some(summary.state)],
        ["Managed by the agent", summary.manage === undefined ? null : some(summary.manage)],
        ["Owner of resolv.conf", summary.owner === undefined ? null : some(summary.owner)],
        ["In use", list(summary.effective?.nameservers)],
        ["Requested", list(summary.asked?.nameservers)],
        ["Search", list(summary.effective?.searches)],
        ["Error", summary.error ?? null],
      ]),
      servers.length > 0 &&
        grid(
          "Nameservers",
          ["Nameserver", "In use", "Requested", "Health", "Why", "Answer time"],
          servers.map((server) => [
            some(server.nameserver),
            server.inUse ? "yes" : "no",
            server.asked ? "yes" : "no",
            some(server.health),
            some(server.because),
            typeof server.micros === "number" ? `${(server.micros / 1000).toFixed(1)} ms` : "–",
          ]),
        ),
    ];
  });
}

/** virtio devices with their queues, and network interfaces. */
export function virtio(vm) {
  return [
    reported("virtio", vm, "virtio", "The guest has no virtio devices.", (all) => {
      const machine = all.find((item) => item.kind === "machine");
      const devices = all.filter((item) => item.kind === "device");
      const queued = all.filter((item) => item.kind === "disk");
      return [
        machine &&
          pairs([
            ["vCPUs online", machine.cpusOnline],
            ["Interrupt vectors", machine.vectorsUsed === undefined ? null : `${machine.vectorsUsed} of about ${some(machine.vectorsLimit)}`],
          ]),
        devices.length > 0
          ? grid(
              "virtio devices",
              ["Device", "Type", "State", "Queues", "Vectors", "Shared vectors"],
              devices.map((device) => [
                list(device.parts) ?? some(device.name),
                some(device.type),
                some(device.state),
                some(device.queues),
                some(device.vectors),
                some(device.sharing),
              ]),
            )
          : empty("The report names no virtio devices."),
        queued.length > 0 &&
          grid(
            "Queues of disks",
            ["Disk", "Queues", "Depth", "Scheduler", "Write cache"],
            queued.map((disk) => [some(disk.name), some(disk.queues), some(disk.depth), some(disk.scheduler), some(disk.writeCache)]),
          ),
      ];
    }),
    reported("Network interfaces", vm, "nics", "The guest has no network interfaces.", (all) =>
      grid(
        "Network interfaces",
        ["Interface", "MAC", "MTU", "State", "Queues (rx/tx)", "Channels"],
        all.map((nic) => [
          some(nic.name),
          some(nic.mac),
          some(nic.mtu),
          some(nic.operstate),
          nic.rxQueues === undefined ? "–" : `${nic.rxQueues}/${nic.txQueues}`,
          nic.channels === undefined ? "–" : `${nic.channels} of ${some(nic.channelsPossible)}`,
        ]),
      ),
    ),
  ];
}

/** Findings, each with its evidence and remedy. */
export function findings(all, none) {
  if (all.length === 0) return empty(none);
  return h(
    "ul",
    { class: "findings" },
    all.map(({ finding, owner }) =>
      h(
        "li",
        null,
        h("p", null, severity(finding.severity), " ", h("strong", null, finding.reason || finding.id), owner && [" ", owner]),
        h("p", null, finding.message),
        h(
          "p",
          { class: "sub" },
          `${finding.id}: ${finding.subject?.kind ?? ""} ${finding.subject?.name ?? ""}`,
          finding.since && [", since ", ago(finding.since) ?? finding.since],
        ),
        finding.remedy && h("p", null, "What to do: ", finding.remedy),
        Object.keys(finding.evidence ?? {}).length > 0 &&
          h(
            "details",
            null,
            h("summary", null, "Evidence"),
            pairs(Object.entries(finding.evidence).map(([name, value]) => [name, shown(value)])),
          ),
      ),
    ),
  );
}
