// A browser for tests of the web page. All input comes in environment variables:
//   VIRTFLEET_MODULES   the folder that tests/parts/web.sh prints
//   VIRTFLEET_CHROMIUM  the browser
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const required = (name) => {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
};
const modules = createRequire(`${required("VIRTFLEET_MODULES")}/`);
const { chromium } = modules("playwright-core");
const AXE = readFileSync(modules.resolve("axe-core/axe.min.js"), "utf8");

/** Deadline of a state of the page, also on a busy machine. */
const WAIT_MS = 60000;

export const DESKTOP = { width: 1280, height: 800 };
export const PHONE = { width: 390, height: 844 };

export function launch() {
  return chromium.launch({
    executablePath: required("VIRTFLEET_CHROMIUM"),
    timeout: 2 * WAIT_MS,
    // Tests run as root in containers, where Chromium has no sandbox; it opens only our page.
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run", "--disable-background-networking"],
  });
}

/** A page that records errors, violations of the content security policy, and other hosts. */
export async function open(browser, base, options = {}) {
  const context = await browser.newContext({ viewport: DESKTOP, ...options });
  context.setDefaultTimeout(WAIT_MS);
  const page = await context.newPage();
  const problems = [];
  page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
  page.on("console", (message) => {
    const text = message.text();
    const isExpected = /status of (401|403|404|503)/.test(text);
    if (["error", "warning"].includes(message.type()) && !isExpected) problems.push(`console: ${text}`);
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(base) && !request.url().startsWith("data:")) problems.push(`host: ${request.url()}`);
  });
  await page.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`);
    });
  });
  return { context, page, problems };
}

/** Rules of axe that depend on colours. */
export const COLOURS = { type: "tag", values: ["cat.color"] };

/** Findings of axe on the page that is shown; `runOnly`: of these rules only. */
export async function axe(page, runOnly) {
  // The script stays until another document is loaded.
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(AXE);
  const options = { resultTypes: ["violations"], ...(runOnly ? { runOnly } : {}) };
  const { violations } = await page.evaluate((all) => globalThis.axe.run(document, all), options);
  return violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).slice(0, 3).join(" | ")}`);
}

/** Calls `read` until `holds` accepts its value, which it returns. Fails with `what` and the last value. */
export async function until(what, read, holds) {
  const end = Date.now() + WAIT_MS;
  for (;;) {
    const seen = await read();
    if (holds(seen)) return seen;
    if (Date.now() >= end) throw new Error(`waited ${WAIT_MS} ms: ${what}; seen: ${JSON.stringify(seen)}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export function ensure(condition, message) {
  if (!condition) throw new Error(message);
}

/** Runs steps one after the other, each with its time; fails with the name of the step. */
export async function steps(all) {
  for (const [name, run] of all) {
    const begun = Date.now();
    try {
      await run();
    } catch (error) {
      throw new Error(`${name}: ${error.message}`, { cause: error });
    }
    console.log(`ok ${name} (${Date.now() - begun} ms)`);
  }
}
