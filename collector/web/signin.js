// The form for a bearer token, and the explanation of a refused request.
import { h } from "./dom.js";
import { hasToken, setToken } from "./api.js";

/** What a refusal means, in plain words. */
export function explain(refused) {
  if (refused.status === 401) {
    return hasToken() ? "The token is not accepted." : "This collector needs to know who you are.";
  }
  if (refused.status === 403) return "You are signed in, but you may not see this.";
  if (refused.status === 429) return "Too many requests were sent. The page tries again by itself.";
  if (refused.status) return `The collector answers ${refused.status}.`;
  return "The collector cannot be reached. The page tries again by itself.";
}

/** A notice about a refused request. */
export function notice(refused) {
  return h(
    "div",
    { class: "notice", role: "alert" },
    h("p", null, h("strong", null, explain(refused))),
    refused.message && h("p", null, refused.message),
    refused.remedy && h("p", null, "What to do: ", refused.remedy),
  );
}

/** The view of a caller that is not signed in. */
export function signin(refused, signedIn) {
  const field = h("input", {
    id: "token",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "token-help",
  });
  const form = h(
    "form",
    {
      class: "signin",
      onsubmit: (event) => {
        event.preventDefault();
        setToken(field.value.trim().replace(/^bearer\s+/i, ""));
        field.value = "";
        signedIn();
      },
    },
    h("label", { for: "token" }, "Bearer token"),
    field,
    h(
      "p",
      { id: "token-help", class: "hint" },
      "A token of the collector's file server.access.tokens, or of the infra cluster: ",
      h("code", null, "kubectl create token NAME --audience virtfleet-collector"),
      ". It stays in this browser tab and is forgotten when the tab closes.",
    ),
    h("button", { type: "submit", class: "primary" }, "Sign in"),
  );
  return [h("h1", { tabindex: "-1" }, "Sign in"), notice(refused), form];
}
