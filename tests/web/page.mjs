// The web page in a real browser, against a real collector. Environment variables, beside those of
// harness.mjs:
//   VIRTFLEET_BASE      the collector's address, e.g. http://127.0.0.1:1
//   VIRTFLEET_SECURED   a collector that requires a token, or empty
//   VIRTFLEET_FLEET     JSON: { moved: {namespace, name, file, from, to}, paused, stopped, host, count }
//   VIRTFLEET_PICTURES  a folder for screenshots, or empty
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { COLOURS, DESKTOP, PHONE, axe, ensure, launch, open, steps, until } from "./harness.mjs";
import { SERVICE_PATH, startProxy } from "./proxy.mjs";

const base = process.env.VIRTFLEET_BASE;
const secured = JSON.parse(process.env.VIRTFLEET_SECURED || "null");
const fleet = JSON.parse(process.env.VIRTFLEET_FLEET);
const pictures = process.env.VIRTFLEET_PICTURES;
const HOSTILE = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>`;

const browser = await launch();
const { page, problems } = await open(browser, base);
const row = (key) => page.locator(`tr[data-key="${key}"]`);
const paused = `${fleet.paused.namespace}/${fleet.paused.name}`;
const moved = `${fleet.moved.namespace}/${fleet.moved.name}`;
const main = (at) => at.locator("main").innerText();
/** Waits until the URL has all these parts. */
const urlHas = (at, ...parts) => until(`the URL has ${parts}`, () => at.url(), (url) => parts.every((part) => url.includes(part)));
/** Waits until the page shows all these texts; returns everything that it shows. */
const shows = (at, ...parts) =>
  until(`the page shows ${parts}`, () => main(at), (text) => parts.every((part) => text.includes(part)));
/** Waits until `read`, called in the page, returns what `holds` accepts. */
const inPage = (at, what, read, holds) => until(what, () => at.evaluate(read), holds);
const isFocused = (at, what, id) => inPage(at, what, () => document.activeElement.id, (focused) => focused === id);
/** Waits until the map shows each VM: it is drawn again up to 0.8 s after a change. */
const wholeMap = (at) =>
  until(`${fleet.count} squares`, () => at.locator(".square").count(), (squares) => squares === fleet.count);
const VIEWS = [
  ["fleet", "#/"],
  ["vms", "#/vms"],
  ["vm", `#/vm/${paused}`],
  ["vm-stopped", `#/vm/${fleet.stopped.namespace}/${fleet.stopped.name}`],
  ["hosts", "#/hosts"],
  ["host", `#/host/${fleet.host}`],
  ["clusters", "#/clusters"],
  ["cluster", `#/cluster/${fleet.paused.namespace}`],
  ["findings", "#/findings"],
  ["mla", "#/mla"],
];

async function show(at, hash) {
  await at.evaluate((to) => {
    const path = () => location.hash.split("?")[0];
    const [pathBefore, headingBefore] = [path(), document.querySelector("main h1")];
    location.hash = to;
    // With the same path, the view stays and only its filters change.
    window.headingBefore = pathBefore === path() ? null : headingBefore;
  }, hash);
  const shown = () => {
    const view = document.querySelector("main");
    const heading = view.querySelector("h1");
    const isNew = heading !== null && heading !== window.headingBefore;
    return isNew && !view.textContent.includes("Reading the") ? "" : view.textContent;
  };
  await inPage(at, `${hash} is shown`, shown, (text) => text === "");
  if (hash.startsWith("#/vm/")) await at.locator("section.verdict").waitFor();
}

await steps([
  ["the page is live", async () => {
    await page.goto(`${base}/`);
    await page.locator('#live[data-mode="live"]').waitFor();
    await wholeMap(page);
    await until("the title", () => page.title(), (title) => title === "Fleet · virtfleet");
  }],
  ["a verdict has a word and a sign, not only a colour", async () => {
    const square = page.locator(`.square[href="#/vm/${paused}"]`);
    await until("the verdict in words", () => square.getAttribute("aria-label"), (label) => label.includes("Critical (storage), PausedIOError"));
    await until("the sign of Critical", () => square.textContent(), (sign) => sign === "✕");
  }],
  ["search and filters are in the URL, and a copied URL shows the same", async () => {
    await show(page, "#/vms");
    await page.keyboard.press("/");
    await page.keyboard.type(fleet.paused.name);
    await page.locator(".result", { hasText: " of " }).waitFor();
    await page.locator("#f-cluster").selectOption(fleet.paused.namespace);
    await page.locator("#f-health").selectOption("critical");
    const url = await urlHas(page, `q=${fleet.paused.name}`, `cluster=${fleet.paused.namespace}`, "health=critical");
    const rows = (at) => at.locator("tbody tr[data-key]").count();
    await until("one VM is left", () => rows(page), (count) => count === 1);
    const other = await open(browser, base);
    await other.page.goto(url);
    await other.page.locator(`tr[data-key="${paused}"]`).waitFor();
    await other.page.locator('#live[data-mode="live"]').waitFor();
    await until("the copied URL shows one VM", () => rows(other.page), (count) => count === 1);
    await until("the search field", () => other.page.locator("#q").inputValue(), (value) => value === fleet.paused.name);
    await other.context.close();
  }],
  ["back takes a filter away, and forward sets it again", async () => {
    const health = () => page.locator("#f-health").inputValue();
    await page.goBack();
    await until("the filter is gone", () => page.url(), (url) => !url.includes("health="));
    await until("the select follows the URL", health, (value) => value === "");
    await page.goForward();
    await urlHas(page, "health=critical");
    await until("the select follows the URL again", health, (value) => value === "critical");
    await page.getByRole("button", { name: "Clear filters" }).click();
    await page.locator(".result", { hasText: new RegExp(`^${fleet.count} VMs$`) }).waitFor();
  }],
  ["sorting is in the URL and announced", async () => {
    await show(page, "#/vms");
    const first = () => page.locator("tbody tr[data-key]").first().getAttribute("data-key");
    const critical = () => page.locator("tbody tr[data-key] .critical").count();
    await until("the worst come first", async () => [await first(), await critical()], ([key, count]) => key === paused || count > 0);
    await page.getByRole("button", { name: "VM", exact: true }).click();
    await urlHas(page, "sort=name");
    await until("aria-sort", () => page.locator("th.c-name").getAttribute("aria-sort"), (sort) => sort === "ascending");
    const up = await first();
    await page.getByRole("button", { name: "VM", exact: true }).click();
    await urlHas(page, "sort=-name");
    await until(`descending, not ${up} first`, first, (key) => key > up);
  }],
  ["a change is on the screen within a second after it is known", async () => {
    await show(page, `#/vms?q=${encodeURIComponent(moved)}`);
    const text = readFileSync(fleet.moved.file, "utf8");
    const shown = page
      .waitForFunction(
        ([key, host]) => document.querySelector(`tr[data-key="${key}"]`)?.textContent.includes(host) && Date.now(),
        [moved, fleet.moved.to],
        { polling: 10 },
      )
      .then((handle) => handle.jsonValue());
    writeFileSync(`${fleet.moved.file}.new`, text.replaceAll(fleet.moved.from, fleet.moved.to));
    renameSync(`${fleet.moved.file}.new`, fleet.moved.file);
    const host = async () => (await (await fetch(`${base}/api/v1/vms/${moved}`)).json()).infraNode;
    const isKnown = until("the collector knows the new host", host, (name) => name === fleet.moved.to).then(() => Date.now());
    const [seen, known] = await Promise.all([shown, isKnown]);
    const delay = seen - known;
    console.log(`figure on-screen-ms ${delay}`);
    ensure(delay <= 1000, `${delay} ms`);
  }],
  ["one VM: verdict, cause, evidence, next command, and why fields are empty", async () => {
    await show(page, `#/vm/${paused}`);
    const text = await shows(page, "Critical (storage)", "PausedIOError", "Next command", "AgentReporting", "Specification against guest", "Live migrations", "Timeline", "Labels of the Node");
    await show(page, `#/vm/${fleet.stopped.namespace}/${fleet.stopped.name}`);
    const stopped = await shows(page, "The VM is stopped: its guest does not run.", "none: the VM is stopped");
    ensure(!/\b(null|undefined|NaN|\[object)/.test(stopped + text), "a raw value is on the page");
  }],
  ["one VM: its last hour as lines that are read aloud, and its queues", lastHour],
  ["one VM: longer histories from Prometheus, chosen in the URL", longerHistory],
  ["what is sent: streams, pages of all VMs, filters in the URL", mla],
  ["the timeline of a VM has its move", async () => {
    await show(page, `#/vm/${moved}`);
    const story = () => page.locator('section[aria-labelledby="s-timeline"]').innerText();
    await until(`a move to ${fleet.moved.to}`, story, (text) => text.includes("placement") && text.includes(fleet.moved.to));
  }],
  ["a hostile text of the inventory stays a text", async () => {
    await show(page, `#/vm/${paused}`);
    await shows(page, "<img src=x onerror=");
    ensure((await page.evaluate(() => window.hacked)) === undefined, "a script ran");
    ensure((await page.locator("main img, main script").count()) === 0, "an element was made");
  }],
  ["keyboard alone: search, walk, open, back", async () => {
    await show(page, "#/vms?sort=name");
    await page.keyboard.press("/");
    await isFocused(page, "the search has the focus", "q");
    const focusedRow = (what, index) =>
      inPage(page, what, () => document.activeElement.closest("tr")?.getAttribute("aria-rowindex"), (at) => at === String(index));
    for (let step = 0; step < 4; step += 1) {
      await page.keyboard.press("ArrowDown");
      await focusedRow("one row further", step + 2);
    }
    const key = await page.evaluate(() => document.activeElement.closest("tr")?.dataset.key);
    await until("the fourth row", () => row(key).getAttribute("aria-rowindex"), (index) => index === "5");
    await page.keyboard.press("End");
    await focusedRow("the last row", fleet.count + 1);
    await page.keyboard.press("Home");
    await focusedRow("the first row", 2);
    await page.keyboard.press("Enter");
    await page.locator("section.verdict").waitFor();
    await inPage(page, "the focus is on the new heading", () => document.activeElement.tagName, (tag) => tag === "H1");
    await page.goBack();
    await until("the list of VMs", () => page.locator("h1").textContent(), (heading) => heading === "VMs");
    await show(page, "#/");
    await page.reload();
    await page.locator('#live[data-mode="live"]').waitFor();
    await wholeMap(page);
    await page.keyboard.press("Tab");
    await isFocused(page, "the first stop skips to the content", "skip");
    await page.keyboard.press("Enter");
    await isFocused(page, "the content has the focus", "main");
    const focused = () => [document.activeElement.href, document.activeElement.className];
    let before = [];
    for (let stop = 0; stop < 12 && !before[1]?.includes("square"); stop += 1) {
      await page.keyboard.press("Tab");
      before = await page.evaluate(focused);
    }
    ensure(before[1].includes("square"), `no VM of the map has the focus after 12 stops: ${before}`);
    await page.keyboard.press("ArrowRight");
    const isNext = ([href, classes]) => classes.includes("square") && href !== before[0];
    await inPage(page, "arrows move between the VMs of a host", focused, isNext);
  }],
  ["every view, hostile in every field, makes no element and runs nothing", hostile],
  ["nothing broke the content security policy, and no other host was asked", async () => {
    ensure(problems.length === 0, problems.join("\n"));
  }],
  ["axe finds nothing, in light and dark, on a desktop and a phone, and nothing scrolls sideways", everyView],
  ["a token is asked for, explained and forgotten", signIn],
  ["below a path, as behind kubectl proxy, it is live and asks nothing outside of the path", () => belowPath(false)],
  ["behind a proxy that holds the stream back, it reads from time to time", () => belowPath(true)],
]);
await browser.close();

/** Every text in every answer is hostile. */
async function hostile() {
  const other = await open(browser, base);
  const poison = (value) => {
    if (typeof value === "string") return `${value}${HOSTILE}`;
    if (Array.isArray(value)) return value.map(poison);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, poison(one)]));
    }
    return value;
  };
  await other.page.route("**/api/v1/**", async (route) => {
    if (route.request().url().endsWith("/watch")) return route.continue();
    const response = await route.fetch({ url: route.request().url().replace(encodeURIComponent(HOSTILE), "") });
    const json = await response.json();
    const { continue: next, ...rest } = json;
    return route.fulfill({ response, json: { ...poison(rest), ...(next ? { continue: next } : {}) } });
  });
  await other.page.goto(`${base}/`);
  await other.page.locator('#live[data-mode="live"]').waitFor();
  for (const [name, hash] of VIEWS) {
    const to = /#\/(host|cluster)\//.test(hash) ? hash + encodeURIComponent(HOSTILE) : hash;
    await show(other.page, to);
    await until(`${name} shows the hostile text`, () => main(other.page), (text) => text.includes("onerror="));
    const made = await other.page.locator("main img, main script, main iframe").count();
    ensure(made === 0, `${name}: ${made} elements were made of texts`);
    ensure((await other.page.evaluate(() => window.hacked)) === undefined, `${name}: a script ran`);
  }
  ensure(other.problems.length === 0, other.problems.join("\n"));
  // The page reads lists again every few seconds.
  await other.page.unrouteAll({ behavior: "ignoreErrors" });
  await other.context.close();
}

/** The view of MLA. The collector of the test sends nothing, so its streams are made up. */
async function mla() {
  const other = await open(browser, base);
  const at = other.page;
  await at.goto(`${base}/#/mla`);
  await at.getByText("No streams: MLA is not configured").waitFor();
  const result = at.locator(".result", { hasText: new RegExp(`^${fleet.count} VMs$`) });
  await result.waitFor();
  await at.keyboard.press("/");
  await at.keyboard.type(fleet.paused.name);
  await at.locator("#f-cluster").selectOption(fleet.paused.namespace);
  await at.locator(`tr[data-key="${paused}"]`).waitFor();
  await urlHas(at, `cluster=${fleet.paused.namespace}`, `q=${fleet.paused.name}`);
  const queue = (stream, state, more) => ({
    stream, state, endpoint: "gw.example:443", bytes: 3 << 20, limitBytes: 4 << 20, oldestMs: Date.now() - 600000,
    records: 4, samples: 9000, rateSamplesPerS: 12.4, rateBytesPerS: 99, sentSamples: 70000, sentBytes: 1, protocol: "2.0",
    compression: "zstd", dropped: { queueFull: 5, tooOld: 0 }, refused: { badRequest: 0 }, ...more,
  });
  const lastError = { atMs: Date.now() - 3000, message: `refused the connection ${HOSTILE}`, status: null };
  await at.route("**/api/v1/queues**", (route) => route.fulfill({
    json: { items: [queue("fleet", "live", { lastSuccessMs: Date.now() }), queue("cluster/blue", "retrying", { lastError })], revision: 1, partial: false },
  }));
  await at.reload();
  const streams = at.locator('section[aria-labelledby="s-streams"]');
  await streams.getByText("retrying").waitFor();
  const rows = await until("two streams", () => streams.locator("tbody tr").allInnerTexts(), (all) => all.length === 2);
  ensure(rows[0].includes("blue") && rows[0].includes("refused the connection <img"), rows.join("|"));
  ensure(rows[0].includes("3.0 MiB of 4.0 MiB, oldest 10 min") && rows[0].includes("queueFull 5"), rows[0]);
  ensure(rows[1].includes("all VMs") && rows[1].includes("12/s") && rows[1].includes("none"), rows[1]);
  const found = await axe(at);
  ensure(found.length === 0, found.join("\n"));
  ensure(other.problems.length === 0, other.problems.join("\n"));
  await at.unrouteAll({ behavior: "ignoreErrors" });
  await other.context.close();
}

/** Dark mode changes colours and nothing else: rules of axe about anything else run once. */
async function darkIsColoursOnly(at) {
  const dark = await at.evaluate(() => {
    const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]);
    const inDark = rules.filter((rule) => rule.media?.mediaText.includes("prefers-color-scheme"));
    const styles = inDark.flatMap((rule) => [...rule.cssRules]).map((rule) => rule.style);
    return styles.flatMap((style) => [...style].map((name) => [name, style.getPropertyValue(name).trim()]));
  });
  ensure(dark.length > 5, `dark mode sets ${dark.length} colours`);
  const others = dark.filter(([name, value]) => !name.startsWith("--") || !/^#[0-9a-f]{6}$/.test(value));
  ensure(others.length === 0, `dark mode changes more than colours: ${others.join(" | ")}`);
}

async function everyView() {
  const all = [];
  for (const [size, viewport] of [["desktop", DESKTOP], ["phone", PHONE]]) {
    // axe is a script of the test, which the page's policy would refuse.
    const other = await open(browser, base, {
      viewport,
      bypassCSP: true,
      reducedMotion: "reduce",
      hasTouch: size === "phone",
      isMobile: size === "phone",
    });
    await other.page.goto(`${base}/`);
    await other.page.locator('#live[data-mode="live"]').waitFor();
    await wholeMap(other.page);
    await darkIsColoursOnly(other.page);
    for (const [name, hash] of VIEWS) {
      await other.page.emulateMedia({ colorScheme: "light" });
      await show(other.page, hash);
      for (const [colorScheme, rules] of [["light", undefined], ["dark", COLOURS]]) {
        await other.page.emulateMedia({ colorScheme });
        const found = await axe(other.page, rules);
        all.push(...found.map((one) => `${name}, ${size}, ${colorScheme}: ${one}`));
        const wide = await other.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (wide > 0) all.push(`${name}, ${size}: ${wide} pixels too wide`);
        if (pictures) await other.page.screenshot({ path: `${pictures}/${name}-${size}-${colorScheme}.png` });
      }
    }
    all.push(...other.problems);
    await other.context.close();
  }
  ensure(all.length === 0, all.join("\n"));
}

async function signIn() {
  const other = await open(browser, secured.base, { ignoreHTTPSErrors: true, bypassCSP: true });
  const at = other.page;
  await at.goto(`${secured.base}/`);
  await at.locator("#token").waitFor();
  await until("401 is explained", () => at.locator(".notice").innerText(), (text) => text.includes("needs to know who you are"));
  const found = await axe(at);
  ensure(found.length === 0, found.join("\n"));
  if (pictures) await at.screenshot({ path: `${pictures}/signin-desktop-light.png` });
  const enter = async (token) => {
    await at.locator("#token").fill(token);
    await at.keyboard.press("Enter");
  };
  await enter("wrong-token");
  await at.getByText("The token is not accepted.").waitFor();
  // RBAC refuses a caller without any right; this collector has no API server to ask.
  const error = { code: "forbidden", message: '"reader" cannot list VMs', remedy: "bind the ClusterRole" };
  await at.route("**/api/v1/**", (route) => route.fulfill({ status: 403, json: { error } }));
  await enter(secured.tenant);
  await at.getByText("You are signed in, but you may not see this.").waitFor();
  await at.getByText("What to do: bind the ClusterRole").waitFor();
  await at.unroute("**/api/v1/**");
  await enter(secured.tenant);
  await at.locator('#live[data-mode="live"]').waitFor();
  await at.locator(".square").first().waitFor();
  const seen = await at.locator(".square").evaluateAll((all) => all.map((one) => one.getAttribute("href")));
  ensure(seen.length > 0 && seen.every((href) => href.startsWith(`#/vm/${secured.namespace}/`)), `a tenant sees ${seen}`);
  await at.reload();
  await at.locator('#live[data-mode="live"]').waitFor();
  const kept = await at.evaluate(() => [document.cookie, localStorage.length]);
  ensure(kept[0] === "" && kept[1] === 0, "the token is in the session only");
  await at.getByRole("button", { name: "Sign out" }).click();
  await at.locator("#token").waitFor();
  ensure((await at.evaluate(() => sessionStorage.length)) === 0, "the token is forgotten");
  ensure(!(await at.locator("body").innerText()).includes(secured.namespace), "the fleet is forgotten");
  ensure(other.problems.length === 0, other.problems.join("\n"));
  await other.context.close();
}

/** The page of the secured collector behind a proxy; `holds`: the proxy waits for the end of each answer. */
async function belowPath(holds) {
  const proxy = await startProxy(secured.base, { holds });
  const at = `${proxy.origin}${SERVICE_PATH}`;
  // A request outside of the path is one of the problems.
  const other = await open(browser, at);
  await other.page.goto(`${at}#/vms`);
  await other.page.locator("#token").fill(secured.tenant);
  await other.page.keyboard.press("Enter");
  const mode = holds ? "polling" : "live";
  await other.page.locator(`#live[data-mode="${mode}"]`).waitFor();
  await other.page.locator(`tr[data-key="${moved}"]`).waitFor();
  const rows = await other.page.locator("tbody tr[data-key]").evaluateAll((all) => all.map((one) => one.dataset.key));
  ensure(rows.length > 0 && rows.every((key) => key.startsWith(`${secured.namespace}/`)), `a tenant sees ${rows}`);
  if (holds) {
    await until("polling is explained", () => other.page.locator("#live").innerText(), (text) => text.includes("no live stream"));
  }
  const known = await (await fetch(`${base}/api/v1/vms/${moved}`)).json();
  const [from, to] = known.infraNode === fleet.moved.to ? [fleet.moved.to, fleet.moved.from] : [fleet.moved.from, fleet.moved.to];
  await show(other.page, `#/vm/${moved}`);
  await other.page.locator("main", { hasText: from }).waitFor();
  const text = readFileSync(fleet.moved.file, "utf8");
  writeFileSync(`${fleet.moved.file}.new`, text.replaceAll(from, to));
  renameSync(`${fleet.moved.file}.new`, fleet.moved.file);
  await other.page.locator('section[aria-labelledby="s-placement"]', { hasText: to }).waitFor();
  ensure((await other.page.evaluate(() => sessionStorage.length + localStorage.length)) === 0, "the token is in memory only");
  ensure(proxy.denied() === 0, "the token was sent in a header that an API server's proxy takes");
  ensure(proxy.requests() > 5, "the requests went through the proxy");
  ensure(other.problems.length === 0, other.problems.join("\n"));
  await other.context.close();
  await proxy.stop();
}

/** The past that the test wrote into a real Prometheus: a tenth of steal, and half of it for an hour. */
async function longerHistory() {
  const other = await open(browser, base);
  const at = other.page;
  await at.goto(`${base}/#/vm/${moved}`);
  await at.getByRole("link", { name: "Last 24 hours" }).click();
  const day = at.locator('section[aria-labelledby="s-cpu-and-pressure-over-the-last-hours"]');
  const line = day.getByRole("img", { name: /^CPU steal: (9\.9|10|10\.1) % now, at most (49\.9|50|50\.1) %$/ });
  await line.waitFor();
  const whole = await until("the way to the agent", () => main(at), (text) => /\bWay\s+direct\b/.test(text));
  ensure(!/\b(null|undefined|NaN)\b|\[object/.test(whole), whole);
  await until("the range in the URL", () => at.url(), (url) => url.endsWith("?range=24h"));
  await until("the source", () => day.innerText(), (text) => text.includes("within 12 minutes, a rate over five minutes, from Prometheus"));
  const link = at.getByRole("link", { name: "Last 24 hours" });
  await until("the range is marked", () => link.getAttribute("aria-current"), (current) => current === "true");
  const found = await axe(at);
  ensure(found.length === 0, found.join("\n"));
  if (pictures) await at.screenshot({ path: `${pictures}/vm-day-desktop-light.png`, fullPage: true });
  // The address is enough, and the keyboard; back goes to the hour.
  await at.reload();
  await line.waitFor();
  await at.getByRole("link", { name: "Last 7 days" }).focus();
  await at.keyboard.press("Enter");
  await at.locator('section[aria-labelledby="s-cpu-and-pressure-over-the-last-days"] svg').first().waitFor();
  await at.goBack();
  await line.waitFor();
  await at.goBack();
  await at.locator('section[aria-labelledby="s-cpu-and-pressure-over-the-last-hour"]').waitFor();
  ensure(other.problems.length === 0, other.problems.join("\n"));
  await other.context.close();
}

/** Steal, pressure and queues. The guests of the test have none, so they are made up. */
async function lastHour() {
  const other = await open(browser, base);
  const at = other.page;
  await at.goto(`${base}/#/vm/${fleet.stopped.namespace}/${fleet.stopped.name}`);
  await at.locator('section[aria-labelledby="s-cpu-and-pressure-over-the-last-hour"] .empty').waitFor();
  const unknown = Array(60).fill(null);
  const steal = [...unknown.slice(0, 20), ...Array(20).fill(0.1), null, ...Array(18).fill(0.05), 0.424];
  const made = {
    usageHistory: { endMs: Date.now(), stepMs: 60000, cpuSteal: steal, cpuUsed: unknown, cpuPressure: unknown, memoryPressure: unknown, ioPressure: unknown.with(59, 0) },
    queues: [
      { nic: `eth0${HOSTILE}`, queue: 0, direction: "receive", packetsPerS: 120, bytesPerS: 3 << 20 },
      { nic: `eth0${HOSTILE}`, queue: 0, direction: "transmit", packetsPerS: 0, bytesPerS: 0 },
      { nic: "eth0", queue: 1, direction: "receive", packetsPerS: 7, bytesPerS: 2048 },
    ],
  };
  await at.route(`**/api/v1/vms/${moved}`, async (route) => {
    const response = await route.fetch();
    return route.fulfill({ response, json: { ...(await response.json()), ...made } });
  });
  await show(at, `#/vm/${moved}`);
  const hour = at.locator('section[aria-labelledby="s-cpu-and-pressure-over-the-last-hour"]');
  await hour.getByRole("img", { name: "CPU steal: 42.4 % now, at most 42.4 %" }).waitFor();
  const count = (what) => hour.locator(what).count();
  await until("what is not known has no line", () => count("tbody tr"), (lines) => lines === 2);
  await until("a gap is a gap", () => count("tbody tr:first-child polyline"), (parts) => parts === 2);
  // The page draws it again every few seconds; an element that was just replaced has no box.
  const drawn = await until("the line has a size", () => hour.locator("svg").first().boundingBox(), (box) => box !== null);
  ensure(drawn.width > 200 && drawn.height > 30, `${drawn.width} x ${drawn.height}`);
  const lines = at.locator('section[aria-labelledby="s-traffic-of-the-queues"] tbody tr');
  const queues = await until("two queues", () => lines.allInnerTexts(), (all) => all.length === 2);
  ensure(queues[0].includes("3.0 MiB/s, 120 packets/s") && queues[1].includes("2.0 KiB/s"), queues.join("|"));
  if (pictures) await at.screenshot({ path: `${pictures}/vm-hour-desktop-light.png`, fullPage: true });
  const found = await axe(at);
  ensure(found.length === 0, found.join("\n"));
  ensure((await at.locator("main img").count()) === 0 && (await at.evaluate(() => window.hacked)) === undefined, "a text became an element");
  ensure(other.problems.length === 0, other.problems.join("\n"));
  // The page reads the VM again every few seconds.
  await at.unrouteAll({ behavior: "ignoreErrors" });
  await other.context.close();
}
