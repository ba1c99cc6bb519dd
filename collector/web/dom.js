// Elements from texts. Texts of guests are hostile: they become text nodes and attribute values,
// never markup.

/** An element. `props`: `class`, `on…` listeners, attributes; null, undefined and false are left out. */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  set(element, props);
  element.append(...nodes(children));
  return element;
}

/** An element of a picture. */
export function svg(tag, props, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(element, props);
  element.append(...nodes(children));
  return element;
}

/** Sets attributes and listeners. */
export function set(element, props) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name.startsWith("on") && typeof value === "function") {
      element.addEventListener(name.slice(2), value);
    } else if (value === null || value === undefined || value === false) {
      element.removeAttribute(name);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
}

function* nodes(children) {
  for (const child of children) {
    if (Array.isArray(child)) yield* nodes(child);
    else if (child !== null && child !== undefined && child !== false) {
      yield child instanceof Node ? child : String(child);
    }
  }
}

/** Sets the text of an element, if it differs: an unchanged live region stays silent. */
export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

/** A link to a view. */
export function link(href, ...children) {
  return h("a", { href }, ...children);
}

/** A definition list of pairs [name, content]; content null leaves the pair out. */
export function pairs(list) {
  const shown = list.filter((pair) => pair && pair[1] !== null && pair[1] !== undefined);
  return h("dl", { class: "pairs" }, shown.map(([name, content]) => [h("dt", null, name), h("dd", null, content)]));
}

/** A small table: `head` has names of columns, `rows` lists of contents. */
export function grid(label, head, rows) {
  return h(
    "div",
    { class: "scroll", role: "group", "aria-label": label, tabindex: "0" },
    h(
      "table",
      { class: "grid" },
      h("thead", null, h("tr", null, head.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", null, rows.map((row) => h("tr", null, row.map((cell) => h("td", null, cell))))),
    ),
  );
}

/** A section with a heading. */
export function section(title, ...children) {
  const id = `s-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return h("section", { "aria-labelledby": id }, h("h2", { id }, title), ...children);
}

/** Why something is not there. */
export function empty(why) {
  return h("p", { class: "empty" }, why);
}

/** A command with a button that copies it. */
export function command(line) {
  if (!line) return null;
  const code = h("code", null, line);
  const button = h("button", { type: "button", class: "copy", "aria-label": `Copy: ${line}` }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(line);
      text(button, "Copied");
    } catch {
      getSelection().selectAllChildren(code);
      text(button, "Selected");
    }
    setTimeout(() => text(button, "Copy"), 1500);
  });
  return h("span", { class: "command" }, code, button);
}

/** Replaces the content of `parent`, and keeps the focus on the element with the same key. */
export function replace(parent, ...children) {
  const key = parent.contains(document.activeElement) ? focusKey(document.activeElement) : null;
  parent.replaceChildren(...nodes(children));
  if (key) {
    for (const element of parent.querySelectorAll("a[href], button, input, select, [tabindex]")) {
      if (focusKey(element) === key) {
        element.focus({ preventScroll: true });
        break;
      }
    }
  }
}

function focusKey(element) {
  return [element.tagName, element.id, element.getAttribute("href"), element.getAttribute("aria-label")].join("|");
}
